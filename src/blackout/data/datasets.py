"""open_dataset: every kind of data, by name, by path or from memory."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray
from torch import Tensor

from blackout.data import DATASETS
from blackout.data.arrays import Dataset, from_array, read_array
from blackout.data.images import read_images
from blackout.data.sequences import read_sequences
from blackout.data.source import Source
from blackout.data.suffixes import sequence_kind

_ARRAYS = (".npy", ".npz")
_CELLS = (".h5ad", ".h5", ".mtx", ".csv", ".tsv")  # files of `blackout cells`


def open_dataset(
    source: str | Path | Tensor | NDArray[Any], split: str = "train", *, folder: str | Path = "data", **options: Any
) -> Dataset:
    """A data set by name, by path, or from an array in memory.

    Parameters
    ----------
    source
        A name of `DATASETS`; a path: a folder or archive of a data set's official files, a folder of images, a .npy
        or .npz file, or sequences (.txt, FASTA, FASTQ); or an array of integers.
    split
        "train" or "test" (CelebA: "valid" and "all", too). Arrays have "train" only.
    folder
        Where the files of a named data set are.
    options
        Keyword arguments of the reader, such as `size`.
    """
    if isinstance(source, Tensor | numpy.ndarray):
        return _read("from_array", from_array, source, _unsplit(split, "an array", options))
    if source in DATASETS:
        return _read(str(source), DATASETS[str(source)].read, folder, {"split": split, **options})
    path = Path(source)
    if not path.exists():
        raise ValueError(f"source must be one of {', '.join(DATASETS)} or an existing path, got {str(path)!r}")
    found = _sources_in(path)
    if len(found) > 1:
        raise ValueError(f"{path}: holds {' and '.join(found)}; name one of them, with folder={str(path)!r}")
    if found:
        return _read(found[0], DATASETS[found[0]].read, path, {"split": split, **options})
    if path.suffix.lower() in _ARRAYS:
        return _read("read_array", read_array, path, _unsplit(split, str(path), options))
    if sequence_kind(path):
        return _read("read_sequences", read_sequences, path, {"split": split, **options})
    if not path.is_dir():
        kinds = ".npy, .npz, .txt, .fasta, .fastq, .tar.gz (CIFAR-10) or img_align_celeba.zip"
        cells = f"; single cells: `blackout cells train {path}`" if path.suffix.lower() in _CELLS else ""
        raise ValueError(f"{path}: expected a folder of images, {kinds}{cells}")
    if (path / split).is_dir():
        return _read("read_images", read_images, path, {"split": split, **options})
    return _read("read_images", read_images, path, _unsplit(split, str(path), options))


def has_files(name: str, folder: Path) -> bool:
    """Whether a folder holds the files of a named data set, or it needs none."""
    source: Source = DATASETS[name]
    return source.has_files(folder)


def splits_of(path: Path) -> list[str]:
    """Which of the splits train and test a path has: sequences and official files both."""
    if path.suffix.lower() not in _ARRAYS and (sequence_kind(path) or _sources_in(path)):
        return ["train", "test"]
    return [split for split in ("train", "test") if (path / split).is_dir()]


def _sources_in(path: Path) -> list[str]:
    """Names of the data sets whose official files a path holds; variants of one reader count once."""
    found: dict[Any, str] = {}
    for name in DATASETS:
        find = DATASETS[name].find
        if find is not None and find not in found and find(path) is not None:
            found[find] = name
    return list(found.values())


def _unsplit(split: str, what: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options, for a source that has no splits."""
    if split != "train":
        raise ValueError(f"split must be 'train', because {what} has no splits, got {split!r}")
    return options


def _read(name: str, reader: Callable[..., Dataset], source: Any, options: dict[str, Any]) -> Dataset:
    names = [p.name for p in inspect.signature(reader).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for option in options:
        if option not in names:
            raise ValueError(f"{option} is not an option of {name}, whose options are {', '.join(names)}")
    return reader(source, **options)
