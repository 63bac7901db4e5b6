"""Arrays in, Figure out. matplotlib is imported when a figure is asked for."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from blackout import validate

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
