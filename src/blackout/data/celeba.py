"""CelebA, aligned and cropped: the folder or the archive of its pictures, with the official split beside it."""

import io
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from blackout import validate
from blackout.data.arrays import Dataset
from blackout.data.pictures import open_picture, square, stack

if TYPE_CHECKING:
    from PIL.Image import Image

PICTURES, ARCHIVE, PARTITION = "img_align_celeba", "img_align_celeba.zip", "list_eval_partition.txt"
SPLITS = ("train", "valid", "test")

_CROP, _SIZE = 140, 64


def find_celeba(path: Path) -> Path | None:
    """The folder of pictures or the archive that `path` is or holds."""
    if path.name in (PICTURES, ARCHIVE) and path.exists():
        return path
    if path.is_file():
        return None
    folders = (path, path / "celeba", path / "Img")
    found = next((f / name for f in folders for name in (PICTURES, ARCHIVE) if (f / name).exists()), None)
    return path if found is None and (path / PARTITION).is_file() else found


def read_celeba(path: str | Path, *, split: str = "train") -> Dataset:
    """162,770, 19,867 or 19,962 pictures of shape (3, 64, 64): the central 140 x 140 pixels of each, resized."""
    validate.choice("split", split, SPLITS)
    found = find_celeba(Path(path))
    if found is None:
        raise ValueError(f"{path}: expected {PICTURES}/ or {ARCHIVE} here, and {PARTITION} in it or beside it")
    if found.is_dir():
        return _read(found, split, {file.name for file in found.iterdir()}, lambda name: (found / name).read_bytes())
    try:
        with zipfile.ZipFile(found) as archive:
            members = {Path(name).name: name for name in archive.namelist() if not name.startswith("__MACOSX")}
            return _read(found, split, set(members), lambda name: archive.read(members[name]))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise ValueError(f"{found}: not a whole .zip archive: {error}") from None


def _read(found: Path, split: str, present: set[str], read: Callable[[str], bytes]) -> Dataset:
    names = _partition(*_partition_text(found, present, read))[SPLITS.index(split)]
    missing = [name for name in names if name not in present]
    if not names or missing:
        got = f"{len(missing)} are missing, {missing[0]} first" if missing else f"{PARTITION} names none"
        raise ValueError(f"{found}: expected {len(names) or 'some'} pictures for the split {split!r}; {got}")

    def load(name: str) -> "Image":
        source = f"{found}: {name}"
        picture = open_picture(source, read(name)).convert("RGB")
        if min(picture.size) < _CROP:
            raise ValueError(f"{source}: expected 178x218 pixels, got {picture.width}x{picture.height}")
        return square(picture, _CROP, _SIZE)

    return Dataset(x=stack(load, names), name="celeba64", max_state=255, named=True)


def _partition_text(found: Path, present: set[str], read: Callable[[str], bytes]) -> tuple[str, bytes]:
    if PARTITION in present:
        return f"{found}: {PARTITION}", read(PARTITION)
    # The official download keeps the pictures in Img/ and the split in Eval/, side by side.
    for folder in (found.parent, found.parent / "Eval", found.parent.parent / "Eval"):
        if (folder / PARTITION).is_file():
            return str(folder / PARTITION), (folder / PARTITION).read_bytes()
    raise ValueError(f"{found}: expected {PARTITION} in it or beside it")


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
