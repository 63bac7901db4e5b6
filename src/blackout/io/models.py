"""Models from folders and from the package."""

import json
from pathlib import Path

from blackout import validate
from blackout.atomic import write_atomic
from blackout.model import DiffusionModel

CELLS = "cells.json"
"""A file beside model.json in the folder of a `CountModel`."""

_PRETRAINED = Path(__file__).parents[1] / "pretrained"


def load(source: str | Path) -> DiffusionModel:
    """Load a model.

    Parameters
    ----------
    source
        A folder written by `DiffusionModel.save`, a run folder (its last checkpoint's averaged weights are loaded), or
        the name of a pretrained model.
    """
    folder = _find(source)
    if (folder / CELLS).exists():
        raise ValueError(f"{source} holds a model of cells: use CountModel.load, which reads its genes and labels")
    return load_folder(folder)


def load_folder(folder: Path) -> DiffusionModel:
    """The diffusion model of a folder, also where it is part of a model of cells."""
    from blackout.training.checkpoints import RunFolder, load_weights, read_tensors, restore_weights

    description = folder / "model.json"
    try:
        config = json.loads(description.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{description} cannot be read: {error}") from None
    if isinstance(config, dict) and "clock" in config:
        raise ValueError(f"{description} describes a model of a reaction network: use ReactionModel.load")
    try:
        model = DiffusionModel.from_config(config)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{description} does not describe a model: {type(error).__name__} {error}") from None
    shards = sorted(folder.glob("model-*.safetensors"))
    if not shards:
        checkpoints = RunFolder(folder).checkpoints()
        if not checkpoints:
            raise ValueError(f"{folder} has no weights: neither model-*.safetensors nor a finished checkpoint")
        shards = [checkpoints[-1] / "averaged.safetensors"]
    load_weights(model.predictor, restore_weights(read_tensors(shard) for shard in shards), shards[0])
    model.predictor.eval()
    return model


def write_description(model: DiffusionModel, folder: Path) -> Path:
    """Replace model.json of a folder that holds the weights of the model: for facts that were found later."""
    write_atomic(folder / "model.json", json.dumps(model.config(), indent=2) + "\n")
    return folder / "model.json"


def pretrained() -> list[str]:
    """Names of the pretrained models in the package."""
    return sorted(path.parent.name for path in _PRETRAINED.glob("*/model.json"))


def pretrained_folder(name: str) -> Path:
    """The folder of a pretrained model."""
    return _PRETRAINED / validate.choice("name", name, pretrained())


def _find(source: str | Path) -> Path:
    if str(source) in pretrained():
        return _PRETRAINED / str(source)
    folder = Path(source)
    if not folder.is_dir():
        names = ", ".join(pretrained()) or "none"
        raise ValueError(f"{source} is neither a folder nor a pretrained model (those are: {names})")
    return folder
