"""FIGURES: the figures of the paper and of recorded results by name. A new figure is one function and one line."""

import math
from typing import TYPE_CHECKING

from blackout.figures import charts, distributions, images, recorded
from blackout.figures.context import CaptionedFigure, Context
from blackout.registry import Registry
from blackout.times import ObservationTimes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROWS, _FRAMES, _COLUMNS = 4, 11, 8
_SCALE = {False: "All images have one intensity scale", True: "The intensities of each image are rescaled to [0, 1]"}

FIGURES = Registry("figure")


def draw(name: str, context: Context | None = None) -> "Figure":
    """Draw one figure by its name in ``FIGURES``."""
    figure: CaptionedFigure = FIGURES.make(name, context or Context())
    return figure.draw()


def forward(context: Context, scaled: bool) -> CaptionedFigure:
    x, max_state, origin = context.images(2)
    times = ObservationTimes.fisher()
    clipped = "" if scaled else "; values outside the range of the data are clipped"
    return CaptionedFigure(
        lambda: images.forward(x, max_state, scaled=scaled, times=times, seed=context.seed),
        f"The forward process at equal steps k of {len(times)}. Above: Gaussian diffusion, variance-preserving with "
        "the cosine schedule, which ends in noise. Below: pure death at the observation times t of the paper, which "
        f"ends in black. {_SCALE[scaled]}{clipped}. Each row is one path. Images: {origin}.",
    )


def paths(context: Context) -> CaptionedFigure:
    return CaptionedFigure(
        lambda: distributions.paths(num_paths=3, seed=context.seed),
        "Probabilities (grey) and three sample paths (coloured) on the states {0, ..., 8}, forward on the left and "
        "reverse on the right, at 1000 observation times. Above: Gaussian diffusion of dequantized data, "
        "variance-preserving with the cosine schedule; its paths leave the states and their range (dotted lines). "
        "Below: pure death, which stays on the states, decreases by one unit at a time and ends in 0. Probabilities "
        "are exact; reverse paths are sampled with the exact posterior, without a network.",
    )


def times(context: Context) -> CaptionedFigure:
    named = {"Fisher (paper)": ObservationTimes.fisher(), "uniform": ObservationTimes.uniform()}
    early = [int((one.values < math.log(2)).sum()) for one in named.values()]
    return CaptionedFigure(
        lambda: charts.observation_times(named),
        "The 1000 observation times of the paper, at equal steps of Fisher information, and a uniform grid, on a "
        "linear axis (left) and a logarithmic one (right). The dashed line is t = log 2, when half of the units are "
        f"alive: {early[0]} of the paper's times and {early[1]} of the uniform ones are earlier.",
    )


def generation(context: Context, model: str, scaled: bool = False) -> CaptionedFigure:
    found = context.sampled(model)
    rows = found.trajectory[:, :_ROWS]
    return CaptionedFigure(
        lambda: images.trajectory(rows, found.times.values, _FRAMES, found.max_state, scaled=scaled, frames="steps"),
        f"Sampling trajectories of the first {rows.shape[1]} samples of the model `{model}`, one per row: "
        f"{len(found.times)} steps of the binomial bridge, seed {context.seed}. Time decreases from left to right, "
        f"from the step before the first birth to the sample at t = 0. {_SCALE[scaled]}.",
    )


def samples(context: Context, model: str) -> CaptionedFigure:
    found = context.sampled(model)
    return CaptionedFigure(
        lambda: images.samples(found.samples, found.max_state, columns=_COLUMNS),
        f"The first {len(found.samples)} samples of the model `{model}`, not selected: {len(found.times)} steps of "
        f"the binomial bridge, seed {context.seed}.",
    )


FIGURES.add("forward", forward, "Forward process on images", scaled=False)
FIGURES.add("forward-scaled", forward, "Forward process, intensities rescaled", scaled=True)
FIGURES.add("paths", paths, "Distributions and sample paths on {0, ..., 8}")
FIGURES.add("times", times, "Observation times")
FIGURES.add("generation", generation, "Sampling trajectories of cifar10", model="cifar10")
FIGURES.add("generation-scaled", generation, "Trajectories, intensities rescaled", model="cifar10", scaled=True)
FIGURES.add("generation-mnist-binary", generation, "Sampling trajectories of mnist-binary", model="mnist-binary")
FIGURES.add("samples-cifar10", samples, "Samples of cifar10", model="cifar10")
FIGURES.add("samples-mnist-binary", samples, "Samples of mnist-binary", model="mnist-binary")
FIGURES.add("steps-cifar10", recorded.steps, "Steps and sample quality, cifar10", record="cifar10-samplers")
FIGURES.add(
    "steps-mnist-binary", recorded.steps, "Steps and sample quality, mnist-binary", record="mnist-binary-samplers"
)
FIGURES.add("heads", recorded.heads, "Heads and training time, cifar10", record="cifar10-heads-training")
