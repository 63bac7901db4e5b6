"""Corrector steps: forward and reverse rates together, at one time, leave the marginal law in place.

By detailed balance: docs/mathematics.md#correctors.
"""

import torch
from torch import Tensor

from blackout import validate
from blackout.process.base import MarkovProcess
from blackout.random import Source
from blackout.sampling.jump import leap


def correct(process: MarkovProcess, x: Tensor, rates: Tensor, t: Tensor, size: float, source: Source) -> Tensor:
    """One leap under the rates ν_r (forward) plus κ_r (reverse) at time t: Table 2's corrector steps, after τLDR.

    Its length is `size` times the time in which such a process relaxes at t, (1 - e^{-γt}) / γ, so that it is short
    where the reverse rates are large.
    """
    gamma = process.relaxation_rate
    tau = process.clock_time(t)
    speed = 1.0 if process.schedule is None else process.schedule.rate(t)
    length = size * -torch.expm1(-gamma * tau) / (gamma * speed)
    jumps = torch.tensor(process.jumps, device=x.device)
    both = torch.cat([process.forward_rates(x, t), rates], -1)
    means = both * validate.expand(length, x).unsqueeze(-1)
    return leap(process, x, means, torch.cat([jumps, -jumps]), source)
