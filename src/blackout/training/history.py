"""TrainingRun: one of the runs that made the weights of a model."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch

from blackout import __version__, validate
from blackout.progress import clock_text
from blackout.training.config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """What a run was trained on, how long, and where; saved with the model, see `ModelRecord.runs`.

    Examples
    --------
    >>> run = TrainingRun(
    ...     recipe="digits", dataset="seven-segment", num_data=1000, loss="likelihood", steps=1500, batch_size=64,
    ...     seconds=240.4, device="NVIDIA H200", precision="bfloat16", version="0.1.0", seed=0, init="",
    ... )
    >>> print(run)
    seven-segment (1,000), recipe digits, likelihood loss, 1,500 steps of 64 in 0:04:00 on NVIDIA H200, bfloat16, seed 0
    """

    recipe: str
    """Empty for a run without a recipe."""
    dataset: str
    """Name of the data set; empty for other data."""
    num_data: int
    loss: str
    steps: int
    """Optimiser steps so far."""
    batch_size: int
    seconds: float
    """Time in the training loop, over all pieces of the run."""
    device: str
    precision: str
    """Of the network: float32 or bfloat16."""
    version: str
    """Of this package."""
    seed: int
    init: str
    """The model whose weights it started from; empty for new weights, or for those that the model had already."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type is int:
                validate.integer(field.name, value, 0)
            elif field.type is float:
                validate.real(field.name, value, 0.0)
            elif not isinstance(value, str):
                raise ValueError(f"{field.name} must be text, got {validate.short(value)}")

    @staticmethod
    def of(
        config: TrainConfig, *, num_data: int, steps: int, seconds: float, device: str, precision: torch.dtype
    ) -> "TrainingRun":
        """The run of a configuration after so many steps and seconds."""
        return TrainingRun(
            recipe=config.recipe,
            dataset=config.data.dataset,
            num_data=num_data,
            loss=config.optimiser.loss,
            steps=steps,
            batch_size=config.optimiser.batch_size,
            seconds=round(seconds, 3),
            device=device,
            precision=str(precision).removeprefix("torch."),
            version=__version__,
            seed=config.run.seed,
            init=config.run.init,
        )

    def __str__(self) -> str:
        data, recipe = self.dataset or "own data", f", recipe {self.recipe}" if self.recipe else ""
        start = f", from {self.init}" if self.init else ""
        return (
            f"{data} ({self.num_data:,}){recipe}, {self.loss} loss, {self.steps:,} steps of {self.batch_size} "
            f"in {clock_text(self.seconds)} on {self.device}, {self.precision}, seed {self.seed}{start}"
        )


def runs_in(config: Mapping[str, Any]) -> tuple[TrainingRun, ...]:
    """The runs in a model's description."""
    try:
        return tuple(TrainingRun(**run) for run in config.get("runs", ()))
    except (TypeError, ValueError) as error:
        raise ValueError(f"runs must describe training runs: {error}") from None


def device_name(device: torch.device) -> str:
    """The name of a GPU, or the kind and threads of a CPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    number = torch.get_num_threads()
    return f"CPU, {platform.machine()}, {number} thread{'' if number == 1 else 's'}"
