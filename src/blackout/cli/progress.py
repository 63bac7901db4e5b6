"""What is shown while something runs: bars on a terminal, plain lines elsewhere."""

import datetime
import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

from blackout.classes import ModelDenoiser
from blackout.model import DiffusionModel
from blackout.training.config import TrainConfig
from blackout.training.loop import Diverged, Report, Stopped, Trainer
from blackout.training.state import RunFolder

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_SAMPLES, _STEPS = 64, 250  # of a grid of samples
_SECONDS = 30.0  # between two lines where there is no bar


def bar(*columns: ProgressColumn, stays: bool = False) -> Progress:
    """A bar on standard error, if that is a terminal and this the first process on it; nothing otherwise."""
    console = Console(stderr=True)
    shown = console.is_terminal and _is_first()
    return Progress(*columns, console=console, disable=not shown, transient=not stays)


def _is_first() -> bool:
    return os.environ.get("RANK", "0") == "0"


class Lines:
    """In the place of a bar: a line on standard error now and then, such as a log can keep."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, name: str, done: float, total: float) -> None:
        now = time.monotonic()
        if now - self._last >= _SECONDS and _is_first():
            self._last = now
            typer.echo(f"{name}: {done:.0f}/{total:.0f}", err=True)


@contextmanager
def sampling_bar(num: int) -> Iterator[Any]:
    """A callback for `write_samples`."""
    count = TextColumn("{task.completed:.0f}/{task.total:.0f} samples")
    with bar(TextColumn("drawing"), BarColumn(None), count, TimeRemainingColumn()) as progress:
        task, lines = progress.add_task("", total=num), Lines()

        def tell(done: float, total: int) -> None:
            progress.update(task, completed=done, total=total)
            if progress.disable:
                lines("samples", done, total)

        yield tell


@contextmanager
def measuring_bar() -> Iterator[Any]:
    """A callback for `evaluate`, `compare` and `figures`: a line for what is being done."""
    with bar(TextColumn("{task.description}"), BarColumn(None), TimeRemainingColumn()) as progress:
        task, lines = progress.add_task("", total=None), Lines()

        def tell(name: str, done: float, total: float) -> None:
            progress.update(task, description=name, completed=done, total=total)
            if progress.disable:
                lines(name, done, total)

        yield tell


@contextmanager
def resumable() -> Iterator[None]:
    """Around work of which an interrupt loses nothing."""
    try:
        yield
    except (KeyboardInterrupt, Stopped) as ended:
        typer.echo("blackout: interrupted; the same command goes on", err=True)
        raise typer.Exit(ended.exit_code if isinstance(ended, Stopped) else 130) from None


@contextmanager
def download_bar() -> Iterator[Any]:
    """A callback for `fetch`: a line for each file."""
    with bar(TextColumn("{task.description}"), BarColumn(None), DownloadColumn(), TimeRemainingColumn()) as progress:
        tasks: dict[str, Any] = {}

        def tell(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=total)
            progress.update(tasks[name], completed=done, total=total)

        yield tell


@contextmanager
def training(config: TrainConfig, run: Path, model: DiffusionModel, about: str) -> "Iterator[TrainingReport]":
    """Around a training: what is trained, where it begins, and how it ended, if it was stopped too."""
    folder, weights = RunFolder(run), sum(p.numel() for p in model.predictor.parameters())
    last, main = folder.checkpoints(), _is_first()
    if main:
        typer.echo(f"{about}; {weights:,} weights")
        typer.echo(f"{run}: goes on from {last[-1].name}" if last else f"{run}: new run")
        if config.compile:
            typer.echo("the network is compiled first, which takes a while; --no-compile does without")
    try:
        with TrainingReport(config, run, model) as listener:
            yield listener
    except Stopped as stopped:
        if main:
            typer.echo(f"blackout: {stopped}; its state is in {run}, and the same command goes on", err=True)
        raise typer.Exit(stopped.exit_code) from None
    except Diverged as diverged:
        raise RuntimeError(str(diverged)) from None
    if main:
        typer.echo(
            f"{run}: {folder.checkpoints()[-1].name} is done; draw with `blackout sample {shlex.quote(str(run))}`"
        )


class TrainingReport:
    """The listener of a run: a bar or lines, grids of samples, TensorBoard events."""

    def stopping(self) -> None:
        """A signal asked the run to stop; a step may take long."""
        typer.echo("blackout: stops after this step; Ctrl-C again stops at once, without a checkpoint", err=True)

    def __init__(self, config: TrainConfig, run: Path, model: DiffusionModel) -> None:
        self.config, self.run, self.model = config, run, model
        self._bar = bar(
            BarColumn(None),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.description}"),
            stays=True,
        )
        self._task = self._bar.add_task("starting", total=config.steps)
        self._events: SummaryWriter | None = None
        if config.tensorboard:
            import torch.utils.tensorboard  # noqa: F401  that it is missing should be known before the first step

    def __enter__(self) -> "TrainingReport":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        if self._events is not None:
            self._events.close()

    def __call__(self, report: Report, trainer: Trainer) -> None:
        text = describe(report, "cells" if self.config.dataset == "counts" else "img")
        if self._bar.disable:
            typer.echo(f"step {report.step}/{self.config.steps}  {text}")
            sys.stdout.flush()
        else:
            self._bar.update(self._task, completed=report.step, description=text)
        if self.config.tensorboard:
            self._write_events(report)
        every = self.config.sample_every
        if every and report.step % every == 0:
            self._write_grid(trainer)

    def _write_events(self, report: Report) -> None:
        from torch.utils.tensorboard import SummaryWriter

        if self._events is None:  # a run that goes on makes these steps again
            self._events = SummaryWriter(str(self.run / "tensorboard"), purge_step=report.step)
        for name in ("loss", "bits_per_dim", "images_per_second", "learning_rate"):
            self._events.add_scalar(name, getattr(report, name), report.step)

    def _write_grid(self, trainer: Trainer) -> None:
        """Samples of the averaged weights."""
        if len(self.model.shape or ()) != 3:
            return
        from blackout.io.images import write_grid

        x = draw(self.model, trainer)
        path = self.run / "samples" / f"step-{trainer.step:09d}.png"
        path.parent.mkdir(exist_ok=True)
        write_grid(path, x, self.model.max_state or int(x.max()))


def draw(model: DiffusionModel, trainer: Trainer) -> Any:
    """Samples of the averaged weights, all classes in turn if there are classes, as a numpy array."""
    import torch

    from blackout.io import sampler_for

    classes = model.num_classes
    label = torch.arange(_SAMPLES, device=trainer.device) % classes if classes else None
    times = model.walk(_STEPS)
    shape = (_SAMPLES, *(model.shape or ()))
    denoise = ModelDenoiser(model.with_predictor(trainer.averaged.eval()), label)
    return (
        sampler_for(model, "bridge").sample(denoise, model.process, times, shape, device=trainer.device).cpu().numpy()
    )


def describe(report: Report, unit: str = "img") -> str:
    left, rate = datetime.timedelta(seconds=round(report.seconds_left)), f"{report.images_per_second:.0f} {unit}/s"
    return f"loss {report.loss:.4g}  {report.bits_per_dim:.4f} bits/dim  {rate}  {left} left"
