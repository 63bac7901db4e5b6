"""Settings chosen for data and device: what `blackout train DATA` does. Importing it needs no torch."""

from typing import Any

from blackout.training.config import TrainConfig

COMMON: dict[str, Any] = {
    "head": "bounded-logit",
    "loss": "likelihood",
    "time_density": "logistic",
    "stratified": True,
    "beta2": 0.99,
    "lr_schedule": "cosine",
    "grad_clip": 1.0,
}
"""What all models but the paper's are trained with."""

# By device and kind of data: size of the network, length and pace of the training.
_RULES: dict[tuple[str, str], dict[str, Any]] = {
    ("cpu", "images"): {
        "preset": "tiny", "width": 32, "blocks": 1, "steps": 6_000, "batch_size": 16, "learning_rate": 2e-3,
        "warmup": 50, "ema": 0.995, "log_every": 50, "checkpoint_every": 500, "sampling_steps": 100,
    },
    ("cpu", "vectors"): {
        "preset": "tiny", "steps": 3_000, "batch_size": 128, "learning_rate": 1e-3, "warmup": 100, "ema": 0.995,
        "log_every": 50, "checkpoint_every": 500,
    },
    ("gpu", "images"): {
        "preset": "small", "steps": 12_000, "batch_size": 256, "learning_rate": 6e-4, "warmup": 400, "ema": 0.999,
        "log_every": 50, "checkpoint_every": 2_000,
    },
    ("gpu", "vectors"): {
        "preset": "small", "steps": 20_000, "batch_size": 512, "learning_rate": 1e-3, "warmup": 400, "ema": 0.999,
        "log_every": 200, "checkpoint_every": 4_000,
    },
    ("cpu", "sequences"): {
        "preset": "tiny", "steps": 3_000, "batch_size": 16, "length": 128, "learning_rate": 2e-3, "warmup": 100,
        "ema": 0.99, "log_every": 25, "checkpoint_every": 500,
    },
    ("gpu", "sequences"): {
        "preset": "small", "steps": 30_000, "batch_size": 256, "length": 256, "learning_rate": 6e-4, "warmup": 1_000,
        "ema": 0.9995, "compile": True, "log_every": 100, "checkpoint_every": 5_000,
    },
}  # fmt: skip

IMAGES: dict[str, Any] = {"loss": "instantaneous", "time_loc": -1.8, "time_scale": 1.3}
"""Images of many levels look better, at more bits/dim, if training weighs the times that decide their shapes."""

_SEQUENCES: dict[str, Any] = {
    **COMMON, "head": "auto", "process": "absorbing", "time_loc": 0.0, "time_scale": 1.5, "sampling_steps": 250,
}  # fmt: skip

# From which shorter side of the images on their pixels enter in squares of such a side.
_PATCHES = {"cpu": {20: 2, 64: 4, 128: 8}, "gpu": {128: 2, 256: 4}}

_UNBOUNDED = 4096  # counts from here on have no upper bound in the model
_PASSES = 200  # over the data, at most
_FEWEST = 500  # steps, however few data there are


def automatic(
    shape: tuple[int, ...], number: int, largest: int, num_classes: int = 0, device: str = "cpu"
) -> TrainConfig:
    """The settings for data points of a shape.

    Parameters
    ----------
    shape, number
        (features,) or (channels, height, width), and how many there are.
    largest
        The largest state that the data may have.
    num_classes
        Classes of labels; 0: none. Labels of at least two classes are used.
    device
        "cpu", or any other kind: a GPU.
    """
    place, kind = "cpu" if device == "cpu" else "gpu", "images" if len(shape) == 3 else "vectors"
    rules = dict(_RULES[place, kind])
    rules["batch_size"] = batch = min(rules["batch_size"], number)
    rules["steps"] = min(rules["steps"], max(_FEWEST, _PASSES * number // batch))
    rules["max_count"] = largest if largest < _UNBOUNDED else 0
    rules["class_conditional"] = num_classes > 1
    rules["time_loc"] = 0.0 if largest == 1 else 1.0
    if kind == "images" and largest > 1:
        rules |= IMAGES
    if kind == "images":
        rules["patch"] = _patch(shape[1:], _PATCHES[place])
    return TrainConfig().replace(**{**COMMON, "head": "auto", **rules})


def sequence_config(device: str = "cpu") -> TrainConfig:
    """Masked diffusion of sequences with a transformer: some minutes on a CPU, half an hour on one GPU.

    `device` is "cpu", or any other kind: a GPU.
    """
    return TrainConfig().replace(**_SEQUENCES, **_RULES["cpu" if device == "cpu" else "gpu", "sequences"])


def _patch(sides: tuple[int, ...], table: dict[int, int]) -> int:
    """The largest side of squares that the table allows, and that divides both sides of the images."""
    return max(p for least, p in {0: 1, **table}.items() if min(sides) >= least and not any(s % p for s in sides))
