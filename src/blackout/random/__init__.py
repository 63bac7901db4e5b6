"""Random draws, and one stream of random numbers for each sample."""

from blackout.random.draws import (
    Source,
    binomial,
    categorical,
    normal,
    pick,
    poisson,
    round_stochastic,
    source_device,
    uniform,
)
from blackout.random.streams import Streams, mix

__all__ = [
    "Source",
    "Streams",
    "binomial",
    "categorical",
    "mix",
    "normal",
    "pick",
    "poisson",
    "round_stochastic",
    "source_device",
    "uniform",
]
