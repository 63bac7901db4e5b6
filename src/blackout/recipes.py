"""Recipes: functions that return a whole configuration, one for each experiment."""

import dataclasses
from collections.abc import Callable
from typing import Any

from blackout.training.config import TrainConfig

_PAPER: dict[str, Any] = {
    "head": "softplus",
    "conditioning": "index",
    "batch_size": 256,
    "learning_rate": 2e-4,
    "ema": 0.9999,
    "compile": True,
    "compile_mode": "reduce-overhead",
}

_OURS: dict[str, Any] = {
    "head": "bounded-logit",
    "loss": "likelihood",
    "time_law": "logistic",
    "stratified": True,
    "beta2": 0.99,
    "decay": "cosine",
    "clip": 1.0,
}


def cifar10_paper() -> TrainConfig:
    """The paper's CIFAR-10: NCSN++, 62.7 M weights, 300k steps."""
    return TrainConfig(dataset="cifar10", loss="instantaneous", steps=300_000, flip=True, **_PAPER)


def cifar10_paper_finite() -> TrainConfig:
    """The paper's CIFAR-10 with the finite-time loss."""
    return TrainConfig(dataset="cifar10", loss="finite_time", steps=300_000, flip=True, **_PAPER)


def mnist_binary_paper() -> TrainConfig:
    """The paper's binarised MNIST, 32x32, 250k steps, t_T = 10."""
    return TrainConfig(
        dataset="mnist-binary", image_size=32, max_count=1, loss="instantaneous", steps=250_000, t_end=10.0, **_PAPER
    )


def celeba64_paper() -> TrainConfig:
    """The paper's CelebA, 64x64, batches of 100."""
    return TrainConfig(
        dataset="celeba64", loss="instantaneous", steps=1_300_000, flip=True, **{**_PAPER, "batch_size": 100}
    )


def cifar10() -> TrainConfig:
    """CIFAR-10, 15.6 M weights, 12.4 minutes on one H200: the weights that ship."""
    return TrainConfig(
        dataset="cifar10",
        preset="small",
        steps=12_000,
        batch_size=512,
        learning_rate=6e-4,
        warmup=400,
        ema=0.999,
        flip=True,
        compile=True,
        compile_mode="reduce-overhead",
        checkpoint_every=4000,
        **_OURS,
    )


def _cifar10_law(process: str) -> TrainConfig:
    """One network and one budget for every process: a law over the 256 grey levels of each pixel."""
    return TrainConfig(
        dataset="cifar10",
        preset="small",
        process=process,
        steps=6_000,
        batch_size=128,
        learning_rate=6e-4,
        warmup=100,
        ema=0.999,
        flip=True,
        compile=True,
        compile_mode="reduce-overhead",
        time_loc=0.0,
        checkpoint_every=2000,
        **{**_OURS, "head": "levels"},
    )


def cifar10_law() -> TrainConfig:
    """CIFAR-10 under pure death, with a law over X_0: few-step sampling."""
    return dataclasses.replace(_cifar10_law("pure-death"), time_loc=1.0)


def cifar10_birth_death() -> TrainConfig:
    """CIFAR-10 under death and immigration: the paper's R = 2."""
    return _cifar10_law("birth-death")


def cifar10_absorbing() -> TrainConfig:
    """CIFAR-10 under masking (masked diffusion)."""
    return _cifar10_law("absorbing")


def cifar10_uniform() -> TrainConfig:
    """CIFAR-10 under uniform redrawing (multinomial diffusion)."""
    return _cifar10_law("uniform")


def cifar10_gaussian() -> TrainConfig:
    """CIFAR-10 under jumps of Gaussian length (D3PM, τLDR)."""
    return _cifar10_law("gaussian")


def cifar10_halving() -> TrainConfig:
    """CIFAR-10 losing a binary digit at a time: coarse to fine."""
    return _cifar10_law("halving")


def mnist_binary() -> TrainConfig:
    """Binarised MNIST, 28x28: the weights that ship."""
    return TrainConfig(
        dataset="mnist-binary",
        max_count=1,
        preset="tiny",
        width=48,
        steps=1_626,
        batch_size=512,
        learning_rate=1e-3,
        warmup=200,
        ema=0.999,
        t_end=15.0,
        time_loc=0.0,
        compile=True,
        compile_mode="reduce-overhead",
        checkpoint_every=4000,
        **_OURS,
    )


def bentheimer() -> TrainConfig:
    """Slices of Bentheimer sandstone, 64x64: rock or pore, masked."""
    return TrainConfig(
        dataset="bentheimer",
        max_count=1,
        preset="tiny",
        process="absorbing",
        width=64,
        steps=3_000,
        batch_size=128,
        learning_rate=1e-3,
        warmup=200,
        ema=0.999,
        flip=True,
        compile=True,
        compile_mode="reduce-overhead",
        time_loc=0.0,
        checkpoint_every=1000,
        **{**_OURS, "head": "categorical"},
    )


def counts() -> TrainConfig:
    """Counts of genes in cells, without a largest one: minutes on two CPU cores."""
    return TrainConfig(
        dataset="counts",
        max_count=0,
        width=512,
        blocks=4,
        dropout=0.15,
        steps=4_000,
        batch_size=128,
        learning_rate=1e-3,
        warmup=100,
        ema=0.998,
        time_loc=0.0,
        log_every=50,
        checkpoint_every=1000,
        **{**_OURS, "head": "gamma-poisson"},
    )


def digits() -> TrainConfig:
    """Seven-segment digits, 8x8: minutes on two CPU cores."""
    return TrainConfig(
        dataset="digits",
        max_count=16,
        preset="tiny",
        width=24,
        steps=1_500,
        batch_size=64,
        learning_rate=2e-3,
        warmup=50,
        ema=0.99,
        log_every=25,
        checkpoint_every=500,
        **_OURS,
    )


RECIPES: dict[str, Callable[[], TrainConfig]] = {
    "cifar10-paper": cifar10_paper,
    "cifar10-paper-finite": cifar10_paper_finite,
    "mnist-binary-paper": mnist_binary_paper,
    "celeba64-paper": celeba64_paper,
    "cifar10": cifar10,
    "mnist-binary": mnist_binary,
    "cifar10-law": cifar10_law,
    "cifar10-birth-death": cifar10_birth_death,
    "cifar10-absorbing": cifar10_absorbing,
    "cifar10-uniform": cifar10_uniform,
    "cifar10-gaussian": cifar10_gaussian,
    "cifar10-halving": cifar10_halving,
    "bentheimer": bentheimer,
    "counts": counts,
    "digits": digits,
}


def recipe(name: str) -> TrainConfig:
    """The configuration of a recipe, by name."""
    if name not in RECIPES:
        raise ValueError(f"no recipe is called {name!r}; there are: {', '.join(RECIPES)}")
    function = RECIPES[name]
    description = (function.__doc__ or "").splitlines()[0].rstrip(".")
    return dataclasses.replace(function(), recipe=name, description=description)
