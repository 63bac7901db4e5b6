"""Pictures: what is destroyed, the walk back, and what comes out."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from blackout import validate
from blackout.figures.gaussian import GaussianDiffusion
from blackout.figures.style import SMALL, TEXT, WIDTH, blank
from blackout.process import PureDeath
from blackout.streams import Streams
from blackout.times import ObservationTimes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FRAMES = ("brightness", "steps")

_CHANNELS = ((), (1,), (3,))
_COMPLETE = 0.995  # of the units of a walk, with which it is nearly at its end


def forward(
    images: Tensor,
    largest: int = 255,
    *,
    scaled: bool = False,
    num_frames: int = 11,
    times: ObservationTimes | None = None,
    seed: int = 0,
) -> "Figure":
    """Pictures as they are destroyed, a path each: above by Gaussian diffusion, below by pure death.

    `images` has shape (n, height, width) or (n, 1 or 3, height, width), with intensities 0, ..., `largest`. Both
    processes have as many steps as there are `times` (default: the paper's 1000), and are seen at the same of them.
    `scaled` stretches the colours of each picture on its own; otherwise what lies outside 0, ..., `largest` is cut off.
    """
    (images,) = validate.states(validate.integer("largest", largest, 1) + 1, images=images)
    x0 = images.long()
    if len(pictures("images", x0)) == 0:
        raise ValueError(f"images must hold a picture at least, got shape {tuple(x0.shape)}")
    times = ObservationTimes.fisher() if times is None else times
    steps = _spread(len(times) + 1, validate.integer("num_frames", num_frames, 2))
    clock = checked_clock(times.values).flip(0)
    gaussian = GaussianDiffusion(largest, len(times)).path(x0, steps, Streams(seed, len(x0)))
    death = _death_path(x0, clock[steps], largest, Streams(seed, len(x0)))
    blocks = [[[frame[i] for frame in path] for i in range(len(x0))] for path in (gaussian, death)]
    return mosaic(
        [*blocks[0], *blocks[1]],
        [f"$k={k}$" for k in steps],
        largest,
        scaled,
        blocks={"Gaussian": len(x0), "Blackout": len(x0)},
        notes=[_time_label(float(clock[k])) for k in steps],
    )


def walk(
    trajectory: Tensor,
    times: Tensor,
    num_frames: int = 9,
    largest: int | None = None,
    *,
    scaled: bool = False,
    frames: str = "brightness",
) -> "Figure":
    """The walk from black to sample, one sample a row.

    `trajectory` has shape (T + 1, batch, height, width), from X_{t_T} to X_0, or (T + 1, batch, channels, height,
    width) with one channel or three; `times` holds t_1 < ... < t_T. `frames` are spread evenly over the mean
    "brightness", or over the "steps" in which something happens: from the first birth until nearly all units are
    there. `scaled` stretches the colours of each picture on its own; otherwise the scale is one for all.
    """
    if trajectory.dim() not in (4, 5) or len(trajectory) != len(times) + 1 or trajectory.shape[2:-2] not in _CHANNELS:
        expected = f"({len(times) + 1}, batch, height, width) or ({len(times) + 1}, batch, 1 or 3, height, width)"
        raise ValueError(f"trajectory must have shape {expected}, got {tuple(trajectory.shape)}")
    num_frames = min(validate.integer("num_frames", num_frames, 2), len(trajectory))
    brightness = trajectory.flatten(1).double().mean(1)
    if validate.choice("frames", frames, FRAMES) == "brightness":
        level = torch.linspace(0, 1, num_frames, dtype=torch.float64) * brightness[-1]
        chosen = torch.searchsorted(brightness.cummax(0).values, level).clamp(max=len(trajectory) - 1)
        chosen[0], chosen[-1] = 0, len(trajectory) - 1
        chosen = chosen.unique()  # a few steps have fewer levels than frames
    else:
        end, first = len(trajectory) - 1, max(0, int((brightness > 0).long().argmax()) - 1)
        last = int((brightness >= _COMPLETE * brightness[-1]).long().argmax())
        between = _spread(max(1, last + 1 - first), num_frames - (last < end))
        chosen = torch.tensor(sorted({*(first + k for k in between), end}))
    clock = checked_clock(times)
    return mosaic(
        [[trajectory[k, row] for k in chosen.tolist()] for row in range(trajectory.shape[1])],
        [_time_label(float(clock[k])) for k in chosen.tolist()],
        largest or int(trajectory.max()),
        scaled,
    )


def samples(images: Tensor, largest: int | None = None, *, columns: int | None = None) -> "Figure":
    """A grid of pictures (n, height, width) or (n, 1 or 3, height, width), the colour scale one for all."""
    x = pictures("images", images)
    if len(x) == 0:
        raise ValueError(f"images must hold a picture at least, got shape {tuple(images.shape)}")
    columns = min(len(x), validate.integer("columns", columns or max(1, round((2 * len(x)) ** 0.5)), 1))
    rows = [list(x[k : k + columns]) for k in range(0, len(x), columns)]
    return mosaic(rows, [""] * columns, largest or int(images.max()))


def pictures(name: str, x: Tensor) -> Tensor:
    """x, if it has the shape of pictures."""
    if not isinstance(x, Tensor) or x.dim() not in (3, 4) or x.shape[1:-2] not in _CHANNELS:
        shape = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"{name} must have shape (n, height, width) or (n, 1 or 3, height, width), got {shape}")
    return x


def mosaic(
    rows: Sequence[Sequence[Tensor]],
    titles: Sequence[str],
    largest: int,
    scaled: bool = False,
    *,
    blocks: dict[str, int] | None = None,
    notes: Sequence[str] = (),
) -> "Figure":
    """Pictures in rows under titles. `blocks` names runs of rows; `notes` stand above the last of them."""
    side = WIDTH / max(6, len(titles))
    width, height = side * len(titles) + 0.25 * bool(blocks), side * len(rows) + 0.2 * (bool(notes) + any(titles))
    figure = blank(width, height, w_pad=0.015, h_pad=0.015, wspace=0, hspace=0)
    axes = figure.subplots(len(rows), len(titles), squeeze=False)
    for line, images in zip(axes, rows, strict=True):
        for axis in line[len(images) :]:
            axis.set_axis_off()
        for axis, image in zip(line, images, strict=False):
            axis.imshow(_colours(image, largest, scaled), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            axis.set(xticks=[], yticks=[])
            for spine in axis.spines.values():
                spine.set(color="0.5", linewidth=0.5)
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=SMALL, pad=3)
    first = 0
    for name, number in (blocks or {}).items():
        _name_rows(axes[first : first + number, 0], name)
        last, first = first, first + number
        if first == len(rows):
            for axis, note in zip(axes[last], notes, strict=True):
                axis.set_title(note, fontsize=SMALL, pad=3)
    return figure


def _name_rows(column: Any, name: str) -> None:
    """One name for several rows, in the middle of them."""
    for k, axis in enumerate(column):
        if 2 * k + 1 == len(column) or (len(column) % 2 == 0 and 2 * k == len(column)):
            axis.set_ylabel(name, fontsize=TEXT, y=0.5 if len(column) % 2 else 1.0)


def _colours(image: Tensor, largest: int, scaled: bool) -> Any:
    """An image as numbers between 0 and 1, colours last."""
    x = image.double()
    if scaled:
        low, high = x.min(), x.max()
        x = (x - low) / (high - low) if bool(high > low) else torch.zeros_like(x)
    else:
        x = (x / max(1, largest)).clamp(0, 1)
    if x.dim() == 3:
        x = x[0] if len(x) == 1 else x.movedim(0, -1)
    return x.numpy()


def _death_path(x0: Tensor, clock: Tensor, largest: int, source: Streams) -> Tensor:
    """One path of pure death from each x0, seen at the times of `clock`, of which the first is 0."""
    process, seen = PureDeath(largest), [x0]
    for step in torch.diff(clock):
        seen.append(process.sample(seen[-1], step, source))
    return torch.stack(seen)


def _spread(number: int, chosen: int) -> list[int]:
    """At most `chosen` of 0, ..., number - 1, spread evenly, both ends among them."""
    places = torch.linspace(0, number - 1, min(chosen, number), dtype=torch.float64).round()
    return [int(place) for place in places.unique()]


def checked_clock(times: Tensor) -> Tensor:
    """t_T, ..., t_1, 0."""
    return torch.cat([torch.zeros(1, dtype=torch.float64), times]).flip(0)


def _time_label(t: float) -> str:
    if t == 0 or t >= 0.01:
        return f"$t={t:.2g}$"
    digit, power = f"{t:.0e}".split("e")
    return rf"$t={digit}\cdot 10^{{{int(power)}}}$"
