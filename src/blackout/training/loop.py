"""The training loop: draw, predict, reduce, step, average, report, save."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from blackout import validate
from blackout.data import SparseRows
from blackout.network import Head, Predictor
from blackout.network.head import Observation
from blackout.random import mix
from blackout.times import ObservationTimes
from blackout.training.batches import Batch, Batches
from blackout.training.checkpoints import RunFolder
from blackout.training.compiler import is_compiler_error, recompiled
from blackout.training.config import LOSSES, TrainConfig
from blackout.training.fingerprint import tie_to_data
from blackout.training.history import TrainingRun, device_name
from blackout.training.learner import Learner
from blackout.training.pace import Pace
from blackout.training.signals import Stopped, StopSignals
from blackout.training.validation import Validation

_EXPLODED = 1e4  # bits per dimension from which no run recovers
_TIME_UP = 1000  # beside the numbers of signals
_COMPILING = 3  # first steps that compile something
_WARM_UP = 50  # first steps of a run without warm-up that are an untrained network's


class Diverged(ValueError):
    """The loss is NaN or has exploded."""


@dataclass
class Report:
    """What the loop reports every `log_every` steps."""

    step: int
    loss: float
    bits_per_dim: float
    """The integral of the continuous-time bound, estimated at the times of the batches. For a head without a finite
    bound, such as softplus, it depends on these times, and serves to watch one run."""
    images_per_second: float
    learning_rate: float
    seconds: float
    """Time in the training loop, over all pieces of the run."""
    seconds_left: float | None
    """At the speed of the steps so far, without the first ones of this process; None before others have been timed."""
    warm_up: bool
    """Whether the run has just begun, and the bits per dimension still are those of an untrained network."""
    validation: float | None = None
    """The newest score of a run with validation."""


Listener = Callable[[Report, Any], None]
"""Called with each report and the running loop. Methods `stepped(step, pace)`, called after every step, and
`stopping()`, called at a signal, are optional."""

Describe = Callable[[TrainingRun], Mapping[str, Any]]
"""What a run has done so far -> the content of model.json."""


class Loop(ABC):
    """One run in a folder: steps, reports and checkpoints. What a step does is left to `update`.

    Parameters
    ----------
    learners
        What is trained, by the prefix of its files in a checkpoint. The one without a prefix is the model of the run:
        its averaged weights are in `averaged`, the raw ones in `predictor`.
    """

    def __init__(
        self,
        config: TrainConfig,
        learners: Mapping[str, Learner],
        accelerator: Accelerator,
        folder: Path | None = None,
        describe: Describe | None = None,
    ) -> None:
        self.config, self.learners, self._describe, self.accelerator = config, learners, describe, accelerator
        self.device, model = accelerator.device, learners[""]
        self.predictor, self.averaged, self.worker, self.optimizer = (
            model.predictor, model.averaged, model.worker, model.optimizer
        )  # fmt: skip
        self.folder = RunFolder(folder) if folder is not None and accelerator.is_main_process else None
        self._checkpoints = RunFolder(folder) if folder is not None else None
        self.step, self.seconds, self._num_data, self._signals = 0, 0.0, 0, StopSignals()
        self.validation: Validation | None = None
        self.reports: list[Report] = []

    @abstractmethod
    def update(self, x: Tensor | SparseRows, labels: Tensor | None) -> Tensor:
        """One step; returns the loss and the bits per dimension, both means over the global batch, float64."""

    def run(self, x: Tensor | SparseRows, labels: Tensor | None = None, listener: Listener | None = None) -> None:
        """Train on integer data x until `steps`, from the last checkpoint of the folder if there is one."""
        self._num_data = len(x)
        if self.folder is not None:
            self.folder.acquire()
        try:
            if self.folder is not None and not isinstance(x, SparseRows):  # cells are compared with their genes
                tie_to_data(self.folder.path, x, labels)
            self._resume()
            if self.folder is not None:
                self.config.write(self.folder.path / "config.json")
            self._write_description()
            devices = [self.device] if self.device.type == "cuda" else []
            alone, main = self.accelerator.num_processes == 1, self.accelerator.is_main_process
            on_stop = getattr(listener, "stopping", None) if main else None
            for learner in self.learners.values():
                learner.worker.module.train()
            with torch.random.fork_rng(devices), self._signals.caught(alone, on_stop):
                self._loop(x.to(self.device), None if labels is None else labels.to(self.device), listener)
        except Exception as error:
            if not is_compiler_error(error):
                raise
            reason = validate.one_line(error)
            raise RuntimeError(f"the network cannot be compiled here; use compile=False: {reason}") from error
        finally:
            if self.folder is not None:
                self.folder.release()

    def _loop(self, x: Tensor | SparseRows, labels: Tensor | None, listener: Listener | None) -> None:
        run, steps, main = self.config.run, self.config.optimiser.steps, self.accelerator.is_main_process
        stepped = getattr(listener, "stepped", None) if main else None
        pace = Pace(steps, self.step, _COMPILING if run.compile else 1)
        started, before, counted = time.perf_counter(), self.seconds, 0
        totals = torch.zeros(2, dtype=torch.float64, device=self.device)
        ended = self.validation is not None and self.validation.ended
        while self.step < steps and not ended:
            totals += self.update(x, labels)
            self.step, counted, self._signals.started = self.step + 1, counted + 1, True
            pace.advance()
            if stepped is not None:
                stepped(self.step, pace)
            if self.validation is not None:
                ended = self.validation.update(self.step, self.step == steps, self.averaged)
            elapsed = time.perf_counter() - started
            self.seconds, late = before + elapsed, 0 < 60 * run.max_minutes <= elapsed
            stop = max(self._gather(self._signals.number or late * _TIME_UP))
            sampled = run.sample_every and self.step % run.sample_every == 0
            due = self.step % run.log_every == 0 or sampled or self.step == steps or stop or ended
            if due or self.device.type == "cpu":
                self._check(totals / counted)
            if due:
                self._report(totals / counted, pace, listener)
            if due or self.step == self._warm_up:
                totals.zero_()
                counted = 0
            if self.step % run.checkpoint_every == 0 or self.step == steps or stop or ended:
                self.save()
            if stop == _TIME_UP:
                return
            if stop:
                raise Stopped(stop)

    def _report(self, means: Tensor, pace: Pace, listener: Listener | None) -> None:
        loss, bits = means.tolist()
        report = Report(
            step=self.step,
            loss=loss,
            bits_per_dim=bits,
            images_per_second=pace.lap() * self.config.optimiser.batch_size,
            learning_rate=self.optimizer.param_groups[0]["lr"],
            seconds=self.seconds,
            seconds_left=pace.seconds_left,
            warm_up=self.step <= self._warm_up,
            validation=None if self.validation is None else self.validation.last,
        )
        self.reports.append(report)
        if self.folder is not None:
            self._check_folder(self.folder)
            self.folder.report(**vars(report))
        if listener is not None and self.accelerator.is_main_process:
            listener(report, self)

    @property
    def _warm_up(self) -> int:
        """Steps whose bits per dimension are not averaged with those of later ones."""
        options = self.config.optimiser
        return max(options.warmup, min(_WARM_UP, options.steps // 10))

    def _check_folder(self, folder: RunFolder) -> None:
        if not (folder.path / "config.json").exists():
            raise OSError(f"run folder {folder.path} was deleted or moved during the run, at step {self.step}")

    def seed_dropout(self, seed: int) -> None:
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":  # torch.manual_seed seeds every kind of device, which takes a millisecond
            torch.cuda.manual_seed(seed)

    def learning_rate(self) -> float:
        options = self.config.optimiser
        rate = options.learning_rate * min(1.0, (self.step + 1) / max(1, options.warmup))
        if options.lr_schedule == "cosine":
            done = max(0, self.step - options.warmup) / max(1, options.steps - options.warmup)
            rate *= 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
        return rate

    def _check(self, totals: Tensor) -> None:
        loss, bits = totals.tolist()
        if not math.isfinite(loss) or bits > _EXPLODED:
            raise Diverged(f"the loss is {loss} ({bits} bits/dim) at step {self.step}; {self._last_good()}")

    def _last_good(self) -> str:
        last = [] if self._checkpoints is None else self._checkpoints.checkpoints()
        return f"the last good checkpoint is {last[-1]}" if last else "there is no checkpoint"

    def save(self) -> None:
        """Write a checkpoint, unless the weights are not finite."""
        if not all(learner.is_finite() for learner in self.learners.values()):
            raise Diverged(f"the weights are not finite at step {self.step}; {self._last_good()}")
        self.accelerator.wait_for_everyone()
        if self.folder is not None:
            self._check_folder(self.folder)
            groups: dict[str, dict[str, Tensor]] = {}
            for prefix, learner in self.learners.items():
                groups |= learner.tensors(prefix)
            if self.validation is not None:
                groups |= self.validation.tensors()
            self.folder.save(self.step, groups, self.seconds, self.config.run.part_mib)
        self._write_description()
        self.accelerator.wait_for_everyone()

    def _write_description(self) -> None:
        """Pass on what the run has done so far; model.json holds it too."""
        if self._describe is None:
            return
        name, number = device_name(self.device), self.accelerator.num_processes
        description = self._describe(
            TrainingRun.of(
                self.config, num_data=self._num_data, steps=self.step, seconds=self.seconds,
                device=f"{number} x {name}" if number > 1 else name, precision=self.worker.module.dtype,
            )
        )  # fmt: skip
        if self.folder is not None:
            self.folder.describe(description)

    def _resume(self) -> None:
        """Continue from the last good checkpoint, which all processes must find."""
        checkpoint = None if self._checkpoints is None else self._checkpoints.last_good()
        if checkpoint is not None:
            for prefix, learner in self.learners.items():
                learner.restore(checkpoint, prefix)
            if self.validation is not None:
                self.validation.restore(checkpoint)
            self.step, self.seconds = checkpoint.step, checkpoint.seconds
        steps = self._gather(self.step)
        if min(steps) < max(steps):
            raise ValueError(f"processes found checkpoints of steps {steps}: give all of them one and the same folder")
        if self.folder is not None:
            self.folder.rewind(self.step)

    def _gather(self, number: int) -> list[int]:
        """The number in each process; they wait for each other."""
        if self.accelerator.num_processes == 1:
            return [number]
        return list(self.accelerator.gather(torch.tensor([number], device=self.device)).tolist())

    def compiled(self, turn: Callable[[], Tensor]) -> Tensor:
        """Call a part of a step that changes weights last: `recompiled`, unless other processes wait for gradients."""
        modules = (learner.worker.module for learner in self.learners.values())
        return turn() if self.accelerator.num_processes > 1 else recompiled(turn, modules)

    def reduced(self, totals: Tensor) -> Tensor:
        """The mean over all processes."""
        return self.accelerator.reduce(totals, "mean") if self.accelerator.num_processes > 1 else totals


class Trainer(Loop):
    """The training of a model on data."""

    def __init__(
        self,
        config: TrainConfig,
        predictor: Predictor,
        times: ObservationTimes,
        folder: Path | None = None,
        describe: Describe | None = None,
        accelerator: Accelerator | None = None,
    ) -> None:
        accelerator, options = accelerator or default_accelerator(), config.optimiser
        check_batch_size(options.batch_size, accelerator.num_processes * options.accumulate)
        self.learner = Learner(predictor, config, accelerator)
        super().__init__(config, {"": self.learner}, accelerator, folder, describe)
        self.batches = Batches(
            config, predictor.process, times, LOSSES.make(options.loss), self.device,
            accelerator.process_index, accelerator.num_processes,
        )  # fmt: skip
        self._divergence: Callable[..., Tensor] = divergence
        if config.run.compile and predictor.head.answers == "categorical" and not predictor.process.discrete_time:
            # A few passes over the S numbers of each component instead of dozens.
            self._divergence = torch.compile(divergence, dynamic=False)

    def update(self, x: Tensor | SparseRows, labels: Tensor | None) -> Tensor:
        """One optimiser step; returns the loss and the bits per dimension, both means over the global batch."""
        batch = self.batches.draw(self.step, x, labels, self.predictor)
        totals = self.compiled(lambda: self._gradients(batch))
        self.learner.apply(self.step, self.learning_rate())
        return self.reduced(totals)

    def _gradients(self, batch: Batch) -> Tensor:
        """The gradients of a batch; returns its loss and bits per dimension."""
        self.seed_dropout(mix(self.config.run.seed, self.step, 2 + 16 * self.accelerator.process_index))
        parts, totals = self.config.optimiser.accumulate, torch.zeros(2, dtype=torch.float64, device=self.device)
        for part in batch.split(parts):
            loss, bits = self._loss(part)
            self.accelerator.backward(loss / parts)
            totals += torch.stack([loss.detach().double(), bits.double()]) / parts
        return totals

    def _loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Means over a micro-batch: the loss, and the bits per dimension of the evidence bound."""
        observation = Observation(self.predictor.process, batch.xt, batch.t, label=batch.label)
        raw = self.learner.module(observation)
        if self.worker.module.head.answers == "categorical":
            _ = observation.transitions  # computed outside of what is compiled
        rate = self._divergence(self.worker.module.head, raw, observation, batch.x0, batch.s, batch.channel)
        weight, span = (validate.expand(v.to(rate.dtype), rate) for v in (batch.weight, batch.span))
        if (pad := self.predictor.process.pad_state) is not None:  # means over labels, not over padding
            rate = rate / (batch.x0 != pad).to(rate.dtype).mean()
        return (weight * rate).mean(), (span * rate.detach()).mean() / math.log(2)


def default_accelerator() -> Accelerator:
    """The GPU of this process, or the CPU."""
    return Accelerator(cpu=not torch.cuda.is_available())


def check_batch_size(batch_size: int, parts: int) -> None:
    """Raise ValueError unless a batch can be divided into equal parts."""
    if batch_size % parts:
        raise ValueError(f"batch_size must be a multiple of {parts}, processes times accumulate, got {batch_size}")


def divergence(
    head: Head, raw: Tensor, observation: Observation, x0: Tensor, s: Tensor | None, channel: Tensor | None = None
) -> Tensor:
    """The divergence of the posterior that raw outputs stand for, or its estimate by one channel, the shape of x0."""
    posterior = head.posterior(raw, observation)
    return posterior.divergence(x0, s) if channel is None else posterior.channel_divergence(x0, channel)
