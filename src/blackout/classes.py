"""Which class is drawn, and how strongly: the model as samplers ask it."""

from typing import Any, Protocol

import numpy
import torch
from torch import Tensor

from blackout import validate
from blackout.guidance import Guided
from blackout.process.base import MarkovProcess

Label = int | Tensor | None
"""One class for all samples, one for each, or none."""


class Answers(Protocol):
    """What is asked of a model here."""

    process: MarkovProcess

    def denoise(self, xt: Tensor, t: Tensor, label: Label = None) -> Tensor: ...

    def law(self, xt: Tensor, t: Tensor, label: Label = None) -> Tensor: ...


class ModelDenoiser:
    """A model as samplers ask it, with the class it is to draw. Guidance other than 0 and 1 asks it twice."""

    def __init__(self, model: Answers, label: Label, guidance: float = 1.0) -> None:
        self._model, self._label = model, label if guidance else _without_class(label)
        self._guided: Guided | None = None
        if guidance not in (0, 1):
            free = ModelDenoiser(model, _without_class(label))
            self._guided = Guided(model.process, free, ModelDenoiser(model, label), guidance)

    def __call__(self, xt: Tensor, t: Tensor) -> Tensor:
        return self._guided(xt, t) if self._guided else self._model.denoise(xt, t, self._label)

    def law(self, xt: Tensor, t: Tensor) -> Tensor:
        return self._guided.law(xt, t) if self._guided else self._model.law(xt, t, self._label)


def check_label(label: Any, guidance: float, num: int, num_classes: int, numbers: int | None = None) -> Label:
    """A label for all or for each of `num` samples, after a look at it and at the guidance that it comes with.

    A network that takes `numbers` beside the class is given both in floating point, (num, 1 + numbers).
    """
    weight = validate.real("guidance", guidance, 0.0)
    if label is None:
        if weight != 1:
            raise ValueError(f"guidance needs a label to be guided by, got guidance={weight} without one")
        return None
    if numpy.ndim(label) == 0:
        return _below(num_classes, "label", validate.integer("label", label, 0))
    if numbers is not None and isinstance(label, Tensor) and label.dim() == 2 and label.is_floating_point():
        return _with_numbers(label, (num, 1 + numbers), num_classes)
    return check_labels("label", label, num, num_classes)


def check_labels(name: str, labels: Any, num: int, num_classes: int) -> Tensor:
    """A class for each of `num` states, from a tensor, an array or a list."""
    try:
        tensor = torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} must be numbers of classes, got {type(labels).__name__}") from None
    if tensor.shape != (num,):
        one = "be one class or " if name == "label" else ""
        raise ValueError(f"{name} must {one}have shape ({num},), got {tuple(tensor.shape)}")
    (tensor,) = validate.states(None, **{name: tensor})
    _below(num_classes, name, int(tensor.max()) if num else -1)
    return tensor.long()


def _below(num_classes: int, name: str, largest: int) -> int:
    if largest >= num_classes:
        raise ValueError(f"{name} must be less than the number of classes, {num_classes}, got {largest}")
    return largest


def _with_numbers(label: Tensor, shape: tuple[int, int], num_classes: int) -> Tensor:
    if tuple(label.shape) != shape:
        raise ValueError(f"label must have shape {shape}, a class and the numbers beside it, got {tuple(label.shape)}")
    classes = label[:, 0]
    wrong = (classes != classes.round()) | (classes < -1) | (classes >= num_classes)
    if bool(wrong.any()):
        raise ValueError(f"label must hold classes from -1, for none, to {num_classes - 1}, got {classes[wrong][0]}")
    return label


def _without_class(label: Label) -> Label:
    """No class, but the numbers beside it, if there are any."""
    if not isinstance(label, Tensor) or label.dim() < 2:
        return None
    return torch.cat([torch.full_like(label[:, :1], -1.0), label[:, 1:]], -1)


def each(label: Label, x: Tensor) -> Tensor | None:
    """A label for each row of x, on its device."""
    return torch.full((len(x),), label, device=x.device) if isinstance(label, int) else label
