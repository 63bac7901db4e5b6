"""Processes from files: a generator or transition matrix in a .npy or .npz file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from blackout.data.arrays import load_arrays, load_sparse
from blackout.process import Chain, FiniteState, MarkovProcess, PiecewiseGenerator

_KINDS = "generator (rates, rows sum to 0), transition (probabilities, rows sum to 1), or generators and breaks"


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
        matrix = load_sparse(path)
        arrays = load_arrays(path) if matrix is None else {"generator": matrix}
        if path.suffix.lower() == ".npy":
            arrays = {"generator": arrays["x"]}
    except ValueError:
        raise ValueError(f"{path} is not a .npy or .npz file of numbers (pickles are not loaded)") from None
    try:
        return _process(arrays)
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} holds no process: {error}") from None


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
