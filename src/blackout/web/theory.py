"""The theory tab: exact quantities of a process that starts from a given distribution on {0, ..., 20}."""

import functools
import inspect
import math
import textwrap
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from blackout import validate
from blackout.process import PROCESSES, MarkovProcess
from blackout.web import theory_tables
from blackout.web.theory_tables import STEPS, bridge, tables, trajectories

LEVELS = 21
MAX_TRAJECTORIES = 12
MAX_SEED = 2**32 - 1
_FIELDS = ("weights", "process", "k", "xt", "x0", "seed", "trajectories")
_CALL = """

from blackout.process import PROCESSES

weights = torch.tensor(
    {weights},
    dtype=torch.float64,
)
process = PROCESSES["{process}"].for_levels({levels})
k, xt, x0 = {k}, {xt}, {x0}  # observed in state xt at time number k, started in x0

result = tables(process, weights)
posterior = result["posterior"][:, xt]
bridge_probs = bridge(process, result["times"], k, xt, x0)
times, paths = trajectories(process, weights, {number}, seed={seed})
print(f"forward and reverse differ by {{float((result['forward'] - result['reverse']).abs().max()):.1e}}")
"""


def theory(request: Mapping[str, Any]) -> dict[str, Any]:
    """Forward and reverse distributions, posterior, bridge, rates and score at all times, as plain JSON.

    Parameters
    ----------
    request
        ``weights``: 21 numbers, not necessarily normalised. ``process``: a name of `processes`. ``xt``, ``k``: the
        process is observed in state xt at time number k, from 1 to 80 (default: the most probable state). ``x0``: the
        initial state of the bridge (default: the most probable one). ``trajectories``, ``seed``: how many reverse
        trajectories to sample, and their seed.

    Returns
    -------
    Tables by time and state. Posterior, rates and score are None at states that cannot be reached, and rates are None
    at time zero.
    """
    if not isinstance(request, Mapping):
        raise ValueError(f"request must be an object, got {type(request).__name__}")
    for field in request:
        if field not in _FIELDS:
            raise ValueError(f"unknown field {field!r}; a request has {', '.join(_FIELDS)}")
    offered = processes()
    name = validate.choice("process", request.get("process", next(iter(offered))), tuple(offered))
    process, weights = offered[name], _weights(request.get("weights"))
    k = validate.integer("k", request.get("k", STEPS // 2), 1, STEPS)
    seed = validate.integer("seed", request.get("seed", 0), 0, MAX_SEED)
    number = validate.integer("trajectories", request.get("trajectories", 6), 0, MAX_TRAJECTORIES)
    table = tables(process, weights)
    xt, x0 = _observed(table, k, request.get("xt"), request.get("x0"))
    reached = table["forward"] > 0
    clock, paths = trajectories(process, weights, number, seed) if number else (torch.empty(0), torch.empty(0))
    call = _CALL.format(
        weights=textwrap.fill(str(weights.tolist()), 100, subsequent_indent="     "),
        process=name, levels=LEVELS, k=k, xt=xt, x0=x0, number=number, seed=seed,
    )  # fmt: skip
    return {
        "process": name,
        "processes": {name: PROCESSES.help(name) for name in offered},
        "mean_suffices": process.mean_suffices,
        "weights": weights.tolist(),
        **{field: table[field].tolist() for field in ("times", "initial", "forward", "reverse")},
        "max_difference": float((table["reverse"] - table["forward"]).abs().max()),
        "difference": _or_none(table["difference"], reached),
        **{
            field: {side: _after_zero(table[f"{field}_{side}"], reached) for side in ("up", "down")}
            for field in ("rates", "score")
        },
        "k": k,
        "xt": xt,
        "x0": x0,
        "posterior": _or_none(table["posterior"][:, xt], reached[:, xt].unsqueeze(-1)),
        "bridge": bridge(process, table["times"], k, xt, x0).tolist(),
        "seed": seed,
        "trajectories": paths.tolist(),
        "trajectory_times": clock.tolist(),
        "code": inspect.getsource(theory_tables).split('"""\n\n', 1)[1] + call,  # without the docstring of the module
    }


def processes() -> dict[str, MarkovProcess]:
    """The registered processes that the tab can show: with a default for 21 levels, homogeneous continuous time."""
    found = {name: _for_levels(PROCESSES[name]) for name in PROCESSES}
    return {name: process for name, process in found.items() if process is not None}


@functools.cache
def _for_levels(cls: Any) -> MarkovProcess | None:
    try:
        process: MarkovProcess = cls.for_levels(LEVELS)
    except ValueError:
        return None
    homogeneous = process.schedule is None and not process.breaks and not process.discrete_time
    return process if homogeneous and process.num_states is not None else None


def _weights(values: Any) -> Tensor:
    if not isinstance(values, list | tuple) or len(values) != LEVELS:
        got = f"{len(values)} of them" if isinstance(values, list | tuple) else type(values).__name__
        raise ValueError(f"weights must be {LEVELS} numbers, one for each state from 0 to {LEVELS - 1}, got {got}")
    for state, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"weights must be numbers, got {value!r} for state {state}")
        validate.real(f"the weight of state {state}", value, 0.0)
    weights = torch.tensor([float(value) for value in values], dtype=torch.float64)
    total = float(weights.sum())
    if not 0 < total < math.inf:
        raise ValueError(f"weights must have a positive and finite sum, got {total}")
    return weights


def _observed(table: dict[str, Tensor], k: int, xt: Any, x0: Any) -> tuple[int, int]:
    last = len(table["initial"]) - 1
    state = int(table["forward"][k].argmax()) if xt is None else validate.integer("xt", xt, 0, last)
    if not float(table["forward"][k, state]) > 0:
        time = float(table["times"][k])
        raise ValueError(f"xt={state} cannot be reached by t={time:.4g} from states with positive weight")
    start = int(table["posterior"][k, state].argmax()) if x0 is None else validate.integer("x0", x0, 0, last)
    if not float(table["transition"][k, start, state]) > 0:
        raise ValueError(f"xt={state} cannot be reached from x0={start}")
    return state, start


def _after_zero(values: Tensor, defined: Tensor) -> list[Any]:
    """A table from the second time on, with None at time zero."""
    return [[None] * values.shape[1], *_or_none(values, defined[1:])]


def _or_none(values: Tensor, defined: Tensor) -> list[Any]:
    rows = zip(values.tolist(), defined.expand_as(values).tolist(), strict=True)
    return [[v if d else None for v, d in zip(*row, strict=True)] for row in rows]
