"""Arrays in, Figure out. matplotlib is imported when a figure is asked for."""

import html
import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from blackout import validate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which the colour-blind tell apart, without the yellow that paper swallows. Dashes and markers
# do the same in grey print; seven, four and five have no common factor, so that no pairing comes back soon.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v")
_FEW = 24  # points of a curve, up to which each has a marker


def walk(trajectory: Tensor, times: Tensor, num_frames: int = 9, largest: int | None = None) -> "Figure":
    """The walk from black to sample, one sample a row: frames spread over the steps, the colour scale fixed.

    `trajectory` has shape (T + 1, batch, height, width), from X_{t_T} to X_0, or (T + 1, batch, channels, height,
    width) with one channel or three; `times` holds t_1 < ... < t_T.
    """
    if trajectory.dim() == 5 and trajectory.shape[2] == 1:
        trajectory = trajectory.squeeze(2)
    elif trajectory.dim() == 5 and trajectory.shape[2] == 3:
        trajectory = trajectory.movedim(2, -1)
    if trajectory.dim() not in (4, 5) or len(trajectory) != len(times) + 1 or trajectory.shape[4:] not in ((), (3,)):
        expected = f"({len(times) + 1}, batch, height, width) or ({len(times) + 1}, batch, 1 or 3, height, width)"
        raise ValueError(f"trajectory must have shape {expected}, got {tuple(trajectory.shape)}")
    num_frames = min(validate.whole("num_frames", num_frames, 2), len(trajectory))
    # Little happens before the first births, so frames follow the mean intensity, not the index of the step.
    brightness = trajectory.flatten(1).double().mean(1)
    level = torch.linspace(0, 1, num_frames, dtype=torch.float64) * brightness[-1]
    frames = torch.searchsorted(brightness.cummax(0).values, level).clamp(max=len(trajectory) - 1)
    frames[0], frames[-1] = 0, len(trajectory) - 1
    frames = frames.unique()  # a few steps have fewer levels than frames
    clock = torch.cat([torch.zeros(1, dtype=torch.float64), times]).flip(0)
    return _grid(
        [[trajectory[k, row] for k in frames.tolist()] for row in range(trajectory.shape[1])],
        [_time_label(float(clock[k])) for k in frames.tolist()],
        largest or int(trajectory.max()),
    )


def curves(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    xlabel: str,
    ylabel: str,
    logx: bool = False,
    logy: bool = False,
    title: str = "",
    fill: bool = False,
) -> "Figure":
    """Named curves (x, y) in one frame; `fill` shades what lies under them, where it is the area that counts."""
    if not series:
        raise ValueError("series must hold a curve at least, got none")
    figure, axis = _frame(xlabel, ylabel, title)
    for k, (name, pair) in enumerate(series.items()):
        what = f"series[{name!r}]"
        if not isinstance(pair, Sequence) or len(pair) != 2:
            raise ValueError(f"{what} must be a pair of x and y, got {pair!r}")
        x, y = _numbers(f"x of {what}", pair[0], positive=logx), _numbers(f"y of {what}", pair[1], positive=logy)
        if len(x) != len(y) or len(x) == 0:
            raise ValueError(f"{what} must have as many x as y, and some, got {len(x)} and {len(y)}")
        marked = len(x) <= _FEW or len(series) > 1
        axis.plot(
            x, y, label=name, color=_cycle(_COLOURS, k), linestyle=_cycle(_DASHES, k),
            marker=_cycle(_MARKERS, k) if marked else "", markersize=4, markevery=-(-len(x) // _FEW),
        )  # fmt: skip
        if fill:
            axis.fill_between(x, y, color=_cycle(_COLOURS, k), alpha=0.15, linewidth=0)
    if logx:
        axis.set_xscale("log")
        _plain_ticks(axis.xaxis)
    if logy:
        axis.set_yscale("log")
        _plain_ticks(axis.yaxis)
    return _with_legend(figure, axis, len(series))


def histograms(edges: Sequence[float], counts: Mapping[str, Sequence[float]], *, xlabel: str, ylabel: str) -> "Figure":
    """Named histograms over the same bins, as outlines, so that none hides another."""
    bins = _numbers("edges", edges)
    if len(bins) < 2 or not bool((numpy.diff(bins) > 0).all()):
        raise ValueError(f"edges must be two numbers at least, and increase, got {list(edges)}")
    if not counts:
        raise ValueError("counts must hold a histogram at least, got none")
    figure, axis = _frame(xlabel, ylabel)
    for k, (name, values) in enumerate(counts.items()):
        heights = _numbers(f"counts[{name!r}]", values)
        if len(heights) != len(bins) - 1 or bool((heights < 0).any()):
            raise ValueError(f"counts[{name!r}] must be {len(bins) - 1} numbers, none negative, got {list(values)}")
        colour, dash = _cycle(_COLOURS, k), _cycle(_DASHES, k)
        axis.stairs(heights, bins, label=name, color=colour, linestyle=dash, linewidth=1.5)
        axis.stairs(heights, bins, color=colour, alpha=0.12, fill=True)
    return _with_legend(figure, axis, len(counts))


def points(x: Sequence[float], y: Sequence[float], *, xlabel: str, ylabel: str) -> "Figure":
    """Pairs of positive numbers on logarithmic axes, and the line on which both are equal."""
    first, second = _numbers("x", x, positive=True), _numbers("y", y, positive=True)
    if len(first) != len(second) or len(first) == 0:
        raise ValueError(f"points must have as many x as y, and some, got {len(first)} and {len(second)}")
    figure, axis = _frame(xlabel, ylabel)
    ends = [min(first.min(), second.min()), max(first.max(), second.max())]
    axis.plot(ends, ends, color="0.5", linewidth=0.8)
    axis.plot(first, second, color=_COLOURS[0], marker="o", markersize=2.5, linestyle="", alpha=0.6)
    axis.set(xscale="log", yscale="log")
    _plain_ticks(axis.xaxis)
    _plain_ticks(axis.yaxis)
    return figure


def inline_svg(draw: "Callable[[], Figure]", title: str) -> str:
    """The figure that `draw` makes, as an element of an HTML page, in its ink; the bytes are always the same.

    Ids follow from the title, so that those of two figures do not meet in one page.
    """
    import matplotlib

    file = io.StringIO()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a style of the user's own would end up in the bytes
        matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": title})
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        draw().savefig(file, format="svg", transparent=True, metadata=nothing)
    head, body = re.split(r"(?=<g )", file.getvalue(), maxsplit=1)
    size = "".join(re.findall(r'viewBox="[^"]*"', head))
    body = re.sub(r"<!--.*?-->\s*", "", body, flags=re.DOTALL)
    prefix = "".join(c if c.isalnum() else "-" for c in title)
    body = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", body).replace("#000000", "currentColor")
    return f'<svg {size} role="img" aria-label="{html.escape(title)}">\n{body.strip()}'


def _frame(xlabel: str, ylabel: str, title: str = "") -> "tuple[Figure, Any]":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.8, 3.0), dpi=150, layout="constrained")
    axis = figure.subplots()
    axis.set(xlabel=xlabel, ylabel=ylabel, title=title)
    axis.grid(color="0.5", alpha=0.25, linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    return figure, axis


def _plain_ticks(line: Any) -> None:
    """Plain numbers on a logarithmic axis: powers of ten are set glyph by glyph, which another font tears apart."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    low, high = line.get_view_interval()
    line.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    line.set_major_formatter(StrMethodFormatter("{x:g}"))
    line.set_minor_formatter(NullFormatter())


def _with_legend(figure: "Figure", axis: Any, number: int) -> "Figure":
    if 1 < number <= 4:
        axis.legend(frameon=False, handlelength=3)
    elif number > 4:  # no corner is left free
        figure.legend(loc="outside right upper", frameon=False, handlelength=3)
    return figure


def _cycle(kinds: tuple[str, ...], k: int) -> str:
    return kinds[k % len(kinds)]


def _numbers(name: str, values: Any, *, positive: bool = False) -> NDArray[numpy.float64]:
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


def _time_label(t: float) -> str:
    return "$t=0$" if t == 0 else f"$t={t:.2g}$"


def _grid(rows: list[list[Tensor]], titles: list[str], largest: int) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.1 * len(titles), 1.1 * len(rows) + 0.3), dpi=150, layout="constrained")
    axes = figure.subplots(len(rows), len(titles), squeeze=False)
    for line, images in zip(axes, rows, strict=True):
        for axis, image in zip(line, images, strict=True):
            scaled = (image.double() / max(1, largest)).clamp(0, 1).numpy()  # colours must lie between 0 and 1
            axis.imshow(scaled, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            axis.set(xticks=[], yticks=[])
            for spine in axis.spines.values():
                spine.set_color("0.5")
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=8)
    return figure
