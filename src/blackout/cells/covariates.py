"""Covariates: the labels, batches, numbers and library sizes that a model of cells is conditioned on."""

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from blackout import validate
from blackout.cells.columns import Column, Number
from blackout.cells.config import CellConfig
from blackout.cells.counts import Counts
from blackout.cells.library import LibrarySizes, closest, patterns
from blackout.cells.names import few, optional
from blackout.labels import Conditions

_MOST = 10_000  # different rows of the training cells that are kept
_FREE = -2  # a code that is still to be drawn


@dataclass(frozen=True)
class Rows:
    """What each cell is conditioned on."""

    codes: NDArray[numpy.int64]
    """Of the label columns and the batch, (cells, columns); -1: unknown."""
    numbers: NDArray[numpy.float64]
    """(cells, numbers); NaN: unknown."""

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: Any) -> "Rows":
        return Rows(self.codes[rows], self.numbers[rows])


@dataclass(frozen=True)
class Covariates:
    """Columns of obs, how frequent their rows are in the training cells, and the distribution of library sizes."""

    labels: tuple[Column, ...]
    batch: Column | None
    numbers: tuple[Number, ...]
    table: Rows
    """The different rows of the training cells."""
    shares: NDArray[numpy.float64]
    """How frequent each of them is."""
    sizes: LibrarySizes | None
    """None for a model that is not conditioned on the library size."""

    @staticmethod
    def fit(cells: Counts, config: CellConfig) -> "Covariates":
        """The covariates of training cells."""
        if config.conditioned and "library" in config.columns:
            raise ValueError("labels must not name 'library', the obs column of sampled library sizes; rename it")
        labels = tuple(Column.fit(cells, key, "labels") for key in config.labels)
        batch = Column.fit(cells, config.batch_key, "batch_key") if config.batch_key else None
        numbers = tuple(Number.fit(cells, key) for key in config.continuous_covariate_keys)
        rows = _read(labels if batch is None else (*labels, batch), numbers, cells, allow_unknown=False)
        sizes = LibrarySizes.fit(cells.library, rows.codes) if config.conditioned else None
        return Covariates(labels, batch, numbers, *_different(rows), sizes)

    @staticmethod
    def from_dict(config: CellConfig, values: dict[str, Any]) -> "Covariates":
        labels = tuple(Column.from_dict(about) for about in values["labels"])
        batch = None if values["batch"] is None else Column.from_dict(values["batch"])
        numbers = tuple(Number.from_dict(about) for about in values["numbers"])
        shares = numpy.asarray(values["shares"], numpy.float64)
        codes = numpy.asarray(values["codes"], numpy.int64).reshape(len(shares), -1)
        rows = Rows(codes, numpy.asarray(values["rows"], numpy.float64).reshape(len(shares), -1))
        sizes = None if values["sizes"] is None else LibrarySizes.from_dict(values["sizes"])
        made = Covariates(labels, batch, numbers, rows, shares, sizes)
        made._check(config)
        return made

    def _check(self, config: CellConfig) -> None:
        """Raise ValueError if the parts do not fit each other, or the configuration."""
        keys = [column.key for column in self.columns] + [number.key for number in self.numbers]
        if keys != list(config.columns) or (self.sizes is not None) != config.conditioned:
            raise ValueError(f"columns {keys}, but the configuration has {list(config.columns)}")
        tables = [self.table.codes, *([] if self.sizes is None else [self.sizes.groups])]
        for codes in tables:
            sizes = [len(column.names) for column in self.columns]
            if codes.shape[1] != len(sizes) or (codes < 0).any() or (codes >= numpy.array(sizes, int)).any():
                raise ValueError(f"codes must have a column for each of {keys}, with codes of its values")
        if self.table.numbers.shape[1] != len(self.numbers) or numpy.isinf(self.table.numbers).any():
            raise ValueError(f"rows must have {len(self.numbers)} finite numbers each")
        if not len(self.shares) or not (self.shares > 0).all() or not numpy.isfinite(self.shares).all():
            raise ValueError("shares must be positive")

    def to_dict(self) -> dict[str, Any]:
        rows = [[None if numpy.isnan(v) else v for v in row] for row in self.table.numbers.tolist()]
        return {
            "labels": [column.to_dict() for column in self.labels],
            "batch": None if self.batch is None else self.batch.to_dict(),
            "numbers": [asdict(number) for number in self.numbers],
            "codes": self.table.codes.tolist(),
            "rows": rows,
            "shares": self.shares.tolist(),
            "sizes": None if self.sizes is None else self.sizes.to_dict(),
        }

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The label columns, and the batch."""
        return self.labels if self.batch is None else (*self.labels, self.batch)

    @cached_property
    def conditions(self) -> Conditions | None:
        """The form of the network's labels; None for a network without."""
        sizes = tuple(len(column.names) for column in self.columns)
        made = Conditions(sizes, len(self.labels), len(self.numbers) + (self.sizes is not None))
        return made if made.width else None

    def read(self, cells: Counts, allow_unknown: bool = False) -> Rows:
        """The rows of cells."""
        return _read(self.columns, self.numbers, cells, allow_unknown)

    def check_guidance(self, guidance: float, allow_unlabelled: bool) -> float:
        """A guidance scale other than 1 needs labels, some of which were dropped in training."""
        scale = validate.real("guidance", guidance, 0.0)
        if scale != 1 and not self.labels:
            raise ValueError(f"guidance needs a model trained with labels, got guidance={scale}")
        if scale != 1 and not allow_unlabelled:
            raise ValueError(f"guidance must be 1 for a model trained with label_dropout=0, got {scale}")
        return scale

    def sample(self, num: int, label: Any, batch: Any, covariates: Any, uniform: NDArray[Any]) -> Rows:
        """The rows of cells to sample, from uniform numbers of shape (num, 2): those given, the others as in training.

        Labels that are not given are drawn given the others, the batch given the labels, numbers given both: from the
        training cells that agree with what is known in the most columns.
        """
        codes = numpy.full((num, len(self.columns)), _FREE)
        chosen = _by_column("label", label, [column.key for column in self.labels], num)
        if batch is not None:
            chosen |= _by_column("batch", batch, [] if self.batch is None else [self.batch.key], num)
        for k, column in enumerate(self.columns):
            if column.key in chosen:
                codes[:, k] = column.codes(chosen[column.key])
        given, own = codes.copy(), len(self.labels)
        codes[:, own:] = _FREE
        codes = numpy.where(codes == _FREE, self.table.codes[self._pick(codes, uniform[:, 0])], codes)
        codes[:, own:] = given[:, own:]
        picked = self._pick(codes, uniform[:, 1])
        codes, numbers = numpy.where(codes == _FREE, self.table.codes[picked], codes), self.table.numbers[picked]
        values = _by_column("covariates", covariates, [number.key for number in self.numbers], num)
        for k, number in enumerate(self.numbers):
            if number.key in values:
                numbers[:, k] = number.check(values[number.key])
        return Rows(codes, numbers)

    def _pick(self, codes: NDArray[Any], uniform: NDArray[Any]) -> NDArray[numpy.int64]:
        """For each row of codes a row of the table that agrees with it in the most columns."""
        picked = numpy.zeros(len(codes), numpy.int64)
        for pattern, rows in patterns(codes):
            places = numpy.flatnonzero(closest(self.table.codes, pattern))
            edges = self.shares[places].cumsum()
            picked[rows] = places[numpy.searchsorted(edges[:-1], uniform[rows] * edges[-1], side="right")]
        return picked

    def without_labels(self, rows: Rows) -> Rows:
        """The same rows with unknown labels."""
        codes = rows.codes.copy()
        codes[:, : len(self.labels)] = -1
        return Rows(codes, rows.numbers)

    def sample_library(self, library: Any, rows: Rows, uniform: NDArray[Any]) -> NDArray[numpy.int64] | None:
        """Library sizes of cells to sample: those given, or as in training; None for a model not conditioned on it."""
        num = len(rows)
        if self.sizes is None:
            if library is not None:
                raise ValueError(f"library needs a model trained with library='conditioned', got {library!r}")
            return None
        if library is None:
            return self.sizes.sample(rows.codes, uniform)
        try:
            totals = numpy.asarray(library, numpy.float64)
        except (TypeError, ValueError):
            raise ValueError(f"library must hold integers of at least 1, got {library!r}") from None
        if totals.shape not in ((), (num,)):
            raise ValueError(f"library must be one total or one for each of {num} cells, got shape {totals.shape}")
        valid = (totals >= 1) & (totals < 2.0**53) & (totals == totals.round())
        if not valid.all():
            raise ValueError(f"library must hold integers of at least 1, got {totals[~valid].flat[0]}")
        wanted = numpy.broadcast_to(totals, num).astype(numpy.int64)
        ranges = self.sizes.ranges_of(rows.codes)
        outside = numpy.flatnonzero((wanted < ranges[:, 0]) | (wanted > ranges[:, 1]))
        if len(outside):
            total, (low, high) = wanted[outside[0]], ranges[outside[0]]
            seen = f"training cells have {low} to {high}, got {total}"
            warnings.warn(
                f"library is outside the range of the training cells, results may differ: {seen}", stacklevel=5
            )
        return wanted

    def encode(self, rows: Rows, library: NDArray[Any] | None) -> Tensor | None:
        """The network's label, rows of `conditions`; None for a network without. A library of None is unknown."""
        if self.conditions is None:
            return None
        parts = [rows.codes, *(number.encode(rows.numbers[:, [k]]) for k, number in enumerate(self.numbers))]
        if self.sizes is not None:
            size = numpy.full(len(rows), numpy.nan) if library is None else self.sizes.encode(library)
            parts.append(size[:, None])
        return torch.from_numpy(numpy.concatenate(parts, 1)).float()

    def encode_cells(self, cells: Counts, allow_unknown: bool = False) -> Tensor | None:
        """The network's label of cells."""
        return self.encode(self.read(cells, allow_unknown), cells.library)

    def obs(self, rows: Rows, library: NDArray[Any] | None) -> Any:
        """obs of sampled cells, a DataFrame with the types of the training cells; no column that is unknown for all."""
        frame = optional("pandas", "labels of cells").DataFrame(index=range(len(rows)))
        for k, column in enumerate(self.columns):
            if (rows.codes[:, k] >= 0).any() or not len(rows):
                frame[column.key] = column.values.reindex(rows.codes[:, k]).set_axis(frame.index)
        for k, number in enumerate(self.numbers):
            frame[number.key] = rows.numbers[:, k]
        return frame if library is None else frame.assign(library=library)


def _read(columns: tuple[Column, ...], numbers: tuple[Number, ...], cells: Counts, allow_unknown: bool) -> Rows:
    none = numpy.zeros((len(cells), 0))
    codes = [none, *(column.read(cells, allow_unknown)[:, None] for column in columns)]
    values = [none, *(number.read(cells, allow_unknown)[:, None] for number in numbers)]
    return Rows(numpy.concatenate(codes, 1).astype(numpy.int64), numpy.concatenate(values, 1))


def _different(rows: Rows) -> tuple[Rows, NDArray[numpy.float64]]:
    """The different ones among the rows, or among `_MOST` of them if there are more, and how frequent each is."""
    width = rows.codes.shape[1]
    both = numpy.concatenate([rows.codes, rows.numbers], 1)
    if both.shape[1] == 0:
        return rows.take(slice(1)), numpy.ones(1)

    def count(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        numbered, counts = numpy.unique(numpy.nan_to_num(values, nan=numpy.inf), axis=0, return_counts=True)
        return numpy.where(numpy.isinf(numbered), numpy.nan, numbered), counts / counts.sum()

    found, shares = count(both)
    if len(found) > _MOST:
        found, shares = count(both[numpy.random.default_rng(0).permutation(len(both))[:_MOST]])
    return Rows(found[:, :width].astype(numpy.int64), found[:, width:]), shares


def _by_column(argument: str, given: Any, keys: list[str], num: int) -> dict[str, list[Any]]:
    """A value for each cell, by column, of an argument that is one value, one for each cell, or a dict of these."""
    if given is None:
        return {}
    if not keys:
        needed = {"label": "labels, such as labels='cell_type'", "batch": "batch_key, such as batch_key='donor'"}
        example = needed.get(argument, "continuous_covariate_keys")
        raise ValueError(f"{argument} needs a model trained with {example}, got {given!r}")
    if not isinstance(given, Mapping):
        if len(keys) > 1:
            raise ValueError(f"{argument} must be a dict for a model with {few(keys)}, got {validate.short(given)}")
        given = {keys[0]: given}
    found = {}
    for key, value in given.items():
        if key not in keys:
            raise ValueError(f"{argument} must name columns of the model, {few(keys)}, got {key!r}")
        one = value is None or numpy.ndim(value) == 0
        found[key] = [value] * num if one else list(value)
        if len(found[key]) != num:
            raise ValueError(f"{argument} must be one class or one for each of {num} cells, got {len(found[key])}")
    return found
