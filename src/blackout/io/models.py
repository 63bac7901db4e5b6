"""Models from folders and from the package."""

import json
from pathlib import Path

from blackout import hub, validate
from blackout.atomic import write_atomic
from blackout.model import DiffusionModel
from blackout.training.checkpoints import load_weights
from blackout.training.saved import PRETRAINED, SavedModel, find_folder, pretrained

__all__ = ["CELLS", "load", "load_folder", "pretrained", "pretrained_folder", "write_description"]

CELLS = "cells.json"
"""A file beside model.json in the folder of a `CountModel`."""


def load(source: str | Path) -> DiffusionModel:
    """Load a model.

    Parameters
    ----------
    source
        A folder written by `DiffusionModel.save`, a run folder (its last checkpoint's averaged weights are loaded), the
        name of a pretrained model, or a model on the Hugging Face Hub: ``hf://user/name``.
    """
    folder = find_folder(hub.local(source))
    if (folder / CELLS).exists():
        raise ValueError(f"{source} holds a model of cells: use CountModel.load, which reads its genes and labels")
    return load_folder(folder)


def load_folder(folder: Path) -> DiffusionModel:
    """The diffusion model of a folder, also where it is part of a model of cells."""
    saved = SavedModel.open(folder)
    try:
        model = DiffusionModel.from_config(saved.config)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{folder / 'model.json'} does not describe a model: {type(error).__name__} {error}") from None
    load_weights(model.predictor, saved.weights(), folder)
    model.predictor.eval()
    return model


def write_description(model: DiffusionModel, folder: Path) -> Path:
    """Replace model.json of a folder that holds the weights of the model: for facts that were found later."""
    write_atomic(folder / "model.json", json.dumps(model.config(), indent=2) + "\n")
    return folder / "model.json"


def pretrained_folder(name: str) -> Path:
    """The folder of a pretrained model."""
    return PRETRAINED / validate.choice("name", name, pretrained())
