"""The distillation loop: student and auxiliary network in turn. Derived in docs/mathematics.md#distillation."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import Tensor

from blackout import validate
from blackout.data import SparseRows
from blackout.distillation.config import DistillConfig
from blackout.loss import LikelihoodLoss
from blackout.network import Predictor
from blackout.network.head import Observation
from blackout.posterior import rate_divergence
from blackout.process import MarkovProcess
from blackout.random import binomial, mix
from blackout.times import ObservationTimes
from blackout.training.batches import Batch, Batches
from blackout.training.config import TrainConfig
from blackout.training.learner import Learner
from blackout.training.loop import Describe, Loop, check_batch_size, default_accelerator

Teacher = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""(x_u, u, label) -> y = E[X_0 - X_u | X_u]."""

_NEAREST = 1e-4  # share of a step next to its earlier end, where no time u is drawn: almost nothing is left to predict
_LARGEST = 20.0  # of a logarithm of two predictions


@dataclass(frozen=True)
class BridgeDraw:
    """A draw of X_0 rounded to integers, and the state of its bridge at a time within the step."""

    x0: Tensor
    xu: Tensor
    weight: Tensor
    """For the gradient by y: the indicator that y rounded up adds nothing to xu, divided by its probability."""


def draw_bridge(
    process: MarkovProcess, xt: Tensor, y: Tensor, u: Tensor, t: Tensor, generator: torch.Generator
) -> BridgeDraw:
    """Round y = X_0 - X_t stochastically, and draw X_u from the bridge of Eq. (10), at times u < t of shape (batch,).

    Of y = n + f with an integer n, the last unit exists with probability f and is in X_u with probability f r. The
    derivative of any E[h(X_u)] by y is r E[h(X_u + 1) - h(X_u)] over draws without that unit: `weight` selects them.
    """
    r, rest = (v.to(y.dtype) for v in process.bridge_probability(u, t, xt))
    whole = torch.floor(y)
    part = y - whole
    chance = torch.rand(2, *y.shape, device=y.device, generator=generator)
    up = chance[0] < part
    alive = up & (chance[1] < r)
    lit = binomial(whole.long(), r.expand_as(y), generator, rest.expand_as(y), process.max_state or 2**53)
    weight = (~alive).to(y.dtype) / (1 - part + part * rest)
    return BridgeDraw(xt + whole.long() + up, xt + lit + alive, weight)


@dataclass(frozen=True)
class StepTimes:
    """A time u within each step, uniform in e^{-u}; all of shape (batch,)."""

    u: Tensor
    lost: Tensor
    """1 - e^{-u}."""
    length: Tensor
    """Length of the step in e^{-u}."""


def draw_times(process: MarkovProcess, s: Tensor, t: Tensor, generator: torch.Generator) -> StepTimes:
    """Times within steps from t to s."""
    early, late = (torch.exp(-process.clock_time(time)) for time in (s, t))
    share = torch.rand(len(t), dtype=torch.float64, device=t.device, generator=generator) * (1 - _NEAREST)
    tau = -torch.log(late + share * (early - late))
    return StepTimes(process.real_time(tau), -torch.expm1(-tau), early - late)


class Distiller(Loop):
    """Student and auxiliary network of a distillation.

    Parameters
    ----------
    student
        Its head is a `StudentHead`; it learns to draw X_0 at the times of `times`.
    auxiliary
        Learns E[X_0 - X_u | X_u] of what the student draws; it should start as the teacher.
    teacher
        E[X_0 - X_u | X_u] of the data.
    """

    def __init__(
        self,
        settings: DistillConfig,
        config: TrainConfig,
        student: Predictor,
        auxiliary: Predictor,
        teacher: Teacher,
        times: ObservationTimes,
        folder: Path | None = None,
        describe: Describe | None = None,
        accelerator: Accelerator | None = None,
    ) -> None:
        accelerator = accelerator or default_accelerator()
        index, processes = accelerator.process_index, accelerator.num_processes
        check_batch_size(config.optimiser.batch_size, processes)
        # The student's gradient follows the auxiliary network, which changes: momentum would remember old ones.
        self.student = Learner(student, config, accelerator, beta1=0.0)
        self.auxiliary = Learner(auxiliary, config, accelerator, average=False)
        super().__init__(config, {"": self.student, "auxiliary-": self.auxiliary}, accelerator, folder, describe)
        self.settings, self.teacher, self.process = settings, teacher, student.process
        self.batches = Batches(config, student.process, times, LikelihoodLoss(), self.device, index, processes)
        self._edges = torch.cat([torch.zeros(1, dtype=torch.float64), times.values]).to(self.device)

    def update(self, x: Tensor | SparseRows, labels: Tensor | None) -> Tensor:
        """Some updates of the auxiliary network, and one of the student.

        Returns the auxiliary network's loss, and an estimate of Σ_k KL(student ‖ teacher) over the student's steps in
        bits per dimension: of the continuous-time processes that have the two networks' rates.
        """
        turns = self.settings.aux_updates + 1
        totals = torch.zeros(2, dtype=torch.float64, device=self.device)
        for turn in range(turns):
            number = self.step * turns + turn
            batch = self.batches.draw(number, x, labels, self.predictor)
            if turn < turns - 1:
                totals[0] += self.compiled(partial(self._update_auxiliary, batch, number)) / (turns - 1)
            else:
                totals[1] += self.compiled(partial(self._update_student, batch, number))
        return self.reduced(totals)

    def _generator(self, number: int) -> torch.Generator:
        """The random numbers of a turn."""
        purpose = 5 + 16 * self.accelerator.process_index
        return torch.Generator(self.device).manual_seed(mix(self.config.run.seed, number, purpose))

    def _generate(self, batch: Batch, generator: torch.Generator) -> tuple[Tensor, BridgeDraw, StepTimes]:
        """The student's draws of X_0 - X_t, with gradients, and a state on the bridge of each."""
        noise = torch.randn(batch.xt.shape, device=self.device, generator=generator)
        y = self._predict(self.student, Observation(self.process, batch.xt, batch.t, noise, label=batch.label))
        if self.process.max_state is not None:
            y = torch.minimum(y, self.process.max_state - batch.xt.to(y.dtype))
        s = self._edges[torch.searchsorted(self._edges, batch.t * (1 - 1e-9)) - 1]
        times = draw_times(self.process, s, batch.t, generator)
        return y, draw_bridge(self.process, batch.xt.long(), y.detach(), times.u, batch.t, generator), times

    def _predict(self, learner: Learner, observation: Observation) -> Tensor:
        raw = learner.module(observation)
        return learner.worker.module.head.posterior(raw, observation).difference()

    def _update_auxiliary(self, batch: Batch, number: int) -> Tensor:
        """The likelihood's loss, y - Δ + Δ log(Δ/y) per unit of e^{-u}, on what the student draws."""
        with torch.no_grad():
            _, drawn, times = self._generate(batch, self._generator(number))
        y = self._predict(self.auxiliary, Observation(self.process, drawn.xu, times.u, label=batch.label))
        divergence = rate_divergence(y, (drawn.x0 - drawn.xu).to(y.dtype))
        loss = (divergence / validate.expand(times.lost, y).to(y.dtype)).mean()
        self.accelerator.backward(loss)
        self.auxiliary.apply(self.step, self.settings.aux_learning_rate)
        return loss.detach().double()

    def _update_student(self, batch: Batch, number: int) -> Tensor:
        """r log(y_aux / y_teacher), times a weight over times: zero where the conditional means of X_0 are equal."""
        y, drawn, times = self._generate(batch, self._generator(number))
        with torch.no_grad():
            own = self._predict(
                self.auxiliary, Observation(self.process, drawn.xu, times.u, label=batch.label)
            ).double()
            true = self.teacher(drawn.xu, times.u, batch.label).double()
            own, true = (v.clamp(min=torch.finfo(torch.float32).tiny) for v in (own, true))
            possible = self.process.has_preimage(drawn.xu).squeeze(-1)  # at the largest state both predict zero
            log_ratio = torch.where(possible, torch.log(own / true), 0.0).clamp(-_LARGEST, _LARGEST)
            r, _ = self.process.bridge_probability(times.u, batch.t, y)
            slope = (log_ratio * r**self.settings.survival_power * drawn.weight).to(y.dtype)
            divergence = rate_divergence(true, own) / validate.expand(times.lost, own)
            bits = (validate.expand(times.length, own) * divergence).mean() * len(self.batches.grid) / math.log(2)
        self.accelerator.backward((y * slope).mean())
        self.student.apply(self.step, self.learning_rate())
        return bits
