"""Grids of images: the forward process, sampling trajectories, samples."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from blackout import validate
from blackout.figures.gaussian import GaussianDiffusion
from blackout.figures.style import SMALL, TEXT, WIDTH, new_figure
from blackout.process import PureDeath
from blackout.random import Streams
from blackout.times import ObservationTimes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FRAMES = ("brightness", "steps")

_CHANNELS = ((), (1,), (3,))
_MANY = 100  # images; matplotlib takes seconds for as many axes
_COMPLETE = 0.995  # share of the final units: later frames look like the sample


@dataclass(frozen=True)
class _Block:
    """Rows of images, each of shape (columns, ...), below one line of titles, with a name at the left."""

    rows: Sequence[Tensor]
    titles: Sequence[str] = ()
    name: str = ""


def forward(
    images: Tensor,
    max_state: int = 255,
    *,
    scaled: bool = False,
    num_frames: int = 11,
    times: ObservationTimes | None = None,
    seed: int = 0,
) -> "Figure":
    """Draw forward paths from images: Gaussian diffusion above, pure death below.

    Parameters
    ----------
    images
        Intensities 0, ..., ``max_state``, shape (n, height, width) or (n, 1 or 3, height, width).
    scaled
        Rescale the intensities of each frame to [0, 1]; otherwise they are clipped to 0, ..., ``max_state``.
    num_frames
        Number of columns, evenly spaced in the index k of the times.
    times
        Observation times of pure death (default: the paper's 1000); the Gaussian process has as many steps.
    """
    (images,) = validate.states(validate.integer("max_state", max_state, 1) + 1, images=images)
    x0 = _check_images("images", images).long()
    times = ObservationTimes.fisher() if times is None else times
    steps = _evenly_spaced(len(times) + 1, validate.integer("num_frames", num_frames, 2))
    seen = _with_zero(times.values)[steps]
    gaussian = GaussianDiffusion(max_state, len(times)).path(x0, steps, Streams(seed, len(x0)))
    death = _death_path(x0, seen, max_state, Streams(seed, len(x0)))
    blocks = [
        _Block(gaussian.unbind(1), [f"$k={k}$" for k in steps], "Gaussian"),
        _Block(death.unbind(1), [_time_label(float(t)) for t in seen], "Blackout"),
    ]
    return _mosaic(blocks, max_state, scaled)


def trajectory(
    trajectory: Tensor,
    times: Tensor,
    num_frames: int = 9,
    max_state: int | None = None,
    *,
    scaled: bool = False,
    frames: str = "brightness",
) -> "Figure":
    """Draw a stored sampling trajectory, one sample per row, from the terminal state to the sample.

    Parameters
    ----------
    trajectory
        X_{t_T}, ..., X_{t_1}, X_0, shape (T + 1, batch, height, width) or (T + 1, batch, 1 or 3, height, width).
    times
        t_1 < ... < t_T, shape (T,).
    max_state
        Intensity shown as white (default: the largest one in ``trajectory``).
    scaled
        Rescale the intensities of each frame to [0, 1].
    frames
        "brightness": frames evenly spaced in mean intensity. "steps": evenly spaced in the step index, from the step
        before the first birth to the step that has 99.5 % of the final units, and the sample itself.
    """
    if trajectory.dim() not in (4, 5) or len(trajectory) != len(times) + 1 or trajectory.shape[2:-2] not in _CHANNELS:
        expected = f"({len(times) + 1}, batch, height, width) or ({len(times) + 1}, batch, 1 or 3, height, width)"
        raise ValueError(f"trajectory must have shape {expected}, got {tuple(trajectory.shape)}")
    num_frames = min(validate.integer("num_frames", num_frames, 2), len(trajectory))
    end, brightness = len(trajectory) - 1, trajectory.flatten(1).double().mean(1)
    if validate.choice("frames", frames, FRAMES) == "brightness":
        level = torch.linspace(0, 1, num_frames, dtype=torch.float64)[1:-1] * brightness[-1]
        between = torch.searchsorted(brightness.cummax(0).values, level).clamp(max=end).tolist()
        chosen = sorted({0, *between, end})
    else:
        first = max(0, int((brightness > 0).long().argmax()) - 1)
        last = int((brightness >= _COMPLETE * brightness[-1]).long().argmax())
        between = _evenly_spaced(max(1, last + 1 - first), num_frames - (last < end))
        chosen = sorted({*(first + k for k in between), end})
    titles = [_time_label(t) for t in _with_zero(times).flip(0)[chosen].tolist()]
    rows = trajectory[chosen].unbind(1)
    return _mosaic([_Block(rows, titles)], max_state or int(trajectory.max()), scaled)


def samples(images: Tensor, max_state: int | None = None, *, columns: int | None = None) -> "Figure":
    """Draw a grid of images on one intensity scale.

    Parameters
    ----------
    images
        Shape (n, height, width) or (n, 1 or 3, height, width).
    max_state
        Intensity shown as white (default: the largest one in ``images``).
    columns
        Images per row (default: about twice as many as there are rows).
    """
    x = _check_images("images", images)
    columns = min(len(x), validate.integer("columns", columns or max(1, round((2 * len(x)) ** 0.5)), 1))
    if len(x) > _MANY:
        return _sheet(x, max_state or int(images.max()), columns)
    return _mosaic([_Block(x.split(columns))], max_state or int(images.max()))


def _check_images(name: str, x: Tensor) -> Tensor:
    if not isinstance(x, Tensor) or x.dim() not in (3, 4) or x.shape[1:-2] not in _CHANNELS:
        shape = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"{name} must have shape (n, height, width) or (n, 1 or 3, height, width), got {shape}")
    if len(x) == 0:
        raise ValueError(f"{name} must hold at least one image, got shape {tuple(x.shape)}")
    return x


def _mosaic(blocks: Sequence[_Block], max_state: int, scaled: bool = False) -> "Figure":
    num_rows, columns = sum(len(block.rows) for block in blocks), max(len(row) for b in blocks for row in b.rows)
    side = WIDTH / max(6, columns)
    width = side * columns + 0.25 * any(block.name for block in blocks)
    height = side * num_rows + 0.2 * sum(bool(block.titles) for block in blocks)
    figure = new_figure(width, height, w_pad=0.015, h_pad=0.015, wspace=0, hspace=0)
    axes = iter(figure.subplots(num_rows, columns, squeeze=False))
    for block in blocks:
        middle, odd = divmod(len(block.rows), 2)
        for r, row in enumerate(block.rows):
            line = next(axes)
            for axis in line[len(row) :]:
                axis.set_axis_off()
            for axis, image in zip(line, row, strict=False):
                axis.imshow(_colours(image, max_state, scaled), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
                axis.set(xticks=[], yticks=[])
                axis.spines[:].set(color="0.5", linewidth=0.5)
            if r == 0:
                for axis, title in zip(line, block.titles, strict=False):
                    axis.set_title(title, fontsize=SMALL, pad=3)
            if r == middle:  # the label is centred on the block
                line[0].set_ylabel(block.name, fontsize=TEXT, y=0.5 if odd else 1.0)
    return figure


def _sheet(x: Tensor, max_state: int, columns: int) -> "Figure":
    """All images in one, with a white line between them."""
    tiles = torch.stack([torch.from_numpy(_colours(image, max_state, scaled=False)) for image in x])
    height, width, num_rows = tiles.shape[1], tiles.shape[2], -(-len(x) // columns)
    sheet = torch.ones(num_rows * (height + 1) - 1, columns * (width + 1) - 1, *tiles.shape[3:], dtype=torch.float64)
    for k, tile in enumerate(tiles):
        top, left = k // columns * (height + 1), k % columns * (width + 1)
        sheet[top : top + height, left : left + width] = tile
    figure = new_figure(WIDTH, WIDTH * sheet.shape[0] / sheet.shape[1], w_pad=0, h_pad=0)
    axis = figure.subplots()
    axis.imshow(sheet.numpy(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axis.set_axis_off()
    return figure


def _colours(image: Tensor, max_state: int, scaled: bool) -> Any:
    """An image as numbers from 0 to 1, colour channels last."""
    x = image.double()
    if scaled:
        low, high = x.min(), x.max()
        x = (x - low) / (high - low) if bool(high > low) else torch.zeros_like(x)
    else:
        x = (x / max(1, max_state)).clamp(0, 1)
    if x.dim() == 3:
        x = x[0] if len(x) == 1 else x.movedim(0, -1)
    return x.numpy()


def _death_path(x0: Tensor, times: Tensor, max_state: int, source: Streams) -> Tensor:
    """One path of pure death from each x0 at `times`, the first of which is 0; shape (len(times), n, ...)."""
    process, path = PureDeath(max_state), [x0]
    for step in torch.diff(times):
        path.append(process.sample(path[-1], step, source))
    return torch.stack(path)


def _evenly_spaced(number: int, most: int) -> list[int]:
    """At most `most` of 0, ..., number - 1, evenly spaced, both ends included."""
    places = torch.linspace(0, number - 1, min(most, number), dtype=torch.float64).round()
    return [int(place) for place in places.unique()]


def _with_zero(times: Tensor) -> Tensor:
    return torch.cat([torch.zeros(1, dtype=torch.float64), times])


def _time_label(t: float) -> str:
    if t == 0 or t >= 0.01:
        return f"$t={t:.2g}$"
    digit, power = f"{t:.0e}".split("e")
    return rf"$t={digit}\cdot 10^{{{int(power)}}}$"
