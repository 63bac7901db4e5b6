"""Forward draws: ours beside a gathered table of cumulative laws, for one batch of CIFAR-10's size."""

import multiprocessing
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from blackout.bench.clock import resident
from blackout.process import FiniteState, MarkovProcess, PureDeath
from blackout.times import ObservationTimes

SHAPE = (256, 3, 32, 32)
STATES = 256
_REPEATS = 5


@dataclass(frozen=True)
class Measurement:
    name: str
    seconds: float
    """Median of the draws after the first."""
    peak_mib: float
    """Growth of the resident set while drawing, the first draw included."""

    @property
    def draws_per_second(self) -> float:
        return torch.Size(SHAPE).numel() / self.seconds


def run() -> list[Measurement]:
    """Each way of drawing in a process of its own, so that peaks of memory do not mix."""
    context = multiprocessing.get_context("spawn")
    results = []
    for name in WAYS:
        with context.Pool(1) as pool:
            results.append(pool.apply(_measure, (name,)))
    return results


def _pure_death() -> Callable[[Tensor, Tensor], Tensor]:
    return PureDeath(max_count=STATES - 1).sample


def _general() -> MarkovProcess:
    """A generator without structure: all 65,280 jumps, each with a rate of its own."""
    rates = torch.rand(STATES, STATES, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    rates.fill_diagonal_(0)
    rates *= 0.05
    return FiniteState(rates - torch.diag(rates.sum(1)))


def _gathered(process: MarkovProcess, t: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """A table of cumulative laws made in advance; a draw gathers a row of it for every pixel and searches that."""
    states = torch.arange(STATES)
    table = torch.stack([process.probs(states, float(one)) for one in t]).cumsum_(-1)

    def draw(x0: Tensor, t: Tensor) -> Tensor:
        rows = table[torch.arange(len(x0)).unsqueeze(-1), x0.flatten(1)]
        return torch.searchsorted(rows, torch.rand(*rows.shape[:2], 1, dtype=torch.float64)).reshape(x0.shape)

    return draw


WAYS: dict[str, Callable[[Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    "pure death, gathered table": lambda t: _gathered(PureDeath(max_count=STATES - 1), t),
    "pure death, PureDeath.sample": lambda t: _pure_death(),
    "general generator, gathered table": lambda t: _gathered(_general(), t),
    "general generator, FiniteState.sample": lambda t: _general().sample,
}


def _measure(name: str) -> Measurement:
    torch.manual_seed(0)
    x0 = torch.randint(0, STATES, SHAPE)
    t = ObservationTimes.fisher(SHAPE[0]).values
    draw = WAYS[name](t)
    before = resident()
    seconds = []
    for _ in range(_REPEATS + 1):
        start = time.perf_counter()
        draw(x0, t)
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Measurement(name, sorted(seconds[1:])[_REPEATS // 2], max(peak - before, 0.0))
