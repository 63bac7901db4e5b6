"""Which class is drawn, and how strongly: the model as samplers ask it."""

from typing import Protocol

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


def check_label(label: Label, guidance: float, num: int, num_classes: int) -> Label:
    """A label for all or for each of `num` samples, after a look at it and at the guidance that it comes with."""
    weight = validate.real("guidance", guidance, 0.0)
    if label is None:
        if weight != 1:
            raise ValueError(f"guidance needs a label to be guided by, got guidance={weight} without one")
        return None
    if isinstance(label, Tensor) and label.dim() == 2:  # a class and numbers beside it: whoever has those checks them
        return label
    if isinstance(label, Tensor) and label.dim() > 0:
        if label.shape != (num,):
            raise ValueError(f"label must be one class or have shape ({num},), got {tuple(label.shape)}")
        (label,) = validate.states(None, label=label)
        label = label.long()
        largest = int(label.max()) if num else -1
    else:
        label = largest = validate.whole("label", label, 0)
    if largest >= num_classes:
        raise ValueError(f"label must be less than the number of classes, {num_classes}, got {largest}")
    return label


def _without_class(label: Label) -> Label:
    """No class, but the numbers beside it, if there are any."""
    if not isinstance(label, Tensor) or label.dim() < 2:
        return None
    return torch.cat([torch.full_like(label[:, :1], -1.0), label[:, 1:]], -1)


def each(label: Label, x: Tensor) -> Tensor | None:
    """A label for each row of x, on its device."""
    return torch.full((len(x),), label, device=x.device) if isinstance(label, int) else label
