"""Checks that reject an evaluation before hours of work."""

import warnings
from pathlib import Path

from blackout.data import Dataset
from blackout.evaluation.config import MINIMUM, EvalConfig
from blackout.files import DamagedFileError, read_json
from blackout.io.samples import check_steps
from blackout.model import DiffusionModel


def check(model: DiffusionModel, config: EvalConfig, test: Dataset, train: Dataset | None) -> None:
    """Raise ValueError if the model cannot be evaluated with this configuration and data."""
    for name, data in (("test", test), ("train", train)):
        if data is not None:
            check_data(model, data, name)
    check_sampling(model, config.sampler, steps_of(model, config.num_steps), config.corrector_steps, config.times)
    model.bound_kind(config.bound)
    num_samples, num_reference = config.samples_on(model.device.type), len(train or test)
    if num_samples and is_image_model(model) and num_reference < MINIMUM:
        raise ValueError(
            f"num_samples must be 0 without at least {MINIMUM} data points to compare with, got {num_reference}"
        )
    if config.references and (train is None or not model.predictor.head.labels):
        raise ValueError("references needs a model of sequences, and training data")
    if config.structure and not (is_image_model(model) and (model.shape or ())[0] == 1):
        raise ValueError(f"structure needs a model of images of one channel, (1, height, width), got {model.shape}")
    if config.structure and not num_samples:
        raise ValueError("structure needs samples, got num_samples=0")


def check_sampling(model: DiffusionModel, sampler: str, num_steps: int, corrector_steps: int, times: str) -> None:
    """Raise ValueError if the model cannot be sampled like this."""
    model.sampler(sampler, corrector_steps)
    check_steps(model, num_steps, "num_steps")
    model.sampling_times(num_steps, times or None)


def check_data(model: DiffusionModel, data: Dataset, name: str) -> None:
    """Raise ValueError if data does not have the model's shape and range."""
    if model.shape is not None and tuple(data.x.shape[1:]) != model.shape:
        raise ValueError(
            f"the {name} data must have shape {model.shape}, like the model's, got {tuple(data.x.shape[1:])}"
        )
    if model.max_state is not None and int(data.x.max()) > model.max_state:
        raise ValueError(
            f"the {name} data must not exceed {model.max_state}, the model's largest state, got {int(data.x.max())}"
        )


def check_folder(out: Path, model: str, data: str) -> None:
    """Raise ValueError if a folder holds the report of another model or of other data, given their checksums.

    A warning names a damaged report, which is replaced.
    """
    if not (out / "report.json").exists():
        return
    try:
        stored = read_json(out / "report.json")
        found = stored["model"]["checksum"], stored["data"]["checksum"]
        source = f"{stored['model']['source']} on {stored['data']['name']}"
    except (DamagedFileError, KeyError, TypeError) as error:
        warnings.warn(f"{error}; it is written again", stacklevel=2)
        return
    if found != (model, data):
        what = "another model" if found[0] != model else "other data"
        raise ValueError(f"out must not hold the report of {what} ({source}), got {out}: choose another, or remove it")


def is_image_model(model: DiffusionModel) -> bool:
    return model.shape is not None and len(model.shape) == 3 and model.shape[0] in (1, 3)


def steps_of(model: DiffusionModel, num_steps: int | None) -> int:
    """Return `num_steps`, or else the model's default, at most as many as it has times."""
    return min(model.record.sampling.num_steps, len(model.times)) if num_steps is None else num_steps
