"""Exact stochastic simulation of many paths at once."""

from typing import Protocol

import torch
from torch import Tensor

from blackout.random import Source, pick, uniform

_MOST_EVENTS = 1_000_000


class Jumping(Protocol):
    """What the simulation needs of a process."""

    stoichiometry: Tensor

    def propensities(self, x: Tensor) -> Tensor: ...


def simulate(process: Jumping, x0: Tensor, times: Tensor, source: Source = None) -> Tensor:
    """States at increasing times (batch, K) of one path from each row of x0: Gillespie's direct method (1977).

    The next event comes after an exponential time at the sum of the rates, and is each channel in proportion to its
    rate: no approximation. With `Streams`, path number i depends on the seed and on i alone.
    """
    x, now = x0.clone(), torch.zeros(len(x0), dtype=torch.float64, device=x0.device)
    out = x0.unsqueeze(1).repeat(1, times.shape[1], 1)
    jumps, rows = process.stoichiometry.to(x0.device), torch.arange(len(x0), device=x0.device)
    for _ in range(_MOST_EVENTS):
        u = uniform((len(x0), 2), x0.device, source)[rows]  # for all, so that a path does not depend on the others
        rates = process.propensities(x[rows])
        after = now[rows] - torch.log1p(-u[:, 0]) / rates.sum(-1)  # infinite where no reaction is left
        row, column = ((times[rows] >= now[rows, None]) & (times[rows] < after[:, None])).nonzero(as_tuple=True)
        out[rows[row], column] = x[rows[row]]
        going = after <= times[rows, -1]
        now[rows] = after
        rows = rows[going]
        if not len(rows):
            return out
        x[rows] += jumps[pick(rates[going], u[going, 1])]
    raise ValueError(
        f"t must leave time for at most {_MOST_EVENTS} events, got t={float(times.max())}: lower the rates"
    )
