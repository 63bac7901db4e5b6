"""From a configuration to the parts it names."""

from typing import Any

import torch
from torch import Tensor, nn

from blackout import validate
from blackout.loss import DifferenceLoss, FiniteTimeLoss, InstantaneousLoss, LikelihoodLoss
from blackout.network import HEADS, MLP, PRESETS, MLPConfig, NCSNpp, Predictor, UNetConfig
from blackout.process import PureDeath
from blackout.times import ObservationTimes
from blackout.training.config import TrainConfig

LOSSES: dict[str, type[DifferenceLoss]] = {
    "instantaneous": InstantaneousLoss,
    "finite_time": FiniteTimeLoss,
    "likelihood": LikelihoodLoss,
}


def build_process(config: TrainConfig) -> PureDeath:
    return PureDeath(max_count=config.max_count or None)


def build_times(config: TrainConfig) -> ObservationTimes:
    return ObservationTimes.fisher(config.num_steps, config.t_end)


def build_predictor(
    config: TrainConfig, shape: torch.Size, statistics: tuple[Tensor, Tensor], num_classes: int = 0
) -> Predictor:
    """The network for data of one shape, its head with the data's statistics, newly drawn from the seed."""
    head = HEADS[validate.choice("head", config.head, tuple(HEADS))]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        network = build_network(config, shape, num_classes if config.class_conditional else 0)
    return Predictor(
        network, head(*statistics, config.max_count or None), config.conditioning, build_times(config).values
    )


def build_network(config: TrainConfig, shape: torch.Size, num_classes: int) -> nn.Module:
    """NCSN++ for square images, an MLP for vectors."""
    chosen: dict[str, Any] = {"num_classes": num_classes}
    chosen.update({name: getattr(config, name) for name in ("width", "blocks") if getattr(config, name)})
    if config.dropout >= 0:
        chosen["dropout"] = config.dropout
    if len(shape) == 1:
        return MLP(MLPConfig(features=shape[0], **chosen))
    if len(shape) != 3 or shape[1] != shape[2]:
        raise ValueError(f"data must be vectors or square images (channels, size, size), got shape {tuple(shape)}")
    preset = PRESETS[validate.choice("preset", config.preset, tuple(PRESETS))]
    return NCSNpp(UNetConfig(channels=shape[0], resolution=shape[1], **{**preset, **chosen}))


def data_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel, shape (channels, 1, 1)."""
    dims = (0, *range(2, x.dim()))
    count = x.numel() / x.shape[1]
    total = x.sum(dims, keepdim=True, dtype=torch.float64)
    square = sum((part.double() ** 2).sum(dims, keepdim=True) for part in x.split(4096))
    mean = total / count
    std = torch.sqrt((square / count - mean**2).clamp(min=1e-12))
    return mean[0].float(), std[0].float()
