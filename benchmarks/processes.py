"""Forward sampling of a batch of CIFAR-10's size, compared with a table of cumulative probabilities."""

import multiprocessing
import resource
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.timing import resident, seconds
from blackout.process import FiniteState, MarkovProcess, PureDeath
from blackout.times import ObservationTimes

Draw = Callable[[Tensor, Tensor], Tensor]

SHAPE = (256, 3, 32, 32)
STATES = 256
_REPEATS = 5


@dataclass(frozen=True)
class Measurement:
    """Median time of a call after the first, and growth of the resident memory, including the first call."""

    name: str
    seconds: float
    peak_mib: float

    @property
    def draws_per_second(self) -> float:
        return torch.Size(SHAPE).numel() / self.seconds


def run() -> list[Measurement]:
    """Measure each method in its own process, so that peaks of memory are separate."""
    context = multiprocessing.get_context("spawn")
    results = []
    for name in METHODS:
        with context.Pool(1) as pool:
            results.append(pool.apply(_measure, (name,)))
    return results


def _pure_death() -> MarkovProcess:
    return PureDeath(max_count=STATES - 1)


def _general() -> MarkovProcess:
    """A generator without structure: 65,280 jumps, each with its own rate."""
    rates = torch.rand(STATES, STATES, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    rates.fill_diagonal_(0)
    rates *= 0.05
    return FiniteState(rates - torch.diag(rates.sum(1)))


def _gathered(process: MarkovProcess, t: Tensor) -> Draw:
    """Search in a row of a precomputed table of cumulative probabilities, gathered for every pixel."""
    states = torch.arange(STATES)
    table = torch.stack([process.probs(states, float(one)) for one in t]).cumsum_(-1)

    def draw(x0: Tensor, t: Tensor) -> Tensor:
        rows = table[torch.arange(len(x0)).unsqueeze(-1), x0.flatten(1)]
        return torch.searchsorted(rows, torch.rand(*rows.shape[:2], 1, dtype=torch.float64)).reshape(x0.shape)

    return draw


METHODS: dict[str, Callable[[Tensor], Draw]] = {
    "pure death, gathered table": lambda t: _gathered(_pure_death(), t),
    "pure death, PureDeath.sample": lambda t: _pure_death().sample,
    "general generator, gathered table": lambda t: _gathered(_general(), t),
    "general generator, FiniteState.sample": lambda t: _general().sample,
}


def _measure(name: str) -> Measurement:
    torch.manual_seed(0)
    x0 = torch.randint(0, STATES, SHAPE)
    t = ObservationTimes.fisher(SHAPE[0]).values
    draw = METHODS[name](t)
    before = resident()
    taken = seconds(lambda: draw(x0, t), _REPEATS, warmup=1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Measurement(name, taken, max(peak - before, 0.0))
