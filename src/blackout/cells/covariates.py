"""Covariates: the classes and library sizes that a model of cells is conditioned on."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from blackout import validate
from blackout.cells.counts import SEPARATOR, Counts
from blackout.cells.library import LibrarySizes
from blackout.cells.names import few, optional

_MANY = 20  # classes from which on too few cells in each cause a warning


@dataclass(frozen=True)
class Covariates:
    """The classes of the training cells, how frequent each is, and the distribution of library sizes.

    A cell's class is a code from 0 on, or -1 for no class.
    """

    labels: tuple[str, ...]
    """Columns of obs; none for a model without labels."""
    classes: tuple[str, ...]
    values: Any
    """The labels of each class, a DataFrame of the types of obs; None without labels."""
    shares: NDArray[numpy.float64]
    sizes: LibrarySizes | None
    """None for a model that is not conditioned on the library size."""

    @staticmethod
    def fit(cells: Counts, labels: Sequence[str], conditioned: bool) -> "Covariates":
        """The covariates of training cells."""
        codes, classes = cells.classes(labels) if labels else (numpy.full(len(cells), -1), [])
        ambiguous = [name for name in classes if name.count(SEPARATOR) != len(labels) - 1]
        if len(labels) > 1 and ambiguous:
            raise ValueError(f"values of several labels must not contain {SEPARATOR!r}, got {ambiguous[0]!r}")
        if conditioned and "library" in labels:
            raise ValueError("labels must not name 'library', the obs column of sampled library sizes; rename it")
        if len(classes) >= _MANY and len(classes) > len(cells) / 2:
            got = f"{len(classes)} classes of {' and '.join(labels)} in {len(cells)} cells"
            warnings.warn(f"labels should have many cells in each class, got {got}", stacklevel=2)
        shares = numpy.bincount(codes, minlength=len(classes)) / len(cells) if labels else numpy.zeros(0)
        sizes = LibrarySizes.fit(cells.library, codes, len(classes)) if conditioned else None
        values = cells.obs[list(labels)].iloc[numpy.unique(codes, return_index=True)[1]] if labels else None
        return Covariates(tuple(labels), tuple(classes), values, shares, sizes)

    @staticmethod
    def from_dict(labels: tuple[str, ...], values: dict[str, Any]) -> "Covariates":
        shares, classes = numpy.asarray(values["shares"], numpy.float64), tuple(values["classes"])
        sizes = None if values["sizes"] is None else LibrarySizes.from_dict(values["sizes"])
        columns = {key: _from_json(values["values"][key]) for key in labels}
        lengths = {len(shares), *map(len, columns.values()), *([] if sizes is None else [len(sizes.quantiles) - 1])}
        if lengths != {len(classes)}:
            raise ValueError(f"{len(classes)} classes, but shares, values or library sizes of another number")
        table = optional("pandas", "labels of cells").DataFrame(columns) if labels else None
        return Covariates(labels, classes, table, shares, sizes)

    def to_dict(self) -> dict[str, Any]:
        return {
            "classes": list(self.classes),
            "values": {key: _to_json(self.values[key]) for key in self.labels},
            "shares": self.shares.tolist(),
            "sizes": None if self.sizes is None else self.sizes.to_dict(),
        }

    def codes(self, cells: Counts, allow_unlabelled: bool = False) -> NDArray[Any]:
        """The class of each cell, shape (cells,); -1 for all without labels, and for unlabelled cells if allowed."""
        if not self.labels:
            return numpy.full(len(cells), -1)
        has, codes = cells.is_labelled(self.labels), numpy.full(len(cells), -1)
        if not allow_unlabelled and not has.all():
            try:
                cells.classes(self.labels)
            except ValueError as error:
                raise ValueError(f"{error}; a model trained with label_dropout=0 needs labels") from None
        if has.any():
            numbers, names = (cells if has.all() else cells.take(has)).classes(self.labels)
            codes[has] = self._codes_of(names)[numbers]
        missing = [key for key in self.labels if key not in cells.covariates]
        if missing:
            warnings.warn(f"obs has no column {missing[0]!r}: the cells are treated as unlabelled", stacklevel=3)
        return codes

    def check_guidance(self, guidance: float, allow_unlabelled: bool) -> float:
        """A guidance scale other than 1 needs labels, some of which were dropped in training."""
        scale = validate.real("guidance", guidance, 0.0)
        if scale != 1 and not self.labels:
            raise ValueError(f"guidance needs a model trained with labels, got guidance={scale}")
        if scale != 1 and not allow_unlabelled:
            raise ValueError(f"guidance must be 1 for a model trained with label_dropout=0, got {scale}")
        return scale

    def sample_codes(self, label: str | Sequence[str] | None, num: int, uniform: NDArray[Any]) -> NDArray[Any]:
        """Classes of cells to sample: those of `label`, or as frequent as in training, from uniform numbers."""
        if not self.labels:
            if label is not None:
                raise ValueError(f"label needs a model trained with labels, such as labels='cell_type', got {label!r}")
            return numpy.full(num, -1)
        if label is None:
            edges = self.shares.cumsum()
            codes: NDArray[Any] = numpy.searchsorted(edges[:-1], uniform * edges[-1], side="right")
            return codes
        names = [str(label)] * num if numpy.ndim(label) == 0 else [str(name) for name in label]
        if len(names) != num:
            raise ValueError(f"label must be one class or one for each of {num} cells, got {len(names)}")
        return self._codes_of(names)

    def sample_library(
        self, library: Any, num: int, codes: NDArray[Any], uniform: NDArray[Any]
    ) -> NDArray[numpy.int64] | None:
        """Library sizes of cells to sample: those given, or as in training; None for a model not conditioned on it."""
        if self.sizes is None:
            if library is not None:
                raise ValueError(f"library needs a model trained with library='conditioned', got {library!r}")
            return None
        if library is None:
            return self.sizes.sample(codes, uniform)
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
        outside = numpy.flatnonzero(self.sizes.is_outside(wanted, codes))
        if len(outside):
            total, (low, high) = wanted[outside[0]], self.sizes.ranges[codes[outside[0]]]
            seen = f"training cells have {low} to {high}, got {total}"
            warnings.warn(
                f"library is outside the range of the training cells, results may differ: {seen}", stacklevel=4
            )
        return wanted

    def encode(self, codes: NDArray[Any], library: NDArray[Any] | None) -> Tensor | None:
        """The network's label: None, classes (n,), or rows of class (-1: none) and library size (NaN: unknown)."""
        if self.sizes is None and not self.labels:
            return None
        if self.sizes is None and (codes >= 0).all():
            return torch.from_numpy(codes).long()
        columns = [codes.astype(numpy.float64)]
        if self.sizes is not None:
            columns.append(numpy.full(len(codes), numpy.nan) if library is None else self.sizes.encode(library))
        return torch.from_numpy(numpy.stack(columns, 1)).float()

    def obs(self, codes: NDArray[Any], library: NDArray[Any] | None) -> Any:
        """obs of sampled cells, a DataFrame with the types of the training cells; no labels if a cell has no class."""
        frame = optional("pandas", "labels of cells").DataFrame(index=range(len(codes)))
        if self.labels and (codes >= 0).all():
            frame = self.values.iloc[codes].reset_index(drop=True)
        return frame if library is None else frame.assign(library=library)

    def _codes_of(self, names: Sequence[str]) -> NDArray[Any]:
        code = {name: k for k, name in enumerate(self.classes)}
        unknown = sorted(set(names) - set(code))
        if unknown:
            raise ValueError(f"the model was not trained on these labels: {few(unknown)}; it has {few(self.classes)}")
        return numpy.array([code[name] for name in names], numpy.int64)


def _to_json(column: Any) -> dict[str, Any]:
    """The values and the type of a pandas Series as plain JSON."""
    times = column.dtype.kind == "M"
    about: dict[str, Any] = {"dtype": str(column.dtype), "values": [str(v) if times else v for v in column.tolist()]}
    if about["dtype"] == "category":
        about |= {"categories": column.cat.categories.tolist(), "ordered": bool(column.cat.ordered)}
    return about


def _from_json(about: dict[str, Any]) -> Any:
    pandas = optional("pandas", "labels of cells")
    if about["dtype"] == "category":
        return pandas.Series(pandas.Categorical(about["values"], about["categories"], ordered=about["ordered"]))
    return pandas.Series(about["values"], dtype="object").astype(about["dtype"])
