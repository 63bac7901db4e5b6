"""MNIST, or other data in its idx files: grey or binary, optionally resized."""

import dataclasses
import functools
import gzip
import struct
import zlib
from pathlib import Path

import numpy
import torch
from torch import Tensor

from blackout import validate
from blackout.data.arrays import Dataset
from blackout.data.source import Source

_PREFIX = {"train": "train", "test": "t10k"}
_SIDE = 28
_DIGITS = tuple("0123456789")


def find_mnist(path: Path) -> Path | None:
    """The folder of idx files that `path` is or holds."""
    folders = (path, path / "mnist", path / "MNIST" / "raw")
    return next(
        (folder for folder in folders if any(_find(folder, prefix, "images") for prefix in _PREFIX.values())), None
    )


def read_mnist(
    path: str | Path, *, split: str = "train", binarize: float | None = None, size: int | None = None
) -> Dataset:
    """60,000 or 10,000 images of shape (1, 28, 28), in ten classes.

    `size` resizes them; `binarize` is a threshold, applied after resizing: states are 1 where x > threshold.
    """
    validate.choice("split", split, tuple(_PREFIX))
    folder, prefix = find_mnist(Path(path)), _PREFIX[split]
    images = _find(folder, prefix, "images") if folder else None
    labels = _find(folder, prefix, "labels") if folder else None
    if images is None or labels is None:
        wanted = f"{prefix}-images-idx3-ubyte and {prefix}-labels-idx1-ubyte"
        raise ValueError(f"{folder or path}: expected {wanted}, each with or without .gz")
    x, y = _idx(images, 3).unsqueeze(1), _idx(labels, 1).long()
    if x.shape[2:] != (_SIDE, _SIDE):
        raise ValueError(f"{images}: expected images of {_SIDE}x{_SIDE}, got {x.shape[2]}x{x.shape[3]}")
    if len(x) != len(y) or len(y) == 0:
        raise ValueError(f"{labels}: expected {max(1, len(x))} labels, got {len(y)}")
    if int(y.max()) > 9:
        raise ValueError(f"{labels}: expected labels from 0 to 9, got {int(y.max())}")
    threshold = None if binarize is None else validate.real("binarize", binarize, 0.0)
    if size is not None:
        x = _resize(x, validate.integer("size", size, 1), threshold)
    elif threshold is not None:
        x = (x > threshold).to(torch.uint8)
    name, max_state = ("mnist", 255) if binarize is None else ("mnist-binary", 1)
    return Dataset(x=x, name=name, max_state=max_state, labels=y, num_classes=10, class_names=_DIGITS, named=True)


_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_SHA256 = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
MNIST = Source(
    read=read_mnist,
    find=find_mnist,
    files={f"mnist/{name}": f"{_URL}{name}#sha256={digest}" for name, digest in _SHA256.items()},
)
MNIST_BINARY = dataclasses.replace(MNIST, read=functools.partial(read_mnist, binarize=127.5))


def _find(folder: Path, prefix: str, kind: str) -> Path | None:
    number = 3 if kind == "images" else 1
    names = [f"{prefix}-{kind}{dot}idx{number}-ubyte{ending}" for dot in "-." for ending in ("", ".gz")]
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _idx(path: Path, dimensions: int) -> Tensor:
    """An idx file: 0, 0, 8 (unsigned bytes), number of dimensions, each as a big-endian word, the bytes."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: damaged gzip file: {error}") from None
    magic, header = bytes([0, 0, 8, dimensions]), 4 + 4 * dimensions
    if data[:4] != magic or len(data) < header:
        raise ValueError(f"{path}: expected an idx file that begins with {magic.hex()}, got {data[:4].hex()}")
    shape = struct.unpack(f">{dimensions}I", data[4:header])
    expected = header + int(numpy.prod(shape, dtype=object))
    if len(data) != expected:
        raise ValueError(f"{path}: expected {expected} bytes for shape {shape}, got {len(data)}")
    return torch.from_numpy(numpy.frombuffer(data, numpy.uint8, offset=header).reshape(shape).copy())


def _resize(x: Tensor, size: int, threshold: float | None) -> Tensor:
    """Bilinear, as in Pillow, then rounded, or compared with a threshold; in chunks, because of the floats between."""
    resize = torch.nn.functional.interpolate
    parts = (resize(part.float(), (size, size), mode="bilinear", antialias=True) for part in x.split(4096))
    if threshold is not None:
        return torch.cat([(part > threshold).to(torch.uint8) for part in parts])
    return torch.cat([part.round().clamp(0, 255).to(torch.uint8) for part in parts])
