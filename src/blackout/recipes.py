"""Recipes: functions that return a complete configuration, one for each experiment. Importing them needs no torch."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from blackout.registry import Registry
from blackout.training.automatic import COMMON, IMAGES, sequence_config
from blackout.training.config import TrainConfig

if TYPE_CHECKING:
    from blackout.data import Dataset
    from blackout.model import DiffusionModel

_COMPILED: dict[str, Any] = {"compile": True, "compile_mode": "reduce-overhead"}

_PAPER: dict[str, Any] = {
    "head": "softplus", "time_input": "index", "t_end": 15.0, "batch_size": 256, "learning_rate": 2e-4, "ema": 0.9999,
    "ema_first": True, "precision": "float32", "sampler": "bridge-nearest", "sampling_steps": 1000,
    "sampling_dropout": True, **_COMPILED,
}  # fmt: skip
"""What the authors' code does, point by point: docs/paper.md."""

_GPU: dict[str, Any] = {**COMMON, **_COMPILED, "ema": 0.999}
"""What all other trainings on a GPU have in common."""


def cifar10_paper() -> TrainConfig:
    """The paper's CIFAR-10: NCSN++, 62.7 M weights, 300k steps."""
    return TrainConfig().replace(dataset="cifar10", loss="instantaneous", steps=300_000, flip=True, **_PAPER)


def cifar10_paper_finite() -> TrainConfig:
    """The paper's CIFAR-10 with the finite-time loss."""
    return cifar10_paper().replace(loss="finite_time", loss_scale=1e-3)


def mnist_binary_paper() -> TrainConfig:
    """The paper's binarised MNIST, 32x32, 250k steps, t_T = 10."""
    return TrainConfig().replace(
        dataset="mnist-binary", image_size=32, max_count=1, loss="instantaneous", steps=250_000,
        **{**_PAPER, "t_end": 10.0, "sampler": "poisson"},
    )  # fmt: skip


def celeba64_paper() -> TrainConfig:
    """The paper's CelebA, 64x64, batches of 100."""
    return TrainConfig().replace(
        dataset="celeba64", split="all", loss="instantaneous", steps=1_300_000, **{**_PAPER, "batch_size": 100}
    )


def cifar10() -> TrainConfig:
    """CIFAR-10 by class, for the look of images: the pretrained model cifar10, after cifar10-likelihood."""
    return cifar10_likelihood().replace(class_conditional=True, label_dropout=0.2, sampling_steps=32, **IMAGES)


def cifar10_likelihood() -> TrainConfig:
    """CIFAR-10 for bits/dim, 12.4 minutes on one H200: the pretrained model of its name."""
    return TrainConfig().replace(
        dataset="cifar10", flip=True, preset="small", steps=12_000, batch_size=512, learning_rate=6e-4, warmup=400,
        checkpoint_every=4000, **_GPU,
    )  # fmt: skip


def _cifar10_distribution(process: str) -> TrainConfig:
    """One network and one budget for every process: a distribution over the 256 grey levels of each pixel."""
    return cifar10_likelihood().replace(
        process=process, head="levels", time_loc=0.0, steps=6_000, batch_size=128, warmup=100, checkpoint_every=2000
    )


def cifar10_distribution() -> TrainConfig:
    """CIFAR-10 under pure death, with a distribution over X_0: few-step sampling."""
    return _cifar10_distribution("pure-death").replace(time_loc=1.0)


def cifar10_birth_death() -> TrainConfig:
    """CIFAR-10 under death and immigration: the paper's R = 2."""
    return _cifar10_distribution("birth-death")


def cifar10_absorbing() -> TrainConfig:
    """CIFAR-10 under masking (masked diffusion)."""
    return _cifar10_distribution("absorbing")


def cifar10_uniform() -> TrainConfig:
    """CIFAR-10 under uniform redrawing (multinomial diffusion)."""
    return _cifar10_distribution("uniform")


def cifar10_gaussian() -> TrainConfig:
    """CIFAR-10 under jumps of Gaussian length (D3PM, τLDR)."""
    return _cifar10_distribution("gaussian")


def cifar10_halving() -> TrainConfig:
    """CIFAR-10 losing a binary digit at a time: coarse to fine."""
    return _cifar10_distribution("halving")


def mnist_binary() -> TrainConfig:
    """Binarised MNIST, 28x28: the pretrained model."""
    return TrainConfig().replace(
        dataset="mnist-binary", max_count=1, preset="tiny", width=48, time_loc=0.0, steps=1_626, batch_size=512,
        learning_rate=1e-3, warmup=200, checkpoint_every=4000, **_GPU,
    )  # fmt: skip


def bentheimer() -> TrainConfig:
    """Slices of Bentheimer sandstone, 64x64: rock or pore, masked."""
    return mnist_binary().replace(
        dataset="bentheimer", flip=True, process="absorbing", head="categorical", width=64, steps=3_000,
        batch_size=128, checkpoint_every=1000,
    )  # fmt: skip


def digits() -> TrainConfig:
    """Seven-segment digits, 8x8: minutes on two CPU cores."""
    return TrainConfig().replace(
        dataset="seven-segment", max_count=16, preset="tiny", width=24, steps=1_500, batch_size=64, learning_rate=2e-3,
        warmup=50, ema=0.99, log_every=25, checkpoint_every=500, **COMMON,
    )  # fmt: skip


def stdlib() -> TrainConfig:
    """Python's standard library as text, masked, with a transformer: half an hour on one GPU."""
    return sequence_config("gpu").replace(dataset="stdlib")


def stdlib_tiny() -> TrainConfig:
    """The same with a small transformer: minutes on a CPU."""
    return sequence_config("cpu").replace(dataset="stdlib")


RECIPES = Registry("recipe")
for _function in (
    cifar10_paper, cifar10_paper_finite, mnist_binary_paper, celeba64_paper, cifar10, cifar10_likelihood, mnist_binary,
    cifar10_distribution, cifar10_birth_death, cifar10_absorbing, cifar10_uniform, cifar10_gaussian, cifar10_halving,
    bentheimer, digits, stdlib, stdlib_tiny,
):  # fmt: skip
    RECIPES.add(_function.__name__.replace("_", "-"), _function, (_function.__doc__ or "").splitlines()[0].rstrip("."))


def recipe(name: str) -> TrainConfig:
    """The configuration of a recipe, by name."""
    config: TrainConfig = RECIPES[name]()
    return config.replace(recipe=name, description=RECIPES.help(name))


def read_config(path: Path) -> TrainConfig:
    """The configuration in a JSON file; a partial one starts from the recipe that it names."""
    return TrainConfig.read(path, recipe)


def build_model(config: TrainConfig, dataset: "Dataset") -> "DiffusionModel":
    """The model of a configuration for a data set, with weights drawn from the seed."""
    from blackout.data import read_process
    from blackout.model import DiffusionModel
    from blackout.process import PROCESSES
    from blackout.times import ObservationTimes

    largest, max_count, network = int(dataset.x.max()), config.data.max_count, config.network
    if dataset.is_sequence:
        max_count = dataset.max_state
    if max_count and largest > max_count:
        raise ValueError(f"max_count must be at least {largest}, the largest count in the data, got {max_count}")
    if network.class_conditional and not dataset.num_classes:
        raise ValueError(f"class_conditional needs labels, but {dataset.name} has none")
    if config.process.is_file:
        process = read_process(config.process.process)
    else:
        levels = dataset.pad_state or (max_count + 1 if max_count else None)
        process = PROCESSES[config.process.process].for_levels(levels)
    process = process if dataset.pad_state is None else process.with_padding()
    if process.pad_state != dataset.pad_state:
        needed = f"one state for each of the {dataset.pad_state} labels"
        raise ValueError(f"process must have {needed}, got {process.pad_state} in {config.process.process}")
    num_times, t_end = config.process.num_times, config.process.t_end or None
    model = DiffusionModel.for_data(
        dataset.x,
        process,
        ObservationTimes.for_process(process, num_times, t_end, dataset.x),
        head=network.head,
        preset=network.preset,
        num_classes=(dataset.num_classes or 0) if network.class_conditional else 0,
        seed=config.run.seed,
        time_input=network.time_input,
        kind=network.network,
        width=network.width,
        blocks=network.blocks,
        patch=network.patch,
        dropout=network.dropout if network.dropout >= 0 else None,
    )
    chosen = config.sampling
    model = model.with_sampling(
        sampler=chosen.sampler, num_steps=chosen.sampling_steps, dropout=chosen.sampling_dropout
    )
    names = dataset.class_names if model.num_classes else None
    facts = {"background": config.data.background, "alphabet": dataset.alphabet}
    model = model.with_record(class_names=names, **facts)
    model.sampler()  # raises for a sampler that does not fit the process or the head
    return model
