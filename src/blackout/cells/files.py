"""Cells to .h5ad, .zarr and .npz files, with the sampling job that they come from."""

import gc
import json
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from blackout.atomic import atomic, atomic_folder
from blackout.cells.anndata_files import open_root
from blackout.cells.isolated import isolated
from blackout.cells.names import optional
from blackout.cells.readers import OBS
from blackout.files import check_overwrite

STORES = (".h5ad", ".zarr")
"""Suffixes of files that are written block by block."""
_JOB = "blackout_job"  # in uns of AnnData, an array of .npz


def check_output(path: Path, job: dict[str, Any] | None = None, overwrite: bool = False) -> Path:
    """Raise ValueError, before the work, for a path of another format or a file that is not the output of this job."""
    if path.suffix.lower() not in (*STORES, ".npz"):
        raise ValueError(f"out must end in .h5ad or .zarr (AnnData) or .npz (scipy sparse matrix), got {path}")
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
        io = optional("anndata", "reading AnnData").io
        return isolated(lambda path: dict(json.loads(str(io.read_elem(open_root(path)["uns"][_JOB])))), path)
    except Exception:  # a damaged file raises almost any type
        return None


def write_blocks(
    path: Path, obs: Any, var: Any, blocks: Iterable[Mapping[str, Any]], job: dict[str, Any] | None = None
) -> Path:
    """Write AnnData to .h5ad or .zarr atomically, some cells at a time.

    Parameters
    ----------
    obs, var
        DataFrames of all cells and genes.
    blocks
        csr matrices of consecutive cells, by "X" or the name of a layer.
    """
    anndata = optional("anndata", "writing AnnData")
    path.parent.mkdir(parents=True, exist_ok=True)
    is_folder = path.suffix.lower() == ".zarr"
    with (atomic_folder if is_folder else atomic)(path) as partial, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the layout of zarr
        uns = {} if job is None else {_JOB: json.dumps(job)}
        empty = anndata.AnnData(obs=obs, var=var, uns=uns)
        if is_folder:
            root = optional("zarr", "writing .zarr").open_group(str(partial), mode="w", zarr_format=2)
            _append(anndata.io, root, empty, blocks)
        else:
            with _new_h5ad(partial) as root:
                _append(anndata.io, root, empty, blocks)
    return path


@contextmanager
def _new_h5ad(path: Path) -> Iterator[Any]:
    """An HDF5 file to write to. If that fails, the file raises it, and not every object in it once more as it goes."""
    hook, file = sys.unraisablehook, optional("h5py", "writing .h5ad").File(path, "w")
    sys.unraisablehook = lambda about: None if "h5py" in str(about.object) else hook(about)
    try:
        yield file
        file.close()
    except BaseException as error:
        with suppress(Exception):
            file.close()
        traceback.clear_frames(error.__traceback__)
        raise
    finally:
        gc.collect()
        sys.unraisablehook = hook


def _append(io: Any, root: Any, empty: Any, blocks: Iterable[Mapping[str, Any]]) -> None:
    io.write_elem(root, "/", empty)
    started: set[str] = set()
    for block in blocks:
        for name, matrix in block.items():
            place = name if name == "X" else f"layers/{name}"
            if place in started:
                io.sparse_dataset(root[place]).append(matrix)
            else:
                matrix = matrix.copy()
                matrix.indptr = matrix.indptr.astype(numpy.int64)  # there may be more entries than 32 bits count
                io.write_elem(root, place, matrix)
                started.add(place)


def write_npz(cells: Any, path: Path, job: dict[str, Any] | None = None) -> Path:
    """Write X of AnnData atomically as `scipy.sparse.save_npz` does, with the arrays `genes`, `cells`, `obs:NAME`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = _arrays(cells) | ({} if job is None else {_JOB: numpy.array(json.dumps(job))})
    # To a path, numpy would append .npz unless it ends so, in lower case.
    with atomic(path) as partial, partial.open("wb") as file:
        numpy.savez_compressed(file, allow_pickle=False, **arrays)
    return path


def _arrays(cells: Any) -> dict[str, Any]:
    x = cells.X.tocsr()
    arrays = {f"{OBS}{key}": _plain(cells.obs[key].to_numpy()) for key in cells.obs}
    return {
        "format": numpy.array(b"csr"), "shape": numpy.array(x.shape), "data": x.data, "indices": x.indices,
        "indptr": x.indptr, "genes": numpy.array(cells.var_names, str), "cells": numpy.array(cells.obs_names, str),
        **arrays,
    }  # fmt: skip


def _plain(column: NDArray[Any]) -> NDArray[Any]:
    return column.astype(str) if column.dtype.kind not in "biuf" else column
