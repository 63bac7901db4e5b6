"""Dataset: integer states in memory, with optional labels; and arrays that become one."""

import hashlib
import io
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from blackout import validate
from blackout.data.alphabet import Alphabet
from blackout.labels import ClassNames, by_number, check_class_names, names_in

# torch supports few operations on these types, so states are kept in the next wider one.
_WIDER = {"u2": numpy.int32, "u4": numpy.int64, "u8": numpy.int64, "b1": numpy.uint8}


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """States in memory.

    Parameters
    ----------
    x
        Integer states of shape (n, ...); images have shape (n, channels, height, width).
    name
        What reports and run folders call the data.
    max_state
        Upper bound of every state.
    labels
        Classes, int64 of shape (n,), or None.
    num_classes
        Number of classes; given if and only if `labels` is.
    class_names
        The name of each class, or None.
    alphabet
        What the labels of sequences stand for, or None.
    pad_state
        The label that fills sequences up to one length, which is part of neither loss nor bound, or None.
    named
        True for a data set whose first N items are a fixed subset. Of other data, N items are chosen at random.
    notes
        What was converted or skipped when the data were read, a line each.

    Raises
    ------
    ValueError
        If states or labels are out of range, of the wrong type or of the wrong shape.
    """

    x: Tensor
    name: str
    max_state: int
    labels: Tensor | None = None
    num_classes: int | None = None
    class_names: ClassNames = None
    alphabet: Alphabet | None = None
    pad_state: int | None = None
    named: bool = False
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        validate.states(validate.integer("max_state", self.max_state, 1) + 1, x=self.x)
        if self.x.dim() == 0 or self.x.numel() == 0:
            raise ValueError(f"x must hold at least one state, got shape {tuple(self.x.shape)}")
        if (self.labels is None) != (self.num_classes is None):
            raise ValueError(f"labels and num_classes must be given together, got num_classes={self.num_classes}")
        if self.class_names is not None:
            check_class_names(self.class_names, self.num_classes or 0)
        if self.labels is None:
            return
        if self.labels.dtype != torch.int64 or self.labels.shape != self.x.shape[:1]:
            got = f"{self.labels.dtype} of shape {tuple(self.labels.shape)}"
            raise ValueError(f"labels must be torch.int64 of shape ({len(self.x)},), got {got}")
        validate.states(validate.integer("num_classes", self.num_classes, 1), labels=self.labels)

    def __len__(self) -> int:
        return len(self.x)

    @property
    def is_sequence(self) -> bool:
        """Whether the data are sequences of labels, from text or of different lengths."""
        return self.alphabet is not None or self.pad_state is not None

    def __repr__(self) -> str:
        classes = "" if self.num_classes is None else f", {self.num_classes} classes"
        return f"Dataset({self.name}: {tuple(self.x.shape)}, states 0 to {self.max_state}{classes})"

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the states, in hexadecimal."""
        return hashlib.sha256(self.x.cpu().contiguous().view(-1).numpy().view(numpy.uint8).data).hexdigest()


def from_array(
    x: Any,
    *,
    labels: Any = None,
    max_state: int | None = None,
    num_classes: int | None = None,
    class_names: Any = None,
    name: str = "array",
    notes: tuple[str, ...] = (),
) -> Dataset:
    """A Dataset from a tensor or an array of integers.

    `max_state` defaults to the largest state in `x`. Labels are class numbers, or names: classes are then numbered in
    the order of `class_names`, by default alphabetically.
    """
    states = _integers("x", x)
    if max_state is None:
        max_state = max(1, int(states.max())) if states.numel() else 1
    if labels is None:
        return Dataset(x=states, name=name, max_state=max_state, class_names=class_names, notes=notes)
    names = names_in(labels) if class_names is None else check_class_names(class_names, len(class_names))
    labels = _integers("labels", by_number("labels", labels, names)).long()
    if num_classes is None:
        num_classes = max(1, int(labels.max()) + 1 if labels.numel() else 1, len(names or ()))
    classes: dict[str, Any] = {"labels": labels, "num_classes": num_classes, "class_names": names}
    return Dataset(x=states, name=name, max_state=max_state, notes=notes, **classes)


def read_array(path: str | Path, *, max_state: int | None = None, num_classes: int | None = None) -> Dataset:
    """A Dataset from a .npy file, or from the key `x` (or the only key) of a .npz file.

    A .npz file may have `labels`, class numbers or names, and `class_names`, which give the order of the names.
    Label grids of shape (n, height, width) become images with one channel.
    """
    path = Path(path)
    arrays = load_arrays(path)
    given: dict[str, Any] = {name: arrays.pop(name, None) for name in ("labels", "class_names")}
    x = main_array(arrays, path)
    x = x[:, None] if x.ndim == 3 else x
    if x.ndim == 4 and x.shape[3] == 3 != x.shape[1] == x.shape[2]:
        wanted = "(n, channels, height, width): numpy.moveaxis(x, 3, 1)"
        raise ValueError(f"{path}: images must have shape {wanted}, got {x.shape}")
    try:
        return from_array(x, **given, max_state=max_state, num_classes=num_classes, name=path.stem)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of a .npz file, or the array of a .npy file under the key `x`. Pickles are never loaded."""
    try:
        with path.open("rb") as file:  # numpy leaves files open that it opened itself and could not read
            loaded = numpy.load(file, allow_pickle=False)
            if isinstance(loaded, numpy.ndarray):
                if file.read(1):  # as after a change of the shape in the header
                    raise ValueError("damaged: the file is longer than its array")
                return {"x": _plausible("x", loaded)}
            with loaded:
                _check_archive(loaded.zip, file)
                return {key: _plausible(key, _member(loaded, key)) for key in loaded.files}
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except _Pickled as error:
        raise ValueError(f"{path}: {error}") from None
    except Exception as error:  # numpy raises many types for damaged files
        raise ValueError(f"{path}: not an array of integers in .npy or .npz form: {validate.one_line(error)}") from None


def load_sparse(path: Path) -> Any:
    """The matrix that `scipy.sparse.save_npz` wrote, or None if the file is of another kind."""
    from scipy import sparse

    if path.suffix.lower() != ".npz":
        return None
    if not zipfile.is_zipfile(path):
        raise ValueError("not an .npz file, or a damaged one")
    try:
        return sparse.load_npz(path)  # allow_pickle=False
    except Exception:  # another kind of .npz, or a damaged one, which load_arrays reports
        return None


def _check_archive(archive: zipfile.ZipFile, file: BinaryIO) -> None:
    """Raise ValueError for damage that numpy and zipfile do not notice.

    numpy reads as much of a member as its header asks for; zipfile drops the members after a damaged entry of its list.
    """
    if damaged := archive.testzip():
        raise ValueError(f"damaged: {damaged!r} does not match its checksum")
    file.seek(max(0, file.seek(0, io.SEEK_END) - 2**16))
    end = file.read().rpartition(b"PK\5\6")[2]
    number = int.from_bytes(end[6:8], "little")
    if number not in (len(archive.infolist()), 2**16 - 1):  # the latter: more than fit in this field
        raise ValueError(f"damaged: {len(archive.infolist())} of {number} arrays can be found")


def _plausible(key: str, array: NDArray[Any]) -> NDArray[Any]:
    """An array whose booleans, if it holds any, are zeros and ones: a damaged file may have other bytes."""
    if array.dtype == numpy.bool_ and array.size and array.view(numpy.uint8).max() > 1:
        raise ValueError(f"damaged: {key!r} holds booleans that are neither true nor false")
    return array


def main_array(arrays: dict[str, NDArray[Any]], path: Path) -> NDArray[Any]:
    """The array called `x`, or the only one of a file."""
    if "x" not in arrays and len(arrays) != 1:
        raise ValueError(f"{path}: expected the key 'x' or a single key, got {', '.join(arrays) or 'none'}")
    return arrays["x"] if "x" in arrays else next(iter(arrays.values()))


class _Pickled(ValueError):
    """An array of Python objects."""


def _member(loaded: Any, key: str) -> NDArray[Any]:
    try:
        array: NDArray[Any] = loaded[key]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        reason = f"{key!r} holds Python objects, which need pickle, and pickles are never loaded"
        raise _Pickled(f"{reason}; names can be saved as numpy.array(names, str)") from None
    return array


def _integers(name: str, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        if validate.is_integer(value.dtype):
            return value
        if value.is_floating_point() or value.is_complex():
            kind = str(value.dtype).removeprefix("torch.")
            raise ValueError(f"{name} must hold integers, got {kind}{validate.integer_advice(value)}")
        value = value.cpu().numpy()
    array = numpy.asarray(value)
    if array.dtype.kind not in "bui":
        advice = (
            validate.integer_advice(torch.from_numpy(array.astype(numpy.float64))) if array.dtype.kind == "f" else ""
        )
        raise ValueError(f"{name} must hold integers, got {array.dtype}{advice}")
    if array.dtype == numpy.uint64 and array.size and array.max() > numpy.iinfo(numpy.int64).max:
        raise ValueError(f"{name} must be less than 2^63, got {array.max()}")
    # torch takes no negative strides, foreign byte orders or read-only buffers: a copy has none of them.
    wanted = _WIDER.get(array.dtype.str[1:], array.dtype.newbyteorder("="))
    return torch.from_numpy(numpy.require(array, wanted, ["C", "W"]))
