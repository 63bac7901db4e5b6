"""A process as plain JSON, and back."""

from typing import Any

import numpy

from blackout.process.base import MarkovProcess
from blackout.process.birth_death import BirthDeath
from blackout.process.categorical import Absorbing, DiscretizedGaussian, Halving, Uniform
from blackout.process.chain import Chain
from blackout.process.finite_state import FiniteState
from blackout.process.matrix import MatrixProcess
from blackout.process.pure_death import PureDeath

_FIELDS: dict[type[MarkovProcess], tuple[str, ...]] = {
    PureDeath: ("max_count",),
    BirthDeath: ("num_states", "birth", "death", "immigration"),
    Absorbing: ("num_states", "mask_state"),
    Uniform: ("num_states",),
    Halving: ("num_states",),
    DiscretizedGaussian: ("num_states", "bandwidth", "rate", "terminal_std"),
}
_MATRICES: dict[str, type[Chain] | type[FiniteState]] = {"FiniteState": FiniteState, "Chain": Chain}


def describe_process(process: MarkovProcess) -> dict[str, Any]:
    """Its kind and what determines it. A schedule is a function, which no plain text can hold: it is refused."""
    if process.schedule is not None:
        raise ValueError(f"a process with a schedule of its own cannot be saved, got {process!r}")
    if type(process) in _FIELDS:
        return {"kind": type(process).__name__, **{name: getattr(process, name) for name in _FIELDS[type(process)]}}
    if isinstance(process, MatrixProcess) and type(process).__name__ in _MATRICES:
        matrix = process._csr.tocoo()
        entries = {"row": matrix.row.tolist(), "column": matrix.col.tolist(), "value": matrix.data.tolist()}
        about = {"num_states": process.num_states, "ordered": process.ordered}
        return {"kind": type(process).__name__, **about, "entries": entries}
    raise ValueError(f"only the processes of this package can be saved, got {type(process).__name__}")


def process_from(values: dict[str, Any]) -> MarkovProcess:
    """The process of a description."""
    from scipy import sparse

    values = dict(values)
    kind = values.pop("kind")
    for cls, names in _FIELDS.items():
        if cls.__name__ == kind:
            if set(values) != set(names):
                raise ValueError(f"{kind} has the fields {', '.join(names)}, got {', '.join(values)}")
            return cls(**values)
    if kind not in _MATRICES:
        raise ValueError(f"process {kind!r} is not one of {', '.join([c.__name__ for c in _FIELDS] + list(_MATRICES))}")
    size, entries = values["num_states"], values["entries"]
    where = (numpy.asarray(entries["row"], dtype=int), numpy.asarray(entries["column"], dtype=int))
    matrix = sparse.coo_array((numpy.asarray(entries["value"], dtype=float), where), shape=(size, size))
    return _MATRICES[kind](matrix.tocsr(), ordered=values["ordered"])
