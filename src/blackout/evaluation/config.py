"""EvalConfig: what an evaluation computes, and how it reads the data of a run. This module does not import torch."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from blackout import validate
from blackout.evaluation import FEATURE_NETWORKS, METRICS
from blackout.sampling import MAX_REPEATS, SAMPLERS
from blackout.times import TIME_RULES
from blackout.training.config import TrainConfig

MINIMUM = 50  # samples below which the subsets and splits of metrics are too small
_SAMPLES = {"cuda": 10_000, "cpu": 200}  # on a CPU, more would take hours


def option(default: Any, help: str, **about: Any) -> Any:
    """A field with its line of `--help`, and what else `blackout.cli.config_options.with_config` takes."""
    return dataclasses.field(default=default, metadata={"help": help, **about})


@dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """What an evaluation computes. The command line has an option for each field."""

    num_samples: int | None = option(
        None, "number of samples for the metrics (0: none)", flag="--samples",
        show_default=f"{_SAMPLES['cuda']} on CUDA, {_SAMPLES['cpu']} on a CPU",
    )  # fmt: skip
    num_steps: int | None = option(
        None, "sampling steps", flag="--steps", show_default="250, or the recipe's; at most the model's number of times"
    )
    sampler: str = option("auto", "sampler; auto: the recipe's, or by process and head", choices=SAMPLERS)
    dropout: bool | None = option(
        None,
        "keep the network's dropout on while sampling, as in the authors' code",
        show_default="off, or the recipe's",
    )
    corrector_steps: int = option(0, "corrector steps after each step", flag="--correctors")
    times: str = option(
        "", "time grid", choices=TIME_RULES,
        show_default="fitted up to 64 steps, if the model has such times; else length below its number of times",
    )  # fmt: skip
    seed: int = option(0, "random seed of samples, bounds and subsets")
    num_data: int = option(
        0, "data points per split for bits/dim: the first of a named data set of images, else random ones (0: all)"
    )
    num_times: int = option(16, "random times, or steps, per data point for bits/dim")
    bound: str = option(
        "auto", "bound of bits/dim: continuous (time), steps (those of the model), auto (steps where the other is "
        "infinite, as for softplus, and for chains)",
    )  # fmt: skip
    num_bound_data: int = option(64, "data points for the bits/dim of the sampler's steps (0: none)")
    num_reference: int = option(0, "training data points that samples are compared with (0: all)")
    metrics: tuple[str, ...] = option((), "metric to compute; repeat for several", show_default="all", entries=METRICS)
    features: str = option("efficientnet-lite0", "feature network", entries=FEATURE_NETWORKS)
    weights: str = option("", "file with the weights of the feature network", show_default="those of its package")
    structure: bool = option(False, "label images: compare porosity, two-point function and chord lengths")
    references: bool = option(False, "sequences: bits of xz and of an autoregressive transformer of the same size")
    batch_size: int = option(0, "data points per batch (0: 64 on a CPU, 500 on CUDA)")

    def __post_init__(self) -> None:
        for name in ("num_data", "num_bound_data", "seed", "batch_size", "num_reference"):
            validate.integer(name, getattr(self, name), 0)
        validate.integer("corrector_steps", self.corrector_steps, 0, MAX_REPEATS)
        if self.num_samples is not None:
            validate.integer("num_samples", self.num_samples, 0)
        for name in ("num_samples", "num_reference"):
            if 0 < (value := getattr(self, name) or 0) < MINIMUM:
                raise ValueError(f"{name} must be 0 or at least {MINIMUM}, for the metrics, got {value}")
        validate.integer("num_times", self.num_times, 1)
        if self.num_steps is not None:
            validate.integer("num_steps", self.num_steps, 1)
        validate.choice("sampler", self.sampler, ("auto", *SAMPLERS))
        validate.choice("times", self.times, ("", *TIME_RULES))
        validate.choice("features", self.features, tuple(FEATURE_NETWORKS))
        object.__setattr__(self, "metrics", tuple(self.metrics))
        for name in self.metrics:
            validate.choice("metrics", name, tuple(METRICS))

    def samples_on(self, device: str) -> int:
        """The number of samples; the default depends on the type of the device, "cuda" or "cpu"."""
        return _SAMPLES.get(device, _SAMPLES["cpu"]) if self.num_samples is None else self.num_samples


def reading_of(config: TrainConfig) -> dict[str, Any]:
    """Return the options of `open_splits` with which a run read its data."""
    split = {"train_split": config.data.split} if config.data.split != "train" else {}
    return config.data.reading() | split
