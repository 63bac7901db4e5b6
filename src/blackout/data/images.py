"""Folders of images, decoded by Pillow, which is imported only when there is something to decode."""

import csv
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
from blackout.data.arrays import Dataset, from_array

if TYPE_CHECKING:
    from PIL.Image import Image

T = TypeVar("T")
R = TypeVar("R")

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
_LABELS = "labels.csv"
_GREY = ("1", "L", "LA")
_COLOUR = ("P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr")


def find_images(folder: Path) -> list[Path]:
    """Every image below the folder, sorted by relative path."""
    files = (file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES and not file.name.startswith("."))
    return sorted(file for file in files if file.is_file())


def read_images(path: str | Path, *, split: str | None = None, size: int | None = None) -> Dataset:
    """All images below a folder.

    If every image lies in a sub-folder, the names of the sub-folders are the classes, in alphabetical order; a file
    labels.csv, with a column `file` of relative paths and a column `label` of names, may give them instead. The result
    has one channel if all images are grey, and three otherwise; transparency is dropped.

    Parameters
    ----------
    path
        The folder.
    split
        Name of a sub-folder to read instead.
    size
        Crop each image to its central square and resize it to size x size. Without it all must have one size.
    """
    folder = Path(path) if split is None else Path(path) / split
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder")
    if size is not None:
        validate.integer("size", size, 1)
    files = find_images(folder)
    if not files:
        raise ValueError(f"{folder}: expected images ({', '.join(SUFFIXES)}), got none")
    sources = [str(file) for file in files]

    def is_grey(source: str) -> bool:
        return open_image(source, Path(source).read_bytes(), decode=False).mode in _GREY

    grey = all(_in_parallel(is_grey, sources))

    def load(source: str) -> "Image":
        image = open_image(source, Path(source).read_bytes()).convert("L" if grey else "RGB")
        return image if size is None else crop_square(image, min(image.size), size)

    labels = _listed_labels(folder, files) if (folder / _LABELS).is_file() else _folder_labels(folder, files)
    return from_array(stack(load, sources), name=folder.name, max_state=255, labels=labels)


def open_image(source: str, data: bytes, *, decode: bool = True) -> "Image":
    """An image of eight bits per channel, decoded and upright; or only its header."""
    from PIL import Image, ImageOps

    try:
        image = Image.open(io.BytesIO(data))
        if decode:
            image.load()
            ImageOps.exif_transpose(image, in_place=True)
    except Exception as error:  # decoders raise many types
        raise ValueError(f"{source}: damaged image: {error}") from None
    if image.mode not in _GREY + _COLOUR:
        raise ValueError(f"{source}: expected eight bits per channel, got mode {image.mode}")
    return image


def crop_square(image: "Image", crop: int, size: int) -> "Image":
    """The central crop x crop pixels, resized bilinearly (with antialiasing) to size x size."""
    from PIL import Image

    left, top = (image.width - crop) // 2, (image.height - crop) // 2
    return image.crop((left, top, left + crop, top + crop)).resize((size, size), Image.Resampling.BILINEAR)


def stack(load: Callable[[str], "Image"], sources: Sequence[str]) -> Tensor:
    """All images in one uint8 tensor of shape (n, channels, height, width)."""
    first = _pixels(load(sources[0]))
    out = numpy.empty((len(sources), *first.shape), numpy.uint8)

    def fill(index: int) -> None:
        pixels = _pixels(load(sources[index]))
        if pixels.shape != first.shape:
            expected, got = (f"{shape[2]}x{shape[1]}" for shape in (first.shape, pixels.shape))
            raise ValueError(
                f"{sources[index]}: expected {expected} pixels, like {sources[0]}, got {got}; "
                "size=... (--image-size) resizes all images"
            )
        out[index] = pixels

    _in_parallel(fill, range(len(sources)))
    return torch.from_numpy(out)


def _folder_labels(folder: Path, files: Sequence[Path]) -> list[str] | None:
    """The sub-folder of each image, if every image is in one."""
    parents = [file.relative_to(folder).parts[:-1] for file in files]
    return [parts[0] for parts in parents] if all(parents) else None


def _listed_labels(folder: Path, files: Sequence[Path]) -> list[str]:
    """The label of each image in labels.csv."""
    path = folder / _LABELS
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, skipinitialspace=True)
            columns = list(reader.fieldnames or ())
            rows = [(row.get("file"), row.get("label")) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: expected a table in UTF-8: {error}") from None
    if not {"file", "label"} <= set(columns):
        got = ", ".join(columns) or "none"
        raise ValueError(f"{path}: expected the columns file and label in its first line, got {got}")
    listed = {str(Path(name)): (label or "").strip() for name, label in rows if name}
    names = [str(image.relative_to(folder)) for image in files]
    for name in names:
        if not listed.get(name):
            raise ValueError(f"{path}: expected a label for every image, got none for {name}")
    for name in listed:
        if not (folder / name).is_file():
            raise ValueError(f"{path}: expected images below {folder}, but there is no {name}")
    return [listed[name] for name in names]


def _in_parallel(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """In threads, because decoders release Python's lock. The first failure, in order, is raised."""
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        return list(pool.map(function, items))


def _pixels(image: "Image") -> numpy.ndarray[tuple[int, int, int], numpy.dtype[numpy.uint8]]:
    pixels = numpy.asarray(image)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
