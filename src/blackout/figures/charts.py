"""Charts of numbers: curves, histograms, scatter plots, error bars, observation times."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy

from blackout.figures import style
from blackout.times import ObservationTimes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_MARKERS = 24  # of one curve


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
    """Draw named curves in one pair of axes.

    Parameters
    ----------
    series
        Name -> (x, y), two sequences of one length.
    logx, logy
        Use a logarithmic axis.
    fill
        Shade the area under each curve.
    levels
        Name -> height of a labelled horizontal line, for reference values.
    """
    if not series:
        raise ValueError("series must hold at least one curve, got none")
    figure, axis = style.new_axes(xlabel, ylabel, title)
    for k, (name, pair) in enumerate(series.items()):
        if not isinstance(pair, Sequence) or len(pair) != 2:
            raise ValueError(f"series[{name!r}] must be a pair of x and y, got {pair!r}")
        x, y = style.pairs(f"series[{name!r}]", *pair, logx=logx, logy=logy)
        marked = len(x) <= _MAX_MARKERS or len(series) > 1
        axis.plot(
            x, y, label=name, color=style.colour(k), linestyle=style.dash(k),
            marker=style.marker(k) if marked else "", markersize=4, markevery=-(-len(x) // _MAX_MARKERS),
        )  # fmt: skip
        if fill:
            axis.fill_between(x, y, color=style.colour(k), alpha=0.15, linewidth=0)
    for name, level in (levels or {}).items():
        (height,) = style.numbers(f"levels[{name!r}]", [level], positive=logy)
        axis.axhline(height, color="0.35", linewidth=1, linestyle=(0, (6, 2, 1, 2, 1, 2)))
        axis.annotate(
            name, (0, height), (3, 2), xycoords=("axes fraction", "data"), textcoords="offset points",
            fontsize=style.SMALL, color="0.25",
        )  # fmt: skip
    style.log_scale(axis, *("x" * logx + "y" * logy))
    return style.add_legend(figure, axis, len(series))


def histograms(edges: Sequence[float], counts: Mapping[str, Sequence[float]], *, xlabel: str, ylabel: str) -> "Figure":
    """Draw named histograms over the same bins as outlines.

    Parameters
    ----------
    edges
        Increasing bin edges, one more than there are bins.
    counts
        Name -> the height of each bin.
    """
    bins = style.numbers("edges", edges)
    if len(bins) < 2 or not bool((numpy.diff(bins) > 0).all()):
        raise ValueError(f"edges must be at least two increasing numbers, got {list(edges)}")
    if not counts:
        raise ValueError("counts must hold at least one histogram, got none")
    figure, axis = style.new_axes(xlabel, ylabel)
    for k, (name, values) in enumerate(counts.items()):
        heights = style.numbers(f"counts[{name!r}]", values)
        if len(heights) != len(bins) - 1 or bool((heights < 0).any()):
            raise ValueError(f"counts[{name!r}] must be {len(bins) - 1} non-negative numbers, got {list(values)}")
        axis.stairs(heights, bins, label=name, color=style.colour(k), linestyle=style.dash(k), linewidth=1.5)
        axis.stairs(heights, bins, color=style.colour(k), alpha=0.12, fill=True)
    return style.add_legend(figure, axis, len(counts))


def scatter(x: Sequence[float], y: Sequence[float], *, xlabel: str, ylabel: str) -> "Figure":
    """Draw pairs of positive numbers on logarithmic axes, with the line x = y."""
    first, second = style.pairs("points", x, y, logx=True, logy=True)
    figure, axis = style.new_axes(xlabel, ylabel)
    ends = [min(first.min(), second.min()), max(first.max(), second.max())]
    axis.plot(ends, ends, color="0.5", linewidth=0.8)
    axis.plot(first, second, color=style.colour(0), marker="o", markersize=2.5, linestyle="", alpha=0.6)
    style.log_scale(axis, "x", "y")
    return figure


def error_bars(values: Mapping[str, tuple[float, float | None]], *, xlabel: str, title: str = "") -> "Figure":
    """Draw named (value, error) pairs, one per row in the given order; an error of None draws no bar."""
    if not values:
        raise ValueError("values must hold at least one value, got none")
    figure, axis = style.new_axes(xlabel, "", title)
    for k, (name, (value, error)) in enumerate(values.items()):
        (x,) = style.numbers(f"values[{name!r}]", [value])
        xerr = None if error is None else style.numbers(f"error of values[{name!r}]", [error])
        axis.errorbar(
            x, k, xerr=xerr, color=style.colour(k), marker=style.marker(k), markersize=6, capsize=3, linestyle=""
        )
        axis.annotate(f"{x:.4g}", (x, k), (0, 7), textcoords="offset points", ha="center", fontsize=style.SMALL)
    axis.set_yticks(range(len(values)), list(values))
    axis.set_ylim(len(values) - 0.5, -0.5)
    axis.margins(x=0.15)
    figure.set_figheight(1.2 + 0.4 * len(values))
    return figure


def observation_times(times: Mapping[str, ObservationTimes] | ObservationTimes | None = None) -> "Figure":
    """Draw t_k against k on a linear and a logarithmic axis, with a line at log 2: Appendix E.

    Half of the units are alive at t = log 2, and the times of the paper are symmetric about it in logit(e^{-t}).

    Parameters
    ----------
    times
        Times, or name -> times for several curves; the default is ``ObservationTimes.fisher()``.
    """
    named = times if isinstance(times, Mapping) else {"": times or ObservationTimes.fisher()}
    if not named:
        raise ValueError("times must hold at least one entry, got none")
    figure = style.new_figure(style.WIDTH, 2.6)
    for axis, scale in zip(figure.subplots(1, 2), ("linear", "log"), strict=True):
        for k, (name, one) in enumerate(named.items()):
            index = range(1, len(one) + 1)
            axis.plot(index, one.values.numpy(), label=name, color=style.colour(k), linestyle=style.dash(k))
        axis.axhline(math.log(2), color="black", linewidth=0.8, linestyle=(0, (4, 3)))
        axis.annotate(
            r"$t = \log 2$", (1, math.log(2)), (-2, 3), xycoords=("axes fraction", "data"),
            textcoords="offset points", ha="right", fontsize=style.SMALL,
        )  # fmt: skip
        axis.set_yscale(scale)
        axis.set_xlabel("index $k$", fontsize=style.TEXT)
        axis.set_ylabel("time $t_k$ (mean lifetimes)", fontsize=style.TEXT)
        axis.set_title(f"{'linear' if scale == 'linear' else 'logarithmic'} axis", fontsize=style.TEXT)
        axis.tick_params(labelsize=style.SMALL)
        style.add_grid(axis)
    if len(named) > 1:
        axis.legend(frameon=False, handlelength=3, fontsize=style.SMALL)
    return figure
