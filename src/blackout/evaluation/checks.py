"""What cannot be measured is refused before the work, not after hours of it."""

import json
from pathlib import Path
from typing import Protocol

from blackout.data import Dataset
from blackout.evaluation.config import Plan
from blackout.evaluation.distances import MINIMUM
from blackout.io import check_sampler
from blackout.io.samples import check_steps
from blackout.model import DiffusionModel


class Walk(Protocol):
    """How samples are drawn: the part of a plan that a model may not be able to follow."""

    @property
    def sampler(self) -> str: ...
    @property
    def steps(self) -> int: ...
    @property
    def correctors(self) -> int: ...


def check(model: DiffusionModel, plan: Plan, test: Dataset, train: Dataset | None) -> None:
    """Refuse a plan, or data, that the model cannot be measured with."""
    for name, data in (("test", test), ("train", train)):
        if data is not None:
            check_data(model, data, name)
    check_walk(model, plan)
    plan.walked(model)
    against = len(train or test)
    if plan.samples and is_pictures(model) and against < MINIMUM:
        raise ValueError(
            f"the scores need at least {MINIMUM} pictures to compare with, got {against}: give more, or samples=0"
        )
    if plan.structure and not (plan.samples and is_pictures(model) and (model.shape or ())[0] == 1):
        raise ValueError(f"structure is for samples that are label images of one channel, got shape {model.shape}")


def check_walk(model: DiffusionModel, walk: Walk) -> None:
    """Refuse a sampler that is not for the model, and more steps than it has times."""
    check_sampler(model, walk.sampler, walk.correctors)
    check_steps(model, walk.steps)


def check_data(model: DiffusionModel, data: Dataset, name: str) -> None:
    """Refuse data that the model was not made for."""
    if model.shape is not None and tuple(data.x.shape[1:]) != model.shape:
        raise ValueError(
            f"the {name} data must have shape {model.shape}, as the model's, got {tuple(data.x.shape[1:])}"
        )
    largest = model.max_state
    if largest is not None and int(data.x.max()) > largest:
        raise ValueError(
            f"the {name} data must not exceed {largest}, the model's largest count, got {int(data.x.max())}"
        )


def is_pictures(model: DiffusionModel) -> bool:
    return model.shape is not None and len(model.shape) == 3 and model.shape[0] in (1, 3)


def check_folder(out: Path, model: str, data: str) -> None:
    """Refuse a folder with the report of another model, or on other data; both are known by their checksums."""
    try:
        there = json.loads((out / "report.json").read_text())
        found = there["model"]["checksum"], there["data"]["checksum"]
        about = f"{there['model']['source']} on {there['data']['name']}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return  # no report, or one that nobody can read
    if found != (model, data):
        what = "another model" if found[0] != model else "other data"
        raise ValueError(f"{out} holds the report of {what} ({about}): choose another --out, or remove it")
