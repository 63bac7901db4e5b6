"""What all figures share: colours, widths, frames, ticks, and the checks of what is drawn."""

from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which the colour-blind tell apart, without the yellow that paper swallows. Dashes and markers
# do the same in grey print; seven, four and five have no common factor, so that no pairing comes back soon.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v")
WIDTH = 6.75  # inches: both columns of a printed page
SMALL, TEXT = 7.5, 8.5  # points


def blank(width: float, height: float, **gaps: Any) -> "Figure":
    """An empty figure of that size in inches; `gaps` are those of matplotlib's constrained layout."""
    need_matplotlib()
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return Figure(figsize=(width, height), dpi=150, layout=ConstrainedLayoutEngine(**gaps))


def need_matplotlib() -> None:
    """Say what to install, where it is not there."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        text = "figures need matplotlib: pip install 'blackout-diffusion[figures]'"
        raise ModuleNotFoundError(text, name=error.name) from None


def frame(xlabel: str, ylabel: str, title: str = "") -> "tuple[Figure, Any]":
    """A figure with one pair of axes."""
    figure = blank(4.8, 3.0)
    axis = figure.subplots()
    axis.set(xlabel=xlabel, ylabel=ylabel, title=title)
    open_frame(axis)
    return figure, axis


def open_frame(axis: Any) -> None:
    axis.grid(color="0.5", alpha=0.25, linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)


def plain_ticks(line: Any) -> None:
    """Plain numbers on a logarithmic axis: powers of ten are set glyph by glyph, which another font tears apart."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    low, high = line.get_view_interval()
    line.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    line.set_major_formatter(StrMethodFormatter("{x:g}"))
    line.set_minor_formatter(NullFormatter())


def with_legend(figure: "Figure", axis: Any, number: int) -> "Figure":
    if 1 < number <= 4:
        axis.legend(frameon=False, handlelength=3)
    elif number > 4:  # no corner is left free
        figure.set_figwidth(WIDTH)
        figure.legend(loc="outside right upper", frameon=False, handlelength=3)
    return figure


def cycle(kinds: tuple[str, ...], k: int) -> str:
    return kinds[k % len(kinds)]


def numbers(name: str, values: Any, *, positive: bool = False) -> NDArray[numpy.float64]:
    """A sequence of finite numbers as an array."""
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
