"""Small training runs on random binary images."""

from pathlib import Path

import torch
from torch import Tensor

from blackout.model import DiffusionModel
from blackout.process import PureDeath
from blackout.times import ObservationTimes
from blackout.training.config import TrainConfig
from blackout.training.loop import Trainer

BASE = TrainConfig().replace(
    max_count=1,
    num_times=100,
    preset="tiny",
    width=8,
    blocks=1,
    steps=6,
    batch_size=8,
    learning_rate=1e-3,
    log_every=1,
    time_density="logistic",
    stratified=True,
)


def pixels(num: int, *shape: int, q: float = 0.3) -> Tensor:
    return (torch.rand(num, *shape, generator=torch.Generator().manual_seed(1)) < q).long()


IMAGES = pixels(32, 1, 8, 8)


def model_of(config: TrainConfig, x: Tensor = IMAGES, classes: int = 0) -> DiffusionModel:
    """A new model of a configuration."""
    process, network = PureDeath(config.data.max_count), config.network
    return DiffusionModel.for_data(
        x,
        process,
        ObservationTimes.for_process(process, config.process.num_times, config.process.t_end or None, x),
        head=network.head,
        preset=network.preset,
        num_classes=classes,
        seed=config.run.seed,
        width=network.width,
        blocks=network.blocks,
        dropout=network.dropout if network.dropout >= 0 else None,
    )


def trainer(
    folder: Path | None = None, x: Tensor = IMAGES, classes: int = 0, base: TrainConfig = BASE, **changes: object
) -> Trainer:
    config = base.replace(**changes)
    model = model_of(config, x, classes)
    return Trainer(config, model.predictor, model.times, folder)
