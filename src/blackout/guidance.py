"""Classifier-free guidance: what a denoiser says with a label against what it says without one, in logarithms."""

import torch
from torch import Tensor

from blackout import validate
from blackout.denoiser import Denoiser, ask
from blackout.law import ask_law
from blackout.process.base import MarkovProcess
from blackout.process.pure_death import PureDeath

_LARGEST = 700.0  # of a logarithm: e^700 is still a number


class Guided:
    """log κ = (1 - w) log κ(no label) + w log κ(label), for rates and for laws over X_0. Not in the paper.

    After Ho and Salimans (2022), for rates as in Nisonoff et al. (2024). Under pure death κ is proportional to
    y = E[X_0 - X_t | X_t], which is combined in its place and stays within the counts that there are. See
    docs/mathematics.md#what-is-known-and-what-is-meant.
    """

    def __init__(self, process: MarkovProcess, free: Denoiser, labelled: Denoiser, weight: float) -> None:
        self.process, self.free, self.labelled = process, free, labelled
        self.weight = validate.real("guidance", weight, 0.0)

    def __call__(self, xt: Tensor, t: Tensor) -> Tensor:
        free, labelled = ask(self.free, xt, t), ask(self.labelled, xt, t)
        if not isinstance(self.process, PureDeath):
            return combine(free, labelled, self.weight)
        y = combine(self.process.difference(free, xt), self.process.difference(labelled, xt), self.weight)
        return self.process.difference(y, xt)

    def law(self, xt: Tensor, t: Tensor) -> Tensor:
        """p ∝ p(no label)^(1 - w) p(label)^w; where the two exclude each other, the law with the label."""
        free, labelled = (ask_law(denoise, self.process, xt, t) for denoise in (self.free, self.labelled))
        logs = _logs(free, labelled, self.weight)
        largest = logs.amax(-1, keepdim=True)
        law = torch.exp(logs - largest.clamp(min=-1e300))
        law = torch.where(torch.isneginf(largest), labelled, law)
        return law / law.sum(-1, keepdim=True)


def combine(free: Tensor, labelled: Tensor, weight: float) -> Tensor:
    """free^(1 - w) labelled^w, float64; zero where either is zero."""
    return torch.exp(_logs(free, labelled, weight).clamp(max=_LARGEST))


def _logs(free: Tensor, labelled: Tensor, weight: float) -> Tensor:
    free, labelled = free.double(), labelled.double()
    both = (free > 0) & (labelled > 0)
    # The logarithm of one stands in where a logarithm has no value: -inf times a negative number would win.
    a, b = (torch.log(torch.where(both, v, 1.0)) for v in (free, labelled))
    return torch.where(both, (1 - weight) * a + weight * b, -torch.inf)
