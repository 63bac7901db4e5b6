"""From a configuration to the parts it names."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from blackout import validate
from blackout.loss import DifferenceLoss, FiniteTimeLoss, InstantaneousLoss, LikelihoodLoss
from blackout.network import (
    HEADS,
    LAW_HEADS,
    MLP,
    PRESETS,
    LawHead,
    LawPredictor,
    MLPConfig,
    NCSNpp,
    Predictor,
    RatesHead,
    StateHead,
    UNetConfig,
    marginal_law,
)
from blackout.process import (
    Absorbing,
    BirthDeath,
    Chain,
    DiscretizedGaussian,
    Halving,
    MarkovProcess,
    PureDeath,
    Uniform,
)
from blackout.process.matrix import DENSE_STATES
from blackout.times import ObservationTimes
from blackout.training.config import TrainConfig
from blackout.training.objective import ChainObjective, DifferenceObjective, LawObjective, Objective, RateObjective

LOSSES: dict[str, type[DifferenceLoss]] = {
    "instantaneous": InstantaneousLoss,
    "finite_time": FiniteTimeLoss,
    "likelihood": LikelihoodLoss,
}

PROCESSES: dict[str, Callable[[int], MarkovProcess]] = {
    "pure-death": lambda states: PureDeath(states - 1),
    "birth-death": lambda states: BirthDeath(states, death=1.0, immigration=(states - 1) / 2),
    "absorbing": lambda states: Absorbing(states + 1),
    "uniform": Uniform,
    "gaussian": DiscretizedGaussian,
    "halving": Halving,
}
"""Processes by the names they have in a configuration, for data with so many states; the mask is one more."""


def build_process(config: TrainConfig) -> MarkovProcess:
    name = validate.choice("process", config.process, tuple(PROCESSES))
    if config.max_count:
        return PROCESSES[name](config.max_count + 1)
    if name != "pure-death":
        raise ValueError(f"max_count is needed for process={name!r}, which has finitely many states, got 0")
    return PureDeath(None)


def build_times(config: TrainConfig, process: MarkovProcess | None = None) -> ObservationTimes:
    """Those of a process; without one, of pure death."""
    return ObservationTimes.for_process(process or PureDeath(), config.num_steps, config.t_end)


def build_predictor(
    config: TrainConfig, shape: torch.Size, statistics: tuple[Tensor, Tensor], num_classes: int = 0
) -> Predictor:
    """The network that predicts X_0 - X_t for data of one shape, newly drawn, its head with the data's statistics."""
    head = HEADS[validate.choice("head", config.head, tuple(HEADS))]
    network = build_network(config, shape, num_classes if config.class_conditional else 0, outputs=head.outputs)
    return Predictor(
        network, head(*statistics, config.max_count or None), config.conditioning, build_times(config).values
    )


def build_law_predictor(config: TrainConfig, x: Tensor, process: MarkovProcess, num_classes: int = 0) -> LawPredictor:
    """The network that gives a law over X_0 for data like x, newly drawn, its head with the data's marginal law."""
    kind = LAW_HEADS[validate.choice("head", config.head, tuple(LAW_HEADS))]
    if process.num_states is None:
        raise ValueError(f"max_count is needed for head={config.head!r}, a law over finitely many states, got 0")
    if process.num_states > DENSE_STATES:
        raise ValueError(
            f"process must have at most {DENSE_STATES} states for a network over them, got {process.num_states}"
        )
    if kind is RatesHead and isinstance(process, Chain):
        raise ValueError(f"head='rates' needs a process in continuous time, got {process!r}; 'categorical' does not")
    head = kind(marginal_law(x, process))
    classes = num_classes if config.class_conditional else 0
    return LawPredictor(build_network(config, x.shape[1:], classes, process, head), head, process)


def build_network(
    config: TrainConfig,
    shape: torch.Size,
    num_classes: int,
    process: MarkovProcess | None = None,
    head: StateHead | None = None,
    outputs: int = 1,
) -> nn.Module:
    """NCSN++ for images and grids, an MLP for vectors; with a process and a head, for laws over its states.

    Its weights are newly drawn from the seed of the configuration. It has as many levels as both sides can be halved.
    """
    chosen: dict[str, Any] = {"num_classes": num_classes, "outputs": outputs}
    chosen.update({name: getattr(config, name) for name in ("width", "blocks") if getattr(config, name)})
    if config.dropout >= 0:
        chosen["dropout"] = config.dropout
    shown = 0
    if process is not None and head is not None:
        shown = head.inputs(process)
        chosen["outputs"] = head.outputs(process)
    if len(shape) not in (1, 3):
        hint = "; a grid of labels has one channel: x[:, None]" if len(shape) == 2 else ""
        raise ValueError(f"data must be vectors or images (channels, height, width), got shape {tuple(shape)}{hint}")
    preset = dict(PRESETS[validate.choice("preset", config.preset, tuple(PRESETS))])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        if len(shape) == 1:
            chosen["covariates"] = int(config.library == "conditioned")
            return MLP(MLPConfig(features=shape[0], **({"inputs": shown} if shown else {}), **chosen))
        if shown:
            preset["periods"], chosen["inputs"] = (), shown * shape[0]
        levels = preset.get("multipliers", UNetConfig.multipliers)
        preset["multipliers"] = levels[: 1 + min(_halvings(side) for side in shape[1:])]
        return NCSNpp(UNetConfig(channels=shape[0], resolution=min(shape[1:]), **{**preset, **chosen}))


def _halvings(side: int) -> int:
    """How often a side can be halved."""
    return (side & -side).bit_length() - 1


def build_objective(config: TrainConfig, predictor: nn.Module) -> Objective:
    if not isinstance(predictor, LawPredictor):
        return DifferenceObjective(LOSSES[config.loss]())
    process, head = predictor.process, predictor.head
    if isinstance(head, RatesHead):
        return RateObjective(process, head)
    assert isinstance(head, LawHead)
    if not isinstance(process, Chain):
        return LawObjective(process, head, config.compile)
    if config.time_law != "grid":
        raise ValueError(f"time_law must be 'grid' for a chain, whose times are whole, got {config.time_law!r}")
    return ChainObjective(process, head)


def data_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel, shape (channels, 1, 1)."""
    dims = (0, *range(2, x.dim()))
    count = x.numel() / x.shape[1]
    total = x.sum(dims, keepdim=True, dtype=torch.float64)
    square = sum((part.double() ** 2).sum(dims, keepdim=True) for part in x.split(4096))
    mean = total / count
    std = torch.sqrt((square / count - mean**2).clamp(min=1e-12))
    return mean[0].float(), std[0].float()
