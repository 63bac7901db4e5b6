"""open_dataset: one door to every kind of data, by name or by path."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray
from torch import Tensor

from blackout.data.arrays import Dataset, from_array, read_array
from blackout.data.celeba import find_celeba, read_celeba
from blackout.data.cifar import find_cifar10, read_cifar10
from blackout.data.digits import make_digits
from blackout.data.mnist import find_mnist, read_mnist
from blackout.data.pictures import read_pictures
from blackout.data.volumes import find_bentheimer, read_bentheimer

NAMES = ("cifar10", "mnist", "mnist-binary", "celeba64", "bentheimer", "digits")

Reader = Callable[..., Dataset]
_FINDERS: dict[str, tuple[Callable[[Path], Path | None], Reader]] = {
    "cifar10": (find_cifar10, read_cifar10),
    "mnist": (find_mnist, read_mnist),
    "celeba64": (find_celeba, read_celeba),
    "bentheimer": (find_bentheimer, read_bentheimer),
}


def open_dataset(
    source: str | Path | Tensor | NDArray[Any], split: str = "train", *, folder: str | Path = "data", **options: Any
) -> Dataset:
    """A data set by name, from the files in `folder`; by path; or from an array in memory.

    Names: cifar10, mnist, mnist-binary, celeba64, bentheimer, digits (which needs no files). A path is a folder or
    archive of official files, a folder of pictures, or a .npy or .npz file. `options` are those of the reader, such as
    `size`.
    """
    if isinstance(source, Tensor | numpy.ndarray):
        return _call(from_array, (source,), _whole(split, "an array", options))
    if source == "digits":
        return _call(make_digits, (), {"split": split, **options})
    if source == "mnist-binary":
        return _call(read_mnist, (folder,), {"split": split, "binarize": 127.5, **options})
    if isinstance(source, str) and source in _FINDERS:
        return _call(_FINDERS[source][1], (folder,), {"split": split, **options})
    return _by_path(Path(source), split, options)


def has_files(name: str, folder: Path) -> bool:
    """Whether a folder holds the files of a data set known by name; the digits need none."""
    found = _FINDERS.get("mnist" if name == "mnist-binary" else name)
    return found is None or found[0](folder) is not None


def parts_of(path: Path) -> list[str]:
    """Which of the splits train and test a path has: official files both, a folder its sub-folders of these names."""
    if path.suffix not in (".npy", ".npz") and any(find(path) is not None for find, _ in _FINDERS.values()):
        return ["train", "test"]
    return [split for split in ("train", "test") if (path / split).is_dir()]


def _by_path(path: Path, split: str, options: dict[str, Any]) -> Dataset:
    if not path.exists():
        raise ValueError(f"source must be one of {', '.join(NAMES)} or a path that exists, got {str(path)!r}")
    if path.suffix in (".npy", ".npz") and find_bentheimer(path) is None:
        return _call(read_array, (path,), _whole(split, str(path), options))
    readers = {name: reader for name, (find, reader) in _FINDERS.items() if find(path) is not None}
    if len(readers) > 1:
        raise ValueError(f"{path}: holds {' and '.join(readers)}; name one of them, with folder={str(path)!r}")
    if readers:
        return _call(next(iter(readers.values())), (path,), {"split": split, **options})
    if not path.is_dir():
        raise ValueError(f"{path}: expected a folder, .npy, .npz, .tar.gz (CIFAR-10) or img_align_celeba.zip")
    if (path / split).is_dir():
        return _call(read_pictures, (path,), {"split": split, **options})
    return _call(read_pictures, (path,), _whole(split, str(path), options))


def _whole(split: str, what: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options, for a source that has no parts: all of it is there to be trained on."""
    if split != "train":
        raise ValueError(f"split must be 'train', because {what} has no parts, got {split!r}")
    return options


def _call(reader: Reader, arguments: tuple[Any, ...], options: dict[str, Any]) -> Dataset:
    known = [p.name for p in inspect.signature(reader).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for option in options:
        if option not in known:
            raise ValueError(f"{option} is not an option of {reader.__name__}, which has {', '.join(known)}")
    return reader(*arguments, **options)
