"""GivenTotal: sampling of cells whose total counts are given."""

import copy
from dataclasses import replace
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from blackout.posterior import Posterior
from blackout.process.base import MarkovProcess
from blackout.random import Streams
from blackout.sampling import Sampler, Step


class GivenTotal(Sampler):
    """A sampler for pure death, with the total of each sample given. Not in the paper.

    A total N that is known determines the sum of the means: the components of E[X_0 | X_t, N] add up to N. The network
    learns that only roughly, so y = E[X_0 - X_t] is scaled at each step to the N - Σ X_t units that are still missing.
    What a step adds too much or too little, the next ones correct; the noise of the last one remains.

    Parameters
    ----------
    sampler
        The sampler that takes the steps.
    totals
        The total of each sample, shape (num,).
    """

    def __init__(self, sampler: Sampler, totals: NDArray[Any]) -> None:
        super().__init__(sampler.corrector_steps, sampler.corrector_size)
        self.sampler, self.totals = sampler, torch.from_numpy(totals).double()
        self.needs_draws = sampler.needs_draws  # type: ignore[misc]

    def rows(self, rows: slice) -> "GivenTotal":
        part = copy.copy(self)
        part.totals = self.totals[rows]
        return part

    def check(self, process: MarkovProcess) -> None:
        self.sampler.check(process)
        if not process.mean_suffices:
            raise ValueError(f"process must be PureDeath for samples of given totals, got {process!r}")

    def step(self, at: Step, xt: Tensor, rng: Streams) -> Tensor:
        return self.sampler.step(self._scaled(at), xt, rng)

    def step_log_prob(self, at: Step, xs: Tensor, xt: Tensor) -> Tensor:
        return self.sampler.step_log_prob(self._scaled(at), xs, xt)

    def _scaled(self, at: Step) -> Step:
        def scaled(xt: Tensor, t: Tensor) -> Posterior:
            missing = (self.totals.to(xt.device) - xt.sum(1)).clamp(min=0)
            return at.posterior_at(xt, t).with_difference(
                lambda y: y * (missing / y.sum(1).clamp(min=1e-300)).unsqueeze(1)
            )

        return replace(at, posterior_at=scaled)
