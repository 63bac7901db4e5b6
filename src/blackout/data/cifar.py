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
from blackout.data.source import Source

_BINARY, _PYTHON = "cifar-10-batches-bin", "cifar-10-batches-py"
_ARCHIVES = ("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz")
_TRAIN, _TEST = [f"data_batch_{k}" for k in range(1, 6)], ["test_batch"]
_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_RECORDS, _PIXELS = 10_000, 3 * 32 * 32


def find_cifar10(path: Path) -> Path | None:
    """The folder of batches or the archive that `path` is or holds."""
    if path.is_file():
        return path if path.name.endswith((".tar.gz", ".tgz", ".tar")) else None
    for folder in (path, path / _BINARY, path / _PYTHON):
        if any((folder / f"{batch}{suffix}").is_file() for batch in _TRAIN + _TEST for suffix in (".bin", "")):
            return folder
    return next((path / name for name in _ARCHIVES if (path / name).is_file()), None)


def read_cifar10(path: str | Path, *, split: str = "train") -> Dataset:
    """50,000 or 10,000 images of shape (3, 32, 32), in ten classes."""
    validate.choice("split", split, ("train", "test"))
    found = find_cifar10(Path(path))
    if found is None:
        raise ValueError(f"{path}: expected {_BINARY}/, {_PYTHON}/, {_ARCHIVES[0]} or {_ARCHIVES[1]} here")
    batches = _TRAIN if split == "train" else _TEST
    files = dict(_from_archive(found, batches) if found.is_file() else _from_folder(found, batches))
    for batch in batches:
        if batch not in files:
            raise ValueError(f"{found}: expected {', '.join(batches)}, got no {batch}")
    parts = [_batch(*files[batch]) for batch in batches]
    x = torch.from_numpy(numpy.concatenate([pixels for _, pixels in parts]).reshape(-1, 3, 32, 32))
    labels = torch.from_numpy(numpy.concatenate([label for label, _ in parts])).long()
    return Dataset(x=x, name="cifar10", max_state=255, labels=labels, num_classes=10, class_names=_NAMES, named=True)


_SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"  # the publisher gives an MD5 alone
CIFAR10 = Source(
    read=read_cifar10,
    find=find_cifar10,
    files={_ARCHIVES[0]: f"https://www.cs.toronto.edu/~kriz/{_ARCHIVES[0]}#sha256={_SHA256}"},
)


def _from_folder(folder: Path, batches: list[str]) -> Iterator[tuple[str, tuple[str, bytes]]]:
    for batch in batches:
        file = folder / f"{batch}.bin"
        file = file if file.is_file() else folder / batch
        if file.is_file():
            yield batch, (str(file), file.read_bytes())


def _from_archive(path: Path, batches: list[str]) -> Iterator[tuple[str, tuple[str, bytes]]]:
    """Members are read in place; nothing is unpacked to the disk."""
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                batch = Path(member.name).name.removesuffix(".bin")
                if batch in batches and (file := archive.extractfile(member)) is not None:
                    yield batch, (f"{path}: {member.name}", file.read())
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: damaged .tar.gz archive: {error}") from None


def _batch(file: str, data: bytes) -> tuple[NDArray[numpy.uint8], NDArray[numpy.uint8]]:
    """Labels and pixels."""
    if not file.endswith(".bin"):
        return _from_pickle(file, data)
    size = _RECORDS * (1 + _PIXELS)
    if len(data) != size:
        raise ValueError(f"{file}: expected {size} bytes, got {len(data)}")
    rows = numpy.frombuffer(data, numpy.uint8).reshape(_RECORDS, 1 + _PIXELS)
    if rows[:, 0].max() > 9:
        raise ValueError(f"{file}: expected labels from 0 to 9, got {rows[:, 0].max()}")
    return rows[:, 0], rows[:, 1:]


def _from_pickle(file: str, data: bytes) -> tuple[NDArray[numpy.uint8], NDArray[numpy.uint8]]:
    try:
        batch = read_pickle(data)
    except ValueError as error:
        raise ValueError(f"{file}: expected a CIFAR-10 batch, got {error}") from None
    labels, pixels = (batch.get("labels"), batch.get("data")) if isinstance(batch, dict) else (None, None)
    if not isinstance(pixels, numpy.ndarray) or pixels.shape != (_RECORDS, _PIXELS):
        raise ValueError(f"{file}: expected 'data', uint8 of shape ({_RECORDS}, {_PIXELS})")
    if not isinstance(labels, list) or len(labels) != _RECORDS or not all(label in range(10) for label in labels):
        raise ValueError(f"{file}: expected 'labels', {_RECORDS} integers from 0 to 9")
    return numpy.array(labels, numpy.uint8), pixels
