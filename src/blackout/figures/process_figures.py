"""What is destroyed, and how: pictures, a few states, and the times of looking."""

from blackout import figures
from blackout.figures.context import Plate, Studio
from blackout.times import ObservationTimes

_ROWS = 2
_SCALES = {
    False: "One colour scale for all: what lies outside the range of the data is cut off.",
    True: "Each picture has a colour scale of its own, from its smallest value to its largest, so that the last units "
    "of an almost black picture are seen; only a picture without any stays black.",
}


def forward(studio: Studio, scaled: bool = False) -> Plate:
    x, largest, origin = studio.pictures(_ROWS)
    return Plate(
        lambda: figures.forward(x, largest, scaled=scaled, seed=studio.seed),
        "The forward process, seen at the same steps k of 1000. Above: Gaussian diffusion, variance-preserving with "
        "the cosine schedule, which ends in noise. Below: Blackout's pure death, at the times t of the Fisher grid, "
        f"which ends in black. {_SCALES[scaled]} Every row is one path of its process. Pictures: {origin}.",
    )


def forward_scaled(studio: Studio) -> Plate:
    return forward(studio, scaled=True)


def paths(studio: Studio) -> Plate:
    return Plate(
        lambda: figures.paths(seed=studio.seed),
        "Probabilities (grey) and three paths each (coloured) on the states {0, ..., 8}, forward on the left and back "
        "on the right, in 1000 steps. Above: Gaussian diffusion (variance-preserving, cosine schedule) of dequantized "
        "data; its paths keep neither to the states nor to their range, which the dotted lines mark. Below: pure "
        "death, which keeps to the states, goes down by one at a time and ends in 0. Probabilities are exact. Paths "
        "back use the exact posterior: no network is in this figure.",
    )


def times(studio: Studio) -> Plate:
    named = {"Fisher (the paper's)": ObservationTimes.fisher(), "uniform": ObservationTimes.uniform()}
    return Plate(
        lambda: figures.observation_times(named),
        "The thousand observation times, on a linear axis (left) and a logarithmic one (right): the paper's, equal "
        "steps of Fisher information, beside a uniform grid. The dashed line marks t = log 2, when half of the units "
        "are left: half of the paper's times lie before it, and nearly all of the uniform ones after it.",
    )
