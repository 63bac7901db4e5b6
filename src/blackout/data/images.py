"""Folders of images: what is read, what is skipped, and the classes."""

import csv
import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy
import torch
from torch import Tensor

from blackout import validate
from blackout.data.arrays import Dataset, from_array
from blackout.data.decode import (
    CHANGES,
    SUFFIXES,
    Header,
    background_colour,
    channels_first,
    crop_square,
    decode,
    read_bytes,
    read_header,
)

if TYPE_CHECKING:
    from PIL.Image import Image

T = TypeVar("T")
R = TypeVar("R")

_LABELS = "labels.csv"


def find_images(folder: Path) -> list[Path]:
    """Every image below the folder, sorted by relative path; hidden files and folders are left out."""
    return [file for file in _visible_files(folder) if file.suffix.lower() in SUFFIXES]


def read_images(
    path: str | Path, *, split: str | None = None, size: int | None = None, background: str = "black"
) -> Dataset:
    """All images below a folder.

    If every image lies in a sub-folder, the names of the sub-folders are the classes, in alphabetical order; a file
    labels.csv, with a column `file` of relative paths and a column `label` of names, may give them instead. The result
    has one channel if all images are grey, and three otherwise; its `notes` list what was converted or skipped.

    Parameters
    ----------
    path
        The folder.
    split
        Name of a sub-folder to read instead.
    size
        Crop each image to its central square and resize it to size x size. Without it all must have one size.
    background
        Colour behind transparent pixels: a name of HTML, or #rrggbb.
    """
    folder = Path(path) if split is None else Path(path) / split
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder")
    if size is not None:
        validate.integer("size", size, 1)
    colour = background_colour(background)
    files = find_images(folder)
    if not files:
        raise ValueError(f"{folder}: expected images ({', '.join(SUFFIXES)}), got none")
    sources = [str(file) for file in files]
    headers = _in_parallel(lambda source: read_header(source, read_bytes(Path(source))), sources)
    if size is None:
        _check_one_size(folder, headers)
    on_colour = len(set(colour)) > 1 and any(header.transparent for header in headers)
    grey, changes = all(header.grey for header in headers) and not on_colour, list[str]()

    def load(source: str) -> "Image":
        image, changed = decode(source, read_bytes(Path(source)), background)
        changes.extend(changed)
        image = image.convert("L" if grey else "RGB")
        return image if size is None else crop_square(image, min(image.size), size)

    labels = _listed_labels(folder, files) if (folder / _LABELS).is_file() else _folder_labels(folder, files)
    x = stack(load, sources)
    notes = [
        f"{number:,} image{'' if number == 1 else 's'} {CHANGES[name].format(background=background)}"
        for name, number in Counter(changes).items()
    ]
    notes += _resizing(headers, size) + _skipped(folder)
    return from_array(x, name=Path(path).absolute().name, max_state=255, labels=labels, notes=tuple(notes))


def stack(load: Callable[[str], "Image"], sources: Sequence[str]) -> Tensor:
    """All images, which have one size, in one uint8 tensor of shape (n, channels, height, width)."""
    first = channels_first(load(sources[0]))
    out = numpy.empty((len(sources), *first.shape), numpy.uint8)
    out[0] = first

    def fill(index: int) -> None:
        out[index] = channels_first(load(sources[index]))

    _in_parallel(fill, range(1, len(sources)))
    return torch.from_numpy(out)


def _visible_files(folder: Path) -> list[Path]:
    files = (file for file in folder.rglob("*") if not any(p.startswith(".") for p in file.relative_to(folder).parts))
    return sorted(file for file in files if file.is_file())


def _check_one_size(folder: Path, headers: Sequence[Header]) -> None:
    if len({header.size for header in headers}) > 1:
        does = "crops each image to its central square and resizes it to 32x32"
        raise ValueError(f"{folder}: {_sizes(headers)}, where one is expected: size=32 (--image-size 32) {does}")


def _resizing(headers: Sequence[Header], size: int | None) -> list[str]:
    """Whether images were cropped or resized, in words."""
    if size is None or all(header.size == (size, size) for header in headers):
        return []
    cropped = any(header.size[0] != header.size[1] for header in headers)
    return [f"{_sizes(headers)}: {'cropped to the central square and ' if cropped else ''}resized to {size}x{size}"]


def _sizes(headers: Sequence[Header]) -> str:
    sizes = sorted({header.size for header in headers}, key=lambda size: (size[0] * size[1], size))
    (least, *_), (*_, most) = sizes, sizes
    if least == most:
        return f"images of {least[0]}x{least[1]} pixels"
    return f"images of {len(sizes)} sizes, from {least[0]}x{least[1]} to {most[0]}x{most[1]} pixels"


def _skipped(folder: Path) -> list[str]:
    """Files that were not read, and why, in one line."""
    others = [file for file in _visible_files(folder) if file.suffix.lower() not in SUFFIXES and file.name != _LABELS]
    if not others:
        return []
    kinds = Counter(file.suffix.lower() or "no suffix" for file in others).most_common()
    listed = ", ".join(f"{number} {kind}" for kind, number in kinds[:5]) + (", ..." if len(kinds) > 5 else "")
    return [f"{len(others):,} {'file' if len(others) == 1 else 'files'} skipped, not of a type that is read: {listed}"]


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
