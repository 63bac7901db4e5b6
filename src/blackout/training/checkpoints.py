"""The run folder, and the only writer of checkpoints.

    RUN/config.json          the configuration
    RUN/metrics.jsonl        one line a report
    RUN/checkpoints/step-…   weights, averaged weights and optimiser state as safetensors, state.json
    RUN/samples/             grids of samples

A checkpoint is written under another name, flushed to the disk and renamed: writes are atomic.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from blackout import validate
from blackout.atomic import write_atomic

KEPT = 2  # checkpoints that stay
_PREFIX = "step-"


class RunFolder:
    """A run folder, locked by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path / "run.lock")

    def acquire(self) -> None:
        """Make the folder and lock it; ValueError while another process holds it."""
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            raise ValueError(f"run folder {self.path} is in use by another process") from None
        for unfinished in self.path.glob("checkpoints/*.partial"):
            shutil.rmtree(unfinished, ignore_errors=True)

    def release(self) -> None:
        self._lock.release()

    def checkpoints(self) -> list[Path]:
        """Finished checkpoints, the oldest first."""
        return sorted(self.path.glob(f"checkpoints/{_PREFIX}[0-9]*[0-9]"))

    def report(self, **values: Any) -> None:
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(values) + "\n")

    def describe(self, description: Mapping[str, Any]) -> None:
        write_atomic(self.path / "model.json", json.dumps(description, indent=2) + "\n")

    def rewind(self, step: int) -> None:
        """Drop reports of steps after `step`, which a resumed run repeats."""
        path = self.path / "metrics.jsonl"
        if path.exists():
            lines = [line for line in path.read_text().splitlines() if _step(line) <= step]
            write_atomic(path, "".join(line + "\n" for line in lines))

    def save(self, step: int, tensors: Mapping[str, Mapping[str, Tensor]]) -> Path:
        """Write a checkpoint: one safetensors file for each group of tensors, and state.json."""
        target = self.path / "checkpoints" / f"{_PREFIX}{step:09d}"
        partial = target.with_name(target.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        try:
            partial.mkdir(parents=True)
            for name, group in tensors.items():
                save_file(
                    {key: value.detach().cpu().contiguous() for key, value in group.items()},
                    partial / f"{name}.safetensors",
                )
            (partial / "state.json").write_text(json.dumps({"step": step}) + "\n")
            for file in [*partial.iterdir(), partial]:
                _flush(file)
            shutil.rmtree(target, ignore_errors=True)
            partial.rename(target)
            _flush(target.parent)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(partial, ignore_errors=True)
            last = self.checkpoints()
            kept = f"the last good one is {last[-1]}" if last else "there is none before it"
            raise OSError(f"cannot write checkpoint {target}: {error}; {kept}") from None
        for old in self.checkpoints()[:-KEPT]:
            # Under its own name a checkpoint is complete, also while it is being deleted.
            gone = old.rename(old.with_name(old.name + ".partial"))
            shutil.rmtree(gone, ignore_errors=True)
        return target


@dataclass(frozen=True)
class Checkpoint:
    """A finished checkpoint; reading it runs no code."""

    path: Path

    @property
    def step(self) -> int:
        try:
            return int(json.loads((self.path / "state.json").read_text())["step"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{self.path} is not a checkpoint: state.json, {error}") from None

    def tensors(self, group: str) -> dict[str, Tensor]:
        return read_tensors(self.path / f"{group}.safetensors")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file. ValueError for anything else, pickles above all."""
    try:
        return dict(load_file(path))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    except SafetensorError as error:
        with path.open("rb") as file:
            start = file.read(2)
        if start[:1] == b"\x80" or start == b"PK":
            raise ValueError(f"{path} holds pickled code, which is never loaded: weights must be safetensors") from None
        raise ValueError(f"{path} cannot be read as safetensors: {error}") from None


def load_weights(module: nn.Module, tensors: Mapping[str, Tensor], source: Path) -> None:
    """Weights into a module of the very same shape."""
    try:
        module.load_state_dict(dict(tensors))
    except RuntimeError as error:
        first = str(error).splitlines()[-1].strip()
        raise ValueError(f"{source} does not fit the network: {first}") from None


def flatten_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Adam's moments as named tensors."""
    state = optimizer.state_dict()["state"]
    return {
        f"{index}.{name}": torch.as_tensor(value) for index, slots in state.items() for name, value in slots.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        index, _, name = key.partition(".")
        state.setdefault(validate.integer("index", int(index), 0), {})[name] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def _step(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")  # a line cut short by a kill


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
