"""Folders of pictures, decoded by Pillow, which is imported only when there is something to decode."""

import io
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy
import torch
from torch import Tensor

from blackout import validate
from blackout.data.arrays import Dataset

if TYPE_CHECKING:
    from PIL.Image import Image

T = TypeVar("T")
R = TypeVar("R")

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
_GREY = ("1", "L", "LA")
_COLOUR = ("P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr")


def find_pictures(folder: Path) -> list[Path]:
    """Every picture below the folder, in the order of their relative paths."""
    files = (file for file in folder.rglob("*") if file.suffix.lower() in ENDINGS and not file.name.startswith("."))
    return sorted(file for file in files if file.is_file())


def read_pictures(path: str | Path, *, split: str | None = None, size: int | None = None) -> Dataset:
    """Any folder of pictures of one size; `size` crops each to its central square and resizes it.

    If every picture lies in a sub-folder, the names of the sub-folders are the classes, in alphabetical order. The
    result has one channel if all pictures are grey, and three otherwise; transparency is dropped. `split` reads the
    sub-folder of that name.
    """
    folder = Path(path) if split is None else Path(path) / split
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder")
    if size is not None:
        validate.integer("size", size, 1)
    files = find_pictures(folder)
    if not files:
        raise ValueError(f"{folder}: expected pictures ({', '.join(ENDINGS)}), got none")
    sources = [str(file) for file in files]

    def is_grey(source: str) -> bool:
        return open_picture(source, Path(source).read_bytes(), decode=False).mode in _GREY

    grey = all(in_parallel(is_grey, sources))

    def load(source: str) -> "Image":
        picture = open_picture(source, Path(source).read_bytes()).convert("L" if grey else "RGB")
        return picture if size is None else square(picture, min(picture.size), size)

    classes = [file.relative_to(folder).parts[:-1] for file in files]
    number = {name: k for k, name in enumerate(sorted({parts[0] for parts in classes if parts}))}
    labels = torch.tensor([number[parts[0]] for parts in classes]) if all(classes) else None
    num_classes = None if labels is None else len(number)
    return Dataset(x=stack(load, sources), name=folder.name, max_state=255, labels=labels, num_classes=num_classes)


def open_picture(source: str, data: bytes, *, decode: bool = True) -> "Image":
    """A picture of eight bits for each channel, wholly decoded and the right way up; or only its header."""
    try:
        from PIL import Image, ImageOps
    except ModuleNotFoundError:
        raise ModuleNotFoundError("pictures are read with Pillow: pip install pillow") from None
    try:
        picture = Image.open(io.BytesIO(data))
        if decode:
            picture.load()
            ImageOps.exif_transpose(picture, in_place=True)
    except Exception as error:  # a decoder raises whatever the format at hand leads it to
        raise ValueError(f"{source}: not a whole picture: {error}") from None
    if picture.mode not in _GREY + _COLOUR:
        raise ValueError(f"{source}: expected eight bits for each channel, got mode {picture.mode}")
    return picture


def square(picture: "Image", crop: int, size: int) -> "Image":
    """The central crop x crop pixels, resized bilinearly (with antialiasing) to size x size."""
    from PIL import Image

    left, top = (picture.width - crop) // 2, (picture.height - crop) // 2
    return picture.crop((left, top, left + crop, top + crop)).resize((size, size), Image.Resampling.BILINEAR)


def stack(load: Callable[[str], "Image"], sources: Sequence[str]) -> Tensor:
    """All pictures in one uint8 tensor of shape (n, channels, height, width), which is filled in place."""
    first = _pixels(load(sources[0]))
    out = numpy.empty((len(sources), *first.shape), numpy.uint8)

    def fill(index: int) -> None:
        pixels = _pixels(load(sources[index]))
        if pixels.shape != first.shape:
            expected, got = (f"{shape[2]}x{shape[1]}" for shape in (first.shape, pixels.shape))
            raise ValueError(
                f"{sources[index]}: expected {expected} pixels, like {sources[0]}, got {got}; "
                "size=... (--image-size) brings all to one size"
            )
        out[index] = pixels

    in_parallel(fill, range(len(sources)))
    return torch.from_numpy(out)


def in_parallel(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Decoders let go of Python's lock, so threads are enough. The first failure, in order, is the one raised."""
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        return list(pool.map(function, items))


def _pixels(picture: "Image") -> numpy.ndarray[tuple[int, int, int], numpy.dtype[numpy.uint8]]:
    pixels = numpy.asarray(picture)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
