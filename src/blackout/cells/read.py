"""read_counts: single cells from a file, a folder, or what is in memory; and back to AnnData."""

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray
from torch import Tensor

from blackout import validate
from blackout.cells import readers as cell_files
from blackout.cells.columns import Kind
from blackout.cells.counts import Counts
from blackout.cells.table import (
    Table,
    few,
    frame_columns,
    frame_table,
    optional,
    texts,
    unique_names,
    whole_counts,
)


def read_counts(
    source: Any,
    *,
    layer: str | None = None,
    name: str | None = None,
    empty: str = "refuse",
    strict: bool = True,
    transpose: bool = False,
) -> Counts:
    """Counts from .h5ad, 10x .h5, .mtx, .npz, .npy, .csv, .tsv, a 10x folder, or a folder of 10x .h5 files; or from
    AnnData, a DataFrame, a scipy matrix, an array or a tensor. Rows are cells, but where 10x files say otherwise.

    `layer` chooses a layer of AnnData; "raw" is adata.raw, if no layer has that name. With `strict=False`, X is read
    where there is no such layer. Cells without a count and genes that no cell has are refused; `empty="drop"` leaves
    them out, "keep" keeps them. `transpose` is for tables whose rows are genes. Names of cells that repeat become
    name-1, name-2, ... A folder of .h5 files gives obs the column "sample".
    """
    validate.choice("empty", empty, ("refuse", "drop", "keep"))
    if isinstance(source, Counts):
        if layer is not None and strict:
            _no_layer(layer, "Counts")
        counts = _without_empty(source) if empty == "drop" else source
        return counts if name is None else replace(counts, name=name)
    with naming(source):
        table = read_table(source, layer, strict, transpose)
        return counts_of(table, name or name_of(source), empty)


def read_table(source: Any, layer: str | None = None, strict: bool = True, transpose: bool = False) -> Table:
    """What a source holds, before anything is checked."""
    if isinstance(source, Counts):
        return Table(source.x, source.genes, source.cells, source.obs)
    if not isinstance(source, str | Path):
        table = _in_memory(source, layer, strict)
    else:
        path = Path(source)
        if not path.exists():
            raise ValueError("no such file or folder")
        if path.suffix.lower() == ".h5ad":
            table = _from_anndata(_read_h5ad(path), layer, strict)
        else:
            if strict:
                _no_layer(layer, path.suffix or "a folder")
            table = cell_files.read(path)
    if not transpose:
        return table
    from scipy import sparse

    if table.frames is not None or table.oriented:
        raise ValueError("transpose is for tables, but these cells come with names that say which are genes")
    matrix = table.matrix if sparse.issparse(table.matrix) else numpy.asarray(table.matrix)
    return table._replace(matrix=matrix.T, genes=table.cells, cells=table.genes)


@contextmanager
def naming(source: Any) -> Iterator[None]:
    """What is wrong with a file is said with its path."""
    try:
        yield
    except ValueError as error:
        if not isinstance(source, str | Path):
            raise
        raise ValueError(f"{source}: {str(error).removeprefix(f'{source}: ')}") from None


def name_of(source: Any) -> str:
    return Path(source).name.partition(".")[0] if isinstance(source, str | Path) else "counts"


def to_anndata(
    x: Any,
    genes: Sequence[str],
    cells: Sequence[str] | None = None,
    obs: dict[str, Any] | None = None,
) -> Any:
    """AnnData with counts as int32 in a csr matrix, from a sparse matrix, a tensor, or an array."""
    from scipy import sparse

    anndata, pandas = optional("anndata", "writing AnnData"), optional("pandas", "writing AnnData")
    table = _in_memory(x)._replace(genes=tuple(genes), cells=None if cells is None else tuple(cells))
    none = getattr(table.matrix, "shape", None) == (0, len(genes))  # cells that were asked for may be none
    counts = table.matrix if none else whole_counts(table.matrix, table.genes)
    names = _names(table.cells, counts.shape[0], "cell")
    frame = pandas.DataFrame(dict(obs or {}), index=list(names))
    # Most of what reads AnnData was written for scipy's matrices, not for its arrays.
    matrix = sparse.csr_matrix(counts, dtype=numpy.int32)
    return anndata.AnnData(X=matrix, obs=frame, var=pandas.DataFrame(index=list(genes)))


def _in_memory(source: Any, layer: str | None = None, strict: bool = True) -> Table:
    # Whoever holds an AnnData or a DataFrame has imported its package; to look does not import it.
    anndata, pandas = sys.modules.get("anndata"), sys.modules.get("pandas")
    if anndata is not None and isinstance(source, anndata.AnnData):
        return _from_anndata(source, layer, strict)
    if strict:
        _no_layer(layer, type(source).__name__)
    if pandas is not None and isinstance(source, pandas.DataFrame):
        return frame_table([source])
    if isinstance(source, Tensor):
        return Table(_from_tensor(source.detach().cpu()))
    return Table(source)


def _from_tensor(x: Tensor) -> Any:
    from scipy import sparse

    if x.is_floating_point() and x.element_size() < 4:
        x = x.float()  # numpy knows no bfloat16
    if not x.is_sparse and not x.is_sparse_csr:
        return x.numpy()
    entries = x.to_sparse_coo().coalesce()
    return sparse.coo_array((entries.values().numpy(), entries.indices().numpy()), shape=tuple(x.shape))


def _read_h5ad(path: Path) -> Any:
    anndata = optional("anndata", "reading .h5ad")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on names that repeat, which are dealt with here
            return anndata.read_h5ad(path)
    except Exception as error:
        raise ValueError(f"not an .h5ad file, or not a whole one: {validate.one_line(error)}") from None


def _from_anndata(adata: Any, layer: str | None, strict: bool) -> Table:
    if adata.isbacked:
        adata = adata.to_memory()
    var = adata.var
    there = layer in adata.layers or (layer == "raw" and adata.raw is not None)
    if layer is None or not (there or strict):
        matrix = adata.X
        if matrix is None:
            raise ValueError(f"this AnnData has no X; layer must be one of {_layers(adata)}")
    elif layer in adata.layers:
        matrix = adata.layers[layer]
    elif there:
        matrix, var = adata.raw.X, adata.raw.var
    else:
        raise ValueError(f"layer must be one of {_layers(adata)}, got {layer!r}")
    return Table(matrix, texts(var.index), texts(adata.obs_names), frame_columns(adata.obs), (adata.obs, var))


def _layers(adata: Any) -> str:
    names = [*adata.layers, *(["raw"] if adata.raw is not None else [])]
    return ", ".join(map(repr, names)) or "none, for there are no layers"


def counts_of(table: Table, name: str, empty: str) -> Counts:
    """Whole counts, or the line that says why they are none."""
    x = whole_counts(table.matrix, table.genes)
    genes = _names(table.genes, x.shape[1], "gene")
    cells = unique_names(_names(table.cells, x.shape[0], "cell"))
    frame = None if table.frames is None else table.frames[0]
    kinds = {} if frame is None else {str(key): Kind.of_series(frame[key]) for key in frame.columns}
    counts = Counts(x=x, genes=genes, cells=cells, obs=table.obs or {}, kinds=kinds, name=name)
    if empty == "drop":
        return _without_empty(counts)
    if empty == "keep":
        return counts
    for what, names, found in zip(("cells", "genes"), (cells, genes), _occurring(counts), strict=True):
        if not found.all():
            dark = [names[k] for k in numpy.flatnonzero(~found)]
            which = f"{len(dark)} of {len(names)} {what} hold no count at all: {few(dark)}"
            raise ValueError(f"{which}; empty='drop' leaves out such cells and genes")
    return counts


def _without_empty(counts: Counts) -> Counts:
    cells, genes = _occurring(counts)
    if not cells.any():
        raise ValueError(f"every count is zero, in all of {len(counts)} cells")
    if not cells.all():
        counts = counts.take(cells)
    return counts if genes.all() else counts.with_genes([counts.genes[k] for k in numpy.flatnonzero(genes)])


def _occurring(counts: Counts) -> tuple[NDArray[Any], NDArray[Any]]:
    """Which cells hold a count, and which genes occur in a cell."""
    genes = numpy.zeros(counts.num_genes, bool)
    genes[counts.x.indices] = True
    return numpy.diff(counts.x.indptr) > 0, genes


def _names(names: Sequence[str] | None, n: int, what: str) -> tuple[str, ...]:
    if names is None:
        return tuple(f"{what}_{k}" for k in range(n))
    if len(names) != n:
        raise ValueError(f"expected a name for each of {n} {what}s, got {len(names)} names")
    return tuple(names)


def _no_layer(layer: str | None, what: str) -> None:
    if layer is not None:
        raise ValueError(f"layer is for AnnData and .h5ad, but {layer=} was given for {what}")
