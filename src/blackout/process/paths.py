"""Paths in continuous time: the times and states of every jump."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from blackout import validate
from blackout.process.base import MarkovProcess
from blackout.random import Streams, pick


class JumpPath(NamedTuple):
    """A step function of time: states[i] holds from times[i] on. The times of a path that runs back decrease."""

    times: Tensor
    states: Tensor

    @staticmethod
    def of(events: Sequence[tuple[Tensor, Tensor]]) -> "JumpPath":
        moments, states = zip(*events, strict=True)
        return JumpPath(torch.stack(moments), torch.stack(states))


def forward_paths(process: MarkovProcess, x0: Tensor, t_end: Any, seed: int = 0) -> list[JumpPath]:
    """Paths of the forward process from each of x0, shape (n,), up to t_end: Gillespie's method (1977).

    Not in the paper. The next jump comes after an exponential time, at the sum of the rates, and takes each channel in
    proportion to its rate. Path number i depends on the seed, on i and on x0[i] alone.
    """
    if process.discrete_time:
        raise ValueError(f"process must run in continuous time to have paths there, got {process!r}")
    (x,) = validate.states(process.num_states, x0=x0)
    if x.dim() != 1:
        raise ValueError(f"x0 must have shape (n,), got {tuple(x.shape)}")
    x, jumps = x.long(), torch.tensor(process.jumps)
    (end,) = process.checked_clock(x, t=validate.real("t_end", t_end, 0.0, strict=True))
    source = Streams(validate.integer("seed", seed, 0), len(x))
    tau = torch.zeros(len(x), dtype=torch.float64)
    events = [[(torch.zeros((), dtype=torch.float64), state)] for state in x]
    moving = torch.arange(len(x))
    ends = torch.tensor([*process.breaks, torch.inf], dtype=torch.float64)  # of the pieces with constant rates
    piece = torch.zeros_like(x)
    while True:
        u = source.uniform((len(x), 2))  # for all, so that a path does not depend on how long the others are
        until = ends[piece[moving]]
        rates = process.forward_rates_at(x[moving], until)
        after = tau[moving] - torch.log1p(-u[moving, 0]) / rates.sum(-1)  # infinite where no jump is left
        # A jump that would come after the end of its piece is drawn again from there on: exponential times have no age.
        jumping = after <= until
        tau[moving], piece[moving] = torch.where(jumping, after, until), piece[moving] + ~jumping
        running = tau[moving] < end
        moving, rates, jumping = moving[running], rates[running], jumping[running]
        if not len(moving):
            return [JumpPath.of(one) for one in events]
        jumped = moving[jumping]
        x = x.index_add(0, jumped, jumps[pick(rates[jumping], u[jumped, 1])])
        for row, moment in zip(jumped.tolist(), process.real_time(tau[jumped]), strict=True):
            events[row].append((moment, x[row]))
