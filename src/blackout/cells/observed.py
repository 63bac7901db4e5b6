"""KnownCounts: cells of which some counts are known, as imputation takes them."""

from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray
from torch import Tensor

from blackout.cells.counts import Counts
from blackout.cells.read import counts_of, name_of, naming, read_table
from blackout.cells.table import as_matrix, few, optional, repeated, unique_names


@dataclass(frozen=True, eq=False)
class KnownCounts:
    """`cells` holds zero where `mask`, (cells, genes), is false; whatever stood there was not looked at."""

    cells: Counts
    mask: NDArray[numpy.bool_]
    obs: Any
    """A DataFrame, as it came with the cells."""
    var: Any


def read_known(source: Any, mask: Any, *, layer: str | None = None, transpose: bool = False) -> KnownCounts:
    """Cells from all that `read_counts` reads, and where their counts are known: an array, a tensor, a sparse matrix,
    or a DataFrame, which is put in order by its names.

    X is read where there is no such layer.
    """
    with naming(source):
        table = read_table(source, layer, strict=False, transpose=transpose)
        matrix = as_matrix(table.matrix)
        # Names are made, and made unique, where the table has none or has them twice.
        genes = table.genes or tuple(f"gene_{k}" for k in range(matrix.shape[1]))
        names = unique_names(table.cells or tuple(f"cell_{k}" for k in range(matrix.shape[0])))
    known = _mask(mask, names, genes, matrix.shape)
    with naming(source):
        cells = counts_of(table._replace(matrix=_only(matrix, known)), name_of(source), "keep")
    pandas = optional("pandas", "imputation")
    if table.frames is not None:
        obs, var = (frame.copy() for frame in table.frames)
    else:
        columns = source.columns() if isinstance(source, Counts) else cells.columns()
        obs, var = pandas.DataFrame(columns, index=list(names)), pandas.DataFrame(index=list(genes))
    obs.index = pandas.Index(names, name=obs.index.name)
    return KnownCounts(cells, known, obs, var)


def _only(matrix: Any, known: NDArray[numpy.bool_]) -> Any:
    """What is known of it. The rest may be anything: NaN, or -1, or a guess."""
    from scipy import sparse

    if not sparse.issparse(matrix):
        return numpy.where(known, matrix, numpy.zeros((), matrix.dtype)) if matrix.dtype.kind in "buif" else matrix
    entries = matrix.tocoo()
    kept = known[entries.row, entries.col]
    places = entries.row[kept], entries.col[kept]
    return sparse.csr_array((entries.data[kept], places), shape=matrix.shape)


def _mask(mask: Any, cells: tuple[str, ...], genes: tuple[str, ...], shape: tuple[int, int]) -> NDArray[numpy.bool_]:
    if mask is None:
        raise ValueError("mask is needed: true where a count is known, got None")
    values = mask.toarray() if hasattr(mask, "toarray") else mask
    if hasattr(values, "columns") and hasattr(values, "loc"):
        values = _in_order(values, cells, genes)
    values = numpy.asarray(values.cpu() if isinstance(values, Tensor) else values)
    if values.shape != shape:
        raise ValueError(f"mask must have shape {shape}, cells and genes of the data, got {values.shape}")
    if values.dtype != bool:
        raise ValueError(f"mask must hold booleans, true where a count is known, got {values.dtype}")
    return values


def _in_order(frame: Any, cells: tuple[str, ...], genes: tuple[str, ...]) -> Any:
    """A DataFrame with the rows and columns that the cells have; what it has beside them is left out."""
    frame = frame.set_axis([str(name) for name in frame.index]).set_axis([str(name) for name in frame.columns], axis=1)
    for what, there, wanted in (("genes", frame.columns, genes), ("cells", frame.index, cells)):
        missing, twice = sorted(set(wanted) - set(there), key=wanted.index), repeated(there)
        if missing:
            raise ValueError(f"mask lacks these {what} of the data: {few(missing)}; mask.to_numpy() goes by position")
        if twice:
            raise ValueError(f"mask must name each of its {what} once, but has these more often: {few(twice)}")
    return frame.loc[list(cells), list(genes)].to_numpy()
