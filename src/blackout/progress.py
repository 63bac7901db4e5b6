"""Progress bars for terminals and notebooks. Elsewhere nothing is shown."""

import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn


def bar(*columns: "str | ProgressColumn", stays: bool = False, show: bool | None = None) -> "Progress":
    """A bar of rich on standard error.

    Parameters
    ----------
    columns
        Columns of rich, or texts with places such as ``{task.completed}``.
    stays
        Whether it is still there at its end.
    show
        None: in a terminal or notebook, in the first of several processes.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    notebook = console.is_jupyter and importlib.util.find_spec("ipywidgets") is not None
    if show is None:
        show = (console.is_terminal or notebook) and is_first()
    return Progress(*columns, console=console, disable=not show, transient=not stays)


def is_first() -> bool:
    """Whether this is the first of the processes that share a job."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def fit_progress(listener: Any, steps: int, show: bool | None) -> Iterator[Any]:
    """A listener of a training loop that shows a bar and calls another listener, if there is one."""
    counted = _steps_bar(show, stays=True)
    if counted.disable:
        yield listener
        return
    with counted:
        yield _FitListener(listener, counted, steps)


class _FitListener:
    def __init__(self, inner: Any, shown: "Progress", steps: int) -> None:
        self._inner, self._bar, self._task = inner, shown, shown.add_task("starting", total=steps)

    def __call__(self, report: Any, trainer: Any) -> None:
        if not report.warm_up:
            self._bar.update(self._task, description=f"{report.bits_per_dim:.4f} bits/dim")
        if self._inner is not None:
            self._inner(report, trainer)

    def stepped(self, step: int, pace: Any) -> None:
        advance(self._bar, self._task, step)
        if hasattr(self._inner, "stepped"):
            self._inner.stepped(step, pace)


@contextmanager
def sample_progress(
    callback: Callable[..., None] | None, batches: int, show: bool | None
) -> Iterator[Callable[..., None] | None]:
    """A callback(k, steps, x) of a sampler that shows a bar; one that is given is called too, and hides the bar."""
    counted = _steps_bar(False if show is None and callback is not None else show)
    if counted.disable:
        yield callback
        return
    with counted:
        task, done = counted.add_task("sampling", total=None), 0

        def note(k: int, steps: int, x: Any) -> None:
            nonlocal done
            done += 1
            counted.update(task, total=batches * steps)
            advance(counted, task, done)
            if callback is not None:
                callback(k, steps, x)

        yield note


def count_samples(report: Callable[[float, int], None], num: int, done: float = 0.0) -> Callable[[int, int, Any], None]:
    """A callback(k, steps, x) of a sampler that calls report(done, num), where a step is a part of a sample."""

    def note(k: int, steps: int, x: Any) -> None:
        nonlocal done
        done += len(x) / steps
        report(done, num)

    return note


def advance(shown: "Progress", task: Any, done: int) -> None:
    """Move a bar; the rate is counted from the first call on, so that what was before it, a compiler, is left out."""
    entry = shown.tasks[task]
    if not entry.fields.get("moved"):
        shown.reset(task, completed=done, total=entry.total, description=entry.description, moved=True)
    shown.update(task, completed=done)


def _steps_bar(show: bool | None, stays: bool = False) -> "Progress":
    from rich.progress import BarColumn

    return bar(BarColumn(None), *step_columns(), "{task.description}", stays=stays, show=show)


def step_columns(unit: str = "step") -> "list[str | ProgressColumn]":
    """What is done, the rate and the time that is left."""
    from rich.progress import ProgressColumn, TimeRemainingColumn
    from rich.text import Text

    class Done(ProgressColumn):
        def render(self, task: Any) -> Text:
            total = "?" if task.total is None else f"{task.total:.0f}"
            return Text(f"{task.completed:.0f}/{total}")

    class Rate(ProgressColumn):
        def render(self, task: Any) -> Text:
            return Text(rate_text(task.finished_speed or task.speed, unit))

    return [Done(), Rate(), TimeRemainingColumn()]


def rate_text(speed: float | None, unit: str = "step") -> str:
    """Units a second, or seconds a unit."""
    if not speed:
        return ""
    return f"{speed:.3g} {unit}s/s" if speed >= 1 else f"{1 / speed:.3g} s/{unit}"


def clock_text(seconds: float) -> str:
    """Hours, minutes and seconds, however many: 0:04:00, 26:03:04."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def duration_text(seconds: float) -> str:
    """About how long: 40 seconds, 9 minutes, 3.5 hours, 2.1 days, 5e+09 days."""
    for size, name in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 1.5 * size:
            number = seconds / size
            if number >= 1e6:
                return f"{number:.0e} {name}"
            return f"{number:.0f} {name}" if number >= 10 or name == "minutes" else f"{number:.1f} {name}"
    number = max(1, round(seconds))
    return f"{number} second{'s' * (number > 1)}"
