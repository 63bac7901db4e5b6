"""RedrawProcess: states are redrawn from one distribution at rate one. Everything is in closed form, without matrices.

Not in the paper: P_t(o, m) = e^{-t} [o = m] + (1 - e^{-t}) target(m), so that nothing larger than one number for each
state of a component is stored, however many states there are: docs/sequences.md#large-vocabularies.
"""

from abc import abstractmethod
from functools import cached_property

import torch
from torch import Tensor

from blackout import validate
from blackout.memory import check_memory
from blackout.process.base import MarkovProcess
from blackout.process.overlap import row_parts
from blackout.process.schedule import Function, Schedule
from blackout.process.transitions import RedrawTransitions
from blackout.random import Source, uniform

_TINY = 1e-300


class RedrawProcess(MarkovProcess):
    """Every state but `pad_state` is redrawn from `terminal_probs` at rate one."""

    ordered = False
    relaxation_rate = 1.0
    matrix_free = True

    def __init__(self, num_states: int, pad_state: int | None, schedule: Schedule | Function | None) -> None:
        super().__init__(schedule)
        self.num_states: int = validate.integer("num_states", num_states, 2 if pad_state is None else 3)
        check_memory(f"a process of num_states={self.num_states:,}", 100.0 * self.num_states, "use fewer states")
        if pad_state is not None and validate.integer("pad_state", pad_state, 0) >= num_states:
            raise ValueError(f"pad_state must be less than num_states={num_states}, got {pad_state}")
        self.pad_state = pad_state

    @abstractmethod
    def redraw_prob(self, x: Tensor) -> Tensor:
        """The probability that a redrawn state is x, elementwise, float64; zero for `pad_state`."""

    @abstractmethod
    def redrawn(self, u: Tensor) -> Tensor:
        """The state that a number in [0, 1) is turned into, int64."""

    @cached_property
    def terminal_probs(self) -> Tensor:
        """The distribution of X_T for T -> infinity, over all states."""
        return self.redraw_prob(torch.arange(self.num_states))

    @property
    def generator(self) -> Tensor:
        """The generator as a dense matrix, for few states: generator[i, j] is the rate i -> j."""
        rates = self.terminal_probs.expand(self.num_states, -1) - torch.eye(self.num_states, dtype=torch.float64)
        if self.pad_state is not None:
            rates[self.pad_state] = 0.0
        return rates

    def transitions(self, tau: Tensor) -> RedrawTransitions:
        return RedrawTransitions(tau.double(), self.terminal_probs.to(tau.device), self.pad_state)

    def sample_at(self, x0: Tensor, tau: Tensor, source: Source) -> Tensor:
        keep, redraw, u = *_shares(tau, x0), uniform(tuple(x0.shape), x0.device, source)
        drawn = torch.where(u < keep, x0.long(), self.redrawn(((u - keep) / redraw).clamp(0, 1 - 2.0**-53)))
        return self._padded(x0, drawn)

    def log_prob_at(self, xt: Tensor, x0: Tensor, tau: Tensor) -> Tensor:
        return torch.log(self._prob(x0, xt, *_shares(tau, x0)))

    def probs_at(self, x0: Tensor, tau: Tensor) -> Tensor:
        keep, redraw = (v.expand(x0.shape).unsqueeze(-1) for v in _shares(tau, x0))
        out = redraw * self.terminal_probs.to(x0.device)
        here = x0.long().unsqueeze(-1)
        if self.pad_state is not None:
            out = torch.where(here == self.pad_state, 0.0, out)
            keep = torch.where(here == self.pad_state, 1.0, keep)
        return out.scatter_add(-1, here, keep)

    def forward_rates_at(self, x: Tensor, tau: Tensor) -> Tensor:
        ends = x.long().unsqueeze(-1) + self._displacements(x)
        inside = (ends >= 0) & (ends < self.num_states) & (x != self._pad).unsqueeze(-1)
        return torch.where(inside, self.redraw_prob(ends), 0.0)

    def arrival_rates(self, x: Tensor, tau: Tensor) -> Tensor:
        starts = x.long().unsqueeze(-1) - self._displacements(x)
        inside = (starts >= 0) & (starts < self.num_states) & (starts != self._pad)
        return torch.where(inside, self.redraw_prob(x.long()).unsqueeze(-1), 0.0)

    def reverse_rates_at(self, x0: Tensor, xt: Tensor, tau: Tensor) -> Tensor:
        # `eq:reverseRate`: ν_r(m') p_{(m',t)|(o,0)} / p_{(m,t)|(o,0)}.
        keep, redraw = _shares(tau, x0)
        before = (xt.long().unsqueeze(-1) - self._displacements(xt)).clamp(0, self.num_states - 1)
        there = self._prob(x0.unsqueeze(-1), before, keep.unsqueeze(-1), redraw.unsqueeze(-1))
        here = self._prob(x0, xt, keep, redraw).unsqueeze(-1)
        ratio = torch.where(here > _TINY, there / here.clamp(min=_TINY), 0.0)
        return self.arrival_rates(xt, tau) * ratio

    def sample_bridge_at(self, x0: Tensor, xt: Tensor, tau_s: Tensor, tau_t: Tensor, source: Source) -> Tensor:
        # p_s(m | o) p_{t-s}(n | m) is a sum of three cases: no redraw before s (m = o), redraws before s alone (m = n),
        # redraws before and after s (m redrawn).
        (early, redraw), (late, again) = _shares(tau_s, x0), _shares(tau_t - tau_s, x0)
        arrive = self.redraw_prob(xt.long())
        first = early * (torch.where(x0 == xt, late, 0.0) + again * arrive)
        second, third = redraw * late * arrive, redraw * again * arrive
        total = first + second + third
        u = uniform(tuple(x0.shape), x0.device, source) * total
        rest = ((u - first - second) / third.clamp(min=_TINY)).clamp(0, 1 - 2.0**-53)
        drawn = torch.where(u < first + second, xt.long(), self.redrawn(rest))
        return self._padded(x0, torch.where((u < first) | (total <= 0), x0.long(), drawn))

    def bridge_log_prob_at(self, xs: Tensor, x0: Tensor, xt: Tensor, tau_s: Tensor, tau_t: Tensor) -> Tensor:
        reach = self.log_prob_at(xs, x0, tau_s) + self.log_prob_at(xt, xs, tau_t - tau_s)
        total = self.log_prob_at(xt, x0, tau_t)
        return torch.where(torch.isneginf(reach) | torch.isneginf(total), -torch.inf, reach - total)

    def log_overlap_at(self, x0: Tensor, tau: Tensor) -> Tensor:
        # The distance from the target is e^{-τ} (1 - target(x0)).
        keep = torch.exp(-tau)

        def logs(part: Tensor) -> Tensor:
            return self._padded(part, torch.log1p(-keep * (1 - self.redraw_prob(part.long()))), 0.0)

        return torch.cat([logs(part).sum(-1) for part in row_parts(x0)])

    def representatives(self, x0: Tensor) -> tuple[Tensor, Tensor]:
        """All labels behave alike: the first one stands for them."""
        if self.pad_state is None:
            return torch.tensor([self._label], device=x0.device), torch.zeros_like(x0, dtype=torch.int64)
        return torch.tensor([self._label, self.pad_state], device=x0.device), (x0 == self.pad_state).long()

    def slowest_starts(self, x0: Tensor) -> tuple[Tensor, int]:
        return torch.tensor([[self._label]]), x0[0].numel()

    def length_density(self, tau: Tensor) -> Tensor:
        keep, redraw, prob = torch.exp(-tau), -torch.expm1(-tau), float(self.terminal_probs[self._label])
        return keep * torch.sqrt((1 - prob) ** 2 / (keep + redraw * prob) + (1 - prob) / redraw)

    def stiffness(self, num_states: int) -> float:
        return 0.0

    def _terminal(self, shape: tuple[int, ...], device: torch.device, source: Source) -> Tensor:
        return self.redrawn(uniform(shape, device, source))

    def _terminal_log_prob(self, x: Tensor) -> Tensor:
        return self._padded(x, torch.log(self.redraw_prob(x.long())), 0.0)

    @property
    def _pad(self) -> int:
        return -1 if self.pad_state is None else self.pad_state

    @property
    def _label(self) -> int:
        """The first state that is neither padding nor mask."""
        return next(s for s in range(3) if s not in (self.pad_state, self.mask_state))

    def _displacements(self, x: Tensor) -> Tensor:
        return torch.tensor(self.jumps, dtype=torch.int64, device=x.device)

    def _padded(self, x0: Tensor, values: Tensor, pad: float | None = None) -> Tensor:
        """`values`, but at padding `pad` (default: the padding itself)."""
        if self.pad_state is None:
            return values
        return torch.where(x0 == self.pad_state, self.pad_state if pad is None else pad, values)

    def _prob(self, start: Tensor, end: Tensor, keep: Tensor, redraw: Tensor) -> Tensor:
        same = start == end
        prob = torch.where(same, keep, 0.0) + redraw * self.redraw_prob(end.long())
        return prob if self.pad_state is None else torch.where(start == self.pad_state, same.double(), prob)


def _shares(tau: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """e^{-τ} and 1 - e^{-τ}, shaped to broadcast with x."""
    tau = validate.expand(tau.double(), x)
    return torch.exp(-tau), -torch.expm1(-tau)
