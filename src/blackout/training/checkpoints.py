"""Run folders, checkpoints and weights: float32, float16 or int8, in safetensors files of at most 16 MiB.

    RUN/config.json          the configuration
    RUN/metrics.jsonl        one line a report
    RUN/checkpoints/step-…   weights, averaged weights and optimiser state as safetensors, state.json; a file for each,
                             or parts of limited size: weights-00001-of-00004.safetensors
    RUN/samples/             grids of samples

A checkpoint is written under another name, flushed to the disk and renamed: writes are atomic.
"""

import json
import os
import re
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
_PART_MIB = 16  # of a saved model
_NAMED = 8  # tensors that an error names
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

    def save(
        self, step: int, tensors: Mapping[str, Mapping[str, Tensor]], seconds: float = 0.0, part_mib: int = 0
    ) -> Path:
        """Write a checkpoint: each group of tensors, see `write_parts`, and state.json."""
        target = self.path / "checkpoints" / f"{_PREFIX}{step:09d}"
        partial = target.with_name(target.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        try:
            partial.mkdir(parents=True)
            for name, group in tensors.items():
                values = ((key, value.detach().cpu().contiguous()) for key, value in group.items())
                write_parts(partial, name, values, part_mib)
            (partial / "state.json").write_text(json.dumps({"step": step, "seconds": seconds}) + "\n")
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
        return int(self._state("step"))

    @property
    def seconds(self) -> float:
        """How long training has taken up to here."""
        return self._state("seconds")

    def has(self, group: str) -> bool:
        """Whether it holds such a group of tensors."""
        return next(self.path.glob(f"{group}*.safetensors"), None) is not None

    def tensors(self, group: str) -> dict[str, Tensor]:
        return read_parts(self.path, group)

    def _state(self, name: str) -> float:
        try:
            return float(json.loads((self.path / "state.json").read_text())[name])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{self.path} is not a checkpoint: state.json, {error}") from None


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
    """Weights into a module of the very same shape; ValueError with the names of those that differ."""
    own = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    wrong = [f"{name} is missing" for name in own if name not in tensors]
    wrong += [f"{name} is not in the network" for name in tensors if name not in own]
    wrong += [
        f"{name} has shape {tuple(value.shape)}, not {own[name]}"
        for name, value in tensors.items()
        if own.get(name, tuple(value.shape)) != tuple(value.shape)
    ]
    if wrong:
        more = f" and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
        raise ValueError(f"{source} does not fit the network: {'; '.join(wrong[:_NAMED])}{more}")
    module.load_state_dict(dict(tensors))


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
    for old in folder.glob("model-*.safetensors"):
        old.unlink()
    write_parts(folder, "model", _converted(weights, dtype), _PART_MIB)


def restore_weights(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights that `write_weights` converted, in float32, scales applied."""
    values = {name: value.float() for name, value in tensors.items()}
    scales = {name: values.pop(name) for name in list(values) if name.endswith(_SCALE)}
    return {name: value * scales[name + _SCALE] if name + _SCALE in scales else value for name, value in values.items()}


def write_parts(folder: Path, stem: str, tensors: Iterable[tuple[str, Tensor]], part_mib: int) -> None:
    """STEM-00001-of-0000N.safetensors and so on, none larger than `part_mib`; with 0 one file, STEM.safetensors."""
    if part_mib == 0:
        save_file(dict(tensors), folder / f"{stem}.safetensors")
        return
    limit = part_mib * 2**20 - 2**16  # room for the header
    parts: list[dict[str, Tensor]] = [{}]
    room = limit
    for name, value in _pieces(tensors, limit):
        if value.nbytes > room and parts[-1]:
            parts.append({})
            room = limit
        parts[-1][name] = value
        room -= value.nbytes + 128
    for number, part in enumerate(parts, 1):
        save_file(part, folder / f"{stem}-{number:05d}-of-{len(parts):05d}.safetensors")


def read_parts(folder: Path, stem: str) -> dict[str, Tensor]:
    """The tensors that `write_parts` wrote; ValueError with the name of a part that is missing."""
    found = {path.name: path for path in sorted(folder.glob(f"{stem}-*-of-*.safetensors"))}
    if not found:
        return read_tensors(folder / f"{stem}.safetensors")
    number = re.fullmatch(r".*-of-(\d+)\.safetensors", max(found))
    total = int(number[1]) if number else 1
    names = [f"{stem}-{k:05d}-of-{total:05d}.safetensors" for k in range(1, total + 1)]
    if missing := [name for name in names if name not in found]:
        raise ValueError(f"{folder / missing[0]} is missing: {len(missing)} of {total} parts")
    if strange := set(found) - set(names):
        raise ValueError(f"{folder / min(strange)} is not one of the {total} parts of {stem}")
    pieces: dict[str, dict[int, Tensor]] = {}
    for name in names:
        for key, value in read_tensors(found[name]).items():
            tensor, _, k = key.partition(_PIECE)
            pieces.setdefault(tensor, {})[int(k or 0)] = value
    return {
        name: torch.cat([parts[k] for k in sorted(parts)]) if len(parts) > 1 else parts[0]
        for name, parts in pieces.items()
    }


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


def _pieces(tensors: Iterable[tuple[str, Tensor]], limit: int) -> Iterator[tuple[str, Tensor]]:
    """What would not fit in a part comes in pieces, `name#0`, `name#1`, ..."""
    for name, value in tensors:
        count = -(-value.nbytes // (limit - 1024))
        if count <= 1:
            yield name, value
        else:
            for number, piece in enumerate(value.tensor_split(count + 1)):
                yield f"{name}{_PIECE}{number}", piece.clone()
