"""Saved models: the description and the weights in a folder, a run folder, or the package.

    FOLDER/model.json                   the description; the names of the weights' files, and their SHA-256
    FOLDER/model-00001-of-00002-….safetensors    weights; the name has the first digits of the SHA-256

A model is saved over an older one in three steps: the new weights are written, under names that no other content has;
model.json is replaced; the old weights are removed. At each moment the folder holds the old model or the new one.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from torch import Tensor

from blackout import validate
from blackout.atomic import flush
from blackout.files import DamagedFileError, read_json, write_json
from blackout.training.checkpoints import RunFolder
from blackout.training.weights import (
    PARTIAL,
    check_tensors,
    convert_weights,
    is_leftover,
    read_parts,
    restore_weights,
    write_parts,
)

DESCRIPTION = "model.json"
PRETRAINED = Path(__file__).parents[1] / "pretrained"
_PART_MIB = 16
_TRIES = 100  # to read a folder that is being saved to
_KEPT = ("weights", "cells")  # fields of a description that are not of the model's own


@dataclass(frozen=True)
class SavedModel:
    """The content of model.json, and where the weights are."""

    folder: Path
    config: dict[str, Any]

    @staticmethod
    def open(folder: Path, check: Callable[[dict[str, Any]], object] | None = None) -> "SavedModel":
        """Read the description in a folder; `check` is called with it, see `read_json`."""
        path = folder / DESCRIPTION

        def check_kind(config: dict[str, Any]) -> None:
            if "clock" in config:
                raise ValueError(f"{path} describes a model of a reaction network: use ReactionModel.load")
            if check is not None:
                check(config)

        if not path.exists():
            raise ValueError(f"{folder} holds no model: {path} is missing")
        return SavedModel(folder, read_json(path, check_kind))

    @staticmethod
    def read(
        folder: Path, check: Callable[[dict[str, Any]], object] | None = None
    ) -> "tuple[SavedModel, dict[str, Tensor]]":
        """The description and the weights, which belong together even if another process saves to the folder."""
        for _ in range(_TRIES):
            saved = SavedModel.open(folder, check)
            try:
                return saved, saved.weights()
            except DamagedFileError:
                if SavedModel.open(folder) == saved:
                    raise
        raise ValueError(f"{folder} changes all the time: another process saves to it")

    def weights(self) -> dict[str, Tensor]:
        """The weights in float32; of a run, the averaged weights of its last good checkpoint, or the best so far."""
        if "weights" in self.config:
            return restore_weights(read_weights(self.folder, self.config["weights"]))
        checkpoint = RunFolder(self.folder).last_good(["averaged"])
        if checkpoint is None:
            raise ValueError(f"{self.folder} has no weights: neither model-*.safetensors nor a finished checkpoint")
        return checkpoint.tensors("best" if checkpoint.has("best") else "averaged")


def read_weights(folder: Path, files: object) -> dict[str, Tensor]:
    """The tensors of the files that a description names with their SHA-256."""
    if not isinstance(files, dict) or not all(Path(name).name == name for name in files):
        raise DamagedFileError(f"{folder / DESCRIPTION} must name files of the folder in weights, got {files!r}")
    for name, digest in files.items():
        check_tensors(folder / name, digest)
    return read_parts(folder, files)


def write_model(folder: Path, config: Mapping[str, Any], weights: Mapping[str, Tensor], dtype: torch.dtype) -> Path:
    """model.json and the weights of a model; ValueError for a file, another's model.json, and the folder of a run."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"folder must be a folder or not exist yet, got the file {folder}")
    if (folder / "checkpoints").exists() or (folder / "config.json").exists():
        raise ValueError(f"{folder} holds a run, which has its weights in checkpoints; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        old = _weights_there(folder)
        files = write_parts(folder, "model", convert_weights(weights, dtype), _PART_MIB, by_content=True)
        flush(folder)
        write_json(folder / DESCRIPTION, {**config, "weights": files})
        for path in folder.glob("model-*.safetensors"):
            if path.name not in files and (path.name in old or is_leftover(path)):
                path.unlink(missing_ok=True)
    return folder


def replace_description(folder: Path, config: Mapping[str, Any]) -> Path:
    """Replace the description of the model in a folder: for facts that were found later. Its weights stay."""
    path = folder / DESCRIPTION
    with _locked(folder):
        there = read_json(path)
        write_json(path, {**config, **{name: there[name] for name in _KEPT if name in there}})
    return path


def _weights_there(folder: Path) -> set[str]:
    """The weights of the model that is saved in a folder."""
    if not (folder / DESCRIPTION).exists():
        return set()
    try:
        return set(read_json(folder / DESCRIPTION).get("weights", ()))
    except ValueError as error:
        raise ValueError(f"{error}; it is not overwritten: remove it, or choose another folder") from None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time changes a saved model."""
    path = folder / "model.lock"
    with FileLock(path):
        try:
            shutil.rmtree(folder / PARTIAL, ignore_errors=True)  # of a killed write
            yield
        finally:
            with suppress(OSError):  # Windows removes it on release
                path.unlink()  # a process that waits for a removed lock file tries again with a new one


def pretrained() -> list[str]:
    """Names of the pretrained models in the package."""
    return sorted(path.parent.name for path in PRETRAINED.glob(f"*/{DESCRIPTION}"))


def find_folder(source: str | Path) -> Path:
    """The folder of a pretrained model by its name, or any other folder."""
    if str(source) in pretrained():
        return PRETRAINED / str(source)
    folder = validate.path("source", source)
    if not folder.is_dir():
        names = ", ".join(pretrained()) or "none"
        raise ValueError(f"{source} is neither a folder nor a pretrained model (those are: {names})")
    return folder
