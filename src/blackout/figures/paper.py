"""Figures of the paper: the forward process, sample paths, observation times, and what models generate."""

import math

from blackout.figures import charts, distributions, images
from blackout.figures.context import CaptionedFigure, Context
from blackout.times import ObservationTimes

_ROWS, _FRAMES, _COLUMNS = 4, 11, 8
_SQUARE = 100  # samples from which a grid is square
_SCALE = {False: "All images have one intensity scale", True: "The intensities of each image are rescaled to [0, 1]"}


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
        f"seed {context.seed}, {len(found.times)} steps of the sampler `{found.sampler}`. Time decreases from left to "
        f"right, from the step before the first birth to the sample at t = 0. {_SCALE[scaled]}.",
    )


def samples(context: Context, model: str) -> CaptionedFigure:
    found = context.sampled(model)
    return CaptionedFigure(
        lambda: images.samples(found.samples, found.max_state, columns=_columns(len(found.samples))),
        f"The first {len(found.samples)} samples of the model `{model}`, not selected: seed {context.seed}, "
        f"{len(found.times)} steps of the sampler `{found.sampler}`.",
    )


def grid(context: Context, run: str, sampler: str, num: int, label: str) -> CaptionedFigure:
    """The samples that a figure of the paper shows, from a trained run."""
    found = context.grid(run, sampler, num)
    return CaptionedFigure(
        lambda: images.samples(found.samples, found.max_state, columns=_columns(len(found.samples))),
        f"The first {len(found.samples)} samples of the run `{run}`, not selected, as in the paper's `{label}`: "
        f"{found.training}; seed {context.seed}, {found.num_steps} steps of the sampler `{found.sampler}`"
        f"{', dropout on' if found.dropout else ''}.",
    )


def _columns(num: int) -> int:
    return math.isqrt(num) if num >= _SQUARE else _COLUMNS
