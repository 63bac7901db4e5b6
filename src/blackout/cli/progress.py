"""Progress of commands: bars on a terminal, plain lines elsewhere."""

import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn

from blackout.progress import advance, bar, clock_text, duration_text, is_first, rate_text, step_columns
from blackout.training.signals import Stopped, Watchdog

if TYPE_CHECKING:
    from blackout.model import DiffusionModel
    from blackout.training.config import TrainConfig
    from blackout.training.loop import Report, Trainer
    from blackout.training.pace import Pace

_SAMPLES = 64  # of a sample grid
_SECONDS = 30.0  # between two lines where there is no bar
_FIRST = 3.0  # before the first of them
_TIMED = 3  # steps after which the whole time is estimated
_LONG = 2 * 3600.0  # seconds from which on a run gets a warning


@contextmanager
def measuring_bar() -> Iterator[Callable[[str, float, float], None]]:
    """A callback for `evaluate`, `compare` and `figures`: one bar, named after the current stage."""
    with bar("{task.description}", BarColumn(None), *step_columns("item")[1:]) as progress:
        task, stage, since, first = progress.add_task("", total=None), "", time.monotonic(), 0.0
        due = since + _FIRST

        def report(name: str, done: float, total: float) -> None:
            nonlocal due, stage, since, first
            now, text = time.monotonic(), f"{name}: {done:.0f}/{total:.0f}"
            if name != stage:  # the rate is that of a stage, from its first report on
                stage, since, first = name, now, done
                progress.reset(task, completed=int(done), total=int(total))
            progress.update(task, description=text, completed=done, total=total)
            if progress.disable and is_first() and now >= due:
                due, rate = now + _SECONDS, (done - first) / max(now - since, 1e-9)
                left = f", {rate_text(rate, 'item')}, {duration_text((total - done) / rate)} left" if rate > 0 else ""
                typer.echo(text + left, err=True)

        yield report


@contextmanager
def sampling_bar(num: int) -> Iterator[Callable[[float, int], None]]:
    """A callback for `write_samples`."""
    with measuring_bar() as report:
        report("samples", 0, num)
        yield partial(report, "samples")


@contextmanager
def resumable() -> Iterator[None]:
    """Around work that the same command resumes after an interrupt."""
    try:
        yield
    except (KeyboardInterrupt, Stopped) as ended:
        typer.echo("blackout: interrupted; the same command resumes", err=True)
        raise typer.Exit(getattr(ended, "exit_code", 130)) from None


@contextmanager
def download_bar() -> Iterator[Callable[[str, int, int | None], None]]:
    """A callback for `fetch`: a bar per file."""
    with bar("{task.description}", BarColumn(None), DownloadColumn(), TimeRemainingColumn()) as progress:
        tasks: dict[str, Any] = {}

        def report(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=total)
            progress.update(tasks[name], completed=done, total=total)

        yield report


@contextmanager
def training(
    config: "TrainConfig",
    run: Path,
    model: "DiffusionModel",
    about: str,
    unit: str = "images",
    sample: str = "blackout sample",
    watchdog: Watchdog | None = None,
) -> "Iterator[TrainingReport]":
    """A listener for a training run; reports how the run starts and ends.

    Parameters
    ----------
    config, run, model
        The run.
    about
        A line or more about the data.
    unit, sample
        What the speed counts, and the command that samples from the run.
    watchdog
        Ends a process that does not answer signals before its first step.
    """
    from blackout.training.checkpoints import Checkpoint, RunFolder
    from blackout.training.loop import Diverged

    folder, main = RunFolder(run), is_first()
    last = folder.checkpoints()
    if main:
        for line in [about, *describe_settings(config, model)]:
            typer.echo(line)
        typer.echo(f"{run}: resumes from {last[-1].name}" if last else f"{run}: new run{_origin(config, model)}")
        if config.run.compile:
            typer.echo("compiling the network takes a while; --no-compile skips it")
    try:
        with TrainingReport(config, run, model, unit, watchdog) as listener:
            yield listener
    except Stopped as stopped:
        if main:
            state = f"saved in {run}; the same command resumes" if stopped.saved else "before the first step"
            typer.echo(f"blackout: {stopped}; {state}", err=True)
        raise typer.Exit(stopped.exit_code) from None
    except Diverged as diverged:
        raise RuntimeError(str(diverged)) from None
    if main:
        if not (newest := folder.checkpoints()[-1:]):
            raise OSError(f"run folder {run} was deleted or moved during the run")
        done = Checkpoint(newest[0]).step >= config.optimiser.steps or listener.ended_early
        state = "finished" if done else "time is up, the same command resumes from"
        typer.echo(f"{run}: {state} {newest[0].name}; sample with `{sample} {shlex.quote(str(run))}`")


def describe_settings(config: "TrainConfig", model: "DiffusionModel") -> list[str]:
    """Device, network, length and memory of a training run, a line for each."""
    from blackout.memory import available_memory, readable
    from blackout.training.estimate import training_memory
    from blackout.training.history import device_name
    from blackout.training.loop import default_accelerator

    device, options = default_accelerator().device, config.optimiser
    weights = sum(p.numel() for p in model.predictor.parameters())
    needed = training_memory(model.predictor, model.shape or (), config, device)
    flips = ", random flips" if config.data.flip else ""
    return [
        f"{device_name(device)}; a network of {weights:,} weights",
        f"{options.steps:,} steps of {options.batch_size:,}, learning rate {options.learning_rate:g}{flips}",
        f"memory: about {readable(needed)} of {readable(available_memory(device))}",
    ]


def _origin(config: "TrainConfig", model: "DiffusionModel") -> str:
    """Where the weights of a new run come from."""
    from blackout.training.initial import new_weights, open_init

    if not config.run.init:
        return ""
    new = ", ".join(new_weights(open_init(config.run.init), model.predictor))
    return f" from {config.run.init}" + (f"; {new} new and zero: labels have no effect at first" if new else "")


class TrainingReport:
    """Listener of a run: a bar or lines, and sample grids."""

    def __init__(
        self, config: "TrainConfig", run: Path, model: "DiffusionModel", unit: str, watchdog: Watchdog | None = None
    ) -> None:
        self.config, self.run, self.model, self.unit, self._watchdog = config, run, model, unit, watchdog
        self._bar = bar(BarColumn(None), *step_columns(), TextColumn("{task.description}"), stays=True)
        self.ended_early = False
        self._task = self._bar.add_task("starting", total=config.optimiser.steps)
        self._timed, self._last_line = 0, time.monotonic()

    def __enter__(self) -> "TrainingReport":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        if self._watchdog is not None:
            self._watchdog.waits = False

    def stopping(self) -> None:
        """Called at a signal; the current step may take long."""
        typer.echo("blackout: stopping after this step; Ctrl-C again stops at once, without a checkpoint", err=True)

    def stepped(self, step: int, pace: "Pace") -> None:
        """Called after every step."""
        if self._watchdog is not None:
            self._watchdog.waits = True
        self._timed += pace.counts
        advance(self._bar, self._task, step)
        left = pace.seconds_left
        if self._timed == _TIMED and left is not None:
            self._timed += 1  # once
            self._estimate(left)
        if self._bar.disable and time.monotonic() - self._last_line >= _SECONDS:
            self._line(f"step {step}/{pace.total}{_left(left)}")

    def __call__(self, report: "Report", trainer: "Trainer") -> None:
        self.ended_early = trainer.validation is not None and trainer.validation.ended
        final = report.step == self.config.optimiser.steps or self.ended_early
        text = describe(report, self.unit, final)
        if self._bar.disable:
            self._line(f"step {report.step}/{self.config.optimiser.steps}  {text}{_left(report.seconds_left)}")
        else:
            self._bar.update(self._task, description=text)
        every = self.config.run.sample_every
        if every and report.step % every == 0:
            self._write_grid(trainer)

    def _line(self, text: str) -> None:
        typer.echo(text)
        sys.stdout.flush()
        self._last_line = time.monotonic()

    def _estimate(self, seconds: float) -> None:
        """The whole time, after the first steps."""
        if seconds >= _LONG:
            advice = "fewer --steps, a smaller --width or a GPU take less; Ctrl-C stops, the same command resumes"
            typer.echo(f"blackout: this run takes about {duration_text(seconds)}; {advice}", err=True)
        elif self._bar.disable:
            self._line(f"about {duration_text(seconds)} to go")

    def _write_grid(self, trainer: "Trainer") -> None:
        """A grid of samples of the averaged weights."""
        if len(self.model.shape or ()) != 3:
            return
        import torch

        from blackout.io.images import write_grid

        path = self.run / "samples" / f"step-{trainer.step:09d}.png"
        path.parent.mkdir(exist_ok=True)
        classes = self.model.num_classes
        label = torch.arange(_SAMPLES, device=trainer.device) % classes if classes else None
        averaged = self.model.with_predictor(trainer.averaged.eval())
        x = averaged.sample(_SAMPLES, label=label, progress=False).cpu().numpy()
        write_grid(path, x, self.model.max_state or int(x.max()))


def describe(report: "Report", unit: str, final: bool = False) -> str:
    """Loss and bits per dimension, which mean nothing yet in the first steps, and the speed."""
    bits = "warming up" if report.warm_up and not final else f"{report.bits_per_dim:.4f} bits/dim"
    score = "" if report.validation is None else f"  validation {report.validation:.4f}"
    speed = f"  {report.images_per_second:.0f} {unit}/s" if report.images_per_second else ""
    return f"loss {report.loss:.4g}  {bits}{score}{speed}"


def _left(seconds: float | None) -> str:
    return "" if seconds is None else f"  {clock_text(seconds)} left"
