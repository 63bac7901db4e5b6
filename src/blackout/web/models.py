"""Catalogue: the models that the page offers. A visitor chooses by name; no path ever comes from a browser."""

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from blackout.io import SAMPLERS, check_sampler
from blackout.io.models import load, pretrained
from blackout.model import DiffusionModel
from blackout.process import Absorbing
from blackout.web import limits

_KEPT = 4  # models in memory


class Catalogue:
    """Models by name: those that ship, and folders by the path they were given with. Read when first asked for."""

    def __init__(
        self, folders: Sequence[str] = (), runs: Path | None = None, device: str | torch.device = "cpu"
    ) -> None:
        for folder in folders:
            if folder not in pretrained():
                _check_pictures(folder)
        below = [] if runs is None or not runs.is_dir() else sorted(path for path in runs.iterdir() if path.is_dir())
        found = [str(path) for path in below if _is_of_pictures(path)]
        self.names = list(dict.fromkeys([*folders, *pretrained(), *found]))
        self.device = torch.device(device)
        self._open: OrderedDict[str, tuple[int, DiffusionModel]] = OrderedDict()
        self._lock = threading.Lock()

    def open(self, name: Any) -> DiffusionModel:
        """A model of the list; read again where its folder has newer weights, as that of a run in progress has."""
        if not isinstance(name, str) or name not in self.names:
            raise ValueError(f"model must be one of {', '.join(self.names)}, got {name!r}")
        with self._lock:
            stamp = _newest_weights(name)
            if name not in self._open or self._open[name][0] != stamp:
                self._open[name] = (stamp, load(name).to(self.device))
            self._open.move_to_end(name)
            while len(self._open) > _KEPT:
                self._open.popitem(last=False)
            return self._open[name][1]

    def describe(self, name: Any) -> dict[str, Any]:
        """What the page has to know of a model to offer choices that it allows."""
        model = self.open(name)
        process = model.process
        return {
            "name": name,
            "shape": list(model.shape or ()),
            "largest": model.max_state,
            "bytes": 1 if process.num_states is not None and process.num_states <= 256 else 4,
            "mask_state": process.mask_state if isinstance(process, Absorbing) else None,
            "classes": model.num_classes,
            "weights": sum(p.numel() for p in model.predictor.parameters()),
            "process": type(process).__name__,
            "samplers": {sampler: _reason_against(model, sampler) for sampler in SAMPLERS},
            "max_images": limits.images(model),
            "max_steps": min(limits.STEPS, len(model.times)),
        }


def _reason_against(model: DiffusionModel, sampler: str) -> str | None:
    try:
        check_sampler(model, sampler)
    except ValueError as error:
        return str(error)
    return None


def _newest_weights(name: str) -> int:
    if name in pretrained():
        return 0
    try:
        return max((path.stat().st_mtime_ns for path in Path(name).rglob("*.safetensors")), default=0)
    except FileNotFoundError:  # a run in progress has just removed an older checkpoint
        return 0


def _check_pictures(folder: str) -> None:
    description = Path(folder) / "model.json"
    try:
        folder.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{folder!r} is no name in UTF-8: a browser could not ask for it") from None
    try:
        values = json.loads(description.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder} is neither a folder with a model nor one that ships: {error}") from None
    shape = values.get("shape") if isinstance(values, dict) else None
    if not isinstance(shape, list) or len(shape) != 3 or shape[0] not in (1, 3):
        raise ValueError(f"{folder}: the page shows pictures, grey or in colour, but samples have shape {shape}")


def _is_of_pictures(folder: Path) -> bool:
    try:
        _check_pictures(str(folder))
    except ValueError:
        return False
    return True
