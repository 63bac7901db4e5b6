"""Classifier-free guidance, and the labels of samples."""

from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import Tensor

from blackout import validate
from blackout.labels import ClassNames, Conditions, by_number, check_labels, check_number
from blackout.posterior import Posterior

Label = int | Tensor | None
"""One class for all samples, one for each, a row of `Conditions` for each, or none."""

_LARGEST = 700.0  # of a logarithm: e^700 is finite
_GAIN = 2.0  # what guidance may multiply the mean of one component by, where counts have no bound


class GuidedPosterior(Posterior):
    """log κ = (1 - w) log κ(unconditional) + w log κ(conditional), also for means and probabilities. Not in the paper.

    After Ho and Salimans (2022), for rates as in Nisonoff et al. (2024). Under pure death κ is proportional to
    y = E[X_0 - X_t | X_t], which is combined in its place and stays within the counts that are possible. Counts without
    a bound get one: y of a component is at most twice the larger of its two means, and the sum over all components
    at most the larger of the two sums. See docs/mathematics.md#inpainting-and-guidance.

    Parameters
    ----------
    free, conditional
        The posteriors without and with the label.
    weight
        w, the classifier-free guidance scale (0: unconditional, 1: conditional).
    """

    def __init__(self, free: Posterior, conditional: Posterior, weight: float) -> None:
        super().__init__(conditional.process, conditional.xt, conditional.t)
        self.free, self.conditional, self.weight = free, conditional, validate.real("guidance", weight, 0.0)

    def difference(self) -> Tensor:
        """Under pure death y is combined itself; other differences have signs and follow from the probabilities."""
        if not self.process.mean_suffices:
            states = torch.arange(self.process.finite_states(), device=self.xt.device)
            return (self.probs() * (states - self.xt.unsqueeze(-1))).sum(-1)
        free, conditional = self.free.difference().double(), self.conditional.difference().double()
        y, largest = self._combine(free, conditional), self.process.max_state
        if largest is not None:
            return torch.minimum(y, largest - self.xt.double())
        y = torch.minimum(y, _GAIN * torch.maximum(free, conditional))
        total, sums = _sum(y), torch.maximum(_sum(free), _sum(conditional))
        return y * (sums / total.clamp(min=1e-300)).clamp(max=1.0)

    def rates(self) -> Tensor:
        if self.process.mean_suffices:
            return (self.difference() * self.process.unit_rate(self.xt, self.t)).unsqueeze(-1)
        return self._combine(self.free.rates(), self.conditional.rates())

    def probs(self) -> Tensor:
        """p ∝ p(unconditional)^(1 - w) p(conditional)^w; where the two exclude each other, p(conditional)."""
        conditional = self.conditional.probs()
        logs = self._logs(self.free.probs(), conditional)
        largest = logs.amax(-1, keepdim=True)
        probs = torch.exp(logs - largest.clamp(min=-1e300))
        probs = torch.where(torch.isneginf(largest), conditional.double(), probs)
        return probs / probs.sum(-1, keepdim=True)

    def checked(self) -> "GuidedPosterior":
        return GuidedPosterior(self.free.checked(), self.conditional.checked(), self.weight)

    def _combine(self, free: Tensor, conditional: Tensor) -> Tensor:
        """free^(1 - w) conditional^w, float64; zero where either is zero."""
        return torch.exp(self._logs(free, conditional).clamp(max=_LARGEST))

    def _logs(self, free: Tensor, conditional: Tensor) -> Tensor:
        free, conditional = free.double(), conditional.double()
        both = (free > 0) & (conditional > 0)
        # The logarithm of one stands in where a logarithm has no value: -inf times a negative number would win.
        a, b = (torch.log(torch.where(both, v, 1.0)) for v in (free, conditional))
        return torch.where(both, (1 - self.weight) * a + self.weight * b, -torch.inf)


def check_label(
    label: Any, guidance: float, num: int, num_classes: int, names: ClassNames, conditions: Conditions | None = None
) -> Label:
    """A label for all or for each of `num` samples, a number or a name, checked together with the guidance scale.

    A network with conditions takes their rows instead.
    """
    weight = validate.real("guidance", guidance, 0.0)
    if label is None:
        if weight != 1:
            raise ValueError(f"guidance needs a label, got guidance={weight} without one")
        return None
    if conditions is not None:
        if not isinstance(label, Tensor) or not label.is_floating_point():
            raise ValueError(f"label must be a tensor of rows of {conditions}, got {validate.short(label)}")
        return conditions.check(label, num)
    label = by_number("label", label, names)
    if not isinstance(label, list | tuple) and numpy.ndim(label) == 0:
        return check_number("label", validate.integer("label", label, 0), num_classes)
    return check_labels("label", label, num, num_classes)


def guided(
    posterior: Callable[[Tensor, Tensor, Label], Posterior],
    label: Label,
    guidance: float,
    conditions: Conditions | None = None,
) -> Callable[[Tensor, Tensor], Posterior]:
    """(xt, t) -> posterior for one label; a guidance scale other than 0 and 1 calls `posterior` twice."""
    free = None if conditions is None or not isinstance(label, Tensor) else conditions.without_class(label)

    def denoise(xt: Tensor, t: Tensor) -> Posterior:
        if guidance in (0, 1):
            return posterior(xt, t, label if guidance else free)
        return GuidedPosterior(posterior(xt, t, free), posterior(xt, t, label), guidance)

    return denoise


def per_row(label: Label, x: Tensor) -> Tensor | None:
    """A label for each row of x, on its device; the rows may be several copies of the batch."""
    if label is None:
        return None
    if isinstance(label, int):
        return torch.full((len(x),), label, device=x.device)
    return label.to(x.device).repeat(len(x) // max(1, len(label)), *[1] * (label.dim() - 1))


def _sum(y: Tensor) -> Tensor:
    """The sum over all components, shape (batch, 1, ...)."""
    return y.sum(tuple(range(1, y.dim())), keepdim=True)
