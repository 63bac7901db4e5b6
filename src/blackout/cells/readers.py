"""The file formats of single cells, each read into a Table; what is wrong with a file is one line."""

import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

from blackout import validate
from blackout.cells.table import Table, few, frame_table, optional, texts
from blackout.cells.tenx import read_h5, read_market, read_samples
from blackout.data.arrays import load_arrays

KINDS = ".h5ad, .h5, .mtx, .mtx.gz, .npz, .npy, .csv, .tsv, a 10x folder, or a folder of 10x .h5 files"
OBS = "obs:"  # before the name of a covariate in an .npz file
_ROWS = 1000  # of a table of text that are dense at a time
_ROW_NAMES = (
    "",
    "index",
    "unnamed: 0",
    "cell",
    "cells",
    "cell_id",
    "barcode",
    "barcodes",
    "gene",
    "genes",
    "name",
    "id",
)
_WHOLE = re.compile(r"\d+(\.0*)?")


def read(path: Path) -> Table:
    """Any file but .h5ad, or a folder."""
    if path.is_dir():
        return _folder(path)
    kind = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    readers = {"h5": read_h5, "mtx": read_market, "npz": _npz, "npy": _npz, "csv": _text, "tsv": _text}
    if kind not in readers or (path.suffix.lower() == ".gz" and kind not in ("mtx", "csv", "tsv")):
        raise ValueError(f"expected {KINDS}")
    return readers[kind](path)


def _folder(path: Path) -> Table:
    matrices = sorted([*path.glob("*.mtx"), *path.glob("*.mtx.gz")])
    if len(matrices) > 1:
        raise ValueError(f"expected one matrix, got {few([file.name for file in matrices])}; name the one to read")
    if matrices:
        return read_market(matrices[0])
    files = sorted(path.glob("*.h5"))
    if not files:
        raise ValueError("expected a folder with one .mtx file or with 10x .h5 files, got neither")
    return read_samples(files)


def _npz(path: Path) -> Table:
    from scipy import sparse

    if path.suffix.lower() == ".npz":
        if not zipfile.is_zipfile(path):
            raise ValueError("not an .npz file, or not a whole one")
        try:
            matrix = sparse.load_npz(path)  # with allow_pickle=False
        except Exception:  # not one of scipy's; what else is wrong shows below
            matrix = None
        if matrix is not None:
            return Table(matrix, *_beside(load_arrays(path)))
    try:
        arrays = load_arrays(path)
    except ValueError:
        raise
    except Exception as error:  # a damaged header fails in Python's tokenizer or in zipfile
        raise ValueError(f"not an array in .npy or .npz form, or not a whole one: {validate.one_line(error)}") from None
    matrices = [key for key, value in arrays.items() if value.ndim == 2 and not key.startswith(OBS)]
    if "x" not in arrays and len(matrices) != 1:
        got = few(list(arrays)) or "none"
        raise ValueError(f"expected what scipy.sparse.save_npz writes, the key 'x', or a single matrix, got {got}")
    return Table(arrays["x" if "x" in arrays else matrices[0]], *_beside(arrays))


def _beside(arrays: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """Names of genes and cells, and covariates, if they stand beside the matrix."""
    genes, cells = (texts(arrays[key]) if key in arrays else None for key in ("genes", "cells"))
    return genes, cells, {key.removeprefix(OBS): value for key, value in arrays.items() if key.startswith(OBS)}


def _text(path: Path) -> Table:
    pandas = optional("pandas", "reading .csv and .tsv")
    options: dict[str, Any] = {"sep": "," if ".csv" in path.name.lower() else "\t", "header": None}
    try:
        # pandas would rename a gene that occurs twice, so the header is read as a row.
        header = texts(pandas.read_csv(path, nrows=1, dtype=str, keep_default_na=False, **options))
        # A converter, and not an index of pandas' own, because that would take the name NA for a missing one.
        options |= {"skiprows": 1, "converters": {0: str}, "chunksize": _ROWS, "low_memory": False}
        with pandas.read_csv(path, **options) as blocks:
            table = frame_table(_named(block, header) for block in blocks)
    except (
        OSError,
        EOFError,
        zlib.error,
        UnicodeDecodeError,
        pandas.errors.ParserError,
        pandas.errors.EmptyDataError,
    ) as error:
        raise ValueError(f"not a table of text, or not a whole one: {validate.one_line(error)}") from None
    _refuse_counts_for_names(header, table)
    return table


def _refuse_counts_for_names(header: tuple[str, ...], table: Table) -> None:
    """A table without names of its rows would lose its first column to them."""
    names, above = table.cells or (), header[0] if len(header) > len(table.genes or ()) else ""
    if above.lower() in _ROW_NAMES or len(set(names)) == len(names):
        return
    if all(_WHOLE.fullmatch(name) for name in names):
        which = f"the first column, {above!r}, should name the rows, but holds whole numbers that repeat"
        raise ValueError(f"{which}; write the names too, as DataFrame.to_csv does with index=True")


def _named(block: Any, header: tuple[str, ...]) -> Any:
    """R writes no name above the names of the cells, so a header may be one shorter."""
    block.index = block.pop(0)
    if len(header) - block.shape[1] not in (0, 1):
        raise ValueError(f"the header names {len(header)} columns, but the rows have {block.shape[1] + 1}")
    block.columns = header[len(header) - block.shape[1] :]
    return block
