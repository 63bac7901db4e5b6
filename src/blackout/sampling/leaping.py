"""τ-leaping: rates are held constant for the length of a step."""

import torch
from torch import Tensor

from blackout import validate
from blackout.process.base import MarkovProcess
from blackout.process.binomial import binomial_log_pmf
from blackout.random import Streams, binomial
from blackout.sampling.base import Sampler, check_continuous
from blackout.sampling.jump import leap, leap_log_prob
from blackout.sampling.step import Step

_CERTAIN = 1e3  # mean number of events, of which there is then at least one: e^{-1000} is zero


class TauLeaping(Sampler):
    """Algorithm 2, Poisson branch, for pure death; Algorithm 4 for any process.

    The last step unmasks whatever `Absorbing` has left masked.

    Parameters
    ----------
    step
        For pure death alone: ``"finite"`` has the mean y r of the bridge, as in the authors' code; ``"instantaneous"``
        the rate at t_k times the step, plain τ-leaping.
    events
        ``"poisson"``, or ``"binomial"`` (not in the paper): Binomial(max_count - X_t, mean / (max_count - X_t)), which
        has the same mean and never leaves the states.

    Examples
    --------
    >>> import blackout as bo, torch
    >>> process, times = bo.PureDeath(9), bo.ObservationTimes.fisher(100)
    >>> denoise = bo.ExactPosterior(process, torch.tensor([[2], [8]]))
    >>> bo.TauLeaping(step="instantaneous").sample(denoise, process, times, (4, 1)).shape
    torch.Size([4, 1])
    """

    def __init__(
        self, step: str = "finite", events: str = "poisson", corrector_steps: int = 0, corrector_size: float = 0.1
    ) -> None:
        super().__init__(corrector_steps, corrector_size)
        self.step_rule = validate.choice("step", step, ("finite", "instantaneous"))
        self.events = validate.choice("events", events, ("poisson", "binomial"))

    def check(self, process: MarkovProcess) -> None:
        check_continuous(process)
        if self.events == "binomial" and (process.jumps != (-1,) or process.num_states is None):
            raise ValueError(f"events='binomial' needs PureDeath with a max_count, got {process!r}")

    def step(self, at: Step, xt: Tensor, rng: Streams) -> Tensor:
        process, means = at.process, self._means(at, xt)
        if self.events == "binomial":
            room, prob = self._room(process, xt, means)
            return xt + binomial(room, prob, rng)
        return leap(process, xt, means, _back(process, xt), rng)

    def step_log_prob(self, at: Step, xs: Tensor, xt: Tensor) -> Tensor:
        process, means = at.process, self._means(at, xt)
        if self.events == "binomial":
            room, prob = self._room(process, xt, means)
            return binomial_log_pmf(xs - xt, room, prob, 1 - prob)
        return leap_log_prob(process, xs, xt, means, _back(process, xt))

    def _means(self, at: Step, xt: Tensor) -> Tensor:
        """The mean number of reverse events of each channel between t and s, shape (..., R)."""
        process = at.process
        means = at.posterior(xt).rates() * process.step_length(at.s, at.t, xt, self.step_rule).unsqueeze(-1)
        if process.mask_state is not None:  # nothing is masked at time zero
            total = means.sum(-1, keepdim=True)
            left = ((xt == process.mask_state) & validate.expand(at.s == 0, xt)).unsqueeze(-1) & (total > 0)
            means = torch.where(left, means * (_CERTAIN / total.clamp(min=1e-300)), means)
        return means

    def _room(self, process: MarkovProcess, xt: Tensor, means: Tensor) -> tuple[Tensor, Tensor]:
        """How many births there is room for, and the probability of each."""
        assert process.num_states is not None
        room = process.num_states - 1 - xt
        return room, (means.squeeze(-1) / room.clamp(min=1)).clamp(max=1.0)


def _back(process: MarkovProcess, x: Tensor) -> Tensor:
    return -torch.tensor(process.jumps, dtype=torch.int64, device=x.device)
