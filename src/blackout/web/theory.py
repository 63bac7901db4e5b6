"""Exact quantities of a process that starts from a given distribution on {0, ..., 20}, for the theory tab."""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from blackout import validate
from blackout.posterior import ExactPosterior
from blackout.process import PROCESSES, MarkovProcess
from blackout.sampling import PosteriorBridge
from blackout.times import ObservationTimes
from blackout.web.theory_code import program

LEVELS = 21
STEPS = 80
T_END = 15.0  # relaxation times
MAX_TRAJECTORIES = 12
MAX_SEED = 2**32 - 1
_FIELDS = ("weights", "process", "k", "xt", "x0", "seed", "trajectories")


@dataclass(frozen=True, kw_only=True)
class _Tables:
    """A process with S states, the distribution of X_0, and what follows from them at each of K times, from 0 on."""

    process: MarkovProcess
    denoise: ExactPosterior
    times: Tensor  # (K,)
    initial: Tensor  # (S,)
    transition: Tensor  # (K, S, S): [k, o, m] is P(X_t = m | X_0 = o)
    forward: Tensor  # (K, S)
    posterior: Tensor  # (K, S, S): [k, m, o] is P(X_0 = o | X_t = m)


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
    weights = _weights(request.get("weights"))
    k = validate.integer("k", request.get("k", STEPS // 2), 1, STEPS)
    seed = validate.integer("seed", request.get("seed", 0), 0, MAX_SEED)
    number = validate.integer("trajectories", request.get("trajectories", 6), 0, MAX_TRAJECTORIES)
    tables = _tables(offered[name], weights)
    xt, x0 = _observed(tables, k, request.get("xt"), request.get("x0"))
    reverse = _reverse(tables)
    return {
        "process": name,
        "processes": {name: PROCESSES.help(name) for name in offered},
        "mean_suffices": tables.process.mean_suffices,
        "times": tables.times.tolist(),
        "weights": weights.tolist(),
        "initial": tables.initial.tolist(),
        "forward": tables.forward.tolist(),
        "reverse": reverse.tolist(),
        "max_difference": float((reverse - tables.forward).abs().max()),
        **_rates(tables),
        "k": k,
        "xt": xt,
        "x0": x0,
        "posterior": _or_none(tables.posterior[:, xt], (tables.forward[:, xt] > 0).unsqueeze(-1)),
        "bridge": _bridge(tables, k, xt, x0).tolist(),
        "seed": seed,
        **_trajectories(tables, number, seed),
        "code": program(name, weights.tolist(), k, xt, x0, seed, number),
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
    homogeneous = process.schedule is None and not process.discrete_time
    return process if homogeneous and process.num_states is not None else None


def observation_times(process: MarkovProcess) -> ObservationTimes:
    """-2 log cos θ with θ in equal steps, then 15, in relaxation times: not in the paper.

    Equal steps of the Fisher–Rao length of a unit that is alive with probability e^{-t}, so that all neighbouring
    frames differ equally. Equal steps of Fisher information (Appendix E) would spend two thirds of the slider where
    twenty units hardly change.
    """
    angles = torch.arange(1, STEPS, dtype=torch.float64) * (math.pi / (2 * STEPS))
    values = torch.tensor([*(-2 * torch.log(torch.cos(angles))).tolist(), T_END], dtype=torch.float64)
    return ObservationTimes.from_values(values / process.relaxation_rate)


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


def _tables(process: MarkovProcess, weights: Tensor) -> _Tables:
    assert process.num_states is not None
    states = torch.arange(process.num_states)
    times = torch.cat([torch.zeros(1, dtype=torch.float64), observation_times(process).values])
    initial = torch.cat([weights, weights.new_zeros(len(states) - LEVELS)]) / weights.sum()
    denoise = ExactPosterior(process, states[:LEVELS].unsqueeze(-1), weights)
    transition = process.probs(states.expand(len(times), -1), times)
    x, t = _states_and_times(states, times)
    return _Tables(
        process=process,
        denoise=denoise,
        times=times,
        initial=initial,
        transition=transition,
        forward=initial @ transition,
        posterior=denoise(x, t).probs().reshape_as(transition),
    )


def _states_and_times(states: Tensor, times: Tensor) -> tuple[Tensor, Tensor]:
    """Every state at every time, as a batch: x of shape (K S, 1) and t of shape (K S,)."""
    return states.repeat(len(times)).unsqueeze(-1), times.repeat_interleave(len(states))


def _observed(tables: _Tables, k: int, xt: Any, x0: Any) -> tuple[int, int]:
    last = len(tables.initial) - 1
    state = int(tables.forward[k].argmax()) if xt is None else validate.integer("xt", xt, 0, last)
    if not float(tables.forward[k, state]) > 0:
        time = float(tables.times[k])
        raise ValueError(f"xt={state} cannot be reached by t={time:.4g} from states with positive weight")
    start = int(tables.posterior[k, state].argmax()) if x0 is None else validate.integer("x0", x0, 0, last)
    if not float(tables.transition[k, start, state]) > 0:
        raise ValueError(f"xt={state} cannot be reached from x0={start}")
    return state, start


def _reverse(tables: _Tables) -> Tensor:
    """The distribution at the last time, taken back step by step: Eq. (5), integrated exactly over each step.

    P(X_s = m | X_t = n) is the posterior of X_0 given X_t = n, times the bridge between the two, summed over X_0; the
    forward distribution enters at the last time only.
    """
    states = torch.arange(len(tables.initial))
    step = tables.process.probs(states.expand(STEPS, -1), torch.diff(tables.times))  # [k, m, n]
    reached = tables.transition[1:].mT  # [k, n, o]
    ratio = torch.where(reached > 0, tables.posterior[1:] / reached, 0.0)
    back = step * torch.einsum("kno,kom->kmn", ratio, tables.transition[:-1])
    distributions = [tables.forward[-1]]
    for matrix in back.flip(0):
        distributions.append(matrix @ distributions[-1])
    return torch.stack(distributions).flip(0)


def _rates(tables: _Tables) -> dict[str, Any]:
    """y = E[X_0 - X_t | X_t], and reverse rates (5) and score (6) at each state, summed over jumps up and jumps down.

    The score of the marginal distribution is the posterior mean of the score given X_0, as for the reverse rates.
    """
    process, states = tables.process, torch.arange(len(tables.initial))
    x, t = _states_and_times(states, tables.times[1:])
    rates = tables.denoise(x, t).rates().squeeze(1)
    given = process.score(states.expand(len(x), -1), x.expand(-1, len(states)), t)
    score = torch.einsum("no,nor->nr", tables.posterior[1:].flatten(0, 1), given)
    up = (torch.tensor(process.jumps) < 0).double()  # channel r of the reverse process leads from x to x - jumps[r]
    reached = tables.forward > 0

    def table(values: Tensor) -> list[Any]:
        at_zero: list[Any] = [None] * len(states)
        return [at_zero, *_or_none(values.reshape(STEPS, -1), reached[1:])]

    return {
        "difference": _or_none((tables.posterior * (states - states.unsqueeze(-1))).sum(-1), reached),
        "rates": {"up": table(rates @ up), "down": table(rates @ (1 - up))},
        "score": {"up": table(score @ up), "down": table(score @ (1 - up))},
    }


def _bridge(tables: _Tables, k: int, xt: int, x0: int) -> Tensor:
    """P(X_s = m | X_t = xt, X_0 = x0) for every s: Eq. (10) before t; after t it is the forward process from xt."""
    xs = torch.arange(len(tables.initial)).expand(k, -1)
    start, end = torch.full_like(xs, x0), torch.full_like(xs, xt)
    before = tables.process.bridge_log_prob(xs, start, end, tables.times[:k], float(tables.times[k])).exp()
    after = tables.process.probs(torch.full((STEPS + 1 - k,), xt), tables.times[k:] - tables.times[k])
    return torch.cat([before, after])


def _trajectories(tables: _Tables, number: int, seed: int) -> dict[str, Any]:
    """Reverse trajectories at every second time. For one component PosteriorBridge is exact at any step size."""
    times = observation_times(tables.process).subset(STEPS // 2)
    clock = [0.0, *times.values.tolist()]
    if not number:
        return {"trajectories": [], "trajectory_times": clock}
    x = PosteriorBridge().sample(tables.denoise, tables.process, times, (number, 1), seed=seed, trajectory=True)
    return {"trajectories": x.squeeze(-1).flip(0).T.tolist(), "trajectory_times": clock}


def _or_none(values: Tensor, defined: Tensor) -> list[Any]:
    rows = zip(values.tolist(), defined.expand_as(values).tolist(), strict=True)
    return [[v if d else None for v, d in zip(*row, strict=True)] for row in rows]
