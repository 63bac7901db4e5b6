"""Settings for sequences of labels: how they are read, and how a model of them is trained. Importing needs no torch."""

from typing import Any

from blackout.training.config import TrainConfig

_COMMON: dict[str, Any] = {
    "process": "absorbing", "head": "auto", "network": "auto", "loss": "likelihood", "time_density": "logistic",
    "stratified": True, "time_loc": 0.0, "time_scale": 1.5, "beta2": 0.99, "lr_schedule": "cosine", "grad_clip": 1.0,
    "sampling_steps": 250,
}  # fmt: skip
_BY_DEVICE: dict[str, dict[str, Any]] = {
    "cpu": {
        "preset": "tiny", "steps": 3_000, "batch_size": 16, "length": 128, "learning_rate": 2e-3, "warmup": 100,
        "ema": 0.99, "log_every": 25, "checkpoint_every": 500,
    },
    "gpu": {
        "preset": "small", "steps": 30_000, "batch_size": 256, "length": 256, "learning_rate": 6e-4, "warmup": 1_000,
        "ema": 0.9995, "compile": True, "log_every": 100, "checkpoint_every": 5_000,
    },
}  # fmt: skip


def sequence_config(device: str = "cpu") -> TrainConfig:
    """Masked diffusion of sequences with a transformer: some minutes on a CPU, half an hour on one GPU.

    `device` is "cpu", or any other kind: a GPU.
    """
    return TrainConfig().replace(**_COMMON, **_BY_DEVICE["cpu" if device == "cpu" else "gpu"])
