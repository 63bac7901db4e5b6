"""File formats of single cells, each read into a Table: .npz, .npy, .csv, .tsv, and folders of 10x files."""

import re
import zlib
from pathlib import Path
from typing import Any

from blackout import validate
from blackout.cells.config import FORMATS
from blackout.cells.names import few, optional, texts
from blackout.cells.table import Table, frame_table
from blackout.cells.tenx import read_h5, read_market, read_samples
from blackout.data.arrays import load_arrays, load_sparse

OBS = "obs:"  # prefix of a covariate's name in an .npz file
_ROWS = 1000  # rows of a text table that are dense at a time
_ROW_NAMES = re.compile("|index|unnamed: 0|cells?|cell_id|barcodes?|genes?|name|id", re.IGNORECASE)
_INTEGER = re.compile(r"\d+(\.0*)?")


def read_file(path: Path) -> Table:
    """Read any file but .h5ad and .zarr, or a folder."""
    if path.is_dir():
        return _folder(path)
    kind = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    readers = {"h5": read_h5, "mtx": read_market, "npz": _npz, "npy": _npz, "csv": _text, "tsv": _text}
    if kind not in readers or (path.suffix.lower() == ".gz" and kind not in ("mtx", "csv", "tsv")):
        raise ValueError(f"expected {FORMATS}")
    return readers[kind](path)


def _folder(path: Path) -> Table:
    matrices = sorted([*path.glob("*.mtx"), *path.glob("*.mtx.gz")])
    if len(matrices) > 1:
        raise ValueError(f"expected one matrix, got {few([file.name for file in matrices])}; give the path of one")
    if matrices:
        return read_market(matrices[0])
    files = sorted(path.glob("*.h5"))
    if not files:
        raise ValueError("expected a folder with one .mtx file or with 10x .h5 files, got neither")
    return read_samples(files)


def _npz(path: Path) -> Table:
    matrix = load_sparse(path)
    arrays = load_arrays(path)
    if matrix is None:
        matrices = [key for key, value in arrays.items() if value.ndim == 2 and not key.startswith(OBS)]
        if "x" not in arrays and len(matrices) != 1:
            got = few(list(arrays)) or "none"
            raise ValueError(f"expected a file of scipy.sparse.save_npz, the key 'x', or a single matrix, got {got}")
        matrix = arrays["x" if "x" in arrays else matrices[0]]
    genes, cells = (texts(arrays[key]) if key in arrays else None for key in ("genes", "cells"))
    obs = {key.removeprefix(OBS): _column(value) for key, value in arrays.items() if key.startswith(OBS)}
    return Table(matrix, genes, cells, obs or None)


def _column(values: Any) -> Any:
    return list(texts(values)) if values.dtype.kind == "S" else values


def _text(path: Path) -> Table:
    pandas = optional("pandas", "reading .csv and .tsv")
    errors = pandas.errors
    options: dict[str, Any] = {"sep": "," if ".csv" in path.name.lower() else "\t", "header": None}
    try:
        # pandas would rename a gene that occurs twice, so the header is read as a row.
        header = texts(pandas.read_csv(path, nrows=1, dtype=str, keep_default_na=False, **options))
        # A converter and no index column of pandas, which would read the name NA as a missing value.
        options |= {"skiprows": 1, "converters": {0: str}, "chunksize": _ROWS, "low_memory": False}
        with pandas.read_csv(path, **options) as blocks:
            table = frame_table(_with_names(block, header) for block in blocks)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, errors.ParserError, errors.EmptyDataError) as error:
        raise ValueError(f"not a text table, or a damaged one: {validate.one_line(error)}") from None
    _check_row_names(header, table)
    return table


def _check_row_names(header: tuple[str, ...], table: Table) -> None:
    """Reject a table without row names, whose first gene would be read as names."""
    names, above = table.cells or (), header[0] if len(header) > len(table.genes or ()) else ""
    if _ROW_NAMES.fullmatch(above) or len(set(names)) == len(names):
        return
    if all(_INTEGER.fullmatch(name) for name in names):
        which = f"the first column, {above!r}, should name the rows, but holds integers that repeat"
        raise ValueError(f"{which}; write the names too, as DataFrame.to_csv does with index=True")


def _with_names(block: Any, header: tuple[str, ...]) -> Any:
    """A block with its row names as index. R writes no header above the row names, so that it may be one shorter."""
    block.index = block.pop(0)
    if len(header) - block.shape[1] not in (0, 1):
        raise ValueError(f"the header names {len(header)} columns, but the rows have {block.shape[1] + 1}")
    block.columns = header[len(header) - block.shape[1] :]
    return block
