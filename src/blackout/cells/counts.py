"""Counts: cells × genes, kept sparse, with the names of both and what is known about each cell."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from blackout import validate
from blackout.cells.columns import Kind
from blackout.cells.table import LARGEST, few, repeated, unique_names

if TYPE_CHECKING:  # scipy takes a while to import, and pictures do not need it
    from scipy.sparse import csr_array

_CHUNK = 1 << 20
_MISSING = {"None", "nan", "<NA>", "NaT"}  # how Python, numpy and pandas write a value that is not there


@dataclass(frozen=True, kw_only=True, eq=False)
class Counts:
    """`x` is a csr_array of int64 with sorted indices and no stored zeros; `obs` has a column for each covariate.

    `read_counts` makes one from a file or from what is in memory.
    """

    x: "csr_array"
    genes: tuple[str, ...]
    cells: tuple[str, ...]
    obs: dict[str, NDArray[Any]] = field(default_factory=dict)
    kinds: dict[str, Kind] = field(default_factory=dict)
    """What the columns of obs were in AnnData, such as categories; by default what numpy says."""
    name: str

    def __post_init__(self) -> None:
        _canonical(self.x)
        for what, names, n in (("cells", self.cells, self.x.shape[0]), ("genes", self.genes, self.x.shape[1])):
            if n == 0:
                raise ValueError(f"x must hold at least one cell and one gene, got shape {self.x.shape}")
            if len(names) != n:
                raise ValueError(f"{what} must name the {n} {what} of x, got {len(names)} names")
        twice = repeated(self.genes)
        if twice:
            which = f"these occur more than once: {few(twice)}"
            raise ValueError(f"gene names must differ, but {which}; adata.var_names_make_unique() tells them apart")
        for key, column in self.obs.items():
            if not isinstance(column, numpy.ndarray) or column.shape != (len(self),):
                got = f"{type(column).__name__} of shape {numpy.shape(column)}"
                raise ValueError(f"obs[{key!r}] must be a numpy array of shape ({len(self)},), got {got}")

    def __len__(self) -> int:
        return int(self.x.shape[0])

    def __repr__(self) -> str:
        covariates = f", {', '.join(self.obs)}" if self.obs else ""
        return f"Counts({self.name}: {len(self)} cells x {self.num_genes} genes{covariates})"

    @property
    def num_genes(self) -> int:
        return int(self.x.shape[1])

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the counts and the names of the genes, in hexadecimal: what a result can be tied to."""
        digest = hashlib.sha256(numpy.array(self.x.shape, "<i8").tobytes())
        for array in (self.x.indptr, self.x.indices, self.x.data):
            for chunk in _chunks(
                array
            ):  # the width of an index depends on the machine, so all are written in eight bytes
                digest.update(chunk.astype("<i8").tobytes())
        digest.update("\0".join(self.genes).encode())
        return digest.hexdigest()

    @cached_property
    def library(self) -> NDArray[numpy.int64]:
        """The total of each cell."""
        return numpy.asarray(self.x.sum(axis=1), numpy.int64)

    def take(self, index: Any) -> "Counts":
        """These cells, by number, by slice or by mask. The names of cells that repeat are made unique by -1, -2, ..."""
        if isinstance(index, Tensor):
            index = index.cpu().numpy()
        try:
            rows = numpy.atleast_1d(numpy.arange(len(self))[index])
        except (IndexError, TypeError, ValueError) as error:
            raise ValueError(f"index must choose among {len(self)} cells: {error}") from None
        if rows.ndim != 1 or rows.size == 0:
            raise ValueError(f"index must be a list of at least one cell, got shape {rows.shape}")
        cells = unique_names([self.cells[row] for row in rows])
        return replace(self, x=self.x[rows], cells=cells, obs={key: column[rows] for key, column in self.obs.items()})

    def with_genes(self, names: Sequence[str]) -> "Counts":
        """These genes, in this order."""
        column = {gene: k for k, gene in enumerate(self.genes)}
        unknown = [str(name) for name in names if name not in column]
        if unknown:
            raise ValueError(f"these genes are not in the data: {few(unknown)}")
        x = self.x[:, [column[name] for name in names]]
        x.sort_indices()
        return replace(self, x=x, genes=tuple(names))

    def with_all(self, names: Sequence[str]) -> "Counts":
        """All the genes of a model, in its order, of cells that have no others."""
        if self.genes == tuple(names):
            return self
        known, there = set(names), set(self.genes)
        # Genes that no cell has are left out when a model is trained, and do no harm here either.
        found = {self.genes[k] for k in numpy.unique(self.x.indices)}
        unseen = [g for g in self.genes if g not in known and g in found]
        missing = [g for g in names if g not in there]
        if unseen:
            raise ValueError(f"the model has not seen these genes: {few(unseen)}; keep its own, adata[:, model.genes]")
        if missing:
            raise ValueError(f"these genes of the model are not in the data: {few(missing)}")
        return self.with_genes(names)

    def classes(self, keys: str | Sequence[str]) -> tuple[Tensor, list[str]]:
        """A label for each cell and what the labels mean. Of several columns, the combinations that occur."""
        keys = [keys] if isinstance(keys, str) else list(keys)
        if not keys:
            raise ValueError("keys must name at least one column of obs, got none")
        columns = [self._texts(key) for key in keys]
        rows = list(zip(*columns, strict=True))
        names = {row: " / ".join(row) for row in set(rows)}
        if len(set(names.values())) < len(names):
            raise ValueError(f"the values of {', '.join(keys)} give two combinations one name; rename those with ' / '")
        number = {row: k for k, row in enumerate(sorted(names, key=names.__getitem__))}
        return torch.tensor([number[row] for row in rows]), [names[row] for row in number]

    def labelled(self, keys: Sequence[str]) -> NDArray[numpy.bool_]:
        """Which cells have a value in each of these columns; none, where obs lacks one."""
        has = numpy.ones(len(self), bool)
        for key in keys:
            has &= ~self._missing(key) if key in self.obs else False
        return has

    def kind(self, key: str) -> Kind:
        """What a column of obs is made of."""
        return self.kinds.get(key) or Kind.of_series(self.obs[key])

    def columns(self) -> dict[str, Any]:
        """obs as pandas arrays of their own kinds."""
        return {key: self.kind(key).column(values) for key, values in self.obs.items()}

    def split(self, share: float = 0.1, seed: int = 0) -> tuple["Counts", "Counts"]:
        """(train, held out): `share` of the cells, drawn at random, are held out; both keep the order of the data."""
        if validate.real("share", share, 0.0, strict=True) >= 1:
            raise ValueError(f"share must be less than 1, got {share}")
        if len(self) < 2:
            raise ValueError(f"{self.name} has one cell, which cannot be split")
        generator = torch.Generator().manual_seed(validate.integer("seed", seed, 0))
        order = torch.randperm(len(self), generator=generator).numpy()
        held_out = min(len(self) - 1, max(1, round(share * len(self))))
        return self.take(numpy.sort(order[held_out:])), self.take(numpy.sort(order[:held_out]))

    def _texts(self, key: str) -> list[str]:
        if key not in self.obs:
            raise ValueError(f"obs has no column {key!r}; it has {', '.join(map(repr, self.obs)) or 'none at all'}")
        missing = [self.cells[row] for row in numpy.flatnonzero(self._missing(key))]
        if missing:
            which = f"{len(missing)} of {len(self)} cells: {few(missing)}"
            raise ValueError(f"obs column {key!r} has no value for {which}; leave these out, or fill it in")
        return [value.decode() if isinstance(value, bytes) else str(value) for value in self._values(key)]

    def _values(self, key: str) -> list[Any]:
        return self.obs[key].tolist() if self.obs[key].dtype.kind != "M" else list(self.obs[key])

    def _missing(self, key: str) -> NDArray[numpy.bool_]:
        return numpy.array([str(v) in _MISSING and not isinstance(v, str) for v in self._values(key)])


def stack(parts: Sequence[Any]) -> Any:
    """Sparse matrices of cells, one below the other."""
    from scipy import sparse

    return sparse.vstack(parts, format="csr")


def _canonical(x: Any) -> None:
    """What every method relies on; `read_counts` sees to it, and a caller who builds Counts by hand is told."""
    from scipy import sparse

    wanted = "x must be a scipy.sparse.csr_array of int64"
    if not isinstance(x, sparse.csr_array) or x.ndim != 2 or x.dtype != numpy.int64:
        raise ValueError(
            f"{wanted}, got {type(x).__name__} of {getattr(x, 'dtype', 'no dtype')}; read_counts makes one"
        )
    if not x.has_canonical_format:
        raise ValueError(f"{wanted} with sorted indices, each once; x.sum_duplicates() makes it so")
    if x.nnz and not 1 <= x.data.min() <= x.data.max() <= LARGEST:
        raise ValueError(f"{wanted} that stores 1 to {LARGEST} only, got {x.data.min()} to {x.data.max()}")


def _chunks(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    return (array[start : start + _CHUNK] for start in range(0, len(array), _CHUNK))
