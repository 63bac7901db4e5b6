"""SavedModel: the description and the weights in a folder, a run folder, or the package."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from blackout.training.checkpoints import Checkpoint, RunFolder, read_parts, restore_weights

PRETRAINED = Path(__file__).parents[1] / "pretrained"


@dataclass(frozen=True)
class SavedModel:
    """The content of model.json, and where the weights are."""

    folder: Path
    config: dict[str, Any]

    @staticmethod
    def open(folder: Path) -> "SavedModel":
        """Read the description in a folder."""
        path = folder / "model.json"
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ValueError(f"{path} cannot be read: {error}") from None
        if isinstance(config, dict) and "clock" in config:
            raise ValueError(f"{path} describes a model of a reaction network: use ReactionModel.load")
        if not isinstance(config, dict):
            raise ValueError(f"{path} does not describe a model: {type(config).__name__}")
        return SavedModel(folder, config)

    def weights(self) -> dict[str, Tensor]:
        """The weights in float32; of a run, the averaged weights of its last checkpoint, or its best ones so far."""
        if next(self.folder.glob("model-*.safetensors"), None) is not None:
            return restore_weights(read_parts(self.folder, "model"))
        checkpoints = RunFolder(self.folder).checkpoints()
        if not checkpoints:
            raise ValueError(f"{self.folder} has no weights: neither model-*.safetensors nor a finished checkpoint")
        last = Checkpoint(checkpoints[-1])
        return last.tensors("best" if last.has("best") else "averaged")


def pretrained() -> list[str]:
    """Names of the pretrained models in the package."""
    return sorted(path.parent.name for path in PRETRAINED.glob("*/model.json"))


def find_folder(source: str | Path) -> Path:
    """The folder of a pretrained model by its name, or any other folder."""
    if str(source) in pretrained():
        return PRETRAINED / str(source)
    folder = Path(source)
    if not folder.is_dir():
        names = ", ".join(pretrained()) or "none"
        raise ValueError(f"{source} is neither a folder nor a pretrained model (those are: {names})")
    return folder
