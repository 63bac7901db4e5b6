"""Probabilities and paths on a few states: the Gaussian process beside one on the states themselves."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from blackout import validate
from blackout.figures.gaussian import GaussianDiffusion
from blackout.figures.style import COLOURS, SMALL, TEXT, WIDTH, blank, cycle
from blackout.posterior import ExactPosterior
from blackout.process import MarkovProcess, PureDeath
from blackout.process.paths import JumpPath, forward_paths
from blackout.random import pick
from blackout.sampling import Exact
from blackout.streams import Streams
from blackout.times import ObservationTimes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LAW = (1, 4, 10, 4, 1, 2, 6, 14, 8)
"""Weights of the states 0, ..., 8 of the small world that is drawn where no other is given: two humps."""
_MOST_STATES = 64  # that can still be told apart in a figure
_BEYOND = 5 / 8  # of the range of the states, seen on either side of it in the Gaussian panels
_RESOLUTION = 12  # bins of a density for each state


def paths(
    process: MarkovProcess | None = None,
    law: Sequence[float] | Tensor | None = None,
    *,
    times: ObservationTimes | None = None,
    num_paths: int = 3,
    seed: int = 0,
) -> "Figure":
    """Heat maps of the law of X_t and paths of X, forward and back: Gaussian diffusion above, `process` below.

    `law` holds the weights of the states in the data (default: two humps on {0, ..., 8}; equal on others).
    Probabilities are exact. Forward paths start from quantiles of the law and are drawn by Gillespie's method; paths
    back are drawn by `Exact` with the exact posterior. Both are in continuous time, placed between the observation
    times t_k. The Gaussian has as many steps as there are times, the cosine schedule, and data spread uniformly over
    the unit intervals about the states.
    """
    process = PureDeath(len(LAW) - 1) if process is None else process
    weights = _weights(process, law)
    times = ObservationTimes.for_process(process) if times is None else times
    num_paths, largest = validate.integer("num_paths", num_paths, 1), len(weights) - 1
    starts = pick(weights.expand(num_paths, -1), (torch.arange(num_paths).double() + 0.5) / num_paths)
    figure = blank(WIDTH, 5.0, wspace=0.06)
    heights = (largest * (1 + 2 * _BEYOND) + 1, largest + 1)  # a state is as high above as below
    axes = figure.subplots(2, 2, height_ratios=heights, sharex="col", sharey="row")
    _draw_gaussian(axes[0], weights, len(times), starts, seed)
    image = _draw_process(axes[1], process, weights, times, starts, seed)
    _label(axes, largest, type(process).__name__)
    bar = figure.colorbar(image, ax=axes, aspect=40, pad=0.01, ticks=(0, 0.02, 0.1, 0.25, 0.5, 1))
    bar.set_label("probability of a state; upper panels: density, per unit of state", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)
    return figure


def _draw_gaussian(axes: Any, law: Tensor, num_steps: int, starts: Tensor, seed: int) -> None:
    num, largest = len(starts), len(law) - 1
    gaussian, steps = GaussianDiffusion(largest, num_steps), list(range(num_steps + 1))
    low, high = -_BEYOND * largest - 0.5, (1 + _BEYOND) * largest + 0.5
    edges = torch.linspace(low, high, round((high - low) * _RESOLUTION) + 1, dtype=torch.float64)
    density = torch.stack([gaussian.density(law, (edges[1:] + edges[:-1]) / 2, k) for k in steps], -1).numpy()
    source = Streams(seed, num)
    noised = gaussian.path(gaussian.dequantize(starts, source), steps, source)
    denoised = gaussian.reverse_paths(law, num, Streams(seed, num, start_index=num)).flip(0)
    for axis, walks in zip(axes, (noised, denoised), strict=True):
        _heat(axis, density, (low, high))
        _lines(axis, [(steps, walk.numpy()) for walk in walks.T])


def _draw_process(
    axes: Any, process: MarkovProcess, law: Tensor, times: ObservationTimes, starts: Tensor, seed: int
) -> Any:
    num, exact = len(starts), state_law(process, law, times)
    denoise = ExactPosterior(process, torch.arange(len(law)).unsqueeze(1), law)
    ahead = forward_paths(process, starts, times.t_end, seed)
    back = Exact().paths(denoise, process, times.t_end, (num, 1), seed, start_index=num)
    for axis, walks in zip(axes, (ahead, back), strict=True):
        image = _heat(axis, exact, (-0.5, len(law) - 0.5))
        _lines(axis, [_corners(walk, times) for walk in walks])
    return image


def state_law(process: MarkovProcess, law: Tensor, times: ObservationTimes) -> NDArray[numpy.float64]:
    """P(X_t = m) at t = 0, t_1, ..., t_T, one column for each, where X_0 has that law."""
    states = torch.arange(len(law))
    columns = [law, *(law @ process.probs(states, t)[:, : len(law)] for t in times.values)]
    return numpy.asarray(torch.stack(columns, -1))


def _weights(process: MarkovProcess, law: Any) -> Tensor:
    size = process.num_states
    if size is None or not 2 <= size <= _MOST_STATES:
        raise ValueError(f"process must have 2 to {_MOST_STATES} states to be drawn, got {process!r}")
    if law is None:
        law = LAW if size == len(LAW) else [1.0] * size
    try:
        weights = torch.as_tensor(law, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"law must be {size} numbers, got {law!r}") from None
    if weights.shape != (size,) or not bool(torch.isfinite(weights).all() & (weights >= 0).all() & (weights.sum() > 0)):
        raise ValueError(f"law must be {size} numbers, finite and not negative, one for each state, got {law!r}")
    return weights / weights.sum()


def _heat(axis: Any, law: NDArray[numpy.float64], limits: tuple[float, float]) -> Any:
    from matplotlib.colors import PowerNorm

    return axis.imshow(
        law, cmap="gray_r", norm=PowerNorm(0.5, 0, 1), aspect="auto", origin="lower", interpolation="nearest",
        extent=(-0.5, law.shape[1] - 0.5, *limits),
    )  # fmt: skip


def _lines(axis: Any, walks: list[tuple[Any, Any]]) -> None:
    from matplotlib.patheffects import Normal, Stroke

    for k, (x, y) in enumerate(walks):  # with a white edge it is seen on every grey of the map
        line = axis.plot(x, y, color=cycle(COLOURS, k), linewidth=1.0, solid_joinstyle="round")[0]
        line.set_path_effects([Stroke(linewidth=2.2, foreground="white"), Normal()])


def _corners(path: JumpPath, times: ObservationTimes) -> tuple[Any, Any]:
    """The corners of a step function, time as a place between the observation times."""
    edges = numpy.concatenate([[0.0], times.values.numpy()])
    end = times.t_end if path.times[0] == 0 else 0.0
    moments = numpy.append(path.times.numpy(), end)
    place = numpy.interp(moments, edges, numpy.arange(len(edges)))
    return numpy.repeat(place, 2)[1:-1], numpy.repeat(path.states.reshape(-1).numpy(), 2)


def _label(axes: Any, largest: int, name: str) -> None:
    for axis, title in zip(axes[0], ("forward: data to noise", "back: noise to data"), strict=True):
        axis.set_title(title, fontsize=TEXT)
        axis.set_yticks(range(-largest, 2 * largest + 1, max(1, largest // 2)))
        axis.set_ylim(-_BEYOND * largest - 0.5, (1 + _BEYOND) * largest + 0.5)  # not as far as the paths go
        for edge in (0, largest):
            axis.axhline(edge, color="black", linewidth=0.6, linestyle=(0, (2, 3)))
    for axis in axes[1]:
        axis.set_xlabel("observation $k$", fontsize=TEXT)
        axis.set_yticks(range(0, largest + 1, max(1, largest // 4)))
    for axis, title in zip(axes[:, 0], ("Gaussian $x_k$", f"{name} $X_t$"), strict=True):
        axis.set_ylabel(title, fontsize=TEXT)
    axes[0, 1].invert_xaxis()
    for axis in axes.flat:
        axis.tick_params(labelsize=SMALL)
