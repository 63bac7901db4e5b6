"""A process as plain JSON, and back."""

from collections.abc import Callable
from typing import Any

import numpy

from blackout.process.base import MarkovProcess
from blackout.process.birth_death import BirthDeath
from blackout.process.categorical import Absorbing, DiscretizedGaussian, Halving, Uniform
from blackout.process.chain import Chain
from blackout.process.finite_state import FiniteState
from blackout.process.matrix import MatrixProcess
from blackout.process.pure_death import PureDeath
from blackout.process.schedule import Schedule

_FIELDS: dict[type[MarkovProcess], tuple[str, ...]] = {
    PureDeath: ("max_count",),
    BirthDeath: ("num_states", "birth", "death", "immigration"),
    Absorbing: ("num_states", "mask_state"),
    Uniform: ("num_states",),
    Halving: ("num_states",),
    DiscretizedGaussian: ("num_states", "bandwidth", "rate", "terminal_std"),
}
_MATRICES: dict[str, type[Chain] | type[FiniteState]] = {"FiniteState": FiniteState, "Chain": Chain}
_SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "constant": Schedule.constant,
    "linear": Schedule.linear,
    "exponential": Schedule.exponential,
}


def describe_process(process: MarkovProcess) -> dict[str, Any]:
    """Its kind and what determines it. A schedule by a function of one's own, which no plain text can hold, is refused.

    A class of the user's own that is a FiniteState or a Chain is saved as that, by its matrix.
    """
    if process.schedule is not None and process.schedule.made is None:
        raise ValueError(
            f"schedule must be Schedule.constant, linear or exponential to be saved, got a function for {process!r}"
        )
    schedule = {} if process.schedule is None else {"schedule": list(process.schedule.made or ())}
    if type(process) in _FIELDS:
        fields = {name: getattr(process, name) for name in _FIELDS[type(process)]}
        return {"kind": type(process).__name__, **fields, **schedule}
    kind = next((name for name, cls in _MATRICES.items() if isinstance(process, cls)), None)
    if kind is not None and isinstance(process, MatrixProcess):
        matrix = process.csr.tocoo()
        entries = {"row": matrix.row.tolist(), "column": matrix.col.tolist(), "value": matrix.data.tolist()}
        about = {"num_states": process.num_states, "ordered": process.ordered}
        return {"kind": kind, **about, "entries": entries, **schedule}
    raise ValueError(f"only the processes of this package can be saved, got {type(process).__name__}")


def process_from(values: dict[str, Any]) -> MarkovProcess:
    """The process of a description."""
    from scipy import sparse

    values = dict(values)
    kind, clock = values.pop("kind"), _schedule(values.pop("schedule", None))
    for cls, names in _FIELDS.items():
        if cls.__name__ == kind:
            if set(values) != set(names):
                raise ValueError(f"{kind} has the fields {', '.join(names)}, got {', '.join(values)}")
            return cls(**values, **clock)
    if kind not in _MATRICES:
        raise ValueError(f"process {kind!r} is not one of {', '.join([c.__name__ for c in _FIELDS] + list(_MATRICES))}")
    size, entries = values["num_states"], values["entries"]
    where = (numpy.asarray(entries["row"], dtype=int), numpy.asarray(entries["column"], dtype=int))
    matrix = sparse.coo_array((numpy.asarray(entries["value"], dtype=float), where), shape=(size, size))
    return _MATRICES[kind](matrix.tocsr(), ordered=values["ordered"], **clock)


def _schedule(made: Any) -> dict[str, Schedule]:
    if made is None:
        return {}
    if not isinstance(made, list) or not made or made[0] not in _SCHEDULES:
        raise ValueError(f"schedule must be one of {', '.join(_SCHEDULES)} and its numbers, got {made!r}")
    return {"schedule": _SCHEDULES[made[0]](*made[1:])}
