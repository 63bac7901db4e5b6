"""The theory in the hand: for a law on {0, ..., 20}, everything that the page draws, at all times at once."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from blackout import validate
from blackout.posterior import ExactPosterior
from blackout.process import Absorbing, BirthDeath, MarkovProcess, PureDeath, Uniform
from blackout.sampling import PosteriorBridge
from blackout.times import ObservationTimes
from blackout.web.theory_code import program

STATES = 21
STEPS = 80
T_END = 15.0
MOST_PATHS = 12
MOST_SEED = 2**32 - 1
_NUMBERS = (int, float)
_FIELDS = ("weights", "process", "k", "xt", "x0", "seed", "paths")
_PROCESSES: dict[str, tuple[str, str, Callable[[], MarkovProcess]]] = {
    "pure-death": (
        "Pure death",
        "each unit dies at rate 1: m falls to m − 1 at rate m",
        lambda: PureDeath(STATES - 1),
    ),
    "birth-death": (
        "Birth and death",
        "each unit dies at rate 1, and new ones arrive at rate 6",
        lambda: BirthDeath(STATES, immigration=6.0),
    ),
    "uniform": (
        "Uniform",
        "the state is drawn anew, uniformly, at rate 1",
        lambda: Uniform(STATES),
    ),
    "absorbing": (
        "Absorbing",
        "every state falls to 0 at once, at rate 1",
        lambda: Absorbing(STATES, mask_state=0),
    ),
}


@dataclass(frozen=True, kw_only=True)
class _World:
    """A process, the law of X_0, and what Bayes' rule says at each time."""

    process: MarkovProcess
    denoise: ExactPosterior
    times: Tensor  # (K,), from 0 on
    law: Tensor  # (S,)
    transition: Tensor  # (K, S, S): [k, o, m] is P(X_t = m | X_0 = o)
    forward: Tensor  # (K, S)
    posterior: Tensor  # (K, S, S): [k, m, o] is P(X_0 = o | X_t = m)


def theory(request: dict[str, Any]) -> dict[str, Any]:
    """Forward, reverse, posterior, bridge, rates and score of a law, as plain numbers.

    `weights`: 21 numbers, of any sum. `process`: one of pure-death, birth-death, uniform, absorbing. The process is
    seen in the state `xt` at time number `k` (1 to 80) and began in `x0`; without them, the most probable state there,
    and the most probable start. `paths` walks back are drawn from `seed`. A state that cannot be reached has no
    posterior, rates or score, and time zero has no rates: both are None.
    """
    if not isinstance(request, dict):
        raise ValueError(f"request must be an object, got {type(request).__name__}")
    for field in request:
        if field not in _FIELDS:
            raise ValueError(f"request has an unknown field {field!r}; it may have {', '.join(_FIELDS)}")
    name = validate.choice("process", request.get("process", "pure-death"), tuple(_PROCESSES))
    weights = _weights(request.get("weights"))
    k = validate.integer("k", request.get("k", STEPS // 2), 1, STEPS)
    seed = validate.integer("seed", request.get("seed", 0), 0, MOST_SEED)
    number = validate.integer("paths", request.get("paths", 6), 0, MOST_PATHS)
    world = _world(_process(name), weights)
    xt, x0 = _observed(world, k, request.get("xt"), request.get("x0"))
    reverse = _reverse(world)
    walks = _walks(world, number, seed)
    return {
        "process": name,
        "processes": {key: {"label": label, "sentence": text} for key, (label, text, _) in _PROCESSES.items()},
        "times": world.times.tolist(),
        "survival": torch.exp(-world.times).tolist(),
        "weights": weights.tolist(),
        "law": world.law.tolist(),
        "forward": world.forward.tolist(),
        "reverse": reverse.tolist(),
        "gap": float((reverse - world.forward).abs().max()),
        **_moves(world),
        "k": k,
        "xt": xt,
        "x0": x0,
        "posterior": _or_none(world.posterior[:, xt], (world.forward[:, xt] > 0).unsqueeze(-1)),
        "bridge": _bridge(world, k, xt, x0).tolist(),
        "seed": seed,
        **walks,
        "code": program(world.process, weights.tolist(), k, xt, x0, seed, number),
    }


def observation_times() -> ObservationTimes:
    """-2 log cos θ with θ in equal steps, then 15: not in the paper.

    Equal steps of Fisher and Rao's length for a unit that is alive with probability e^{-t}, so that each picture
    differs from the next by as much as any other. (Equal steps of information itself, Appendix E, spend two thirds of
    the slider where twenty units hardly move.)
    """
    angles = torch.arange(1, STEPS, dtype=torch.float64) * (math.pi / (2 * STEPS))
    return ObservationTimes.from_values([*(-2 * torch.log(torch.cos(angles))).tolist(), T_END])


@functools.cache
def _process(name: str) -> MarkovProcess:
    return _PROCESSES[name][2]()


def _weights(values: Any) -> Tensor:
    if not isinstance(values, list | tuple) or len(values) != STATES:
        got = f"{len(values)} of them" if isinstance(values, list | tuple) else type(values).__name__
        raise ValueError(f"weights must be {STATES} numbers, one for each state from 0 to {STATES - 1}, got {got}")
    for state, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, _NUMBERS):
            raise ValueError(f"weights must be numbers, got {value!r} for state {state}")
        validate.real(f"the weight of state {state}", value, 0.0)
    weights = torch.tensor([float(value) for value in values], dtype=torch.float64)
    total = float(weights.sum())
    if not 0 < total < math.inf:
        raise ValueError(f"weights must have a sum that is positive and finite, got {total}")
    return weights


def _world(process: MarkovProcess, weights: Tensor) -> _World:
    states = torch.arange(STATES)
    times = torch.cat([torch.zeros(1, dtype=torch.float64), observation_times().values])
    law = weights / weights.sum()
    denoise = ExactPosterior(process, states.unsqueeze(-1), law)
    transition = process.probs(states.expand(len(times), -1), times)
    return _World(
        process=process,
        denoise=denoise,
        times=times,
        law=law,
        transition=transition,
        forward=law @ transition,
        posterior=denoise.law(*_everywhere(times)).reshape(len(times), STATES, STATES),
    )


def _everywhere(times: Tensor) -> tuple[Tensor, Tensor]:
    """Every state at every time, as a batch: x of shape (K S, 1) and t of shape (K S,)."""
    return torch.arange(STATES).repeat(len(times)).unsqueeze(-1), times.repeat_interleave(STATES)


def _observed(world: _World, k: int, xt: Any, x0: Any) -> tuple[int, int]:
    state = int(world.forward[k].argmax()) if xt is None else validate.integer("xt", xt, 0, STATES - 1)
    if not float(world.forward[k, state]) > 0:
        time = float(world.times[k])
        raise ValueError(f"xt={state} cannot be reached by t={time:.4g} from the states that have weight")
    start = int(world.posterior[k, state].argmax()) if x0 is None else validate.integer("x0", x0, 0, STATES - 1)
    if not float(world.transition[k, start, state]) > 0:
        raise ValueError(f"xt={state} cannot be reached from x0={start}")
    return state, start


def _reverse(world: _World) -> Tensor:
    """The law at the last time, taken back step by step: Eq. (5), integrated exactly over each step.

    P(X_s = m | X_t = n) is the posterior of X_0 given X_t = n, times the bridge between the two, summed over X_0; the
    forward law enters at the last time only.
    """
    step = world.process.probs(torch.arange(STATES).expand(STEPS, -1), torch.diff(world.times))  # [k, m, n]
    reached = world.transition[1:].mT  # [k, n, o]
    share = torch.where(reached > 0, world.posterior[1:] / reached, 0.0)
    back = step * torch.einsum("kno,kom->kmn", share, world.transition[:-1])
    laws = [world.forward[-1]]
    for matrix in back.flip(0):
        laws.append(matrix @ laws[-1])
    return torch.stack(laws).flip(0)


def _moves(world: _World) -> dict[str, Any]:
    """What the network learns, y, and the reverse rates (5) and score (6) at each state, for jumps up and jumps down.

    The score of the data's law is the posterior mean of the score given X_0, as its reverse rate is of the rates.
    """
    x, t = _everywhere(world.times[1:])
    process, states = world.process, torch.arange(STATES)
    rates = process.rates_from(world.denoise(x, t), x, t).squeeze(1)
    each = process.score(states.expand(len(x), -1), x.expand(-1, STATES), t)
    score = torch.einsum("no,nor->nr", world.posterior[1:].flatten(0, 1), each)
    # Channel r of the reverse process leads from x to x - jumps[r].
    up = (torch.tensor(process.jumps) < 0).double()
    reached = world.forward > 0
    difference = (world.posterior * (states - states.unsqueeze(-1))).sum(-1)
    never: list[Any] = [[None] * STATES]

    def table(values: Tensor) -> list[Any]:
        return never + _or_none(values.reshape(STEPS, STATES), reached[1:])

    return {
        "difference": _or_none(difference, reached),
        "rates": {"up": table(rates @ up), "down": table(rates @ (1 - up))},
        "score": {"up": table(score @ up), "down": table(score @ (1 - up))},
    }


def _bridge(world: _World, k: int, xt: int, x0: int) -> Tensor:
    """P(X_s = m | X_t = xt, X_0 = x0) for every s: Eq. (10) before t; after t the past is forgotten, Eq. (8)."""
    xs = torch.arange(STATES).expand(k, -1)
    start, end = torch.full_like(xs, x0), torch.full_like(xs, xt)
    before = world.process.bridge_log_prob(xs, start, end, world.times[:k], float(world.times[k])).exp()
    after = world.process.probs(torch.full((STEPS + 1 - k,), xt), world.times[k:] - world.times[k])
    return torch.cat([before, after])


def _walks(world: _World, number: int, seed: int) -> dict[str, Any]:
    """Walks back on every second time. In one component PosteriorBridge has no error, whatever the step."""
    times = observation_times().subset(STEPS // 2)
    clock = [0.0, *times.values.tolist()]
    if not number:
        return {"paths": [], "path_times": clock}
    walk = PosteriorBridge().sample(world.denoise, world.process, times, (number, 1), seed=seed, trajectory=True)
    return {"paths": walk.squeeze(-1).flip(0).T.tolist(), "path_times": clock}


def _or_none(values: Tensor, defined: Tensor) -> list[Any]:
    rows = zip(values.tolist(), defined.expand_as(values).tolist(), strict=True)
    return [[v if d else None for v, d in zip(*row, strict=True)] for row in rows]
