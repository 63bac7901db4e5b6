"""Counts: a sparse matrix of cells x genes, with the names of both and the covariates of each cell."""

import hashlib
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from blackout import validate
from blackout.cells.names import few, optional, repeated, unique_names
from blackout.cells.table import RAW_COUNTS
from blackout.data.stored_rows import blocks_of, is_stored
from blackout.memory import check_memory

MAX_COUNT = 2**31 - 1  # states are int32 on a device
BYTES_PER_COUNT = 60  # of a stored entry at the most while counts are read and trained on in memory
_CHUNK = 1 << 20
_ENOUGH, _LARGE, _EQUAL = 20, 100, 0.03  # cells or genes, mean total and relative spread of totals of normalised data
_EXAMINED = 2000  # cells
_BARCODE, _ENSEMBL = re.compile("[ACGT]{10,}"), re.compile(r"ENS[A-Z]*G\d{11}(\.\d+)?")
_COMMON = {"ACTB", "B2M", "EEF1A1", "GAPDH", "MALAT1", "RPL3", "RPS3", "TMSB4X"}
_MOST = 0.9  # share of cells without a count of 1 that raw counts do not have


@dataclass(frozen=True, kw_only=True, eq=False)
class Counts:
    """Counts of genes in cells; `read_counts` makes one from a file or an object in memory.

    Parameters
    ----------
    x : scipy.sparse.csr_array or StoredRows
        Counts of shape (cells, genes), kept as int64 with sorted indices and without stored zeros, or on the disk.
    genes, cells : tuple of str
        Names; those of genes are unique.
    obs : pandas.DataFrame, optional
        Covariates of the cells.
    name : str
        Name of the data, for reports.

    Examples
    --------
    >>> from blackout.cells.read import read_counts
    >>> read_counts([[0, 3], [1, 2]])
    Counts(counts: 2 cells x 2 genes)
    """

    x: Any
    genes: tuple[str, ...]
    cells: tuple[str, ...]
    obs: Any = None
    name: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "x", integer_counts(self.x, self.genes))
        if len(self.cells) != len(self):
            raise ValueError(f"expected a name for each of {len(self)} cells, got {len(self.cells)} names")
        if len(set(self.genes)) < len(self.genes):
            twice = few(repeated(self.genes))
            raise ValueError(f"gene names must be unique, got more than once: {twice}; adata.var_names_make_unique()")
        if self.obs is not None:
            pandas = optional("pandas", "covariates of cells")
            frame = pandas.DataFrame(self.obs)
            if len(frame) != len(self):
                raise ValueError(f"obs must have a row for each of {len(self)} cells, got {len(frame)}")
            object.__setattr__(self, "obs", frame.set_axis(pandas.Index(self.cells, name=frame.index.name)))

    def __len__(self) -> int:
        return int(self.x.shape[0])

    def __repr__(self) -> str:
        covariates = "".join(f", {key}" for key in self.covariates)
        return f"Counts({self.name}: {len(self)} cells x {self.num_genes} genes{covariates})"

    @property
    def num_genes(self) -> int:
        return int(self.x.shape[1])

    @property
    def stored(self) -> bool:
        """Whether the counts are on the disk."""
        return is_stored(self.x)

    @property
    def covariates(self) -> list[str]:
        """Names of the columns of obs."""
        return [] if self.obs is None else [str(key) for key in self.obs.columns]

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the counts and the gene names, in hexadecimal."""
        digest = hashlib.sha256(numpy.array(self.x.shape, "<i8").tobytes())
        lengths = numpy.concatenate([[0], *(numpy.diff(block.indptr) for block in blocks_of(self.x))])
        digest.update(lengths.cumsum().astype("<i8").tobytes())
        for name in ("indices", "data"):
            for array in (getattr(block, name) for block in blocks_of(self.x)):
                for start in range(0, len(array), _CHUNK):  # scipy's index type depends on the size: 8 bytes each
                    digest.update(array[start : start + _CHUNK].astype("<i8").tobytes())
        digest.update("\0".join(self.genes).encode())
        return digest.hexdigest()

    @cached_property
    def library(self) -> NDArray[numpy.int64]:
        """Library size (total count) of each cell."""
        return numpy.concatenate([numpy.asarray(block.sum(axis=1), numpy.int64) for block in blocks_of(self.x)])

    def detected(self) -> tuple[NDArray[numpy.bool_], NDArray[numpy.bool_]]:
        """Which cells have a count, and which genes are in a cell."""
        genes, cells = numpy.zeros(self.num_genes, bool), []
        for block in blocks_of(self.x):
            genes[block.indices] = True
            cells.append(numpy.diff(block.indptr) > 0)
        return numpy.concatenate(cells), genes

    def in_memory(self) -> "Counts":
        """The same cells with their counts in memory; ValueError if they do not fit."""
        if not self.stored:
            return self
        entries = sum(block.nnz for block in blocks_of(self.x))
        check_memory(f"all cells, {len(self):,} of them,", BYTES_PER_COUNT * entries, "use fewer cells")
        return replace(self, x=self.x.tocsr())

    def take(self, index: Any) -> "Counts":
        """Select cells by number, slice or mask. Repeated names get the suffixes -1, -2, ..."""
        if isinstance(index, Tensor):
            index = index.cpu().numpy()
        try:
            rows = numpy.atleast_1d(numpy.arange(len(self))[index])
        except (IndexError, TypeError, ValueError) as error:
            raise ValueError(f"index must select among {len(self)} cells: {error}") from None
        if rows.ndim != 1 or rows.size == 0:
            raise ValueError(f"index must be a list of at least one cell, got shape {rows.shape}")
        cells = unique_names([self.cells[row] for row in rows])
        part = replace(self, x=self.x[rows], cells=cells, obs=None if self.obs is None else self.obs.iloc[rows])
        if "library" in vars(self):  # not read again
            vars(part)["library"] = self.library[rows]
        return part

    def with_genes(self, names: Sequence[str]) -> "Counts":
        """Select genes by name, in this order."""
        column = {gene: k for k, gene in enumerate(self.genes)}
        unknown = [str(name) for name in names if name not in column]
        if unknown:
            raise ValueError(f"these genes are not in the data: {few(unknown)}")
        return replace(self, x=self.x[:, [column[name] for name in names]], genes=tuple(names))

    def align(self, genes: Sequence[str]) -> "Counts":
        """Order the genes like those of a model; other genes may be present only if all their counts are zero."""
        if self.genes == tuple(genes):
            return self
        known, present = set(genes), set(self.genes)
        counted = {self.genes[k] for k in numpy.flatnonzero(self.detected()[1])}
        check_genes([gene for gene in self.genes if gene not in known and gene in counted])
        missing = [gene for gene in genes if gene not in present]
        if missing:
            raise ValueError(f"these genes of the model are not in the data: {few(missing)}")
        return self.with_genes(genes)

    def column(self, key: str) -> list[str]:
        """The values of a column of obs as text; ValueError if one is missing."""
        self.check_column(key)
        missing = [self.cells[row] for row in numpy.flatnonzero(self.obs[key].isna())]
        if missing:
            which = f"{len(missing)} of {len(self)} cells: {few(missing)}"
            raise ValueError(f"obs column {key!r} has no value for {which}; remove these cells or add the values")
        return [str(value) for value in self.obs[key].tolist()]

    def check_column(self, key: str) -> None:
        """Raise ValueError if obs has no such column."""
        if key not in self.covariates:
            there = ", ".join(map(repr, self.covariates)) or "no columns"
            raise ValueError(f"obs has no column {key!r}; it has {there}")

    def is_labelled(self, keys: Sequence[str]) -> NDArray[numpy.bool_]:
        """Which cells have a value in each of these columns; none, if obs lacks a column."""
        if any(key not in self.covariates for key in keys):
            return numpy.zeros(len(self), bool)
        return numpy.asarray(self.obs[list(keys)].notna().all(axis=1), bool)

    def split(self, held_out: float = 0.1, seed: int = 0) -> tuple["Counts", "Counts"]:
        """Split at random into training cells and a share `held_out`; both keep the order of the data."""
        if validate.real("held_out", held_out, 0.0, strict=True) >= 1:
            raise ValueError(f"held_out must be less than 1, got {held_out}")
        if len(self) < 2:
            raise ValueError(f"{self.name} has one cell, which cannot be split")
        generator = torch.Generator().manual_seed(validate.integer("seed", seed, 0))
        order = torch.randperm(len(self), generator=generator).numpy()
        number = min(len(self) - 1, max(1, round(held_out * len(self))))
        return self.take(numpy.sort(order[number:])), self.take(numpy.sort(order[:number]))


def warn_implausible(cells: Counts) -> None:
    """Warn if the data seem to be normalised, or their rows to be genes."""
    warn_normalised(cells)
    warn_transposed(cells)


def warn_normalised(cells: Counts) -> None:
    """Warn if integers look like rounded normalised values: totals are equal, or cells have no count of 1."""
    if len(cells) < _ENOUGH:
        return
    totals, hint = cells.library, RAW_COUNTS
    if totals.mean() > _LARGE and totals.std() < _EQUAL * totals.mean():
        warnings.warn(
            f"all cells have almost the same total, {totals.mean():.0f}, as after normalisation: {hint}", stacklevel=4
        )
        return
    x = next(blocks_of(cells.x))
    rich = numpy.flatnonzero(numpy.diff(x.indptr) >= _ENOUGH)[:_EXAMINED]  # a cell of few genes may well have no 1
    if len(rich) < _ENOUGH:
        return
    least = numpy.array([x.data[x.indptr[k] : x.indptr[k + 1]].min() for k in rich])
    share = (least > 1).mean()
    if share > _MOST:
        warnings.warn(f"{share:.0%} of the cells have no count of 1, as after normalisation: {hint}", stacklevel=4)


def warn_transposed(cells: Counts) -> None:
    """Warn if the rows seem to be genes: columns have the names of barcodes, or rows those of common genes."""
    names = cells.genes[:_EXAMINED]
    barcodes = [name for name in names if _BARCODE.search(name)]
    common = [name for name in cells.cells if name.upper() in _COMMON or _ENSEMBL.fullmatch(name)]
    by_columns = 2 * len(barcodes) > len(names)
    if by_columns or len(common) > 2:
        which = f"columns are named {few(barcodes)}" if by_columns else f"rows are named {few(common)}"
        advice = "transpose=True (--transpose) reads a table whose rows are genes; of AnnData give adata.T"
        warnings.warn(f"the rows seem to be genes, not cells: {which}; {advice}", stacklevel=4)


def check_genes(unknown: Sequence[str]) -> None:
    """Raise ValueError if there are genes that a model was not trained on."""
    if unknown:
        hint = "remove them, in Python by adata[:, model.genes]"
        raise ValueError(f"the model was not trained on these genes: {few(unknown)}; {hint}")


def as_matrix(matrix: Any) -> Any:
    """A sparse matrix or numpy array of two dimensions, of any values; counts on the disk as they are."""
    if is_stored(matrix):
        return matrix
    matrix = validate.sparse(matrix) if sparse.issparse(matrix) else numpy.asarray(matrix)
    if matrix.ndim != 2:
        raise ValueError(f"expected a matrix, cells x genes, got shape {matrix.shape}")
    return matrix


def integer_counts(matrix: Any, genes: Sequence[str] | None = None, first: int = 0) -> Any:
    """A csr_array of int64 with sorted indices and no stored zeros; ValueError if an entry is not a count.

    Counts on the disk are returned as they are. `first` is the number of the first cell, for that message.
    """
    matrix = as_matrix(matrix)
    if 0 in matrix.shape:
        raise ValueError(f"expected at least one cell and one gene, got {matrix.shape[0]} x {matrix.shape[1]}")
    if genes is not None and len(genes) != matrix.shape[1]:
        raise ValueError(f"expected a name for each of {matrix.shape[1]} genes, got {len(genes)} names")
    if is_stored(matrix):
        return matrix
    if matrix.dtype.kind not in "buif":
        raise ValueError(f"not counts: expected numbers, got {matrix.dtype}; {RAW_COUNTS}")
    if not matrix.dtype.isnative:
        matrix = matrix.astype(matrix.dtype.newbyteorder("="))
    if matrix.dtype.kind == "f" and matrix.dtype.itemsize < 4:
        matrix = matrix.astype(numpy.float32)  # scipy has no half precision
    elif sparse.issparse(matrix) and matrix.dtype.kind in "bui" and matrix.dtype != numpy.uint64:
        matrix = matrix.astype(numpy.int64, copy=False)  # a sum of duplicate entries may overflow a narrow type
    x = sparse.csr_array(matrix)
    if not x.has_canonical_format:
        x = x.copy()  # its arrays may be the caller's
        x.sum_duplicates()
    if not x.data.all():
        x = x.copy()
        x.eliminate_zeros()
    with numpy.errstate(invalid="ignore"):
        wrong = (x.data < 0) | (x.data > MAX_COUNT)
        if x.dtype.kind == "f":
            wrong |= ~numpy.isfinite(x.data) | (x.data != numpy.floor(x.data))
    if wrong.any():
        raise ValueError(_wrong_entry(x, int(wrong.argmax()), genes, first))
    return sparse.csr_array((x.data.astype(numpy.int64, copy=False), x.indices, x.indptr), shape=x.shape)


def _wrong_entry(x: Any, at: int, genes: Sequence[str] | None, first: int) -> str:
    cell = first + int(numpy.searchsorted(x.indptr, at, side="right")) - 1
    gene = int(x.indices[at])
    where = f"cell {cell}, gene {repr(genes[gene]) if genes is not None else gene} holds {x.data[at]}"
    if x.data[at] > MAX_COUNT and numpy.isfinite(x.data[at]):
        return f"counts must be at most {MAX_COUNT}, but {where}"
    if numpy.isnan(x.data[at]):
        return f"not counts: {where}, a missing value; remove this cell or this gene"
    return f"not counts: {where}; {RAW_COUNTS}"
