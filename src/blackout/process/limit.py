"""The continuum limit: Kramers–Moyal drift and diffusion of a process, of its reversal, and the reversal of the limit.

With system size V the scaled state is x = m / V. An Itô equation dx = v dt + sqrt(D) dW is written as (v, D).
See docs/mathematics.md#the-continuum-limit.
"""

from typing import Any

import torch
from torch import Tensor

from blackout.process.base import MarkovProcess


def forward_moments(process: MarkovProcess, m: Tensor, size: float, t: Any = None) -> tuple[Tensor, Tensor]:
    """v = Σ_r d_r ν_r(m) / V and D = Σ_r d_r² ν_r(m) / V²: Appendix C, `eq:KramersMoyalForward`, at the states m."""
    return _moments(process.forward_rates(m, t), _jumps(process, m), size)


def reverse_moments(process: MarkovProcess, x0: Tensor, m: Tensor, size: float, t: Any) -> tuple[Tensor, Tensor]:
    """The same two moments of the exact reverse process, Eq. (5): the limit of the reversal, in reverse time."""
    return _moments(process.reverse_rates(x0, m, t), -_jumps(process, m), size)


def anderson_moments(process: MarkovProcess, x0: Tensor, m: Tensor, size: float, t: Any) -> tuple[Tensor, Tensor]:
    """The reversal of the limit, by Anderson: drift -v + ∂_x D + D ∂_x log ρ and diffusion D, in reverse time.

    ρ is the density V p of the forward solution. Derivatives are central differences over the lattice, so m needs a
    neighbour on both sides.
    """
    v, diffusion = forward_moments(process, m, size, t)
    (_, above), (_, below) = (forward_moments(process, m + step, size, t) for step in (1, -1))
    slope = (above - below) * size / 2
    score = (process.log_prob(m + 1, x0, t) - process.log_prob(m - 1, x0, t)) * size / 2
    return -v + slope + diffusion * score, diffusion


def _jumps(process: MarkovProcess, m: Tensor) -> Tensor:
    return torch.tensor(process.jumps, dtype=torch.float64, device=m.device)


def _moments(rates: Tensor, jumps: Tensor, size: float) -> tuple[Tensor, Tensor]:
    return (rates * jumps).sum(-1) / size, (rates * jumps**2).sum(-1) / size**2
