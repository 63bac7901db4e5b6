"""The training loop: draw, predict, reduce, step, average, report, save."""

import copy
import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from blackout import validate
from blackout.data import SparseRows
from blackout.network import LawPredictor, Predictor
from blackout.process import MarkovProcess
from blackout.times import ObservationTimes
from blackout.training.batches import Batches, mix
from blackout.training.build import build_objective
from blackout.training.config import TrainConfig
from blackout.training.state import Checkpoint, RunFolder, flatten_optimizer, load_weights, restore_optimizer

_EXPLODED = 1e4  # bits per dimension that no run comes back from


class Stopped(Exception):
    """A signal asked the run to end; its state is saved."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number


class Diverged(ValueError):
    """The loss is NaN or has exploded."""


@dataclass
class Report:
    """What the loop tells its listener every `log_every` steps."""

    step: int
    loss: float
    bits_per_dim: float
    images_per_second: float
    learning_rate: float
    seconds: float
    seconds_left: float


class Trainer:
    """One run: the averaged weights are in `averaged`, the raw ones in `predictor`."""

    def __init__(
        self,
        config: TrainConfig,
        predictor: Predictor | LawPredictor,
        process: MarkovProcess,
        times: ObservationTimes,
        folder: Path | None = None,
        description: Mapping[str, Any] | None = None,
        accelerator: Accelerator | None = None,
    ) -> None:
        self.config, self.process, self.times = config, process, times
        self.accelerator = accelerator or Accelerator(cpu=not torch.cuda.is_available())
        self.device = self.accelerator.device
        self.description = description
        parts = self.accelerator.num_processes * config.accumulate
        if config.batch_size % parts:
            raise ValueError(
                f"batch_size must be a multiple of {parts}, processes times accumulate, got {config.batch_size}"
            )
        self.predictor = predictor.to(self.device)
        self.worker = self._worker()
        self.objective = build_objective(config, predictor)
        self.batches = Batches(
            config, process, times, self.device, self.accelerator.process_index, self.accelerator.num_processes
        )
        self.optimizer: torch.optim.Optimizer = torch.optim.Adam(
            self.predictor.parameters(),
            lr=config.learning_rate,
            betas=(0.9, config.beta2),
            fused=self.device.type == "cuda",
        )
        self.averaged = copy.deepcopy(self.predictor).requires_grad_(False)
        if config.compile:
            # Not the head: it differs between runs, and the network's compiled form is found again in the cache.
            # The graphs of reduce-overhead replay memory that a reduction over processes would still be reading.
            alone = self.accelerator.num_processes == 1
            self.worker.network.compile(mode=config.compile_mode if alone else "default")
        self.module: Callable[..., Tensor] = self.accelerator.prepare_model(self.worker)
        self.folder = RunFolder(folder) if folder is not None and self.accelerator.is_main_process else None
        self._checkpoints = RunFolder(folder) if folder is not None else None
        self.step = 0
        self._asked_to_stop = 0
        self._no_class = int(getattr(getattr(predictor.network, "config", None), "num_classes", 0))

    def run(
        self,
        x: Tensor | SparseRows,
        labels: Tensor | None = None,
        listener: Callable[[Report, "Trainer"], None] | None = None,
    ) -> None:
        """Train on integer data x until `steps`, from the last checkpoint of the folder if there is one."""
        if self.folder is not None:
            self.folder.acquire()
        try:
            self._resume()
            if self.folder is not None:
                self.config.write(self.folder.path / "config.json")
                if self.description is not None:
                    self.folder.describe(self.description)
            data = x.to(self.device)
            wanted = self.config.class_conditional or self.config.library == "conditioned"
            labels = labels.to(self.device) if labels is not None and wanted else None
            self.worker.train()
            devices = [self.device] if self.device.type == "cuda" else []
            with torch.random.fork_rng(devices), self._signals(listener):
                self._loop(data, labels, listener)
        except Exception as error:
            if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
                raise
            reason = validate.one_line(error)
            raise RuntimeError(f"the network cannot be compiled here; compile=False does without: {reason}") from error
        finally:
            if self.folder is not None:
                self.folder.release()

    def _loop(
        self, x: Tensor | SparseRows, labels: Tensor | None, listener: Callable[[Report, "Trainer"], None] | None
    ) -> None:
        config = self.config
        started, since, first = time.perf_counter(), time.perf_counter(), self.step
        totals = torch.zeros(2, dtype=torch.float64, device=self.device)
        reported = self.step
        while self.step < config.steps:
            totals += self._update(x, labels)
            self.step += 1
            stop = self._stop_signal()
            sampled = config.sample_every and self.step % config.sample_every == 0
            due = self.step % config.log_every == 0 or sampled or self.step == config.steps or stop
            if due or self.device.type == "cpu":
                self._check(totals / (self.step - reported))
            if due:
                now = time.perf_counter()
                loss, bits = (totals / (self.step - reported)).tolist()
                rate = (self.step - reported) / (now - since)
                report = Report(
                    step=self.step,
                    loss=loss,
                    bits_per_dim=bits,
                    images_per_second=rate * config.batch_size,
                    learning_rate=self.optimizer.param_groups[0]["lr"],
                    seconds=now - started,
                    seconds_left=(config.steps - self.step) * (now - started) / max(1, self.step - first),
                )
                if self.folder is not None:
                    self.folder.report(**vars(report))
                if listener is not None and self.accelerator.is_main_process:
                    listener(report, self)
                totals.zero_()
                reported, since = self.step, time.perf_counter()
            if self.step % config.checkpoint_every == 0 or self.step == config.steps or stop:
                self.save()
            if stop:
                raise Stopped(stop)

    def _update(self, x: Tensor | SparseRows, labels: Tensor | None) -> Tensor:
        """One optimiser step; returns the loss and the bits per dimension, both means over the global batch."""
        config = self.config
        for group in self.optimizer.param_groups:
            group["lr"] = self._learning_rate()
        self._seed_dropout(mix(config.seed, self.step, 2 + 16 * self.accelerator.process_index))
        scale = self.batches.scale / config.accumulate
        totals = torch.zeros(2, dtype=torch.float64, device=self.device)
        for part in self.batches.draw(self.step, x, labels, self._no_class).split(config.accumulate):
            loss, bits = self.objective(self.module(part.xt, part.t, part.label), part)
            self.accelerator.backward(loss * scale)
            totals += scale * torch.stack([loss.detach().double(), bits.double()])
        self._collect_gradients()
        if config.clip:
            torch.nn.utils.clip_grad_norm_(self.predictor.parameters(), config.clip)
        self.optimizer.step()
        self._hand_out_weights()
        self._average()
        return self.accelerator.reduce(totals, "mean") if self.accelerator.num_processes > 1 else totals

    def _seed_dropout(self, seed: int) -> None:
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":  # torch.manual_seed asks every kind of device, for a millisecond
            torch.cuda.manual_seed(seed)

    def _worker(self) -> Predictor | LawPredictor:
        """What computes: the predictor itself, or a copy whose network has weights and activations in bfloat16."""
        precision = self.config.precision
        if precision == "float32" or (precision == "auto" and self.device.type == "cpu"):
            return self.predictor
        worker = copy.deepcopy(self.predictor)
        worker.network.to(torch.bfloat16)
        worker.dtype = torch.bfloat16
        return worker

    @torch.no_grad()
    def _collect_gradients(self) -> None:
        if self.worker is not self.predictor:
            kept, worked = [], []
            for parameter, copied in zip(self.predictor.parameters(), self.worker.parameters(), strict=True):
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                kept.append(parameter.grad)
                worked.append(torch.zeros_like(copied) if copied.grad is None else copied.grad)
            torch._foreach_copy_(kept, worked)

    @torch.no_grad()
    def _hand_out_weights(self) -> None:
        if self.worker is not self.predictor:
            torch._foreach_copy_(list(self.worker.parameters()), list(self.predictor.parameters()))
        for parameter in self.worker.parameters():
            parameter.grad = None

    def _learning_rate(self) -> float:
        config = self.config
        rate = config.learning_rate * min(1.0, (self.step + 1) / max(1, config.warmup))
        if config.decay == "cosine":
            done = max(0, self.step - config.warmup) / max(1, config.steps - config.warmup)
            rate *= 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
        return rate

    @torch.no_grad()
    def _average(self) -> None:
        """The averaged weights move after the step; at first quickly, so that they forget the start.

        torch's AveragedModel reads its counter back from the device twice a step, which stalls a GPU.
        """
        decay = min(self.config.ema, (1 + self.step) / (10 + self.step))
        torch._foreach_lerp_(list(self.averaged.parameters()), list(self.predictor.parameters()), 1 - decay)

    def _check(self, totals: Tensor) -> None:
        loss, bits = totals.tolist()
        if not math.isfinite(loss) or bits > _EXPLODED:
            raise Diverged(f"the loss is {loss} ({bits} bits/dim) at step {self.step}; {self._last_good()}")

    def _last_good(self) -> str:
        last = [] if self._checkpoints is None else self._checkpoints.checkpoints()
        return f"the last good checkpoint is {last[-1]}" if last else "there is no checkpoint"

    def save(self) -> None:
        """Write a checkpoint, unless the weights are no longer numbers."""
        norms = torch._foreach_norm(list(self.predictor.parameters()))
        if not bool(torch.isfinite(torch.stack(norms)).all()):
            raise Diverged(f"the weights are not finite at step {self.step}; {self._last_good()}")
        self.accelerator.wait_for_everyone()
        if self.folder is not None:
            groups = {
                "weights": self.predictor.state_dict(),
                "averaged": self.averaged.state_dict(),
                "optimizer": flatten_optimizer(self.optimizer),
            }
            self.folder.save(self.step, groups)
        self.accelerator.wait_for_everyone()

    def _resume(self) -> None:
        """Go on from the last checkpoint, which all processes must find: one alone would learn something else."""
        found = [] if self._checkpoints is None else self._checkpoints.checkpoints()
        if found:
            checkpoint = Checkpoint(found[-1])
            load_weights(self.predictor, checkpoint.tensors("weights"), checkpoint.path)
            load_weights(self.averaged, checkpoint.tensors("averaged"), checkpoint.path)
            restore_optimizer(self.optimizer, checkpoint.tensors("optimizer"))
            self._hand_out_weights()
            self.worker.head.load_state_dict(self.predictor.head.state_dict())  # the data's statistics, as they were
            self.step = checkpoint.step
        steps = self._of_all(self.step)
        if min(steps) < max(steps):
            raise ValueError(f"processes found checkpoints of steps {steps}: give all of them one and the same folder")
        if self.folder is not None:
            self.folder.rewind(self.step)

    def _stop_signal(self) -> int:
        """The signal that some process received, as all of them agree on it."""
        return max(self._of_all(self._asked_to_stop))

    def _of_all(self, number: int) -> list[int]:
        """What this number is in each process; they wait for each other."""
        if self.accelerator.num_processes == 1:
            return [number]
        numbers: list[int] = self.accelerator.gather(torch.tensor([number], device=self.device)).tolist()
        return numbers

    @contextmanager
    def _signals(self, listener: Any) -> Iterator[None]:
        """SIGINT and SIGTERM end the run after the step at hand, with a checkpoint; a second SIGINT at once.

        A listener with a method `stopping` is told. Processes that share a run get several signals for one.
        """
        alone = self.accelerator.num_processes == 1

        def note(number: int, frame: FrameType | None) -> None:
            if alone and self._asked_to_stop == number == signal.SIGINT:
                raise KeyboardInterrupt
            self._asked_to_stop = number
            if self.accelerator.is_main_process and hasattr(listener, "stopping"):
                listener.stopping()

        before: dict[int, Any] = {}
        try:
            for ending in (signal.SIGINT, signal.SIGTERM):
                before[ending] = signal.signal(ending, note)
        except ValueError:  # not in the main thread: whoever started it handles signals
            pass
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
