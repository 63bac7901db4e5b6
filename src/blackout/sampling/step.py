"""Step: what a sampler is given for one step, and what it may leave to the next one."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from blackout.posterior import Denoiser, Posterior, call
from blackout.process.base import MarkovProcess
from blackout.random import Streams

PosteriorAt = Callable[[Tensor, Tensor], Posterior]
"""The denoiser as samplers call it: (xt, t) -> Posterior, checked and in float64."""


@dataclass(frozen=True)
class Step:
    """One step of the reverse process, from X_t to X_s: its times, and what is known there.

    Examples
    --------
    >>> import blackout as bo, torch
    >>> process, (s, t) = bo.PureDeath(9), torch.tensor([0.5, 1.0], dtype=torch.float64)
    >>> at = Step.of(bo.ExactPosterior(process, torch.tensor([[2], [8]])), process, s, t)
    >>> at.posterior(torch.tensor([[3]])).mean()
    tensor([[8.]], dtype=torch.float64)
    """

    process: MarkovProcess
    posterior_at: PosteriorAt
    s: Tensor
    """The time at which the step ends, float64, shape (); for `step_log_prob` also (batch,)."""
    t: Tensor
    """The time at which it starts, of the same shape."""

    @staticmethod
    def of(denoise: Denoiser, process: MarkovProcess, s: Tensor, t: Tensor) -> "Step":
        """The step of a denoiser."""
        return Step(process, functools.partial(call, denoise, process), s, t)

    def posterior(self, xt: Tensor) -> Posterior:
        """The posterior of X_0 given X_t = xt: one call of the network."""
        return self.posterior_at(xt, self.t)

    def bridge(self, x0: Tensor, xt: Tensor, rng: Streams) -> Tensor:
        """A draw of X_s from the exact bridge between X_0 and X_t."""
        if float(self.s) == 0:
            return x0
        tau_s, tau_t = (self.process.clock_time(time) for time in (self.s, self.t))
        return self.process.sample_bridge_at(x0, xt, tau_s, tau_t, rng)


Back = Callable[[Step, Tensor], Tensor]
"""A step of a sampler: X_s of X_t."""


class Past(NamedTuple):
    """What a step with memory leaves to the next one."""

    x: Tensor
    """The state that it started from."""
    t: Tensor
    """Its time."""
    origin: Tensor
    """What was known of X_0 given that state: P(X_0 = o) for every state o, shape (..., S), or its mean."""
