"""CIFAR-10, from its official files: the binary version or the Python version, packed or not."""

import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy
import torch
from numpy.typing import NDArray

from blackout import validate
from blackout.data.arrays import Dataset
from blackout.data.pickled import read_pickle

BINARY, PYTHON = "cifar-10-batches-bin", "cifar-10-batches-py"
ARCHIVES = ("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz")
SPLITS = ("train", "test")

_RECORDS, _PIXELS = 10_000, 3 * 32 * 32
_BATCH_BYTES = _RECORDS * (1 + _PIXELS)


def find_cifar10(path: Path) -> Path | None:
    """The folder of batches or the archive that `path` is or holds."""
    if path.is_file():
        return path if path.name.endswith((".tar.gz", ".tgz", ".tar")) else None
    for folder in (path, path / BINARY, path / PYTHON):
        if any((folder / f"{batch}{ending}").is_file() for batch in _batches() for ending in (".bin", "")):
            return folder
    return next((path / name for name in ARCHIVES if (path / name).is_file()), None)


def read_cifar10(path: str | Path, *, split: str = "train") -> Dataset:
    """50,000 or 10,000 pictures of shape (3, 32, 32), in ten classes."""
    validate.choice("split", split, SPLITS)
    found = find_cifar10(Path(path))
    if found is None:
        raise ValueError(f"{path}: expected {BINARY}/, {PYTHON}/, {ARCHIVES[0]} or {ARCHIVES[1]} here")
    batches = _batches(split)
    files = dict(_from_archive(found, batches) if found.is_file() else _from_folder(found, batches))
    for batch in batches:
        if batch not in files:
            raise ValueError(f"{found}: expected {', '.join(batches)}, got no {batch}")
    parts = [_batch(*files[batch]) for batch in batches]
    x = torch.from_numpy(numpy.concatenate([pixels for _, pixels in parts]).reshape(-1, 3, 32, 32))
    labels = torch.from_numpy(numpy.concatenate([label for label, _ in parts])).long()
    return Dataset(x=x, name="cifar10", max_state=255, labels=labels, num_classes=10, named=True)


def _batches(split: str | None = None) -> list[str]:
    train = [f"data_batch_{k}" for k in range(1, 6)]
    return {"train": train, "test": ["test_batch"], None: [*train, "test_batch"]}[split]


def _from_folder(folder: Path, batches: list[str]) -> Iterator[tuple[str, tuple[str, bytes]]]:
    for batch in batches:
        file = folder / f"{batch}.bin"
        file = file if file.is_file() else folder / batch
        if file.is_file():
            yield batch, (str(file), file.read_bytes())


def _from_archive(path: Path, batches: list[str]) -> Iterator[tuple[str, tuple[str, bytes]]]:
    """Members are read in place; nothing is unpacked."""
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                batch = Path(member.name).name.removesuffix(".bin")
                if batch in batches and (file := archive.extractfile(member)) is not None:
                    yield batch, (f"{path}: {member.name}", file.read())
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: not a whole .tar.gz archive: {error}") from None


def _batch(file: str, data: bytes) -> tuple[NDArray[numpy.uint8], NDArray[numpy.uint8]]:
    """Labels and pixels."""
    if file.endswith(".bin"):
        if len(data) != _BATCH_BYTES:
            raise ValueError(f"{file}: expected {_BATCH_BYTES} bytes, got {len(data)}")
        rows = numpy.frombuffer(data, numpy.uint8).reshape(_RECORDS, 1 + _PIXELS)
        labels, pixels = rows[:, 0], rows[:, 1:]
    else:
        labels, pixels = _unpickled(file, data)
    if labels.max() > 9:
        raise ValueError(f"{file}: expected labels from 0 to 9, got {labels.max()}")
    return labels, pixels


def _unpickled(file: str, data: bytes) -> tuple[NDArray[numpy.uint8], NDArray[numpy.uint8]]:
    try:
        batch = read_pickle(data)
    except ValueError as error:
        raise ValueError(f"{file}: expected a CIFAR-10 batch, got {error}") from None
    labels, pixels = (batch.get("labels"), batch.get("data")) if isinstance(batch, dict) else (None, None)
    if not isinstance(pixels, numpy.ndarray) or pixels.shape != (_RECORDS, _PIXELS):
        raise ValueError(f"{file}: expected 'data', uint8 of shape ({_RECORDS}, {_PIXELS})")
    if not isinstance(labels, list) or len(labels) != _RECORDS or not all(label in range(10) for label in labels):
        raise ValueError(f"{file}: expected 'labels', {_RECORDS} numbers from 0 to 9")
    return numpy.array(labels, numpy.uint8), pixels
