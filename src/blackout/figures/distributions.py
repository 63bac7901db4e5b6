"""Distributions and sample paths on a few states: Gaussian diffusion above, a Markov process below."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from blackout import validate
from blackout.figures.gaussian import GaussianDiffusion
from blackout.figures.style import SMALL, TEXT, WIDTH, colour, new_figure
from blackout.posterior import ExactPosterior
from blackout.process import MarkovProcess, PureDeath
from blackout.process.paths import JumpPath, forward_paths
from blackout.random import Streams, pick
from blackout.sampling import Exact
from blackout.times import ObservationTimes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WEIGHTS = (1, 4, 10, 4, 1, 2, 6, 14, 8)
"""Default weights of the states 0, ..., 8: two modes."""
_MAX_STATES = 64  # more rows cannot be distinguished in a figure
_MARGIN = 5 / 8  # of the range of the states, shown on either side of it in the Gaussian panels
_RESOLUTION = 12  # bins of a density per state


def paths(
    process: MarkovProcess | None = None,
    weights: Sequence[float] | Tensor | None = None,
    *,
    times: ObservationTimes | None = None,
    num_paths: int = 3,
    seed: int = 0,
) -> "Figure":
    """Draw the distribution of X_t as a heat map with sample paths, forward and reverse, beside Gaussian diffusion.

    Probabilities are exact. Forward paths start at quantiles of the data distribution and are sampled by Gillespie's
    method; reverse paths are sampled by ``Exact`` with the exact posterior. Both are in continuous time, plotted on an
    axis that is linear in the index k of the observation times. The Gaussian process has as many steps as there are
    times, the cosine schedule, and uniformly dequantized data.

    Parameters
    ----------
    process
        A process on 2 to 64 states (default: pure death on 0, ..., 8).
    weights
        Weight of each state in the data, shape (S,) (default: two modes on 0, ..., 8; equal weights otherwise).
    times
        Observation times (default: those of the process).
    num_paths
        Paths in each panel.
    """
    process = PureDeath(len(WEIGHTS) - 1) if process is None else process
    size = process.num_states
    if size is None or not 2 <= size <= _MAX_STATES:
        raise ValueError(f"process must have 2 to {_MAX_STATES} states to be drawn, got {process!r}")
    if weights is None:
        weights = WEIGHTS if size == len(WEIGHTS) else [1.0] * size
    exact = ExactPosterior(process, torch.arange(size).unsqueeze(1), weights)  # which checks the weights
    probs = torch.as_tensor(weights, dtype=torch.float64)
    probs = probs / probs.sum()
    times = ObservationTimes.for_process(process) if times is None else times
    num_paths, max_state = validate.integer("num_paths", num_paths, 1), size - 1
    starts = pick(probs.expand(num_paths, -1), (torch.arange(num_paths).double() + 0.5) / num_paths)
    figure = new_figure(WIDTH, 5.0, wspace=0.06)
    heights = (max_state * (1 + 2 * _MARGIN) + 1, max_state + 1)  # a state has the same height in all panels
    axes = figure.subplots(2, 2, height_ratios=heights, sharex="col", sharey="row")
    _draw_gaussian(axes[0], probs, len(times), starts, seed)
    image = _draw_process(axes[1], exact, probs, times, starts, seed)
    _label(axes, max_state, type(process).__name__)
    bar = figure.colorbar(image, ax=axes, aspect=40, pad=0.01, ticks=(0, 0.02, 0.1, 0.25, 0.5, 1))
    bar.set_label("probability of a state (upper panels: density per unit of state)", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)
    return figure


def _draw_gaussian(axes: Any, probs: Tensor, num_steps: int, starts: Tensor, seed: int) -> None:
    num, max_state = len(starts), len(probs) - 1
    gaussian, steps = GaussianDiffusion(max_state, num_steps), list(range(num_steps + 1))
    low, high = _gaussian_limits(max_state)
    edges = torch.linspace(low, high, round((high - low) * _RESOLUTION) + 1, dtype=torch.float64)
    density = torch.stack([gaussian.density(probs, (edges[1:] + edges[:-1]) / 2, k) for k in steps], -1).numpy()
    source = Streams(seed, num)
    forward = gaussian.path(gaussian.dequantize(starts, source), steps, source)
    reverse = gaussian.reverse_paths(probs, num, Streams(seed, num, start_index=num)).flip(0)
    for axis, lines in zip(axes, (forward, reverse), strict=True):
        _draw_heat_map(axis, density, (low, high))
        _draw_lines(axis, [(steps, line.numpy()) for line in lines.T])


def _draw_process(
    axes: Any, exact: ExactPosterior, probs: Tensor, times: ObservationTimes, starts: Tensor, seed: int
) -> Any:
    process, num, states = exact.process, len(starts), torch.arange(len(probs))
    columns = [probs, *(probs @ process.probs(states, t)[:, : len(probs)] for t in times.values)]
    forward = forward_paths(process, starts, times.t_end, seed)
    reverse = Exact().paths(exact, process, times.t_end, (num, 1), seed, start_index=num)
    for axis, lines in zip(axes, (forward, reverse), strict=True):
        image = _draw_heat_map(axis, torch.stack(columns, -1).numpy(), (-0.5, len(probs) - 0.5))
        _draw_lines(axis, [_corners(line, times) for line in lines])
    return image


def _draw_heat_map(axis: Any, probs: NDArray[numpy.float64], limits: tuple[float, float]) -> Any:
    from matplotlib.colors import PowerNorm

    return axis.imshow(
        probs, cmap="gray_r", norm=PowerNorm(0.5, 0, 1), aspect="auto", origin="lower", interpolation="nearest",
        extent=(-0.5, probs.shape[1] - 0.5, *limits),
    )  # fmt: skip


def _draw_lines(axis: Any, lines: list[tuple[Any, Any]]) -> None:
    from matplotlib.patheffects import Normal, Stroke

    for k, (x, y) in enumerate(lines):  # a white edge separates the line from every grey of the map
        line = axis.plot(x, y, color=colour(k), linewidth=1.0, solid_joinstyle="round")[0]
        line.set_path_effects([Stroke(linewidth=2.2, foreground="white"), Normal()])


def _corners(path: JumpPath, times: ObservationTimes) -> tuple[Any, Any]:
    """The corners of a step function; time is interpolated between the indices of the observation times."""
    edges = numpy.concatenate([[0.0], times.values.numpy()])
    end = times.t_end if path.times[0] == 0 else 0.0
    moments = numpy.append(path.times.numpy(), end)
    place = numpy.interp(moments, edges, numpy.arange(len(edges)))
    return numpy.repeat(place, 2)[1:-1], numpy.repeat(path.states.reshape(-1).numpy(), 2)


def _gaussian_limits(max_state: int) -> tuple[float, float]:
    return -_MARGIN * max_state - 0.5, (1 + _MARGIN) * max_state + 0.5


def _label(axes: Any, max_state: int, name: str) -> None:
    for axis, title in zip(axes[0], ("forward: data to noise", "reverse: noise to data"), strict=True):
        axis.set_title(title, fontsize=TEXT)
        axis.set_yticks(range(-max_state, 2 * max_state + 1, max(1, max_state // 2)))
        axis.set_ylim(*_gaussian_limits(max_state))  # paths that leave the panel are cut off
        for edge in (0, max_state):
            axis.axhline(edge, color="black", linewidth=0.6, linestyle=(0, (2, 3)))
    for axis in axes[1]:
        axis.set_xlabel("index $k$ of the observation time", fontsize=TEXT)
        axis.set_yticks(range(0, max_state + 1, max(1, max_state // 4)))
    for axis, title in zip(axes[:, 0], ("Gaussian $x_k$", f"{name} $X_t$"), strict=True):
        axis.set_ylabel(title, fontsize=TEXT)
    axes[0, 1].invert_xaxis()
    for axis in axes.flat:
        axis.tick_params(labelsize=SMALL)
