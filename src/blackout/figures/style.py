"""Shared by all figures: colours, sizes, axes, legends, and the check of numbers to plot."""

import textwrap
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The colour-blind-safe palette of Okabe and Ito without its yellow, which is too light on white. Dashes and markers
# distinguish lines in grey print; 7, 4 and 5 are coprime, so combinations do not repeat soon.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v")
WIDTH = 6.75  # inches: both columns of a printed page
SMALL, TEXT = 7.5, 8.5  # points
_MAX_INSIDE = 3  # entries of a legend inside the axes
_TITLE, _LABEL = 40, 28  # characters of a line of a title, and of the label of a vertical axis
_LONG, _LINE = 22, 44  # characters of a name in a legend: from where it is below the axes, and how many 4.8 inches hold


def new_figure(width: float, height: float, **layout: Any) -> "Figure":
    """An empty figure of a size in inches; `layout` holds options of matplotlib's constrained layout."""
    require_matplotlib()
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    from blackout.figures.notebook import NotebookFigure

    return NotebookFigure(figsize=(width, height), dpi=150, layout=ConstrainedLayoutEngine(**layout))


def require_matplotlib() -> None:
    """Raise ModuleNotFoundError with the install command if matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        text = "figures need matplotlib: pip install 'blackout-diffusion[figures]'"
        raise ModuleNotFoundError(text, name=error.name) from None


def new_axes(xlabel: str, ylabel: str, title: str = "") -> "tuple[Figure, Any]":
    """A figure with one pair of axes."""
    figure = new_figure(4.8, 3.0)
    axis = figure.subplots()
    axis.set(xlabel=xlabel, ylabel=textwrap.fill(ylabel, _LABEL), title=textwrap.fill(title, _TITLE))
    add_grid(axis)
    return figure, axis


def add_grid(axis: Any) -> None:
    axis.grid(color="0.5", alpha=0.25, linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)


def log_scale(axis: Any, *names: str) -> None:
    """Logarithmic axes with plain numbers: powers of ten are set glyph by glyph, which other fonts misplace."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    for name in names:
        axis.set(**{f"{name}scale": "log"})
        line = getattr(axis, f"{name}axis")
        low, high = line.get_view_interval()
        line.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
        line.set_major_formatter(StrMethodFormatter("{x:g}"))
        line.set_minor_formatter(NullFormatter())


def add_legend(figure: "Figure", axis: Any, number: int) -> "Figure":
    """A legend of `number` entries: inside the axes if they are few, else to their right; below if one is long."""
    longest = max(map(len, axis.get_legend_handles_labels()[1]), default=0)
    if number > 1 and longest > _LONG:
        figure.set_size_inches(4.8 if longest <= _LINE else WIDTH, 3.0 + 0.2 * number)
        figure.legend(loc="outside lower left", frameon=False, handlelength=3)
    elif 1 < number <= _MAX_INSIDE:
        axis.legend(frameon=False, handlelength=3)
    elif number > _MAX_INSIDE:
        figure.set_figwidth(WIDTH)
        figure.legend(loc="outside right upper", frameon=False, handlelength=3)
    return figure


def colour(k: int) -> str:
    return _COLOURS[k % len(_COLOURS)]


def dash(k: int) -> str:
    return _DASHES[k % len(_DASHES)]


def marker(k: int) -> str:
    return _MARKERS[k % len(_MARKERS)]


def numbers(name: str, values: Any, *, positive: bool = False) -> NDArray[numpy.float64]:
    """A sequence of finite numbers as an array; ValueError naming the argument otherwise."""
    try:
        x = numpy.asarray(values, dtype=numpy.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be numbers, got {values!r}") from None
    if x.ndim != 1:
        raise ValueError(f"{name} must be a sequence of numbers, got shape {x.shape}")
    bad = ~numpy.isfinite(x) | (positive & (x <= 0))
    if bad.any():
        raise ValueError(f"{name} must be finite{', and positive on a logarithmic axis' * positive}, got {x[bad][0]}")
    return x


def pairs(
    name: str, x: Any, y: Any, *, logx: bool = False, logy: bool = False
) -> tuple[NDArray[numpy.float64], NDArray[numpy.float64]]:
    """Two sequences of numbers of one length, at least one pair."""
    first, second = numbers(f"x of {name}", x, positive=logx), numbers(f"y of {name}", y, positive=logy)
    if len(first) != len(second) or len(first) == 0:
        raise ValueError(f"{name} must have as many x as y, at least one, got {len(first)} and {len(second)}")
    return first, second
