"""Many events at once: from numbers of jumps to a new state."""

import torch
from torch import Tensor

from blackout.process.base import MarkovProcess
from blackout.random import Source, pick, poisson, uniform

_WORKSPACE = 1 << 22


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
    inside = torch.xlogy(events, mean) - mean - torch.lgamma(events.clamp(min=0) + 1)
    border = process.num_states - 1 if displacement > 0 and process.num_states is not None else 0
    beyond = torch.log(torch.special.gammainc(events.clamp(min=1e-300), mean))  # P(at least `events` events)
    clipped = (xs == border) & (displacement < 0 or process.num_states is not None)
    value = torch.where(clipped & (events > 0), beyond, torch.where(clipped & (events == 0), 0.0, inside))
    return torch.where((events >= 0) & (x + events.long() * displacement == xs), value, -torch.inf)


def _compound_log_prob(process: MarkovProcess, xs: Tensor, x: Tensor, means: Tensor, displacements: Tensor) -> Tensor:
    """Several channels: the distribution of the sum of their jumps, through its characteristic function.

    Probabilities below 1e-14 are lost in the transform and taken as zero, so that a bound is never too low.
    """
    assert process.num_states is not None
    top = process.num_states - 1
    length = displacements.double().abs()
    spread = (means * length).sum(-1) + 10 * torch.sqrt((means * length**2).sum(-1))
    size = 2 * (process.num_states + int(spread.max() if spread.numel() else 0) + 40)  # wide enough not to wrap around
    angle = 2 * torch.pi * torch.arange(size, dtype=torch.float64, device=x.device) / size
    phase = torch.exp(1j * displacements.double().unsqueeze(-1) * angle) - 1
    reach = torch.arange(-size // 2, size // 2, device=x.device)
    flat = zip(
        *(v.split(max(1, _WORKSPACE // size)) for v in (xs.flatten(), x.flatten(), means.flatten(0, -2))), strict=True
    )
    parts = []
    for ends, starts, mean in flat:
        probs = torch.fft.fft(torch.exp(mean.to(phase.dtype) @ phase)).real / size  # probs[..., d mod size]
        probs = torch.where(probs > 1e-14, probs, 0.0)
        hits = (starts.unsqueeze(-1) + reach).clamp(0, top) == ends.unsqueeze(-1)
        parts.append(torch.log(torch.where(hits, probs[..., reach % size], 0.0).sum(-1)))
    return torch.cat(parts).reshape(x.shape)
