"""How much the distribution of X_tau has in common with the terminal one, for any process: methods of MarkovProcess."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from blackout.process.base import MarkovProcess

_DENSE = 2048  # states that are all tabulated, whether or not the data have them
_FEW = 32  # of more states
_ENTRIES = 1 << 24  # components of data points that are looked up at once


def log_overlap_at(process: "MarkovProcess", x0: Tensor, tau: Tensor) -> Tensor:
    """Σ_i log(1 - TV_i) of data points x0, shape (n,), with tau of shape ().

    TV_i is the distance of component i at tau from its end, in total variation (of more than 2,048 states, the largest
    of 32). All together are at most 1 - Π_i (1 - TV_i) from it; exactly that with one terminal state. The states of the
    data are tabulated, and looked up in parts.
    """
    low, high = (int(v) for v in torch.aminmax(x0))
    dense = high - low < _DENSE
    states = torch.arange(low, high + 1, device=x0.device) if dense else torch.unique(x0).long()
    few = states
    if process.terminal_state is not None:
        logs = process.log_prob_at(torch.full_like(states, process.terminal_state), states, tau)
    else:
        end = process.terminal_log_prob(torch.arange(process.finite_states(), device=x0.device)).exp()
        if process.pad_state is not None:
            end[process.pad_state] = 0.0
        few = states if len(states) <= _DENSE else states[:: len(states) // (_FEW - 1)]
        logs = torch.log1p(-(process.probs_at(few, tau) - end).abs().sum(-1).clamp(max=2.0) / 2)
    if process.pad_state is not None:  # which has ended from the start
        logs = torch.where(few == process.pad_state, 0.0, logs)
    logs = logs if len(few) == len(states) else logs.min().expand(len(states))
    index = (part.int() - low if dense else torch.searchsorted(states, part.long()) for part in row_parts(x0))
    return torch.cat([logs.index_select(0, part.flatten()).reshape(part.shape).sum(-1) for part in index])


def slowest_starts(process: "MarkovProcess", x0: Tensor) -> tuple[Tensor, int]:
    """Data points of one component, (k, 1), and a number: so many of the slowest end no sooner than any of x0.

    They lie between the smallest and the largest state of the data. Of ordered states, and of more than 2,048, the
    slowest is looked for among 32.
    """
    low, high = (int(v) for v in torch.aminmax(x0))
    number = min(high - low + 1, _FEW if process.ordered or high - low >= _DENSE else _DENSE)
    return torch.linspace(low, high, number, dtype=torch.float64).round().long().unsqueeze(-1), x0[0].numel()


def row_parts(x0: Tensor) -> tuple[Tensor, ...]:
    """Data points, (n, ...), as rows, in parts of bounded size."""
    return x0.reshape(len(x0), -1).split(max(1, _ENTRIES * len(x0) // max(1, x0.numel())))  # type: ignore[no-any-return]
