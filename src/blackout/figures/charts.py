"""Charts of numbers: curves, histograms, pairs, rankings."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy

from blackout.figures.style import COLOURS, DASHES, MARKERS, SMALL, cycle, frame, numbers, plain_ticks, with_legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FEW = 24  # points of a curve, up to which each has a marker


def curves(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    xlabel: str,
    ylabel: str,
    logx: bool = False,
    logy: bool = False,
    title: str = "",
    fill: bool = False,
    levels: Mapping[str, float] | None = None,
) -> "Figure":
    """Named curves (x, y) in one frame; `fill` shades what lies under them, where it is the area that counts.

    `levels` are heights to compare with, each a line across the frame with its name on it.
    """
    if not series:
        raise ValueError("series must hold a curve at least, got none")
    figure, axis = frame(xlabel, ylabel, title)
    for k, (name, pair) in enumerate(series.items()):
        what = f"series[{name!r}]"
        if not isinstance(pair, Sequence) or len(pair) != 2:
            raise ValueError(f"{what} must be a pair of x and y, got {pair!r}")
        x, y = numbers(f"x of {what}", pair[0], positive=logx), numbers(f"y of {what}", pair[1], positive=logy)
        if len(x) != len(y) or len(x) == 0:
            raise ValueError(f"{what} must have as many x as y, and some, got {len(x)} and {len(y)}")
        marked = len(x) <= _FEW or len(series) > 1
        axis.plot(
            x, y, label=name, color=cycle(COLOURS, k), linestyle=cycle(DASHES, k),
            marker=cycle(MARKERS, k) if marked else "", markersize=4, markevery=-(-len(x) // _FEW),
        )  # fmt: skip
        if fill:
            axis.fill_between(x, y, color=cycle(COLOURS, k), alpha=0.15, linewidth=0)
    for name, level in (levels or {}).items():
        (height,) = numbers(f"levels[{name!r}]", [level], positive=logy)
        axis.axhline(height, color="0.35", linewidth=1, linestyle=(0, (6, 2, 1, 2, 1, 2)))
        axis.annotate(
            name, (0, height), (3, 2), xycoords=("axes fraction", "data"), textcoords="offset points",
            fontsize=SMALL, color="0.25",
        )  # fmt: skip
    if logx:
        axis.set_xscale("log")
        plain_ticks(axis.xaxis)
    if logy:
        axis.set_yscale("log")
        plain_ticks(axis.yaxis)
    return with_legend(figure, axis, len(series))


def histograms(edges: Sequence[float], counts: Mapping[str, Sequence[float]], *, xlabel: str, ylabel: str) -> "Figure":
    """Named histograms over the same bins, as outlines, so that none hides another."""
    bins = numbers("edges", edges)
    if len(bins) < 2 or not bool((numpy.diff(bins) > 0).all()):
        raise ValueError(f"edges must be two numbers at least, and increase, got {list(edges)}")
    if not counts:
        raise ValueError("counts must hold a histogram at least, got none")
    figure, axis = frame(xlabel, ylabel)
    for k, (name, values) in enumerate(counts.items()):
        heights = numbers(f"counts[{name!r}]", values)
        if len(heights) != len(bins) - 1 or bool((heights < 0).any()):
            raise ValueError(f"counts[{name!r}] must be {len(bins) - 1} numbers, none negative, got {list(values)}")
        colour, dash = cycle(COLOURS, k), cycle(DASHES, k)
        axis.stairs(heights, bins, label=name, color=colour, linestyle=dash, linewidth=1.5)
        axis.stairs(heights, bins, color=colour, alpha=0.12, fill=True)
    return with_legend(figure, axis, len(counts))


def points(x: Sequence[float], y: Sequence[float], *, xlabel: str, ylabel: str) -> "Figure":
    """Pairs of positive numbers on logarithmic axes, and the line on which both are equal."""
    first, second = numbers("x", x, positive=True), numbers("y", y, positive=True)
    if len(first) != len(second) or len(first) == 0:
        raise ValueError(f"points must have as many x as y, and some, got {len(first)} and {len(second)}")
    figure, axis = frame(xlabel, ylabel)
    ends = [min(first.min(), second.min()), max(first.max(), second.max())]
    axis.plot(ends, ends, color="0.5", linewidth=0.8)
    axis.plot(first, second, color=COLOURS[0], marker="o", markersize=2.5, linestyle="", alpha=0.6)
    axis.set(xscale="log", yscale="log")
    plain_ticks(axis.xaxis)
    plain_ticks(axis.yaxis)
    return figure


def ranking(values: Mapping[str, tuple[float, float | None]], *, xlabel: str, title: str = "") -> "Figure":
    """Named values with their errors (None: no error known), one below the other in the order given."""
    if not values:
        raise ValueError("values must hold a value at least, got none")
    figure, axis = frame(xlabel, "", title)
    for k, (name, (value, error)) in enumerate(values.items()):
        (x,) = numbers(f"values[{name!r}]", [value])
        (spread,) = numbers(f"the error of values[{name!r}]", [0.0 if error is None else error])
        axis.errorbar(
            x, k, xerr=None if error is None else spread, color=cycle(COLOURS, k), marker=cycle(MARKERS, k),
            markersize=6, capsize=3, linestyle="",
        )  # fmt: skip
        axis.annotate(f"{x:.4g}", (x, k), (0, 7), textcoords="offset points", ha="center", fontsize=SMALL)
    axis.set_yticks(range(len(values)), list(values))
    axis.set_ylim(len(values) - 0.5, -0.5)
    axis.margins(x=0.15)
    figure.set_figheight(1.2 + 0.4 * len(values))
    return figure
