"""Plan: what of a model is measured, and how closely."""

import copy
from dataclasses import dataclass

from blackout import validate
from blackout.evaluation import NETWORKS
from blackout.evaluation.distances import MINIMUM
from blackout.io import SAMPLERS
from blackout.model import DiffusionModel
from blackout.times import MEASURES


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is measured, and how closely."""

    samples: int = 10_000
    steps: int = 250
    sampler: str = "bridge"
    correctors: int = 0
    grid: str = ""
    """The measure in whose equal steps the sampler's times lie; empty: the model's own times."""
    seed: int = 0
    images: int = 0
    """Data points of each split whose likelihood is measured; 0: all of the held-out ones, and as many for training."""
    times: int = 16
    """Times at which each of them is looked at."""
    bound_images: int = 64
    """Data points for the bound of the sampler's own steps; 0: none."""
    reference: int = 0
    """Data points that the samples are compared with; 0: all of the training data."""
    features: str = NETWORKS[0]
    weights: str = ""
    """A file with the feature network's weights; empty: those of its package."""
    structure: bool = False
    """Whether samples are label images whose phases are compared: porosity, two-point function, chord lengths."""
    batch_size: int = 0
    """Data points at a time; 0: 64 on a CPU, 500 on CUDA."""

    def __post_init__(self) -> None:
        for name in ("images", "bound_images", "correctors", "seed", "batch_size"):
            validate.integer(name, getattr(self, name), 0)
        if validate.integer("reference", self.reference, 0) and self.reference < MINIMUM:
            raise ValueError(f"reference must be 0, for all, or at least {MINIMUM}, got {self.reference}")
        for name in ("steps", "times"):
            validate.integer(name, getattr(self, name), 1)
        if validate.integer("samples", self.samples, 0) and self.samples < MINIMUM:
            raise ValueError(f"samples must be 0, for none, or at least {MINIMUM} for the scores, got {self.samples}")
        validate.choice("sampler", self.sampler, tuple(SAMPLERS))
        validate.choice("grid", self.grid, ("", *MEASURES))
        validate.choice("features", self.features, NETWORKS)

    def walked(self, model: DiffusionModel) -> DiffusionModel:
        """The model whose samples are drawn: the same weights, at the times of the grid."""
        return copy.copy(model).walk_by(self.grid) if self.grid else model
