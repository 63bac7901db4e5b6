"""Observed entries of a sample and their mask, from files."""

from pathlib import Path
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from blackout.data.arrays import from_array, load_arrays, main_array
from blackout.data.decode import SUFFIXES, channels_first, decode, read_bytes

REGIONS = ("left", "right", "top", "bottom", "centre")


def read_observed(path: str | Path, shape: tuple[int, ...], max_state: int | None, background: str = "black") -> Tensor:
    """Observed states from a file.

    Parameters
    ----------
    path
        An array (.npy; .npz: the key `x` or the only one) or an image, whose grey levels are scaled to 0, ...,
        `max_state`.
    shape
        Shape of one sample.
    max_state
        Largest state of the data, or None.
    background
        Colour behind transparent pixels: that of the model's training data is `model.record.background`.

    Returns
    -------
    Tensor
        Integer states, of `shape` or with a leading dimension of samples.
    """
    path = Path(path)
    if path.suffix.lower() in SUFFIXES:
        levels = _read_image(path, shape, background)
        if max_state is None or max_state >= 255:
            return levels
        return (levels.double() * max_state / 255).round().to(torch.uint8)
    array = _read_array(path)
    try:
        return _one_sample(from_array(array).x, shape)
    except ValueError as error:
        raise ValueError(f"observed: {path}: {error}") from None


def read_mask(source: str, shape: tuple[int, ...]) -> Tensor:
    """Which entries are observed: a region of an image by name, or a file of booleans, or zeros and ones.

    White pixels of an image are observed.
    """
    if source in REGIONS:
        if len(shape) != 3:
            raise ValueError(f"mask {source!r} is a region of an image, but samples have shape {shape}: give a file")
        return region_mask(source, shape)
    path = Path(source)
    if path.suffix.lower() in SUFFIXES:
        return _read_image(path, (1, *shape[1:])) >= 128
    if path.suffix.lower() not in (".npy", ".npz"):
        raise ValueError(f"mask must be one of {', '.join(REGIONS)} or a .npy, .npz or .png file, got {source!r}")
    array = _read_array(path)
    if array.dtype != numpy.bool_ and not (array.dtype.kind in "ui" and bool(((array == 0) | (array == 1)).all())):
        raise ValueError(f"mask: {path}: expected booleans, or zeros and ones, got {array.dtype}")
    return _one_sample(torch.from_numpy(array.astype(numpy.bool_)), shape)


def region_mask(name: str, shape: tuple[int, ...]) -> Tensor:
    """A mask, (1, height, width), that is true in one half of an image, or in its central rectangle."""
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


def _read_array(path: Path) -> NDArray[Any]:
    return main_array(load_arrays(path), path)


def _one_sample(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Without a leading dimension of one sample; a single channel may be left out of the file."""
    if x.dim() == len(shape) + 1 and len(x) == 1:
        return x[0]
    return x.unsqueeze(0) if shape[:1] == (1,) and x.shape == shape[1:] else x


def _read_image(path: Path, shape: tuple[int, ...], background: str = "black") -> Tensor:
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise ValueError(f"{path}: an image cannot be used for samples of shape {shape}")
    image = decode(str(path), read_bytes(path), background).image
    if image.size != (shape[2], shape[1]):
        wanted = f"{shape[2]}x{shape[1]} pixels, as the samples have"
        raise ValueError(f"{path}: expected an image of {wanted}, got {image.width}x{image.height}: crop or resize it")
    return torch.from_numpy(channels_first(image.convert("L" if shape[0] == 1 else "RGB")))
