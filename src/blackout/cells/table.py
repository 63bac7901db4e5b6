"""Tables of counts before they are checked, from DataFrames and files."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy
from scipy import sparse

from blackout.cells.names import texts

RAW_COUNTS = "raw UMI counts are needed: layer='counts' (--layer counts) reads a layer of AnnData, 'raw' adata.raw"


class Table(NamedTuple):
    """Cells x genes of any matrix type, unchecked, with names and covariates where the source has them."""

    matrix: Any
    genes: tuple[str, ...] | None = None
    cells: tuple[str, ...] | None = None
    obs: Any = None
    """A DataFrame, or a dict of arrays."""
    var: Any = None
    oriented: bool = False
    """Whether the source states which axis holds the genes."""


def frame_table(frames: Iterable[Any]) -> Table:
    """Stack pandas DataFrames whose rows are cells. One block at a time is dense."""
    blocks = []
    cells: list[str] = []
    genes: tuple[str, ...] = ()
    for frame in frames:
        genes = texts(frame.columns)
        for gene, kind in zip(genes, frame.dtypes, strict=True):
            if getattr(kind, "subtype", kind).kind not in "buif":  # the subtype is that of a sparse column
                raise ValueError(f"not counts: gene {gene!r} holds {kind}, not numbers; {RAW_COUNTS}")
        if len(genes) and all(str(kind).startswith("Sparse") for kind in frame.dtypes):
            blocks.append(frame.sparse.to_coo())
        else:
            dense = frame.to_numpy()
            if dense.dtype == object:  # nullable integers of pandas
                dense = frame.to_numpy(dtype=numpy.float64, na_value=numpy.nan)
            blocks.append(sparse.csr_array(dense))
        cells.extend(texts(frame.index))
    if not blocks:
        return Table(numpy.zeros((0, 0)))
    return Table(sparse.vstack(blocks, format="csr"), tuple(genes), tuple(cells))
