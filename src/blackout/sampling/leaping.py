"""τ-leaping."""

import torch
from torch import Tensor

from blackout import validate
from blackout.denoiser import Denoiser, ask, not_negative
from blackout.process.base import MarkovProcess
from blackout.process.binomial import binomial_log_pmf
from blackout.process.categorical import Absorbing
from blackout.random import binomial
from blackout.sampling.base import Sampler, refuse_chains
from blackout.sampling.jump import leap, leap_log_prob
from blackout.streams import Streams

_CERTAIN = 1e3  # events, of which there is then at least one: e^{-1000} is zero


class TauLeaping(Sampler):
    """Rates held for the length of a step: Algorithm 2, Poisson branch, for pure death; Algorithm 4 for any process.

    `step` matters for pure death alone: `finite` has the mean y r of the bridge, as the authors' code; `instantaneous`
    the rate at t_k times the step, as plain τ-leaping. `law` is `poisson`, or `binomial` (not in the paper):
    Binomial(max_count - X_t, mean / (max_count - X_t)), which has the same mean and never leaves the states. The last
    step unmasks whatever `Absorbing` has left masked.
    """

    def __init__(
        self, step: str = "finite", law: str = "poisson", corrector_steps: int = 0, corrector_size: float = 0.1
    ) -> None:
        super().__init__(corrector_steps, corrector_size)
        self.step_kind = validate.choice("step", step, ("finite", "instantaneous"))
        self.law = validate.choice("law", law, ("poisson", "binomial"))

    def check(self, process: MarkovProcess) -> None:
        refuse_chains(process)
        if self.law == "binomial" and (process.jumps != (-1,) or process.num_states is None):
            raise ValueError(f"law='binomial' needs PureDeath with a max_count, got {process!r}")

    def step(
        self, denoise: Denoiser, process: MarkovProcess, xt: Tensor, s: Tensor, t: Tensor, source: Streams
    ) -> Tensor:
        means = self._means(denoise, process, xt, s, t)
        if self.law == "binomial":
            room, prob = self._room(process, xt, means)
            return xt + binomial(room, prob, source)
        return leap(process, xt, means, _back(process, xt), source)

    def step_log_prob(
        self, denoise: Denoiser, process: MarkovProcess, xs: Tensor, xt: Tensor, s: Tensor, t: Tensor
    ) -> Tensor:
        means = self._means(denoise, process, xt, s, t)
        if self.law == "binomial":
            room, prob = self._room(process, xt, means)
            return binomial_log_pmf(xs - xt, room, prob, 1 - prob)
        return leap_log_prob(process, xs, xt, means, _back(process, xt))

    def _means(self, denoise: Denoiser, process: MarkovProcess, xt: Tensor, s: Tensor, t: Tensor) -> Tensor:
        means = not_negative(process.leap_means(ask(denoise, xt, t), xt, s, t, self.step_kind))
        if isinstance(process, Absorbing) and float(s) == 0:  # nothing is masked at time zero: what is left, jumps
            total = means.sum(-1, keepdim=True)
            left = (xt == process.mask_state).unsqueeze(-1) & (total > 0)
            means = torch.where(left, means * (_CERTAIN / total.clamp(min=1e-300)), means)
        return means

    def _room(self, process: MarkovProcess, xt: Tensor, means: Tensor) -> tuple[Tensor, Tensor]:
        """How many births there is room for, and the probability of each."""
        assert process.num_states is not None
        room = process.num_states - 1 - xt
        return room, (means.squeeze(-1) / room.clamp(min=1)).clamp(max=1.0)


def _back(process: MarkovProcess, x: Tensor) -> Tensor:
    return -torch.tensor(process.jumps, dtype=torch.int64, device=x.device)
