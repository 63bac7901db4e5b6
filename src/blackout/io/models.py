"""Models from folders and from the package."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from blackout import hub, validate
from blackout.model import DiffusionModel
from blackout.training.saved import DESCRIPTION, PRETRAINED, SavedModel, find_folder, pretrained, replace_description
from blackout.training.weights import check_shapes, load_weights

__all__ = ["CELLS", "load", "load_folder", "pretrained", "pretrained_folder", "write_description"]

CELLS = "cells.json"
"""A file in the run folder of a `CountModel`. A saved one has the same in the field `cells` of its model.json."""

# What constructors raise for values from a file.
_INVALID = (ArithmeticError, AttributeError, KeyError, MemoryError, RuntimeError, TypeError, ValueError)


def load(source: str | Path, device: Any = None) -> DiffusionModel:
    """Load a model.

    Parameters
    ----------
    source
        A folder written by `DiffusionModel.save`, a run folder (the averaged weights of its last good checkpoint are
        loaded), the name of a pretrained model, or a model on the Hugging Face Hub: ``hf://user/name``.
    device
        Where to; default: the CPU.

    Raises
    ------
    ValueError
        With the name of the file, if one is missing, damaged, or does not fit the others.
    """
    folder = find_folder(hub.local(source))
    model, config = (None, {"cells"}) if (folder / CELLS).exists() else load_folder(folder)
    if model is None or "cells" in config:
        raise ValueError(f"{source} holds a model of cells: use CountModel.load, or `blackout cells` in a shell")
    return model if device is None else model.to(device)


def load_folder(folder: Path) -> tuple[DiffusionModel, dict[str, Any]]:
    """The diffusion model of a folder, also where it is part of a model of cells, and the content of model.json.

    Whatever sizes model.json asks for, memory is taken for a network only if its weights are there.
    """
    saved, weights = SavedModel.read(folder, partial(_build, folder))
    outline = _build(folder, saved.config)
    check_shapes(outline.predictor, weights, folder)
    if outline.shape is not None:
        with _described(folder):
            outline.predictor.check_shape(outline.shape)
    model = _build(folder, saved.config, outline=False)
    load_weights(model.predictor, weights, folder)
    model.predictor.eval()
    return model, saved.config


def _build(folder: Path, config: dict[str, Any], *, outline: bool = True) -> DiffusionModel:
    with _described(folder):
        return DiffusionModel.from_config(config, outline=outline)


@contextmanager
def _described(folder: Path) -> Iterator[None]:
    """Errors name the description."""
    try:
        yield
    except _INVALID as error:
        reason = f"{type(error).__name__} {validate.one_line(error)}"
        raise ValueError(f"{folder / DESCRIPTION} does not describe a model: {reason}") from None


def write_description(model: DiffusionModel, folder: Path) -> Path:
    """Replace model.json of a folder that holds the weights of the model: for facts that were found later."""
    return replace_description(folder, model.config())


def pretrained_folder(name: str) -> Path:
    """The folder of a pretrained model."""
    return PRETRAINED / validate.choice("name", name, pretrained())
