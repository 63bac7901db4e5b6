"""Where models come from: a configuration, a folder, or the package itself."""

import json
from pathlib import Path
from typing import Any

import torch

from blackout import validate
from blackout.data import Dataset
from blackout.model import FORMAT, NETWORKS, DiffusionModel
from blackout.network import HEADS, LAW_HEADS, Head, StateHead
from blackout.process import PureDeath
from blackout.process.description import process_from
from blackout.times import ObservationTimes
from blackout.training.config import TrainConfig

CELLS = "counts.json"
"""Beside model.json in the folder of a `CountModel`, which alone can load it."""

_PRETRAINED = Path(__file__).parents[1] / "pretrained"


def from_config(config: TrainConfig, dataset: Dataset) -> DiffusionModel:
    """The model of a configuration for a data set, newly drawn from the seed."""
    from blackout.training.build import (
        build_law_predictor,
        build_predictor,
        build_process,
        build_times,
        data_statistics,
    )

    largest, classes = int(dataset.x.max()), dataset.num_classes or 0
    if config.max_count and largest > config.max_count:
        raise ValueError(f"max_count must be at least {largest}, the largest count in the data, got {config.max_count}")
    if config.class_conditional and not classes:
        raise ValueError(f"class_conditional needs labels, but {dataset.name} has none")
    shape, process = dataset.x.shape[1:], build_process(config)
    times = build_times(config, process)
    validate.choice("head", config.head, (*HEADS, *LAW_HEADS))
    if config.head in LAW_HEADS:
        law = build_law_predictor(config, dataset.x, process, classes)
        return DiffusionModel(process, times, law.network, law.head, shape=tuple(shape))
    if not isinstance(process, PureDeath):
        laws = ", ".join(LAW_HEADS)
        raise ValueError(f"process={config.process!r} needs a law over X_0: head must be one of {laws}")
    predictor = build_predictor(config, shape, data_statistics(dataset.x), classes)
    return DiffusionModel(process, times, predictor.network, predictor.head, config.conditioning, tuple(shape))


def from_description(values: dict[str, Any], source: Path) -> DiffusionModel:
    """A model of that description, its weights still to be loaded."""
    try:
        if values["format"] != FORMAT:
            raise ValueError(f"format {values['format']}, where this version reads {FORMAT}")
        network = dict(values["network"])
        build, config = NETWORKS[network.pop("kind")]
        lists = {k: tuple(v) if isinstance(v, list) else v for k, v in network.items()}
        return DiffusionModel(
            process_from(values["process"]),
            ObservationTimes.from_values(values["times"]),
            build(config(**lists)),
            _head(dict(values["head"])),
            values["conditioning"],
            values["shape"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{source} does not describe a model: {type(error).__name__} {error}") from None


def _head(about: dict[str, Any]) -> Head | StateHead:
    """A head of that description, its statistics still to be loaded."""
    kind = about.pop("kind")
    if kind in LAW_HEADS:
        return LAW_HEADS[kind](torch.ones(about.pop("prior")), **about)
    statistics = torch.zeros(about["statistics"])
    return HEADS[kind](statistics, statistics, about["max_count"])


def load(source: str | Path) -> DiffusionModel:
    """Load a model.

    Parameters
    ----------
    source
        A folder written by `DiffusionModel.save`, a run folder (the averaged weights of its last checkpoint are
        loaded), or the name of a pretrained model.
    """
    folder = _find(source)
    if (folder / CELLS).exists():
        raise ValueError(f"{source} holds a CountModel: load it with CountModel.load")
    return load_folder(folder)


def load_folder(folder: Path) -> DiffusionModel:
    """The diffusion model in a folder, also of a `CountModel`."""
    from blackout.training.state import RunFolder, load_weights, read_tensors
    from blackout.training.weights import restore_weights

    description = folder / "model.json"
    try:
        values = json.loads(description.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{description} cannot be read: {error}") from None
    model = from_description(values, description)
    shards = sorted(folder.glob("model-*.safetensors"))
    if not shards:
        checkpoints = RunFolder(folder).checkpoints()
        if not checkpoints:
            raise ValueError(f"{folder} has no weights: neither model-*.safetensors nor a finished checkpoint")
        shards = [checkpoints[-1] / "averaged.safetensors"]
    load_weights(model.predictor, restore_weights(read_tensors(shard) for shard in shards), shards[0])
    model.predictor.eval()
    return model


def pretrained() -> list[str]:
    """Names of the pretrained models that are part of the package."""
    return sorted(path.parent.name for path in _PRETRAINED.glob("*/model.json"))


def pretrained_folder(name: str) -> Path:
    """Folder of a pretrained model."""
    validate.choice("name", name, tuple(pretrained()))
    return _PRETRAINED / name


def _find(source: str | Path) -> Path:
    if str(source) in pretrained():
        return pretrained_folder(str(source))
    folder = Path(source)
    if not folder.is_dir():
        names = ", ".join(pretrained()) or "none"
        raise ValueError(f"{source} is neither a folder nor a pretrained model (those are: {names})")
    return folder
