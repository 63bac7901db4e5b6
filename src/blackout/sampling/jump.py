"""Many events at once: from numbers of jumps to a new state."""

import math

import torch
from torch import Tensor

from blackout.process.base import MarkovProcess
from blackout.random import Source, pick, poisson, uniform

_WORKSPACE = 1 << 22
_TERMS = 64  # of the tail of a Poisson distribution
_SMALLEST = 1e-290


def leap(process: MarkovProcess, x: Tensor, means: Tensor, displacements: Tensor, rng: Source) -> Tensor:
    """x after Poisson(means[..., r]) events of displacement displacements[r], kept in the state space.

    Ordered states add all events up and stop at the border. Among unordered ones a sum of displacements means nothing:
    at most one event of a component takes place, the first.
    """
    if process.ordered:
        counts = poisson(means, rng)
        return clip(process, x + (counts * displacements).sum(-1))
    total = means.sum(-1)
    u = uniform((*x.shape, 2), x.device, rng)
    fires = u[..., 0] < -torch.expm1(-total)
    channel = pick(torch.where(fires.unsqueeze(-1), means, 1.0), u[..., 1])
    return torch.where(fires, x + displacements[channel], x)


def clip(process: MarkovProcess, x: Tensor) -> Tensor:
    return x.clamp(min=0, max=None if process.num_states is None else process.num_states - 1)


def leap_log_prob(process: MarkovProcess, xs: Tensor, x: Tensor, means: Tensor, displacements: Tensor) -> Tensor:
    """The logarithm of the probability, elementwise, that `leap` leads from x to xs."""
    if not process.ordered:
        total = means.sum(-1)
        hits = x.unsqueeze(-1) + displacements == xs.unsqueeze(-1)
        jump = -torch.expm1(-total) * torch.where(hits, means, 0.0).sum(-1) / total.clamp(min=1e-300)
        return torch.where(xs == x, -total, torch.log(jump))
    if len(displacements) == 1:
        return _poisson_log_prob(process, xs, x, means.squeeze(-1), int(displacements[0]))
    return _compound_log_prob(process, xs, x, means, displacements)


def _poisson_log_prob(process: MarkovProcess, xs: Tensor, x: Tensor, mean: Tensor, displacement: int) -> Tensor:
    events = torch.div(xs - x, displacement, rounding_mode="floor").double()
    inside = _log_poisson(events, mean)
    border = process.num_states - 1 if displacement > 0 and process.num_states is not None else 0
    clipped = (xs == border) & (displacement < 0 or process.num_states is not None)
    value = torch.where(clipped, _log_poisson_tail(events, mean), inside)
    return torch.where((events >= 0) & (x + events.long() * displacement == xs), value, -torch.inf)


def _log_poisson(events: Tensor, mean: Tensor) -> Tensor:
    return torch.xlogy(events, mean) - mean - torch.lgamma(events.clamp(min=0) + 1)


def _log_poisson_tail(events: Tensor, mean: Tensor) -> Tensor:
    """log P(at least so many events). Where it is too small for a float, the first terms of the sum, a lower bound."""
    tail = torch.special.gammainc(events.clamp(min=1e-300), mean)
    series, term = torch.ones_like(mean), torch.ones_like(mean)
    for k in range(1, _TERMS):
        term = term * mean / (events.clamp(min=0) + k)
        series = series + term
    small = _log_poisson(events, mean) + torch.log(series)
    value = torch.where(tail > _SMALLEST, torch.log(tail.clamp(min=_SMALLEST)), small)
    return torch.where(events > 0, value, 0.0)


def _compound_log_prob(process: MarkovProcess, xs: Tensor, x: Tensor, means: Tensor, displacements: Tensor) -> Tensor:
    """Several channels: P(U - V = xs - x) for the sums U of jumps up and V of jumps down, beyond a border added up.

    Only positive terms are added, as logarithms, so the result is right to relative precision however small it is.
    """
    assert process.num_states is not None
    top, length = process.num_states - 1, displacements.double().abs()
    spread = (means * length).sum(-1) + 10 * torch.sqrt((means * length**2).sum(-1))
    size = process.num_states + int(spread.max() if spread.numel() else 0) + 40  # larger sums do not contribute
    each = (xs.flatten(), x.flatten(), means.flatten(0, -2))
    parts = []
    for ends, starts, mean in zip(*(v.split(max(1, _WORKSPACE // size)) for v in each), strict=True):
        up, down = (_log_sums(mean, displacements * sign, size) for sign in (1, -1))
        # tails[..., k]: at least k. The sums U that lead from V = v to the end are end - start + v or, at a border, all
        # those beyond; at the lower border V takes the part of U.
        above, below = ends == top, ends == 0
        swap = below.unsqueeze(-1)
        first, second = torch.where(swap, down, up), torch.where(swap, up, down)
        offset = torch.where(below, starts - ends, ends - starts)
        tails = first.flip(-1).logcumsumexp(-1).flip(-1)
        first = torch.where((above | below).unsqueeze(-1), tails, first)
        needed = offset.unsqueeze(-1) + torch.arange(size, device=x.device)
        found = first.gather(-1, needed.clamp(0, size - 1))
        # Fewer than none: certain beyond a border, impossible elsewhere.
        none = torch.where((above | below).unsqueeze(-1), 0.0, -torch.inf)
        found = torch.where(needed < 0, none, torch.where(needed < size, found, -torch.inf))
        parts.append(torch.logsumexp(second + found, -1))
    return torch.cat(parts).reshape(x.shape) if parts else x.double()


def _log_sums(means: Tensor, displacements: Tensor, size: int) -> Tensor:
    """log P(Σ_r d_r N_r = n) for n < size, over the channels with d_r > 0, N_r ~ Poisson(means[..., r]).

    By Panjer's recursion (1981): n P(n) = Σ_r d_r means_r P(n - d_r), from P(0) = e^{-Σ means}.
    """
    chosen = (displacements > 0) & (displacements < size)
    means, steps = means[:, displacements > 0], displacements[chosen]
    intensity = torch.log(means[:, (displacements < size)[displacements > 0]] * steps)
    logs = means.new_full((len(means), size), -torch.inf)
    logs[:, 0] = -means.sum(-1)
    for n in range(1, size):
        usable = steps <= n
        if bool(usable.any()):
            terms = intensity[:, usable] + logs[:, n - steps[usable]]
            logs[:, n] = torch.logsumexp(terms, -1) - math.log(n)
    return logs
