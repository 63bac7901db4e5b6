"""Processes from files: a generator or transition matrix in a .npy or .npz file."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy

from blackout.process import Chain, FiniteState, MarkovProcess, PiecewiseGenerator

_KINDS = "generator (rates, rows sum to 0), transition (probabilities, rows sum to 1), or generators and breaks"
_SPARSE = {"format", "shape", "data"}  # what scipy.sparse.save_npz writes, among other names


def read_process(path: str | Path) -> MarkovProcess:
    """The process whose matrix is in a file. Pickles are never loaded.

    Parameters
    ----------
    path
        A .npz file with an array named `generator` (a `FiniteState`), `transition` (a `Chain`), or `generators`, shape
        (pieces, S, S), and `breaks` (a `PiecewiseGenerator`); `ordered`, true or false, may stand beside them. Or a
        generator alone: a .npy file, or a sparse matrix that `scipy.sparse.save_npz` wrote.

    Raises
    ------
    ValueError
        If the file holds something else, or a matrix that is no generator; the message names the file.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"process: {path} is not a file")
    try:
        arrays = _arrays(path)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile):
        raise ValueError(f"{path} is not a .npy or .npz file of numbers (pickles are not loaded)") from None
    try:
        return _process(arrays)
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} holds no process: {error}") from None


def _arrays(path: Path) -> dict[str, Any]:
    """The arrays of a file by name."""
    with path.open("rb") as file:
        found = numpy.load(file, allow_pickle=False)
        if isinstance(found, numpy.ndarray):
            return {"generator": found}
        if not set(found.files) >= _SPARSE:
            return {name: found[name] for name in found.files}
    from scipy import sparse

    return {"generator": sparse.load_npz(path)}


def _process(arrays: Mapping[str, Any]) -> MarkovProcess:
    values = dict(arrays)
    ordered = _truth(values.pop("ordered")) if "ordered" in values else None
    names = set(values)
    if names == {"generator"}:
        return FiniteState(values["generator"], ordered=ordered)
    if names == {"transition"}:
        return Chain(values["transition"], ordered=ordered)
    if names == {"generators", "breaks"}:
        pieces, breaks = values["generators"], values["breaks"]
        if pieces.ndim != 3 or breaks.ndim != 1:
            shapes = f"{pieces.shape} and {breaks.shape}"
            raise ValueError(f"generators must have shape (pieces, S, S) and breaks (pieces - 1,), got {shapes}")
        return PiecewiseGenerator(list(pieces), breaks.tolist(), ordered=ordered)
    raise ValueError(f"it must hold {_KINDS}, got {', '.join(sorted(names)) or 'nothing'}")


def _truth(value: Any) -> bool:
    if value.shape != () or value.dtype != bool:
        raise ValueError(f"ordered must be true or false, got {value!r}")
    return bool(value)
