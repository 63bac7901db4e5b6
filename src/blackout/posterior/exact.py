"""ExactPosterior: the perfect denoiser of data that can be listed."""

import math
from typing import Any

import torch
from torch import Tensor

from blackout import validate
from blackout.posterior.base import ListedPosterior
from blackout.process.base import MarkovProcess
from blackout.process.data import check_process

_WORKSPACE = 1 << 22
_IMPOSSIBLE = -1e30  # stands for log 0 where a matrix product must not meet an infinity


class ExactPosterior:
    """A denoiser that answers by Bayes' rule over all data points. Not in the paper; it replaces a network in tests.

    Parameters
    ----------
    process
        The forward process.
    points
        All data points, integers of shape (n, ...).
    weights
        Their probabilities, shape (n,); default: equal.

    Examples
    --------
    >>> import blackout as bo, torch
    >>> denoise = bo.ExactPosterior(bo.PureDeath(9), torch.tensor([[2], [8]]))
    >>> bo.BinomialBridge().sample(denoise, bo.PureDeath(9), bo.ObservationTimes.fisher(100), (4, 1)).shape
    torch.Size([4, 1])
    """

    def __init__(self, process: MarkovProcess, points: Tensor, weights: Any = None) -> None:
        (points,) = validate.states(check_process(process).num_states, points=points)
        if points.dim() < 2 or len(points) == 0:
            raise ValueError(f"points must have shape (n, ...), got {tuple(points.shape)}")
        size = len(points)
        probs = torch.ones(size) if weights is None else validate.reals("weights", weights, f"{size} numbers")
        probs = probs.double().to(points.device)
        if probs.shape != (size,) or not bool(torch.isfinite(probs).all() & (probs >= 0).all() & (probs.sum() > 0)):
            raise ValueError(f"weights must be {size} numbers, finite and not negative, got {weights!r}")
        self.process = process
        self.shape = points.shape[1:]
        self.log_weights = torch.log(probs / probs.sum())
        self.levels, index = torch.unique(points.flatten(1), return_inverse=True)
        places = index + torch.arange(index.shape[1], device=points.device) * len(self.levels)
        # The pairs of a component and a level that occur; one row for each, one column for each data point that has it.
        self._pairs, member = torch.unique(places, return_inverse=True)
        self._components, self._levels = self._pairs // len(self.levels), self.levels[self._pairs % len(self.levels)]
        self._membership = torch.zeros(len(self._pairs), size, dtype=torch.float64, device=points.device)
        self._membership[member, torch.arange(size, device=points.device).unsqueeze(-1)] = 1.0

    def __repr__(self) -> str:
        return f"ExactPosterior({self.process!r}, {len(self.log_weights)} points of shape {tuple(self.shape)})"

    def weights(self, xt: Tensor, t: Any) -> Tensor:
        """P(X_0 = points[j] | X_t = xt), shape (batch, n); zero where no point leads to xt."""
        xt, t = self._checked(xt, t)
        return self._weights(xt.flatten(1), self.process.clock_time(t))

    def __call__(self, xt: Tensor, t: Any) -> ListedPosterior:
        """The posterior of each component, over the levels that occur in the data."""
        xt, t = self._checked(xt, t)
        rows, member = _distinct(xt, t)
        flat, tau = xt[rows].flatten(1), self.process.clock_time(t[rows])
        chunk = max(1, _WORKSPACE // max(self._membership.shape))
        probs = torch.zeros(len(rows), math.prod(self.shape) * len(self.levels), dtype=torch.float64, device=xt.device)
        for some, *part in zip(probs.split(chunk), flat.split(chunk), tau.split(chunk), strict=True):
            some[:, self._pairs] = self._weights(*part) @ self._membership.T
        probs = probs.reshape(len(rows), *self.shape, len(self.levels))
        return ListedPosterior(self.process, xt, t, probs, self.levels, member)

    def _checked(self, xt: Tensor, t: Any) -> tuple[Tensor, Tensor]:
        (xt,) = validate.states(self.process.num_states, xt=xt)
        if xt.shape[1:] != self.shape:
            raise ValueError(f"xt must have shape (batch, *{tuple(self.shape)}), got {tuple(xt.shape)}")
        (times,) = validate.times(xt, t=t)
        self.process.checked_clock(xt, t=times)
        return xt, times.expand(len(xt))

    def _weights(self, xt: Tensor, tau: Tensor) -> Tensor:
        log_likelihood = self.process.log_prob_at(xt[:, self._components], self._levels.expand(len(xt), -1), tau)
        joint = log_likelihood.clamp(min=_IMPOSSIBLE) @ self._membership + self.log_weights
        return torch.softmax(joint, -1) * (joint > _IMPOSSIBLE / 2)


def _distinct(xt: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """Distinct rows, and for each row the index of its own, where all times are equal and states are few."""
    every = torch.arange(len(xt), device=xt.device)
    base = int(xt.max()) + 1 if xt.numel() else 1
    if len(xt) == 0 or base ** xt[0].numel() >= 1 << 62 or bool((t != t[0]).any()):
        return every, every
    places = base ** torch.arange(xt[0].numel(), device=xt.device)
    codes, member = torch.unique((xt.flatten(1).long() * places).sum(-1), return_inverse=True)
    first = torch.empty_like(codes).scatter_(0, member, every)
    return first, member
