"""Progress: bars on a terminal, plain lines elsewhere."""

import datetime
import importlib.util
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

from blackout.training.signals import Stopped

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

    from blackout.model import DiffusionModel
    from blackout.training.config import TrainConfig
    from blackout.training.loop import Report, Trainer

_SAMPLES = 64  # of a sample grid
_SECONDS = 30.0  # between two lines where there is no bar


def bar(*columns: ProgressColumn, stays: bool = False) -> Progress:
    """A bar on standard error, if that is a terminal and this process has rank 0; nothing otherwise."""
    console = Console(stderr=True)
    shown = console.is_terminal and _is_first()
    return Progress(*columns, console=console, disable=not shown, transient=not stays)


def _is_first() -> bool:
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def measuring_bar() -> Iterator[Callable[[str, float, float], None]]:
    """A callback for `evaluate`, `compare` and `figures`: one bar, named after the current stage."""
    last = time.monotonic()
    with bar(TextColumn("{task.description}"), BarColumn(None), TimeRemainingColumn()) as progress:
        task = progress.add_task("", total=None)

        def report(name: str, done: float, total: float) -> None:
            nonlocal last
            now, text = time.monotonic(), f"{name}: {done:.0f}/{total:.0f}"
            progress.update(task, description=text, completed=done, total=total)
            if progress.disable and _is_first() and now - last >= _SECONDS:
                last = now
                typer.echo(text, err=True)

        yield report


@contextmanager
def sampling_bar(num: int) -> Iterator[Callable[[float, int], None]]:
    """A callback for `write_samples`."""
    with measuring_bar() as report:
        report("samples", 0, num)
        yield lambda done, total: report("samples", done, total)


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
    with bar(TextColumn("{task.description}"), BarColumn(None), DownloadColumn(), TimeRemainingColumn()) as progress:
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
) -> "Iterator[TrainingReport]":
    """A listener for a training run; reports how the run starts and ends.

    Parameters
    ----------
    config, run, model
        The run.
    about
        One line about the data.
    unit, sample
        What the speed counts, and the command that samples from the run.
    """
    from blackout.training.checkpoints import Checkpoint, RunFolder
    from blackout.training.loop import Diverged

    folder, weights = RunFolder(run), sum(p.numel() for p in model.predictor.parameters())
    last, main = folder.checkpoints(), _is_first()
    if main:
        typer.echo(f"{about}; {weights:,} weights")
        typer.echo(f"{run}: resumes from {last[-1].name}" if last else f"{run}: new run{_origin(config, model)}")
        if config.run.compile:
            typer.echo("compiling the network takes a while; --no-compile skips it")
    try:
        with TrainingReport(config, run, model, unit) as listener:
            yield listener
    except Stopped as stopped:
        if main:
            typer.echo(f"blackout: {stopped}; saved in {run}; the same command resumes", err=True)
        raise typer.Exit(stopped.exit_code) from None
    except Diverged as diverged:
        raise RuntimeError(str(diverged)) from None
    if main:
        newest = folder.checkpoints()[-1]
        done = Checkpoint(newest).step >= config.optimiser.steps or listener.ended_early
        state = "finished" if done else "time is up, the same command resumes from"
        typer.echo(f"{run}: {state} {newest.name}; sample with `{sample} {shlex.quote(str(run))}`")


def _origin(config: "TrainConfig", model: "DiffusionModel") -> str:
    """Where the weights of a new run come from."""
    from blackout.training.initial import new_weights, open_init

    if not config.run.init:
        return ""
    new = ", ".join(new_weights(open_init(config.run.init), model.predictor))
    return f" from {config.run.init}" + (f"; {new} new and zero: labels have no effect at first" if new else "")


class TrainingReport:
    """Listener of a run: a bar or lines, sample grids, TensorBoard events."""

    def stopping(self) -> None:
        """Called at a signal; the current step may take long."""
        typer.echo("blackout: stopping after this step; Ctrl-C again stops at once, without a checkpoint", err=True)

    def __init__(self, config: "TrainConfig", run: Path, model: "DiffusionModel", unit: str) -> None:
        self.config, self.run, self.model, self.unit = config, run, model, unit
        self._bar = bar(
            BarColumn(None),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.description}"),
            stays=True,
        )
        self.ended_early = False
        self._task = self._bar.add_task("starting", total=config.optimiser.steps)
        self._events: SummaryWriter | None = None
        if config.run.tensorboard:
            _check_tensorboard()

    def __enter__(self) -> "TrainingReport":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        if self._events is not None:
            self._events.close()

    def __call__(self, report: "Report", trainer: "Trainer") -> None:
        text = describe(report, self.unit)
        self.ended_early = trainer.validation is not None and trainer.validation.ended
        if self._bar.disable:
            typer.echo(f"step {report.step}/{self.config.optimiser.steps}  {text}")
            sys.stdout.flush()
        else:
            self._bar.update(self._task, completed=report.step, description=text)
        if self.config.run.tensorboard:
            self._write_events(report)
        every = self.config.run.sample_every
        if every and report.step % every == 0:
            self._write_grid(trainer)

    def _write_events(self, report: "Report") -> None:
        from torch.utils.tensorboard import SummaryWriter

        if self._events is None:  # a resumed run repeats these steps
            self._events = SummaryWriter(str(self.run / "tensorboard"), purge_step=report.step)
        for name in ("loss", "bits_per_dim", "images_per_second", "learning_rate"):
            self._events.add_scalar(name, getattr(report, name), report.step)

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
        x = self.model.with_predictor(trainer.averaged.eval()).sample(_SAMPLES, label=label).cpu().numpy()
        write_grid(path, x, self.model.max_state or int(x.max()))


def describe(report: "Report", unit: str) -> str:
    """One line of a report."""
    left, rate = datetime.timedelta(seconds=round(report.seconds_left)), f"{report.images_per_second:.0f} {unit}/s"
    score = "" if report.validation is None else f"  validation {report.validation:.4f}"
    return f"loss {report.loss:.4g}  {report.bits_per_dim:.4f} bits/dim{score}  {rate}  {left} left"


def _check_tensorboard() -> None:
    """Raise, before the first step, if events cannot be written."""
    if importlib.util.find_spec("tensorboard") is None:
        raise ValueError("--tensorboard needs tensorboard: pip install 'blackout-diffusion[tensorboard]'")
