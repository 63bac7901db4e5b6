"""Cells to .h5ad and .npz files, with the sampling job that they come from."""

import json
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from blackout.atomic import atomic
from blackout.cells.isolated import isolated
from blackout.cells.names import optional
from blackout.cells.readers import OBS
from blackout.files import check_overwrite

_JOB = "blackout_job"  # in uns of .h5ad, an array of .npz


def check_output(path: Path, job: dict[str, Any] | None = None, overwrite: bool = False) -> Path:
    """Raise ValueError, before the work, for a path of another format or a file that is not the output of this job."""
    if path.suffix.lower() not in (".h5ad", ".npz"):
        raise ValueError(f"out must end in .h5ad (AnnData) or .npz (scipy sparse matrix), got {path}")
    check_overwrite(path, lambda: job is not None and is_finished(path, job), overwrite, "already")
    return path


def is_finished(path: Path, job: dict[str, Any]) -> bool:
    """Whether a file is the output of this job; samples do not depend on the size of the shards."""
    there = read_job(path)
    return there is not None and {**there, "shard": 0} == {**job, "shard": 0}


def read_job(path: Path) -> dict[str, Any] | None:
    """The sampling job of a file; None if it has none, or cannot be read."""
    try:
        if path.suffix.lower() == ".npz":
            with path.open("rb") as file, numpy.load(file, allow_pickle=False) as arrays:
                return dict(json.loads(str(arrays[_JOB])))
        h5py = optional("h5py", "reading .h5ad")
        return isolated(lambda path: _read_h5ad_job(path, h5py), path)
    except Exception:  # a damaged file raises almost any type
        return None


def _read_h5ad_job(path: Path, h5py: Any) -> dict[str, Any]:
    with h5py.File(path, "r") as file:
        return dict(json.loads(file["uns"][_JOB].asstr()[()]))


def write_cells(cells: Any, path: str | Path, job: dict[str, Any] | None = None) -> Path:
    """Write AnnData to a file atomically.

    .h5ad holds all of it. .npz holds X as `scipy.sparse.save_npz` writes it, which `load_npz` reads, and the arrays
    `genes`, `cells` and `obs:NAME`; `read_counts` reads both.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if job is not None:
        cells.uns[_JOB] = json.dumps(job)
    with atomic(path) as partial:
        if path.suffix.lower() == ".h5ad":
            cells.write_h5ad(partial)
        else:
            with partial.open("wb") as file:  # to a path, numpy would append .npz unless it ends so, in lower case
                numpy.savez_compressed(file, allow_pickle=False, **_arrays(cells))
    return path


def _arrays(cells: Any) -> dict[str, Any]:
    x = cells.X.tocsr()
    arrays = {f"{OBS}{key}": _plain(cells.obs[key].to_numpy()) for key in cells.obs}
    if _JOB in cells.uns:
        arrays[_JOB] = numpy.array(cells.uns[_JOB])
    return {
        "format": numpy.array(b"csr"), "shape": numpy.array(x.shape), "data": x.data, "indices": x.indices,
        "indptr": x.indptr, "genes": numpy.array(cells.var_names, str), "cells": numpy.array(cells.obs_names, str),
        **arrays,
    }  # fmt: skip


def _plain(column: NDArray[Any]) -> NDArray[Any]:
    return column.astype(str) if column.dtype.kind not in "biuf" else column
