"""Data in memory, in the forms that users have them in: arrays, Datasets of this package and of torch, DataLoaders."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy
import torch
from torch.utils import data as torch_data

from blackout.data.arrays import Dataset
from blackout.labels import ClassNames, check_training_labels


class Inputs(NamedTuple):
    """Data points, not checked yet, and what came with them."""

    x: Any
    labels: Any = None
    class_names: ClassNames = None
    max_state: int | None = None
    """The largest state that data of this kind may have; None: the largest in x."""


def read_inputs(x: Any) -> Inputs:
    """The data points, and the labels where there are some, of whatever holds them.

    Parameters
    ----------
    x
        A tensor, an array, a list; a `Dataset`; a map-style Dataset of torch, whose items are data points or pairs
        (data point, label), each a tensor, an array or a Pillow image; or a DataLoader of one. All items are read
        into memory. A DataLoader that only shuffles is read in the order of its data, so that runs can be repeated.
    """
    if isinstance(x, Dataset):
        return Inputs(x.x, x.labels, x.class_names, x.max_state)
    if isinstance(x, torch_data.DataLoader):
        plain = type(x.sampler) in (torch_data.SequentialSampler, torch_data.RandomSampler)
        if plain and x.collate_fn is torch_data.default_collate:
            return read_inputs(x.dataset)
        _check_length(x.dataset)
        return _joined([_pair(batch) for batch in x], torch.cat)
    if isinstance(x, torch_data.TensorDataset):
        return Inputs(*_pair(x.tensors))
    if isinstance(x, torch_data.Dataset):
        items: Any = x
        return _joined([_pair(items[k]) for k in range(_check_length(x))], torch.stack)
    return Inputs(x)


def read_training(
    x: Any, labels: Any, class_names: Any, num_classes: int, known: ClassNames
) -> tuple[Any, torch.Tensor | None, ClassNames]:
    """Data points to train on, with the class of each and the names of the classes: see `check_training_labels`.

    Labels that come with x are used by a model with classes, and ignored by one without.
    """
    given = read_inputs(x)
    if labels is not None and given.labels is not None and num_classes:
        raise ValueError("labels must be None: x has labels of its own")
    if labels is None and num_classes:
        labels, class_names = given.labels, given.class_names if class_names is None else class_names
    try:
        num = len(given.x)
    except TypeError:
        raise ValueError(f"x must be data points, integers of shape (n, ...), got {given.x!r}") from None
    return given.x, *check_training_labels(labels, num, num_classes, class_names, known)


def _check_length(dataset: Any) -> int:
    if isinstance(dataset, torch_data.IterableDataset) or not hasattr(dataset, "__len__"):
        kind = type(dataset).__name__
        raise ValueError(f"x must be a Dataset with a length, got {kind}: collect its items in a tensor first")
    return len(dataset)


def _pair(item: Any) -> tuple[Any, Any]:
    """A data point or a batch of them, and the label or labels, or None."""
    if not isinstance(item, tuple | list):
        return item, None
    if not 1 <= len(item) <= 2:
        raise ValueError(f"x must hold data points or pairs of data point and label, got items of {len(item)} parts")
    return item[0], item[1] if len(item) == 2 else None


def _joined(pairs: list[tuple[Any, Any]], join: Callable[[list[torch.Tensor]], torch.Tensor]) -> Inputs:
    points, labels = zip(*pairs, strict=True) if pairs else ((), ())
    try:
        x = join([_tensor(point) for point in points])
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"x must hold data points of one shape and type: {error}") from None
    known = [label.cpu() if isinstance(label, torch.Tensor) else label for label in labels if label is not None]
    if known and len(known) < len(labels):
        raise ValueError(f"x must have a label for each data point or for none, got {len(known)} of {len(labels)}")
    each = numpy.concatenate([numpy.atleast_1d(numpy.asarray(label)) for label in known]) if known else None
    return Inputs(x, each, max_state=255 if points and _is_image(points[0]) else None)


def _is_image(value: Any) -> bool:
    return hasattr(value, "getbands")


def _tensor(value: Any) -> torch.Tensor:
    """One item of a Dataset, or one batch of a DataLoader."""
    if _is_image(value):
        from blackout.data.decode import channels_first, composite, eight_bits

        return torch.from_numpy(channels_first(eight_bits("x", composite(value))))
    if not isinstance(value, torch.Tensor | numpy.ndarray | numpy.number):
        raise TypeError(f"an item must be a tensor, an array or an image, got {type(value).__name__}")
    return torch.as_tensor(value)
