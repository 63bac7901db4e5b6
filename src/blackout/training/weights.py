"""Weight serialisation: float32, float16 or int8, in safetensors files of at most 16 MiB."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from blackout.atomic import write_atomic

SHARD_BYTES = 16 * 2**20 - 2**16  # with room for the header
_SCALE, _PIECE = "@scale", "#"


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
