"""Run folders, checkpoints and weights: float32, float16 or int8, in safetensors files of at most 16 MiB.

    RUN/config.json          the configuration
    RUN/metrics.jsonl        one line a report
    RUN/checkpoints/step-…   weights, averaged weights and optimiser state as safetensors, state.json
    RUN/samples/             grids of samples

A checkpoint is written under another name, flushed to the disk and renamed: writes are atomic.
"""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
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
SHARD_BYTES = 16 * 2**20 - 2**16  # with room for the header
_SCALE, _PIECE = "@scale", "#"


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


def write_model(folder: Path, config: Mapping[str, Any], weights: Mapping[str, Tensor], dtype: torch.dtype) -> Path:
    """model.json and the weights of a model; ValueError for a file and for the folder of a run."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"folder must be a folder or not exist yet, got the file {folder}")
    if (folder / "checkpoints").exists():
        raise ValueError(f"{folder} holds a run, which has its weights in checkpoints; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / "model.json", json.dumps(config, indent=2) + "\n")
    write_weights(weights, folder, dtype)
    return folder


def write_weights(weights: Mapping[str, Tensor], folder: Path, dtype: torch.dtype) -> None:
    """model-00001-of-0000N.safetensors and so on, replacing any that exist.

    With torch.int8, every matrix or kernel is rounded to 255 levels, with a scale for each of its outputs.
    """
    shards: list[dict[str, Tensor]] = [{}]
    room = SHARD_BYTES
    for name, value in _pieces(_converted(weights, dtype)):
        if value.nbytes > room and shards[-1]:
            shards.append({})
            room = SHARD_BYTES
        shards[-1][name] = value
        room -= value.nbytes + 128
    for old in folder.glob("model-*.safetensors"):
        old.unlink()
    for number, shard in enumerate(shards, 1):
        save_file(shard, folder / f"model-{number:05d}-of-{len(shards):05d}.safetensors")


def restore_weights(shards: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The weights of all shards in float32, pieces joined and scales applied."""
    groups: dict[str, dict[int, Tensor]] = {}
    for shard in shards:
        for name, value in shard.items():
            key, _, number = name.partition(_PIECE)
            groups.setdefault(key, {})[int(number or 0)] = value.float()
    joined = {
        name: torch.cat([parts[k] for k in sorted(parts)]) if len(parts) > 1 else parts[0]
        for name, parts in groups.items()
    }
    scales = {name: joined.pop(name) for name in list(joined) if name.endswith(_SCALE)}
    return {name: value * scales[name + _SCALE] if name + _SCALE in scales else value for name, value in joined.items()}


def _converted(weights: Mapping[str, Tensor], dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    for name, weight in weights.items():
        value = weight.detach().cpu().float().contiguous()
        if name.startswith("head."):  # statistics of the data: counts may be larger than half precision holds
            yield name, value
        elif dtype != torch.int8:
            yield name, value.to(dtype)
        elif value.dim() < 2:
            yield name, value.to(torch.float16)
        else:
            scale = value.abs().amax(tuple(range(1, value.dim())), keepdim=True).clamp(min=1e-12) / 127
            yield name, torch.round(value / scale).to(torch.int8)
            yield name + _SCALE, scale


def _pieces(weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """What would not fit in a shard comes in pieces, `name#0`, `name#1`, ..."""
    for name, value in weights:
        count = -(-value.nbytes // (SHARD_BYTES - 1024))
        if count <= 1:
            yield name, value
        else:
            for number, piece in enumerate(value.tensor_split(count + 1)):
                yield f"{name}{_PIECE}{number}", piece.clone()
