"""read_counts: single cells from a file, a folder or an object in memory; and back to AnnData."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
from scipy import sparse
from torch import Tensor

from blackout import validate
from blackout.cells.anndata_files import from_anndata, read_anndata
from blackout.cells.counts import Counts, integer_counts
from blackout.cells.names import few, optional, unique_names
from blackout.cells.several import is_several, stack_counts
from blackout.cells.table import Table, frame_table


def read_counts(
    source: Any,
    *,
    layer: str | None = None,
    name: str | None = None,
    empty: str = "error",
    strict: bool = True,
    transpose: bool = False,
    backed: bool | None = None,
) -> Counts:
    """Read counts of genes in cells.

    Parameters
    ----------
    source
        AnnData, a DataFrame, a scipy matrix, an array, a tensor, or a path: .h5ad, .zarr, 10x .h5, .mtx, .npz, .npy,
        .csv, .tsv, a 10x folder, or a folder of 10x .h5 files, whose names become the obs column "sample". Rows are
        cells, except where 10x files state otherwise. Repeated cell names become name-1, name-2, ... Several paths or
        AnnData in a list are stacked, with the genes that all of them have.
    layer : str, optional
        A layer of AnnData; "raw" is adata.raw if no layer has that name.
    name : str, optional
        Name of the data, by default that of the file.
    empty : {"error", "drop", "keep"}
        What to do with cells without a count and genes that no cell has.
    strict : bool
        If False, X is read where the source has no such layer.
    transpose : bool
        Whether the rows of a table are genes.
    backed : bool, optional
        Whether counts of .h5ad and .zarr stay on the disk; by default if they need more than half of the free memory.
        Those of an AnnData that is backed always do.
    """
    validate.choice("empty", empty, ("error", "drop", "keep"))
    if is_several(source):
        read = [
            read_counts(part, layer=layer, empty="keep", strict=strict, transpose=transpose, backed=backed)
            for part in source
        ]
        return _without_empty(stack_counts(read, name or _name_of(source[0])), empty)
    if isinstance(source, Counts):
        if strict:
            _check_no_layer(layer, "Counts")
        counts = _drop_empty(source) if empty == "drop" else source
        return counts if name is None else replace(counts, name=name)
    with errors_name(source):
        return to_counts(read_table(source, layer, strict, transpose, backed), name or _name_of(source), empty)


def read_table(
    source: Any,
    layer: str | None = None,
    strict: bool = True,
    transpose: bool = False,
    backed: bool | None = False,
) -> Table:
    """The contents of a source before anything is checked, except for counts that are stored on the disk."""
    if isinstance(source, Counts):
        return Table(source.x, source.genes, source.cells, source.obs)
    if not isinstance(source, str | Path):
        table = _in_memory(source, layer, strict)
    else:
        path = validate.path("source", source)
        if not path.exists():
            raise ValueError("no such file or folder")
        if path.suffix.lower() in (".h5ad", ".zarr"):
            table = read_anndata(path, layer, strict, backed)
        else:
            from blackout.cells.readers import read_file

            if strict:
                _check_no_layer(layer, path.suffix or "a folder")
            table = read_file(path)
    return _transposed(table) if transpose else table


def to_counts(table: Table, name: str, empty: str) -> Counts:
    """Checked integer counts of a table."""
    x = integer_counts(table.matrix, table.genes)  # without names of genes, errors give their numbers
    genes, cells = names_of(table, x.shape)
    return _without_empty(Counts(x=x, genes=genes, cells=cells, obs=table.obs, name=name), empty)


def _without_empty(counts: Counts, empty: str) -> Counts:
    """What `empty` asks for; ValueError if that is "error" and there are cells or genes without counts."""
    if empty == "drop":
        return _drop_empty(counts)
    if empty == "error":
        for what, names, counted in zip(
            ("cells", "genes"), (counts.cells, counts.genes), counts.detected(), strict=True
        ):
            if not counted.all():
                zero = [names[k] for k in numpy.flatnonzero(~counted)]
                which = f"{len(zero)} of {len(names)} {what} have no counts: {few(zero)}"
                raise ValueError(f"{which}; empty='drop' (--empty drop) removes such cells and genes")
    return counts


def names_of(table: Table, shape: tuple[int, int]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the genes and of the cells of a table, numbered where it has none."""
    return _names(table.genes, shape[1], "gene"), _names(table.cells, shape[0], "cell")


@contextmanager
def errors_name(source: Any, argument: str = "") -> Iterator[None]:
    """Put the path of a file in front of errors about its contents."""
    try:
        yield
    except ValueError as error:
        if not isinstance(source, str | Path):
            raise
        raise ValueError(f"{argument}{source}: {str(error).removeprefix(f'{source}: ')}") from None


def to_anndata(x: Any, genes: Sequence[str], cells: Sequence[str] | None = None, obs: Any = None) -> Any:
    """AnnData with counts as an int32 csr matrix, from a sparse matrix, tensor or array of shape (cells, genes)."""
    anndata, pandas = optional("anndata", "writing AnnData"), optional("pandas", "writing AnnData")
    matrix = _in_memory(x).matrix
    counts = matrix if getattr(matrix, "shape", None) == (0, len(genes)) else integer_counts(matrix, tuple(genes))
    names = list(_names(cells, counts.shape[0], "cell"))
    frame = pandas.DataFrame(index=names) if obs is None else pandas.DataFrame(obs).set_axis(names)
    # Most readers of AnnData expect a csr_matrix, not a csr_array.
    matrix = sparse.csr_matrix(counts, dtype=numpy.int32)
    return anndata.AnnData(X=matrix, obs=frame, var=pandas.DataFrame(index=list(genes)))


def _in_memory(source: Any, layer: str | None = None, strict: bool = True) -> Table:
    # An AnnData or DataFrame exists only if its package is imported already.
    anndata, pandas = sys.modules.get("anndata"), sys.modules.get("pandas")
    if anndata is not None and isinstance(source, anndata.AnnData):
        return from_anndata(source, layer, strict)
    if strict:
        _check_no_layer(layer, type(source).__name__)
    if pandas is not None and isinstance(source, pandas.DataFrame):
        return frame_table([source])
    if isinstance(source, Tensor):
        if source.device.type == "meta":
            raise ValueError("expected counts, got a tensor on the device meta, which holds no values")
        return Table(_from_tensor(source.detach().cpu()))
    return Table(source)


def _from_tensor(x: Tensor) -> Any:
    if x.is_floating_point() and x.element_size() < 4:
        x = x.float()  # numpy has no bfloat16
    if not x.is_sparse and not x.is_sparse_csr:
        return x.numpy()
    entries = x.to_sparse_coo().coalesce()
    return sparse.coo_array((entries.values().numpy(), entries.indices().numpy()), shape=tuple(x.shape))


def _transposed(table: Table) -> Table:
    if table.oriented:
        raise ValueError("transpose is for tables, but this source states which axis holds the genes")
    matrix = table.matrix if sparse.issparse(table.matrix) else numpy.asarray(table.matrix)
    return table._replace(matrix=matrix.T, genes=table.cells, cells=table.genes)


def _drop_empty(counts: Counts) -> Counts:
    cells, genes = counts.detected()
    if not cells.any():
        raise ValueError(f"every count is zero, in all of {len(counts)} cells")
    if not cells.all():
        counts = counts.take(cells)
    return counts if genes.all() else counts.with_genes([counts.genes[k] for k in numpy.flatnonzero(genes)])


def _name_of(source: Any) -> str:
    return Path(source).name.partition(".")[0] if isinstance(source, str | Path) else "counts"


def _names(names: Sequence[str] | None, n: int, what: str) -> tuple[str, ...]:
    """Names of cells or genes, numbered where there are none; those of cells are made unique."""
    if names is None:
        return tuple(f"{what}_{k}" for k in range(n))
    if len(names) != n:
        raise ValueError(f"expected a name for each of {n} {what}s, got {len(names)} names")
    return unique_names(names) if what == "cell" else tuple(names)


def _check_no_layer(layer: str | None, what: str) -> None:
    if layer is not None:
        raise ValueError(f"layer is for AnnData, .h5ad and .zarr, but {layer=} was given for {what}")
