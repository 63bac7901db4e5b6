"""Catalogue: the models that the page offers, by name; a browser never sends a path."""

import contextlib
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from blackout.io import load, pretrained
from blackout.model import DiffusionModel
from blackout.process import PROCESSES
from blackout.sampling import SAMPLERS
from blackout.training.saved import find_folder
from blackout.web import limits

_CACHED = 4  # models in memory
_STEPS = 100  # with which the page opens a model
_FITTED_STEPS = 16  # and one with fitted times: docs/samplers.md#fitted-times


class Catalogue:
    """Pretrained models and model folders by name, loaded on first use.

    Parameters
    ----------
    folders
        Model folders or pretrained names, listed first; ValueError if one holds no image model.
    runs
        A folder whose subfolders with image models are listed too; it need not exist.
    device
        Where models are loaded to. The page opens with the first model: on a CPU, pretrained ones with fitted times,
        which need few steps, are the first, then those with fast networks.
    """

    def __init__(
        self, folders: Sequence[str] = (), runs: Path | None = None, device: str | torch.device = "cpu"
    ) -> None:
        for folder in folders:
            if folder not in pretrained():
                _check_image_model(folder)
                if not _has_weights(folder):
                    raise ValueError(f"{folder} has no weights yet: a training run has them after its first checkpoint")
        subfolders = sorted(path for path in runs.iterdir() if path.is_dir()) if runs and runs.is_dir() else []
        found = [str(path) for path in subfolders if _is_image_model(path)]
        self.device = torch.device(device)
        offered = sorted(pretrained(), key=_cost) if self.device.type == "cpu" else pretrained()
        self._names = list(dict.fromkeys([*folders, *offered, *found]))
        self._models: OrderedDict[str, tuple[int, DiffusionModel]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def names(self) -> list[str]:
        """Models that can be opened now: a training run has weights after its first checkpoint."""
        return [name for name in self._names if _has_weights(name)]

    def open(self, name: Any) -> DiffusionModel:
        """The model of that name, reloaded if its folder has newer weights, as that of a training run has."""
        if not isinstance(name, str) or name not in self.names:
            raise ValueError(f"model must be one of {', '.join(self.names)}, got {name!r}")
        with self._lock:
            stamp = _newest_weights(name)
            if name not in self._models or self._models[name][0] != stamp:
                self._models[name] = (stamp, load(name).to(self.device))
            self._models.move_to_end(name)
            while len(self._models) > _CACHED:
                self._models.popitem(last=False)
            return self._models[name][1]

    def describe(self, name: Any) -> dict[str, Any]:
        """What the page needs to offer the choices that a model allows; of a sampler, None or why it cannot be used."""
        model = self.open(name)
        process, steps = model.process, min(_STEPS if model.record.fitted is None else _FITTED_STEPS, len(model.times))
        return {
            "name": name,
            "shape": list(model.shape or ()),
            "max_state": model.max_state,
            "mask_state": process.mask_state,
            "bytes": 1 if process.num_states is not None and process.num_states <= 256 else 4,
            "classes": model.class_names or [str(k) for k in range(model.num_classes)],
            "parameters": sum(p.numel() for p in model.predictor.parameters()),
            "process": PROCESSES.find(process) or type(process).__name__,
            "samplers": {sampler: _objection(model, sampler) for sampler in SAMPLERS},
            "default_sampler": model.default_sampler(steps),
            "default_steps": steps,
            "max_images": limits.max_images(model),
            "max_steps": min(limits.STEPS, len(model.times)),
        }


def _objection(model: DiffusionModel, sampler: str) -> str | None:
    try:
        model.sampler(sampler)
    except ValueError as error:
        return str(error)
    return None


def _weights(name: str) -> list[os.stat_result]:
    """The weight files of a model, of a run those of its checkpoints."""
    found = []
    for path in find_folder(name).rglob("*.safetensors"):
        with contextlib.suppress(FileNotFoundError):  # a training run has just removed an older checkpoint
            found.append(path.stat())
    return found


def _has_weights(name: str) -> bool:
    try:
        return bool(_weights(name))
    except ValueError:  # the folder was removed
        return False


def _newest_weights(name: str) -> int:
    return 0 if name in pretrained() else max((file.st_mtime_ns for file in _weights(name)), default=0)


def _cost(name: str) -> tuple[bool, int]:
    """Whether a model needs many steps, and the size of its weights times the number of pixels, as a pass costs."""
    config = json.loads((find_folder(name) / "model.json").read_text())
    _, height, width = config["shape"]
    return "fitted" not in config, sum(file.st_size for file in _weights(name)) * int(height) * int(width)


def _check_image_model(folder: str) -> None:
    try:
        folder.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{folder!r} is not valid UTF-8: a browser could not request it") from None
    try:
        values = json.loads((find_folder(folder) / "model.json").read_text())
    except OSError as error:
        raise ValueError(f"{folder} holds no model: model.json cannot be read, {error.strerror}") from None
    except (RecursionError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{folder}/model.json is damaged: {error}") from None
    shape = values.get("shape") if isinstance(values, dict) else None
    if not isinstance(shape, list) or len(shape) != 3 or shape[0] not in (1, 3):
        raise ValueError(f"{folder}: the page needs an image model, shape (1 or 3, height, width), got {shape}")


def _is_image_model(folder: Path) -> bool:
    try:
        _check_image_model(str(folder))
    except ValueError:
        return False
    return True
