"""A midpoint tau-leaping sampler, written after docs/extending.md alone."""

import torch
from torch import Tensor

from blackout.process import MarkovProcess
from blackout.random import Streams, categorical
from blackout.sampling import SAMPLERS, Sampler, Step
from blackout.sampling.base import check_continuous
from blackout.sampling.jump import clip, leap, leap_log_prob


class MidpointLeaping(Sampler):
    """Poisson numbers of jumps from X_t, with the rates at an estimate of the state in the middle of the step.

    The rates at t give the estimate: the expected displacement of ordered states, rounded; one leap of unordered ones.
    A jump that is possible from X_t and means something else at the estimate keeps its rate at t: one that would leave
    the state space there, and every jump of an unordered component that the leap moved. Two passes of the network in
    each step. Gillespie (2001) has the method for chemical reactions; it is not in the paper.
    """

    def check(self, process: MarkovProcess) -> None:
        check_continuous(process)

    def step(self, at: Step, xt: Tensor, rng: Streams) -> Tensor:
        process, means = at.process, self._means(at, xt, rng)
        displacements = self._displacements(process, xt)
        xs = leap(process, xt, means, displacements, rng)
        if process.mask_state is not None and float(at.s) == 0:  # the last step unmasks every masked entry
            masked = xt == process.mask_state
            weights = torch.where(masked.unsqueeze(-1), means, 1.0)  # of the jumps; unused where nothing is masked
            xs = torch.where(masked, xt + displacements[categorical(weights, rng)], xs)
        return xs

    def step_log_prob(self, at: Step, xs: Tensor, xt: Tensor) -> Tensor:
        process = at.process
        if not process.ordered:
            raise ValueError(
                f"the midpoint of unordered states is random, and the steps have no computable probability: {process}"
            )
        return leap_log_prob(process, xs, xt, self._means(at, xt, None), self._displacements(process, xt))

    def _means(self, at: Step, xt: Tensor, rng: Streams | None) -> Tensor:
        """Mean numbers of jumps between t and s, shape (..., R), with the rates in the middle. Ordered: no draws."""
        process, s, t = at.process, at.s, at.t
        middle = (s + t) / 2
        displacements = self._displacements(process, xt)
        rates = at.posterior(xt).rates()
        half = rates * process.step_length(middle, t, xt, "finite").unsqueeze(-1)
        if process.ordered:
            estimate = clip(process, xt + torch.round((half * displacements).sum(-1)).long())
            targets = estimate.unsqueeze(-1) + displacements
            known = clip(process, targets) == targets
        else:
            assert rng is not None
            estimate = leap(process, xt, half, displacements, rng)
            known = (estimate == xt).unsqueeze(-1)
        means = at.posterior_at(estimate, middle).rates() * process.step_length(s, t, xt, "instantaneous").unsqueeze(-1)
        return torch.where(known, means, rates * process.step_length(s, t, xt, "finite").unsqueeze(-1))

    @staticmethod
    def _displacements(process: MarkovProcess, x: Tensor) -> Tensor:
        return -torch.tensor(process.jumps, device=x.device)


SAMPLERS.add("midpoint", MidpointLeaping, "tau-leaping with the rates in the middle of the step (any process)")
