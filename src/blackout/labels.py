"""Class labels, as numbers or by name, and `Conditions`: rows of several of them and of numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor

from blackout import validate

ClassNames = tuple[str, ...] | None
"""The name of each class, in the order of the class numbers; None: classes have numbers only."""

_LISTED = 20  # names in a message
_LARGEST = 4.0  # standardised number whose effect is known


@dataclass(frozen=True)
class Conditions:
    """A row for each data point: a class in each of several columns (-1: unknown), then numbers (NaN: unknown).

    Parameters
    ----------
    columns
        The number of classes of each column.
    guided
        How many of the columns, the first ones, classifier-free guidance drops; the others are kept.
    numbers
        How many numbers follow.
    """

    columns: tuple[int, ...] = ()
    guided: int = 0
    numbers: int = 0

    def __post_init__(self) -> None:
        columns = tuple(validate.integer("columns", size, 1) for size in self.columns)
        object.__setattr__(self, "columns", columns)
        validate.integer("guided", self.guided, 0, len(columns))
        validate.integer("numbers", self.numbers, 0)

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return len(self.columns) + self.numbers

    def check(self, label: Tensor, num: int) -> Tensor:
        """Rows for `num` data points, (num, width); ValueError if they are not."""
        if tuple(label.shape) != (num, self.width):
            expected = f"{len(self.columns)} classes and {self.numbers} numbers for each"
            raise ValueError(f"label must have shape {(num, self.width)}, {expected}, got {tuple(label.shape)}")
        for k, size in enumerate(self.columns):
            codes = label[:, k]
            wrong = ~((codes == codes.round()) & (codes >= -1) & (codes < size))
            if bool(wrong.any()):
                raise ValueError(f"label must hold classes from -1, for none, to {size - 1}, got {codes[wrong][0]}")
        return label

    def design(self, label: Tensor) -> Tensor:
        """Ones where a value is that of the row, column after column, then the numbers, to four; zeros for unknown."""
        codes, numbers = label[:, : len(self.columns)], label[:, len(self.columns) :]
        values = [torch.arange(size, device=label.device) == codes[:, [k]] for k, size in enumerate(self.columns)]
        numbers = numbers.nan_to_num(0.0).clamp(-_LARGEST, _LARGEST)
        return torch.cat([*(value.to(label.dtype) for value in values), numbers], 1)

    def without_class(self, label: Tensor) -> Tensor:
        """The rows without the classes that guidance drops."""
        return torch.cat([torch.full_like(label[:, : self.guided], -1.0), label[:, self.guided :]], -1)

    def hide(self, label: Tensor, chance: Tensor, share: float) -> Tensor:
        """Drop a share of the entries, by uniform numbers of shape (n, 1 + width): each column, and all guided ones."""
        together, own = chance[:, :1] < share, chance[:, 1:] < share
        guided = own[:, : self.guided] if self.guided > 1 else torch.zeros_like(together[:, : self.guided])
        dropped = torch.cat([guided | together, own[:, self.guided :]], -1)
        number = torch.arange(self.width, device=label.device) >= len(self.columns)
        return torch.where(dropped, torch.where(number, torch.nan, -1.0), label)


def check_class_names(names: Any, num_classes: int) -> tuple[str, ...]:
    """A different, non-empty name for each class."""
    names = names.tolist() if isinstance(names, numpy.ndarray) else names
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise ValueError(f"class_names must be a sequence of strings, got {names!r}")
    wrong = next((name for name in names if not isinstance(name, str) or not name.strip()), None)
    if wrong is not None:
        raise ValueError(f"class_names must hold strings that are not empty, got {wrong!r}")
    repeated = next((name for k, name in enumerate(names) if name in names[:k]), None)
    if repeated is not None:
        raise ValueError(f"class_names must differ, got {repeated!r} twice")
    if len(names) != num_classes:
        raise ValueError(f"class_names must hold {num_classes} names, one for each class, got {len(names)}: {names}")
    return tuple(map(str, names))


def names_in(labels: Any) -> ClassNames:
    """The different names in labels that are names, sorted; None for numbers."""
    values = _with_texts(labels)
    if values is None:
        return None
    wrong = next((value for value in values if not isinstance(value, str)), None)
    if wrong is not None:
        raise ValueError(f"labels must be all names or all numbers, got {wrong!r} among names")
    return tuple(sorted(set(map(str, values))))


def by_number(argument: str, labels: Any, names: ClassNames) -> Any:
    """A label or labels of which names are replaced by class numbers; whatever else is there stays as it is."""
    values = [labels] if isinstance(labels, str) else _with_texts(labels)
    if values is None:
        return labels
    number = {name: k for k, name in enumerate(names or ())}
    unknown = next((value for value in values if isinstance(value, str) and value not in number), None)
    if unknown is not None and names is None:
        raise ValueError(f"{argument} must be a class number: the model has no class names, got {str(unknown)!r}")
    if unknown is not None:
        listed, close = _listed(names or ()), validate.suggestion(unknown, number)
        raise ValueError(f"{argument} must be one of {listed}, got {str(unknown)!r}{close}")
    found = [number[value] if isinstance(value, str) else value for value in values]
    return found[0] if isinstance(labels, str) else found


def describe_classes(num_classes: int, names: ClassNames) -> str:
    """The number of classes, and their names if they have any."""
    return f"{num_classes} class{'' if num_classes == 1 else 'es'}" + (f": {_listed(names)}" if names else "")


def check_labels(name: str, labels: Any, num: int, num_classes: int) -> Tensor:
    """A class number for each of `num` data points, from a tensor, an array or a list."""
    try:
        tensor = torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} must hold class numbers or names, got {type(labels).__name__}") from None
    if tensor.shape != (num,):
        one = "be one class or " if name == "label" else ""
        raise ValueError(f"{name} must {one}have shape ({num},), got {tuple(tensor.shape)}")
    (tensor,) = validate.states(None, **{name: tensor})
    if num:
        check_number(name, int(tensor.max()), num_classes)
    return tensor.long()


def check_number(name: str, number: int, num_classes: int) -> int:
    """A class number that is less than the number of classes."""
    if not num_classes:
        raise ValueError(f"{name} must be None: the model has no classes, got {number}")
    if number >= num_classes:
        raise ValueError(f"{name} must be less than the number of classes, {num_classes}, got {number}")
    return number


def check_training_labels(
    labels: Any, num: int, num_classes: int, class_names: Any, known: ClassNames
) -> tuple[Tensor | None, ClassNames]:
    """The class of each of `num` data points to train on, and the names of the classes.

    Both are None for a model without classes. `class_names` are the given names, `known` those that the model has
    already; names that are neither given nor known are those among the labels, in alphabetical order.
    """
    if labels is None and num_classes:
        raise ValueError(f"labels are needed: the model was made for {num_classes} classes, got None")
    names = known if class_names is None else check_class_names(class_names, num_classes)
    if labels is None:
        return None, names
    if not num_classes:
        found = names_in(labels)
        number = len(found) if found else int(check_labels("labels", labels, num, 1 << 62).max()) + 1
        raise ValueError(f"labels need a model with classes: DiffusionModel.for_data(x, process, num_classes={number})")
    if names is None and (names := names_in(labels)) is not None and len(names) != num_classes:
        advice = "class_names may name them all"
        raise ValueError(f"labels must name {num_classes} classes, got {describe_classes(len(names), names)}; {advice}")
    return check_labels("labels", by_number("labels", labels, names), num, num_classes), names


def _listed(names: Sequence[str]) -> str:
    more = f", ... ({len(names)} in all)" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def _with_texts(labels: Any) -> list[Any] | None:
    """The entries of a one-dimensional collection, if one of them is a name."""
    if labels is None or isinstance(labels, Tensor | str) or getattr(labels, "dtype", numpy.dtype("O")).kind in "biuf":
        return None
    array = numpy.asarray(labels, dtype=object)
    values = array.tolist() if array.ndim == 1 else []
    return values if any(isinstance(value, str) for value in values) else None
