"""CelebA, aligned and cropped: the folder or the archive of its images, with the official partition."""

import io
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from blackout import validate
from blackout.data.arrays import Dataset
from blackout.data.decode import crop_square, decode
from blackout.data.images import stack
from blackout.data.source import Source

if TYPE_CHECKING:
    from PIL.Image import Image

_IMAGES, _ARCHIVE, _PARTITION = "img_align_celeba", "img_align_celeba.zip", "list_eval_partition.txt"
_SPLITS = ("train", "valid", "test")  # in the order of their numbers in the partition

_CROP, _SIZE = 140, 64


def find_celeba(path: Path) -> Path | None:
    """The folder of images or the archive that `path` is or holds."""
    if path.name in (_IMAGES, _ARCHIVE) and path.exists():
        return path
    if path.is_file():
        return None
    folders = (path, path / "celeba", path / "Img")
    found = next((f / name for f in folders for name in (_IMAGES, _ARCHIVE) if (f / name).exists()), None)
    return path if found is None and (path / _PARTITION).is_file() else found


def read_celeba(path: str | Path, *, split: str = "train") -> Dataset:
    """162,770, 19,867 or 19,962 images of shape (3, 64, 64): the central 140 x 140 pixels of each, resized.

    `split` is train, valid, test, or all: all 202,599.
    """
    validate.choice("split", split, (*_SPLITS, "all"))
    found = find_celeba(Path(path))
    if found is None:
        raise ValueError(f"{path}: expected {_IMAGES}/ or {_ARCHIVE} here, and {_PARTITION} in it or beside it")
    if found.is_dir():
        return _read(found, split, {file.name for file in found.iterdir()}, lambda name: (found / name).read_bytes())
    try:
        with zipfile.ZipFile(found) as archive:
            members = {Path(name).name: name for name in archive.namelist() if not name.startswith("__MACOSX")}
            return _read(found, split, set(members), lambda name: archive.read(members[name]))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise ValueError(f"{found}: damaged .zip archive: {error}") from None


CELEBA64 = Source(
    read=read_celeba,
    find=find_celeba,
    by_hand=f"{_ARCHIVE} (or its folder) and {_PARTITION} in {{folder}}; they are published on "
    "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
)


def _read(found: Path, split: str, present: set[str], read: Callable[[str], bytes]) -> Dataset:
    splits = _partition(*_partition_text(found, present, read))
    names = [*splits[0], *splits[1], *splits[2]] if split == "all" else splits[_SPLITS.index(split)]
    missing = [name for name in names if name not in present]
    if not names or missing:
        got = f"{len(missing)} are missing, {missing[0]} first" if missing else f"{_PARTITION} names none"
        raise ValueError(f"{found}: expected {len(names) or 'some'} images for the split {split!r}; {got}")

    def load(name: str) -> "Image":
        source = f"{found}: {name}"
        image = decode(source, read(name)).image.convert("RGB")
        if min(image.size) < _CROP:
            raise ValueError(f"{source}: expected 178x218 pixels, got {image.width}x{image.height}")
        return crop_square(image, _CROP, _SIZE)

    return Dataset(x=stack(load, names), name="celeba64", max_state=255, named=True)


def _partition_text(found: Path, present: set[str], read: Callable[[str], bytes]) -> tuple[str, bytes]:
    if _PARTITION in present:
        return f"{found}: {_PARTITION}", read(_PARTITION)
    # The official download has the images in Img/ and the partition in Eval/.
    for folder in (found.parent, found.parent / "Eval", found.parent.parent / "Eval"):
        if (folder / _PARTITION).is_file():
            return str(folder / _PARTITION), (folder / _PARTITION).read_bytes()
    raise ValueError(f"{found}: expected {_PARTITION} in it or beside it")


def _partition(source: str, data: bytes) -> tuple[list[str], list[str], list[str]]:
    """File names of train, valid and test, in the order of the list."""
    splits: tuple[list[str], list[str], list[str]] = ([], [], [])
    for number, line in enumerate(io.StringIO(data.decode("utf-8", errors="replace")), 1):
        match line.split():
            case [name, ("0" | "1" | "2") as split]:
                splits[int(split)].append(name)
            case []:
                continue
            case _:
                raise ValueError(f"{source}: expected a file name and 0, 1 or 2 in line {number}, got {line.strip()!r}")
    return splits
