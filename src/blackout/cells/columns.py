"""Columns of obs that a model of cells is conditioned on: categories, and numbers."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

from blackout import validate
from blackout.cells.counts import Counts
from blackout.cells.names import few, optional

_MANY = 20  # classes from which on too few cells in each cause a warning
_NUMERIC = "iuf"  # kinds of numbers, of numpy and of pandas' nullable types


@dataclass(frozen=True)
class Column:
    """A categorical column and its values in the training cells. A code is a place among them, or -1 for unknown."""

    key: str
    names: tuple[str, ...]
    values: Any
    """The values as a Series of the type of obs, in the order of the names."""

    @staticmethod
    def fit(cells: Counts, key: str, argument: str) -> "Column":
        """The column of training cells; `argument` is the one that names it."""
        rows = cells.column(key)
        place = {name: k for k, name in enumerate(rows)}
        names, series = tuple(sorted(place)), cells.obs[key]
        if len(names) >= _MANY and len(names) > len(cells) / 2:
            got = f"{len(names)} values of {key!r} in {len(cells)} cells"
            if series.dtype.kind in _NUMERIC:
                raise ValueError(f"{argument} must be classes, got {got}; continuous_covariate_keys takes numbers")
            warnings.warn(f"{argument} should have many cells in each class, got {got}", stacklevel=2)
        return Column(key, names, series.iloc[[place[name] for name in names]].reset_index(drop=True))

    def read(self, cells: Counts, allow_unknown: bool) -> NDArray[numpy.int64]:
        """The code of each cell; cells may lack a value, or all of them the column, only if that is allowed."""
        if allow_unknown and is_absent(cells, self.key):
            return numpy.full(len(cells), -1)
        if allow_unknown:
            values, known = cells.obs[self.key].tolist(), cells.is_labelled([self.key])
            return self.codes([value if there else None for value, there in zip(values, known, strict=True)])
        try:
            names = cells.column(self.key)
        except ValueError as error:
            raise ValueError(f"{error}; a model trained with label_dropout=0 needs labels") from None
        return self.codes(names)

    def codes(self, values: Any) -> NDArray[numpy.int64]:
        """The codes of values, which may be given as text; None is unknown."""
        code: dict[str | None, int] = {name: k for k, name in enumerate(self.names)} | {None: -1}
        names = [None if value is None else str(value) for value in values]
        unknown = sorted({str(name) for name in names if name not in code})
        if unknown:
            seen = f"{self.key!r} has {few(self.names)}"
            raise ValueError(f"the model was not trained on these labels: {few(unknown)}; {seen}")
        return numpy.array([code[name] for name in names], numpy.int64)

    def to_dict(self) -> dict[str, Any]:
        times = self.values.dtype.kind == "M"
        values = [str(value) if times else value for value in self.values.tolist()]
        about: dict[str, Any] = {
            "key": self.key,
            "names": list(self.names),
            "dtype": str(self.values.dtype),
            "values": values,
        }
        if about["dtype"] == "category":
            about |= {"categories": self.values.cat.categories.tolist(), "ordered": bool(self.values.cat.ordered)}
        return about

    @staticmethod
    def from_dict(about: dict[str, Any]) -> "Column":
        pandas, names, values = optional("pandas", "labels of cells"), about["names"], about["values"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or not names:
            raise ValueError(f"names must be a list of text, got {validate.short(names)}")
        if not isinstance(values, list) or len(values) != len(names) or len(set(names)) < len(names):
            raise ValueError(f"expected a value for each of {len(names)} different names")
        if about["dtype"] == "category":
            typed = pandas.Categorical(values, about["categories"], ordered=about["ordered"])
            return Column(about["key"], tuple(names), pandas.Series(typed))
        return Column(about["key"], tuple(names), pandas.Series(values, dtype="object").astype(about["dtype"]))


@dataclass(frozen=True)
class Number:
    """A column of numbers, and their mean, standard deviation and range in the training cells. NaN is unknown."""

    key: str
    mean: float
    std: float
    low: float
    high: float

    @staticmethod
    def fit(cells: Counts, key: str) -> "Number":
        cells.check_column(key)
        values = _numbers(cells, key)
        known = values[~numpy.isnan(values)]
        if not len(known):
            raise ValueError(f"continuous_covariate_keys: obs column {key!r} has no number, all are missing")
        return Number(key, float(known.mean()), float(known.std()) or 1.0, float(known.min()), float(known.max()))

    def read(self, cells: Counts, allow_unknown: bool) -> NDArray[numpy.float64]:
        """The number of each cell."""
        if allow_unknown and is_absent(cells, self.key):
            return numpy.full(len(cells), numpy.nan)
        cells.check_column(self.key)
        return _numbers(cells, self.key)

    def check(self, values: Any) -> NDArray[numpy.float64]:
        """Given numbers; a warning if they are outside the range of the training cells."""
        try:
            numbers = numpy.array([numpy.nan if value is None else float(value) for value in values])
        except (TypeError, ValueError):
            raise ValueError(f"covariates must be numbers, got {self.key}={validate.short(values[0])}") from None
        outside = numbers[(numbers < self.low) | (numbers > self.high)]
        if len(outside):
            if not numpy.isfinite(outside).all():
                raise ValueError(f"covariates must be finite, got {self.key}={outside[0]}")
            seen = f"training cells have {self.low:g} to {self.high:g}, got {outside[0]:g}"
            warnings.warn(
                f"covariates: {self.key!r} is outside the range of training, results may differ: {seen}", stacklevel=6
            )
        return numbers

    def encode(self, values: NDArray[Any]) -> NDArray[numpy.float64]:
        """The network's input."""
        return (values - self.mean) / self.std

    @staticmethod
    def from_dict(about: dict[str, Any]) -> "Number":
        numbers = [float(about[name]) for name in ("mean", "std", "low", "high")]
        if not numpy.isfinite(numbers).all() or not numbers[1] > 0 or numbers[2] > numbers[3]:
            raise ValueError(f"expected finite mean, std, low and high, got {numbers}")
        return Number(about["key"], *numbers)


def is_absent(cells: Counts, key: str) -> bool:
    """Whether obs lacks a column, with a warning if so."""
    if key in cells.covariates:
        return False
    warnings.warn(f"obs has no column {key!r}: it is unknown for all cells", stacklevel=6)
    return True


def _numbers(cells: Counts, key: str) -> NDArray[numpy.float64]:
    series = cells.obs[key]
    if series.dtype.kind not in _NUMERIC:
        raise ValueError(f"continuous_covariate_keys: obs column {key!r} must hold numbers, got {series.dtype}")
    values: NDArray[numpy.float64] = series.to_numpy(dtype=numpy.float64, na_value=numpy.nan)
    infinite = numpy.flatnonzero(numpy.isinf(values))
    if len(infinite):
        which = f"{values[infinite[0]]} for cell {cells.cells[infinite[0]]!r}"
        raise ValueError(f"continuous_covariate_keys: obs column {key!r} must be finite or missing, got {which}")
    return values
