"""Cells to files, and masks of cells from files."""

import zipfile
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from blackout import validate
from blackout.atomic import atomic
from blackout.cells.readers import OBS
from blackout.cells.table import optional
from blackout.data.arrays import load_arrays

ENDINGS = (".h5ad", ".npz")


def check_ending(path: Path) -> Path:
    """Before hours of work, not after."""
    if path.suffix not in ENDINGS:
        raise ValueError(f"--out must end in .h5ad (AnnData) or .npz (scipy's sparse matrix), got {path}")
    return path


def check_new(path: Path) -> Path:
    """A file that is there may be somebody's data, and is not written over."""
    if check_ending(path).exists():
        raise ValueError(f"--out: {path} is there already; choose another, or remove it")
    return path


def write_cells(cells: Any, path: str | Path) -> Path:
    """AnnData to a file, which is there whole or as it was.

    .h5ad holds all of it. .npz holds X as `scipy.sparse.save_npz` writes it, so that `load_npz` reads it, with the
    arrays `genes`, `cells` and `obs:NAME` beside it; `read_counts` reads both.
    """
    path = check_ending(Path(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic(path) as partial:
        if path.suffix == ".h5ad":
            cells.write_h5ad(partial)
        else:
            numpy.savez_compressed(partial, allow_pickle=False, **_arrays(cells))
    return path


def _arrays(cells: Any) -> dict[str, Any]:
    x = cells.X.tocsr()
    columns = {f"{OBS}{key}": _plain(cells.obs[key].to_numpy()) for key in cells.obs}
    return {
        "format": numpy.array(b"csr"), "shape": numpy.array(x.shape), "data": x.data, "indices": x.indices,
        "indptr": x.indptr, "genes": numpy.array(cells.var_names, str), "cells": numpy.array(cells.obs_names, str),
        **columns,
    }  # fmt: skip


def _plain(column: NDArray[Any]) -> NDArray[Any]:
    return column.astype(str) if column.dtype.kind not in "biuf" else column


def read_cell_mask(path: str | Path) -> Any:
    """Where counts are known, (cells, genes): .npy, .npz (an array, or scipy's sparse matrix), or a table in .csv.

    Booleans, or zeros and ones. The table has a column for each gene and a row for each cell, in any order, by name,
    and comes as a DataFrame.
    """
    path = Path(path)
    if not path.exists():
        raise ValueError(f"--mask: {path} does not exist")
    validate.choice("the ending of --mask", path.suffix, (".npy", ".npz", ".csv"))
    values = _table(path) if path.suffix == ".csv" else _matrix(path)
    array = numpy.asarray(values)
    if array.dtype.kind not in "biuf" or not bool(((array == 0) | (array == 1)).all()):
        raise ValueError(f"--mask: {path} must hold booleans, or zeros and ones: true where a count is known")
    return values.astype(bool)


def _matrix(path: Path) -> NDArray[Any]:
    from scipy import sparse

    if path.suffix == ".npz" and zipfile.is_zipfile(path):
        try:
            return numpy.asarray(sparse.load_npz(path).toarray())  # with allow_pickle=False
        except (KeyError, OSError, ValueError, TypeError):
            pass  # not one of scipy's
    arrays = load_arrays(path)
    if "x" not in arrays and len(arrays) != 1:
        raise ValueError(f"--mask: {path}: expected an array called x, got {', '.join(sorted(arrays)) or 'none'}")
    return arrays["x"] if "x" in arrays else next(iter(arrays.values()))


def _table(path: Path) -> Any:
    pandas = optional("pandas", "reading .csv")
    try:
        return pandas.read_csv(path, index_col=0, dtype={0: str})
    except (OSError, ValueError) as error:  # pandas' own are ValueErrors
        raise ValueError(f"--mask: {path} is not a table: {error}") from None
