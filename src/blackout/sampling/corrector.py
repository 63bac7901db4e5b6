"""Corrector steps: a short time forward and back again, which leaves the marginal distribution unchanged.

Why, and why not both at once: docs/mathematics.md#correctors.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from blackout.process.base import MarkovProcess
from blackout.random import Source

Back = Callable[[Tensor, Tensor, Tensor], Tensor]
"""A step of a sampler: X_s of (X_t, s, t)."""


def correct(process: MarkovProcess, x: Tensor, s: Tensor, t: Tensor, size: float, back: Back, rng: Source) -> Tensor:
    """x at time s after a short time of the forward process and a step of `back` to s.

    The short time is `size` times the time in which the process relaxes at s, (1 - e^{-γs}) / γ, and at most as long as
    the step from t that is corrected: the more steps, the smaller the error of each step back.
    """
    gamma, now = process.relaxation_rate, process.clock_time(s)
    short = torch.minimum(size * -torch.expm1(-gamma * now) / gamma, process.clock_time(t) - now)
    return back(process.sample_step_at(x, now, now + short, rng), s, process.real_time(now + short))
