"""Covariates: what a model of cells is conditioned on, from columns of obs and totals to numbers, and back."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from blackout import validate
from blackout.cells.columns import Kind
from blackout.cells.counts import Counts
from blackout.cells.library import LibraryLaw
from blackout.cells.table import few

_BETWEEN = " / "  # as Counts.classes writes it
_MANY = 20  # classes that are worth a second look


@dataclass(frozen=True)
class Covariates:
    """The classes that the labels of training cells make, how often each comes, and the law of a cell's total."""

    keys: tuple[str, ...]
    """Columns of obs; none for a model without labels."""
    kinds: tuple[Kind, ...]
    """What each of them is made of."""
    conditioned: bool
    """Whether the total of a cell is given to the network too."""
    classes: tuple[str, ...]
    share: NDArray[numpy.float64]
    totals: LibraryLaw

    @staticmethod
    def of(cells: Counts, keys: Sequence[str], conditioned: bool) -> "Covariates":
        """As training cells have them."""
        codes, classes = cells.classes(keys) if keys else (None, [])
        unclear = [name for name in classes if name.count(_BETWEEN) != len(keys) - 1]
        if len(keys) > 1 and unclear:
            raise ValueError(
                f"values of several labels must not hold {_BETWEEN!r}, which joins them, got {unclear[0]!r}"
            )
        if conditioned and "library" in keys:
            raise ValueError("labels must not name 'library', which the totals of drawn cells are called; rename it")
        if len(classes) >= _MANY and len(classes) > len(cells) / 2:
            which = f"{' and '.join(keys)} have {len(classes)} values in {len(cells)} cells"
            warnings.warn(f"labels should have many cells each, but {which}", stacklevel=2)
        numbers = numpy.full(len(cells), -1) if codes is None else codes.numpy()
        share = numpy.bincount(numbers, minlength=len(classes)) / len(cells) if keys else numpy.zeros(0)
        law = LibraryLaw.fit(cells.library, numbers, len(classes))
        kinds = tuple(cells.kind(key) for key in keys)
        return Covariates(tuple(keys), kinds, conditioned, tuple(classes), share, law)

    @staticmethod
    def from_dict(values: dict[str, Any]) -> "Covariates":
        share, law = numpy.asarray(values["share"], numpy.float64), LibraryLaw.from_dict(values["totals"])
        classes = tuple(values["classes"])
        if not len(share) == len(classes) == len(law.quantiles) - 1:
            raise ValueError(f"{len(classes)} classes, but shares or totals of another number")
        # The first version kept no kinds, and gave labels as texts.
        kinds = tuple(map(Kind.from_dict, values.get("kinds", [Kind().as_dict()] * len(values["labels"]))))
        return Covariates(tuple(values["labels"]), kinds, values["library"] == "conditioned", classes, share, law)

    def as_dict(self) -> dict[str, Any]:
        return {
            "labels": list(self.keys),
            "kinds": [kind.as_dict() for kind in self.kinds],
            "library": "conditioned" if self.conditioned else "generated",
            "classes": list(self.classes),
            "share": self.share.tolist(),
            "totals": self.totals.as_dict(),
        }

    def codes(self, cells: Counts, free: bool = False) -> NDArray[Any]:
        """The number of each cell's class; -1 without labels, and, if `free`, for a cell that lacks one."""
        if not self.keys:
            return numpy.full(len(cells), -1)
        has, numbers = cells.labelled(self.keys), numpy.full(len(cells), -1)
        if not free and not has.all():
            try:
                cells.classes(self.keys)
            except ValueError as error:
                raise ValueError(f"{error}; the model, of label_dropout=0, knows no cells without a label") from None
        if has.any():
            codes, names = (cells if has.all() else cells.take(has)).classes(self.keys)
            numbers[has] = self._numbers(names)[codes.numpy()]
        missing = [key for key in self.keys if key not in cells.obs]
        if missing:
            warnings.warn(f"obs has no column {missing[0]!r}: the cells are taken without a label", stacklevel=3)
        return numbers

    def guidance(self, guidance: float, free: bool) -> float:
        """How strongly labels are meant; other than as learnt only by a model that has seen cells without one."""
        weight = validate.real("guidance", guidance, 0.0)
        if weight != 1 and not self.keys:
            raise ValueError(f"guidance needs labels to be guided by, got guidance={weight} for a model without")
        if weight != 1 and not free:
            raise ValueError(f"guidance must be 1 for a model that was trained with label_dropout=0, got {weight}")
        return weight

    def wanted(self, label: str | Sequence[str] | None, num: int, chance: NDArray[Any]) -> NDArray[Any]:
        """The classes of cells to be drawn: those asked for, or as often as in training; `chance` is in (0, 1)."""
        if not self.keys:
            if label is not None:
                raise ValueError(
                    f"label needs a model with labels, such as CountModel(labels='cell_type'), got {label!r}"
                )
            return numpy.full(num, -1)
        if label is None:
            edges = self.share.cumsum()
            codes: NDArray[Any] = numpy.searchsorted(edges[:-1], chance * edges[-1], side="right")
            return codes
        names = [str(label)] * num if numpy.ndim(label) == 0 else [str(name) for name in label]
        if len(names) != num:
            raise ValueError(f"label must be one class or one for each of {num} cells, got {len(names)}")
        return self._numbers(names)

    def library(self, library: Any, num: int, codes: NDArray[Any], chance: NDArray[Any]) -> NDArray[Any]:
        """The totals of cells to be drawn: those asked for, or as training cells of these classes have them."""
        if library is None:
            return self.totals.sample(codes, chance)
        if not self.conditioned:
            raise ValueError("library needs a model that is conditioned on it: CountModel(library='conditioned')")
        try:
            totals = numpy.asarray(library, numpy.float64)
        except (TypeError, ValueError):
            raise ValueError(f"library must be whole numbers of at least 1, got {library!r}") from None
        if totals.shape not in ((), (num,)):
            raise ValueError(f"library must be one total or one for each of {num} cells, got shape {totals.shape}")
        fine = (totals >= 1) & (totals < 2.0**53) & (totals == totals.round())
        if not fine.all():
            raise ValueError(f"library must be whole numbers of at least 1, got {totals[~fine].flat[0]}")
        wanted = numpy.broadcast_to(totals, num).astype(numpy.int64)
        outside = numpy.flatnonzero(self.totals.outside(wanted, codes))
        if len(outside):
            total, (low, high) = wanted[outside[0]], self.totals.ranges[codes[outside[0]]]
            which = f"training cells had {low} to {high}, got {total}"
            warnings.warn(f"library is outside what the model has seen, and may not be kept: {which}", stacklevel=3)
        return wanted

    def labels(self, codes: NDArray[Any], totals: NDArray[Any] | None) -> Tensor | None:
        """What the network is given: a class, or a class and the total as a number; NaN for a total not known.

        A class below zero is not known; it comes in a row of its own, as numbers do.
        """
        if not self.conditioned and not self.keys:
            return None
        if not self.conditioned and (codes >= 0).all():
            return torch.from_numpy(codes).long()
        columns = [codes.astype(numpy.float64)]
        if self.conditioned:
            columns.append(numpy.full(len(codes), numpy.nan) if totals is None else self.totals.number(totals))
        return torch.from_numpy(numpy.stack(columns, 1)).float()

    def obs(self, codes: NDArray[Any], totals: NDArray[Any]) -> dict[str, Any]:
        """The columns that drawn cells get, of the kinds that training cells had; no labels for no classes."""
        columns: dict[str, Any] = {}
        if (codes >= 0).all():
            for column, (key, kind) in enumerate(zip(self.keys, self.kinds, strict=True)):
                texts = [c if len(self.keys) == 1 else c.split(_BETWEEN)[column] for c in self.classes]
                values = kind.parse(texts)
                columns[key] = kind.column([values[code] for code in codes])
        return {**columns, "library": totals} if self.conditioned else columns

    def _numbers(self, names: Sequence[str]) -> NDArray[Any]:
        number = {name: k for k, name in enumerate(self.classes)}
        unseen = sorted(set(names) - set(number))
        if unseen:
            raise ValueError(f"the model has not seen these labels: {few(unseen)}; it knows {few(self.classes)}")
        return numpy.array([number[name] for name in names])
