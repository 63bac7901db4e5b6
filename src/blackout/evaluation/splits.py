"""Test and training data of an evaluation: splits of a named data set, or the user's files; and subsets of them."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from blackout.data import DATASETS, Alphabet, Dataset, has_files, open_dataset, splits_of
from blackout.data.images import find_images
from blackout.evaluation.config import reading_of
from blackout.io import pretrained
from blackout.model import DiffusionModel
from blackout.training.config import TrainConfig

_ARRAYS = (".npy", ".npz")


def dataset_of(source: str, model: DiffusionModel) -> tuple[str, dict[str, Any]]:
    """Return the data set of a run folder, and options of `open_splits`; of another model, that of its last run.

    The name is empty if it is not known. Sequences are read as those of the model: by its alphabet, and of its shape.
    """
    config, alphabet = Path(source) / "config.json", model.record.alphabet
    sequences = {"alphabet": alphabet, "length": model.shape[0]} if alphabet is not None and model.shape else {}
    if source not in pretrained() and config.exists():
        stored = TrainConfig.read(config)
        return stored.data.dataset, reading_of(stored) | sequences
    last = model.record.runs[-1].dataset if model.record.runs else ""
    return last if last in DATASETS else "", sequences


def open_splits(
    dataset: str,
    data: str | None = None,
    train_data: str | None = None,
    *,
    train_split: str = "train",
    alphabet: Alphabet | str | None = None,
    **reading: Any,
) -> tuple[Dataset, Dataset | None]:
    """Read test and training data.

    Parameters
    ----------
    dataset
        Name of a data set, or empty.
    data
        Folder with the files of the data set; or other data: an array (.npy, .npz), a folder of images, or a folder
        with subfolders train and test. Default: the folder `data`.
    train_data
        Training data, instead of that found with `data`.
    train_split
        Split of a named data set that is the training data; "all" of CelebA includes its test images.
    alphabet
        Of the user's own sequences; a named data set has its own.
    **reading
        Options of the reader of images or sequences, such as size and length.

    Returns
    -------
    test, train
        None if there is no training data.
    """
    if dataset:
        DATASETS.check(dataset)
    if train_data is not None and not Path(train_data).exists():
        raise ValueError(f"train_data must be an existing file or folder, got {train_data}")
    own = reading if alphabet is None else {**reading, "alphabet": alphabet}
    if _is_own(dataset, data):
        test, train = _read_own(Path(data or "data"), dataset, own)
    else:
        options: dict[str, Any] = {"folder": data or "data", **reading}
        test = open_dataset(dataset, "test", **options)
        train = open_dataset(dataset, train_split, **options) if train_data is None else None
    if train_data is not None:
        train = _read(Path(train_data), "train", dataset, own)
    return test, train


def subsample(data: Dataset, number: int, seed: int) -> Tensor:
    """Return `number` data points: the first of a named data set; of other data, whose files may be sorted by class,
    a random subset.
    """
    if data.named or number >= len(data):
        return data.x[:number]
    return data.x[torch.from_numpy(random_subset(len(data), number, seed)).to(data.x.device)]


def random_subset(total: int, number: int, seed: int) -> NDArray[Any]:
    """Return `number` different indices below `total`, in increasing order."""
    return numpy.sort(numpy.random.default_rng(seed).permutation(total)[:number])


def _is_own(dataset: str, data: str | None) -> bool:
    """Whether `data` is the user's own, and not the folder of a named data set."""
    path = Path(data or "data")
    needs_files = dataset != "" and DATASETS[dataset].find is not None
    if dataset and not needs_files and (data is None or (path.is_dir() and not find_images(path))):
        return False
    if not path.exists():
        advice = f"; {DATASETS[dataset].advice(dataset)}" if needs_files else ""
        raise ValueError(f"data must be an existing file or folder, got {path}{advice}")
    if needs_files and has_files(dataset, path):
        return False
    if not needs_files or path.suffix.lower() in _ARRAYS or (data is not None and path.is_dir() and find_images(path)):
        return True
    advice = DATASETS[dataset].advice(dataset)
    raise ValueError(f"data must hold the files of {dataset} ({advice}) or images, got {path}")


def _read_own(path: Path, dataset: str, reading: dict[str, Any]) -> tuple[Dataset, Dataset | None]:
    parts = splits_of(path)
    if parts == ["train"]:
        raise ValueError(f"data must have a subfolder test beside train, got {path}: give train as train_data")
    if not parts:
        return _read(path, "train", dataset, reading), None
    train = _read(path, "train", dataset, reading) if "train" in parts else None
    return _read(path, "test", dataset, reading), train


def _read(path: Path, split: str, dataset: str, reading: dict[str, Any]) -> Dataset:
    data = open_dataset(path, split, **({} if path.suffix.lower() in _ARRAYS else reading))
    if dataset == "mnist-binary" and path.is_dir() and int(data.x.max()) > 1:  # binarise images like the data set
        data = dataclasses.replace(data, x=(data.x > 127.5).to(torch.uint8), max_state=1)
    return data
