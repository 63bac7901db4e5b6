"""Held-out and training data, of a data set known by name or of the user's own; and some of either."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from blackout.data import NAMES, Dataset, open_dataset
from blackout.data.catalogue import has_files, parts_of
from blackout.data.pictures import find_pictures
from blackout.io.models import pretrained
from blackout.training.config import TrainConfig

_ARRAYS = (".npy", ".npz")
_TRAINED_ON = {"seven-segment": "digits"}  # models that ship under another name than their data


def dataset_of(source: str) -> tuple[str, dict[str, Any]]:
    """The name of the data set that a model was trained on, empty if it has none; and how it was read."""
    config = Path(source) / "config.json"
    if source not in pretrained() and config.exists():
        there = TrainConfig.read(config)
        return there.dataset, {"size": there.image_size} if there.image_size else {}
    name = _TRAINED_ON.get(source, source)
    return name if name in NAMES else "", {}


def open_splits(
    dataset: str, data: str | None = None, train_data: str | None = None, **reading: Any
) -> tuple[Dataset, Dataset | None]:
    """Held-out and training data; None where there is nothing to train on beside what is held out.

    `dataset` is a name, or empty. `data` is the folder of its files, or data of one's own: an array, a folder of
    pictures, or one with the sub-folders train and test. `train_data` stands in for the training data of either.
    """
    if dataset and dataset not in NAMES:
        raise ValueError(f"--dataset must be one of {', '.join(NAMES)}, or empty for data of your own, got {dataset!r}")
    if _is_own(dataset, data):
        test, train = _own(Path(data or "data"), dataset, reading)
    else:
        where: dict[str, Any] = {"folder": data or "data", **reading}
        test, train = open_dataset(dataset, "test", **where), None
        if train_data is None:
            train = open_dataset(dataset, "train", **where)
    if train_data is not None:
        if not Path(train_data).exists():
            raise ValueError(f"--train-data: {train_data} does not exist")
        train = _read(Path(train_data), "train", dataset, reading)
    return test, train


def some(data: Dataset, number: int, seed: int) -> Tensor:
    """That many data points: the first ones of a data set known by name, others drawn with the seed.

    The files of a folder are often sorted by class, so that the first ones would all be of the same.
    """
    if data.named or number >= len(data):
        return data.x[:number]
    return data.x[torch.from_numpy(drawn(len(data), number, seed)).to(data.x.device)]


def drawn(count: int, number: int, seed: int) -> NDArray[Any]:
    """The numbers of that many out of `count`, drawn with the seed, in their order."""
    return numpy.sort(numpy.random.default_rng(seed).permutation(count)[:number])


def _is_own(dataset: str, data: str | None) -> bool:
    path = Path(data or "data")
    if dataset == "digits" and (data is None or (path.is_dir() and not find_pictures(path))):
        return False  # they are computed
    has_name = dataset not in ("", "digits")  # among those that have files
    if not path.exists():
        fetch = f"`blackout data {dataset}` fetches it" if has_name else "give a folder or a file"
        raise ValueError(f"--data: {path} does not exist; {fetch}")
    if has_name and has_files(dataset, path):
        return False
    if not has_name or path.suffix in _ARRAYS:
        return True
    if data is not None and path.is_dir() and find_pictures(path):
        return True
    fetch = f"`blackout data {dataset}` fetches them"
    raise ValueError(f"--data: {path} holds neither the files of {dataset} ({fetch}) nor pictures of your own")


def _own(path: Path, dataset: str, reading: dict[str, Any]) -> tuple[Dataset, Dataset | None]:
    parts = parts_of(path)
    if parts == ["train"]:
        raise ValueError(
            f"--data: {path} has train/ but no test/: give held-out data, and {path / 'train'} as --train-data"
        )
    if not parts:
        return _read(path, "train", dataset, reading), None
    train = _read(path, "train", dataset, reading) if "train" in parts else None
    return _read(path, "test", dataset, reading), train


def _read(path: Path, split: str, dataset: str, reading: dict[str, Any]) -> Dataset:
    data = open_dataset(path, split, **({} if path.suffix in _ARRAYS else reading))
    if dataset == "mnist-binary" and path.is_dir() and int(data.x.max()) > 1:  # pictures, made black and white as it is
        data = dataclasses.replace(data, x=(data.x > 127.5).to(torch.uint8), max_state=1)
    return data
