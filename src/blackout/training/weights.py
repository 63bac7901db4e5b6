"""Weights in safetensors files: float32, float16 or int8, in one file or in parts, each with its SHA-256."""

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from blackout.atomic import disk_errors, flush
from blackout.files import DamagedFileError, check_file, file_digest

PARTIAL = "weights.partial"
"""The folder in which a file of weights is written; safetensors makes temporary files beside it."""
_NAMED = 8  # tensors that an error names
_SCALE, _PIECE = "@scale", "#"


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file. ValueError for anything else, pickles above all."""
    try:
        return dict(load_file(path))
    except (OSError, RuntimeError) as error:  # torch's, for a file that another process has just removed
        raise DamagedFileError(f"{path} cannot be read: {error}") from None
    except SafetensorError as error:
        raise DamagedFileError(f"{path} {_pickled(path) or f'cannot be read as safetensors: {error}'}") from None


def check_tensors(path: Path, digest: object) -> None:
    """Raise DamagedFileError unless a file has this SHA-256."""
    try:
        check_file(path, digest)
    except DamagedFileError:
        if path.is_file() and (reason := _pickled(path)):
            raise DamagedFileError(f"{path} {reason}") from None
        raise


def _pickled(path: Path) -> str:
    """The reason not to read a file that is a pickle, or else an empty string."""
    with path.open("rb") as file:
        start = file.read(2)
    is_pickle = start[:1] == b"\x80" or start == b"PK"
    return "holds pickled code, which is never loaded: weights must be safetensors" if is_pickle else ""


def load_weights(module: nn.Module, tensors: Mapping[str, Tensor], source: Path) -> None:
    """Weights into a module of the very same shape; ValueError with the names of those that differ."""
    check_shapes(module, tensors, source)
    module.load_state_dict(dict(tensors))


def check_shapes(module: nn.Module, tensors: Mapping[str, Tensor], source: Path) -> None:
    """Raise ValueError if the weights of a module, which may be on the meta device, have other names or shapes."""
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


def write_parts(
    folder: Path, stem: str, tensors: Iterable[tuple[str, Tensor]], part_mib: int, *, by_content: bool = False
) -> dict[str, str]:
    """STEM-00001-of-0000N.safetensors and so on, none larger than `part_mib`; with 0 one file, STEM.safetensors.

    With `by_content`, the names also have the first digits of the checksums, so that no file of other content is
    replaced. Returns the SHA-256 of each file by its name.
    """
    if part_mib == 0:
        return dict([_write(dict(tensors), folder, stem, by_content)])
    limit = part_mib * 2**20 - 2**16  # room for the header
    parts: list[dict[str, Tensor]] = [{}]
    room = limit
    for name, value in _pieces(tensors, limit):
        if value.nbytes > room and parts[-1]:
            parts.append({})
            room = limit
        parts[-1][name] = value
        room -= value.nbytes + 128
    names = (f"{stem}-{number:05d}-of-{len(parts):05d}" for number in range(1, len(parts) + 1))
    return dict(_write(part, folder, name, by_content) for name, part in zip(names, parts, strict=True))


def read_parts(folder: Path, names: Iterable[str]) -> dict[str, Tensor]:
    """The tensors of the files that `write_parts` named."""
    pieces: dict[str, dict[int, Tensor]] = {}
    for name in names:
        for key, value in read_tensors(folder / name).items():
            tensor, _, k = key.partition(_PIECE)
            pieces.setdefault(tensor, {})[int(k or 0)] = value
    return {
        name: torch.cat([parts[k] for k in sorted(parts)]) if len(parts) > 1 else next(iter(parts.values()))
        for name, parts in pieces.items()
    }


def is_leftover(path: Path) -> bool:
    """Whether a file was written `by_content`: its name has the first digits of its own checksum."""
    found = re.fullmatch(r".*-of-\d+-([0-9a-f]{16})\.safetensors", path.name)
    return found is not None and file_digest(path).startswith(found[1])


def convert_weights(weights: Mapping[str, Tensor], dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """The weights in a type for files.

    With torch.int8, every matrix or kernel is rounded to 255 levels, with a scale for each of its outputs.
    """
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


def restore_weights(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights that `convert_weights` converted, in float32, scales applied."""
    values = {name: value.float() for name, value in tensors.items()}
    scales = {name: values.pop(name) for name in list(values) if name.endswith(_SCALE)}
    return {name: value * scales[name + _SCALE] if name + _SCALE in scales else value for name, value in values.items()}


def _write(tensors: dict[str, Tensor], folder: Path, stem: str, by_content: bool) -> tuple[str, str]:
    """Write a file, flushed to the disk; returns its name and its SHA-256."""
    partial = folder / PARTIAL / f"{stem}.safetensors"
    try:
        with disk_errors(folder / f"{stem}.safetensors"):
            partial.parent.mkdir(exist_ok=True)
            partial.touch()
            mode = partial.stat().st_mode  # of any new file; safetensors makes files that only their owner reads
            save_file(tensors, partial)
            partial.chmod(mode)
            flush(partial)
            digest = file_digest(partial)
            name = f"{stem}-{digest[:16]}.safetensors" if by_content else f"{stem}.safetensors"
            partial.replace(folder / name)
    finally:
        shutil.rmtree(partial.parent, ignore_errors=True)
    return name, digest


def _pieces(tensors: Iterable[tuple[str, Tensor]], limit: int) -> Iterator[tuple[str, Tensor]]:
    """What would not fit in a part comes in pieces, `name#0`, `name#1`, ..."""
    for name, value in tensors:
        count = -(-value.nbytes // (limit - 1024))
        if count <= 1:
            yield name, value
        else:
            for number, piece in enumerate(value.tensor_split(count + 1)):
                yield f"{name}{_PIECE}{number}", piece.clone()
