"""What is known of a sample, and where: from files."""

from pathlib import Path

import numpy
import torch
from torch import Tensor

from blackout.data.arrays import from_array, load_arrays
from blackout.data.pictures import ENDINGS, open_picture

PARTS = ("left", "right", "top", "bottom", "centre")


def read_known(path: str | Path, shape: tuple[int, ...], largest: int | None) -> Tensor:
    """States from an array (.npy, .npz: what is called x) or a picture, whose grey levels become 0, ..., largest."""
    path = Path(path)
    if path.suffix.lower() in ENDINGS:
        levels = _picture(path, shape)
        if largest is None or largest >= 255:
            return levels
        return (levels.double() * largest / 255).round().to(torch.uint8)
    try:
        return _one(from_array(_array(path)).x, shape)
    except ValueError as error:
        raise ValueError(f"known: {path}: {str(error).removeprefix(f'{path}: ')}") from None


def read_mask(source: str, shape: tuple[int, ...]) -> Tensor:
    """Where something is known: half of a picture, or its middle, by name; or a file of booleans, zeros and ones."""
    if source in PARTS:
        if len(shape) != 3:
            raise ValueError(f"mask {source!r} is a part of a picture, but samples have shape {shape}: give a file")
        return part(source, shape)
    path = Path(source)
    if path.suffix.lower() in ENDINGS:
        return _picture(path, (1, *shape[1:])) >= 128
    if path.suffix.lower() not in (".npy", ".npz"):
        raise ValueError(f"mask must be one of {', '.join(PARTS)} or a .npy, .npz or .png file, got {source!r}")
    array = _array(path)
    if array.dtype != numpy.bool_ and not (array.dtype.kind in "ui" and bool(((array == 0) | (array == 1)).all())):
        raise ValueError(f"mask: {path}: expected booleans, or zeros and ones, got {array.dtype}")
    return _one(torch.from_numpy(array.astype(numpy.bool_)), shape)


def part(name: str, shape: tuple[int, ...]) -> Tensor:
    """A mask, (1, height, width), that is true in one half of a picture, or in the middle of both directions."""
    _, height, width = shape
    rows, columns = torch.arange(height).reshape(-1, 1), torch.arange(width)
    middle = [(n // 4 <= index) & (index < n - n // 4) for n, index in ((height, rows), (width, columns))]
    where = {
        "left": columns < width // 2,
        "right": columns >= width // 2,
        "top": rows < height // 2,
        "bottom": rows >= height // 2,
        "centre": middle[0] & middle[1],
    }[name]
    return where.expand(1, height, width)


def _array(path: Path) -> "numpy.typing.NDArray[numpy.generic]":
    arrays = load_arrays(path)
    if "x" not in arrays and len(arrays) != 1:
        raise ValueError(f"{path}: expected an array called x, got {', '.join(sorted(arrays)) or 'none'}")
    return arrays["x"] if "x" in arrays else next(iter(arrays.values()))


def _one(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A single sample without its first dimension; a single channel may be left out."""
    if x.dim() == len(shape) + 1 and len(x) == 1:
        return x[0]
    return x.unsqueeze(0) if shape[:1] == (1,) and x.shape == shape[1:] else x


def _picture(path: Path, shape: tuple[int, ...]) -> Tensor:
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise ValueError(f"{path}: a picture says nothing about samples of shape {shape}")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from None
    levels = numpy.array(open_picture(str(path), data).convert("L" if shape[0] == 1 else "RGB"))
    return torch.from_numpy(levels).unsqueeze(0) if shape[0] == 1 else torch.from_numpy(levels).movedim(-1, 0)
