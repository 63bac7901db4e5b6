"""ObservedCounts: partially observed cells, the input of imputation."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray
from scipy import sparse

from blackout import validate
from blackout.cells.counts import Counts, as_matrix
from blackout.cells.names import few, optional, repeated
from blackout.cells.read import errors_name, names_of, read_table, to_counts
from blackout.data.stored_rows import is_stored


@dataclass(frozen=True, eq=False)
class ObservedCounts:
    """Cells of which some counts are observed.

    `mask`, shape (cells, genes), is true where a count is observed; elsewhere the counts of `cells` are zero. None: all
    are observed.
    """

    cells: Counts
    mask: NDArray[numpy.bool_] | None
    var: Any
    """A DataFrame, as it came with the cells."""

    def observed(self, part: slice) -> NDArray[numpy.bool_]:
        """The mask of some cells."""
        number = len(range(*part.indices(len(self.cells))))
        return numpy.ones((number, self.cells.num_genes), bool) if self.mask is None else self.mask[part]

    @property
    def num_observed(self) -> int:
        """Number of observed counts."""
        return len(self.cells) * self.cells.num_genes if self.mask is None else int(self.mask.sum())


def read_observed(
    source: Any, mask: Any, *, layer: str | None = None, strict: bool = False, transpose: bool = False
) -> ObservedCounts:
    """Read cells and the mask of their observed counts.

    Parameters
    ----------
    source
        Anything that `read_counts` reads; X is read where there is no such layer, unless `strict`. Values where the
        mask is false are ignored: they may be NaN or negative.
    mask
        True where a count is observed: an array, tensor or sparse matrix of booleans of shape (cells, genes); a
        DataFrame, whose rows and columns are matched by name; or a file of one of these, .npy, .npz or .csv, which may
        also hold zeros and ones. None: all counts are observed.
    """
    with errors_name(source):
        table = read_table(source, layer, strict, transpose, backed=None if mask is None else False)
        matrix = as_matrix(table.matrix)
        names = names_of(table, matrix.shape)
    observed = None if mask is None else _read_mask(mask, *names, matrix.shape)
    with errors_name(source):
        if observed is not None:
            matrix = _masked(matrix.tocsr() if is_stored(matrix) else matrix, observed)
        cells = to_counts(table._replace(matrix=matrix), "cells", "keep")
    pandas = optional("pandas", "imputation")
    return ObservedCounts(cells, observed, pandas.DataFrame(index=list(names[0])) if table.var is None else table.var)


def _masked(matrix: Any, observed: NDArray[numpy.bool_]) -> Any:
    """The matrix with zeros where nothing is observed."""
    if not sparse.issparse(matrix):
        return numpy.where(observed, matrix, numpy.zeros((), matrix.dtype)) if matrix.dtype.kind in "buif" else matrix
    entries = matrix.tocoo()
    kept = observed[entries.row, entries.col]
    places = entries.row[kept], entries.col[kept]
    return sparse.csr_array((entries.data[kept], places), shape=matrix.shape)


def _read_mask(
    mask: Any, genes: tuple[str, ...], cells: tuple[str, ...], shape: tuple[int, int]
) -> NDArray[numpy.bool_]:
    with errors_name(mask, "mask: "):
        table = read_table(mask)
        is_sparse = hasattr(table.matrix, "toarray")
        values = numpy.asarray(validate.sparse(table.matrix).toarray() if is_sparse else table.matrix)
        if isinstance(mask, str | Path) and values.dtype.kind in "iuf" and bool(((values == 0) | (values == 1)).all()):
            values = values.astype(bool)
        if values.dtype != bool:
            raise ValueError(f"mask must hold booleans, true where a count is observed, got {values.dtype}")
    if table.genes is not None and table.cells is not None:
        columns, rows = _places("genes", genes, table.genes), _places("cells", cells, table.cells)
        values = values[numpy.ix_(rows, columns)]
    if values.shape != shape:
        raise ValueError(f"mask must have shape {shape}, cells and genes of the data, got {values.shape}")
    return values


def _places(what: str, wanted: tuple[str, ...], there: tuple[str, ...]) -> list[int]:
    """Where the names of the data are among those of the mask."""
    place = {name: k for k, name in enumerate(there)}
    missing = [name for name in wanted if name not in place]
    if missing:
        hint = "a mask without names (an array, .npy or .npz) is matched by position"
        raise ValueError(f"mask lacks these {what} of the data: {few(missing)}; {hint}")
    if len(place) < len(there):
        raise ValueError(f"mask must name each of its {what} once, got more than once: {few(repeated(there))}")
    return [place[name] for name in wanted]
