"""ObservationTimes: when the process is looked at."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from blackout import validate
from blackout.process.base import MarkovProcess
from blackout.process.categorical import Absorbing
from blackout.process.chain import Chain
from blackout.process.pure_death import PureDeath
from blackout.random import uniform

_LATEST = 700.0  # e^{-t} is a number of double precision
_T_END = 15.0  # the paper's, in relaxation times
_NOISE = 1e-9  # in laws that are computed
_LONGEST = 1_000_000  # steps of a chain
MEASURES = ("fisher", "entropy", "variance", "kl", "length")
_LAST = 1e-3  # share of the length after which nothing is left to decide


class ObservationTimes:
    """t_1 < ... < t_T, with t_0 = 0 understood: Section 2.5, Appendix E, and docs/mathematics.md#when-to-look."""

    def __init__(self, values: Any) -> None:
        try:
            values = torch.as_tensor(values, dtype=torch.float64).detach().cpu().clone()
        except (TypeError, ValueError, RuntimeError, NotImplementedError):
            raise ValueError(f"values must be a list of times, got {values!r}") from None
        if values.dim() != 1 or len(values) == 0:
            raise ValueError(f"values must be a list of times, got shape {tuple(values.shape)}")
        steps = torch.diff(values, prepend=torch.zeros(1, dtype=torch.float64))
        fine = torch.isfinite(values) & (steps > 0)
        if not bool(fine.all()):
            k = int((~fine).long().argmax())
            raise ValueError(f"values must be positive, finite and increasing, got {float(values[k])} at position {k}")
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"ObservationTimes({len(self)} times from {float(self.values[0]):.3g} to {self.t_end:.3g})"

    @property
    def t_end(self) -> float:
        return float(self.values[-1])

    @staticmethod
    def fisher(num_steps: int = 1000, t_end: float = 15.0) -> "ObservationTimes":
        """Equal steps of Fisher information for pure death: `eq:observationTimes`, uniform in logit(e^{-t})."""
        num_steps, t_end = validate.integer("num_steps", num_steps, 1), validate.real("t_end", t_end, 0.0, strict=True)
        end = torch.tensor(t_end, dtype=torch.float64)
        g_end = torch.log(torch.expm1(end)) if t_end < 40 else end  # -logit(e^{-t_T})
        if num_steps == 1:
            return ObservationTimes(end.reshape(1))
        if g_end <= 0:
            raise ValueError(f"t_end must be more than log 2, about which the times are symmetric, got {t_end}")
        if t_end > _LATEST:
            raise ValueError(
                f"t_end must be at most {_LATEST:g}: the first time, its mirror image, is e^-t_end, got {t_end}"
            )
        values = torch.nn.functional.softplus(
            torch.linspace(-1, 1, num_steps, dtype=torch.float64) * g_end, threshold=50
        )
        values[-1] = end
        return ObservationTimes(values)

    @staticmethod
    def uniform(num_steps: int = 1000, t_end: float = 15.0) -> "ObservationTimes":
        """Equal steps of time: the uniform temporal grid that Appendix E compares with."""
        num_steps, t_end = validate.integer("num_steps", num_steps, 1), validate.real("t_end", t_end, 0.0, strict=True)
        return ObservationTimes(torch.linspace(0, t_end, num_steps + 1, dtype=torch.float64)[1:])

    @staticmethod
    def survival(num_steps: int = 1000, t_end: float = 15.0) -> "ObservationTimes":
        """Equal steps of e^{-t}: as many labels are masked in each. Not in the paper; for `Absorbing`."""
        num_steps, t_end = validate.integer("num_steps", num_steps, 1), validate.real("t_end", t_end, 0.0, strict=True)
        end = torch.tensor(t_end, dtype=torch.float64)
        lost = torch.arange(1, num_steps + 1, dtype=torch.float64) / num_steps * -torch.expm1(-end)
        return ObservationTimes(torch.cat([-torch.log1p(-lost[:-1]), end.reshape(1)]))

    @staticmethod
    def from_values(values: Any) -> "ObservationTimes":
        """Times of one's own, increasing and positive."""
        return ObservationTimes(values)

    @staticmethod
    def equalize(
        process: MarkovProcess,
        measure: str = "fisher",
        num_steps: int = 1000,
        t_end: float | None = None,
        x0: Sequence[int] | Tensor | None = None,
        resolution: int = 512,
    ) -> "ObservationTimes":
        """Equal steps of a measure of change along the process: Appendix E, for any process and its heuristics.

        `fisher`: Fisher information about q = e^{-γt}, with γ the relaxation rate; for pure death, `fisher(...)` again.
        `entropy`, `variance`: total variation of the entropy or variance of X_t. `kl`: Kullback–Leibler divergence
        between neighbouring times (its root, the Fisher–Rao length, is what adds up). `length`: half of the steps equal
        in that length, half in the logarithm of what remains of it; not in the paper. Laws are averaged over the starts
        `x0` (default: up to 32 states spread evenly). The first time is the mirror image of the last, as in Appendix E.
        """
        validate.choice("measure", measure, MEASURES)
        num_steps = validate.integer("num_steps", num_steps, 2)
        if isinstance(process, Chain):
            raise ValueError(f"process must run in continuous time: the times of {process!r} are its steps")
        process.terminal((0,))  # refuses, and says why, a process that never forgets its start
        gamma = process.relaxation_rate
        if t_end is None:
            tau_end = _forgotten(process, _T_END)
        else:
            time = torch.tensor(validate.real("t_end", t_end, 0.0, strict=True), dtype=torch.float64)
            tau_end = process.clock_time(time)
        g_end = float(process.log_time(tau_end))
        if g_end <= 0:
            raise ValueError(
                f"t_end must be more than {0.6931 / gamma:.4g} on the clock of the process, got {float(tau_end):.4g}"
            )
        g = torch.linspace(-g_end, g_end, validate.integer("resolution", resolution, 16), dtype=torch.float64)
        tau = torch.nn.functional.softplus(g, threshold=50) / gamma
        density = _density(process, measure, tau, _starts(process, x0)) * torch.sigmoid(g) / gamma  # per unit of g
        if not bool((density.sum() > 0) & torch.isfinite(density).all()):
            raise ValueError(f"measure {measure!r} does not change along {process!r}")
        cumulative = torch.cumulative_trapezoid(density, g)
        cumulative = torch.cat([torch.zeros(1, dtype=torch.float64), cumulative])
        if measure == "length":
            share = cumulative / cumulative[-1]
            cumulative = share - torch.log((1 - share + _LAST) / (1 + _LAST)) / math.log1p(1 / _LAST)
        targets = torch.linspace(0, 1, num_steps, dtype=torch.float64) * cumulative[-1]
        values, _ = process.at_log_time(_interpolate(targets, cumulative, g))
        return ObservationTimes(values)

    @staticmethod
    def for_process(process: MarkovProcess, num_steps: int = 1000, t_end: float = 15.0) -> "ObservationTimes":
        """When to look at a process, until `t_end` relaxation times: the paper's times for pure death.

        For masking, equal steps of e^{-t}; for all others by `length`, where equal steps of Fisher information would
        lie where nothing happens: docs/mathematics.md#when-to-look. They last longer than `t_end` where a process has
        not forgotten its start by then. A chain is looked at at each of its steps until it has, whatever the arguments.
        """
        process.terminal((0,))  # refuses, and says why, a process that never forgets its start
        if isinstance(process, Chain):
            steps = int(_forgotten(process, _T_END))
            if steps > _LONGEST:
                raise ValueError(f"process must forget its start within {_LONGEST:,} steps, but it takes {steps:,}")
            return ObservationTimes(range(1, max(2, steps) + 1))
        if isinstance(process, PureDeath | Absorbing):
            known = ObservationTimes.fisher if isinstance(process, PureDeath) else ObservationTimes.survival
            return ObservationTimes(process.real_time(known(num_steps, t_end).values))
        end = process.real_time(_forgotten(process, validate.real("t_end", t_end, 0.0, strict=True)))
        return ObservationTimes.equalize(process, "length", num_steps, float(end))

    def subset(self, num_steps: int) -> "ObservationTimes":
        """`num_steps` of these times, spread evenly over their indices, the last one kept."""
        num_steps = validate.integer("num_steps", num_steps, 1)
        if num_steps > len(self):
            raise ValueError(f"num_steps must be at most {len(self)}, the number of times, got {num_steps}")
        if num_steps == 1:
            return ObservationTimes(self.values[-1:])
        index = torch.linspace(0, len(self) - 1, num_steps, dtype=torch.float64).round().long()
        return ObservationTimes(self.values[index])

    def is_fisher(self, process: MarkovProcess) -> bool:
        """Whether these are times of pure death at equal steps of Fisher information, by whatever clock."""
        if not isinstance(process, PureDeath):
            return False
        g = process.log_time(process.clock_time(self.values))
        even = torch.linspace(-1, 1, len(self), dtype=torch.float64) * g[-1]
        return len(self) > 1 and bool((g[-1] > 0) & ((g - even).abs() < 1e-6 * g[-1]).all())

    def draw(
        self,
        size: int,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
        stratified: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """(s, t) = (t_{k-1}, t_k) with k uniform on {1, ..., T}, each of shape (size,): Algorithm 1.

        `stratified` spreads the k of one draw evenly, one in each of `size` equal strata, in order.
        """
        size = validate.integer("size", size, 0)
        v = uniform((size,), torch.device("cpu"), generator)
        index = ((torch.arange(size) + v) / size * len(self) if stratified else v * len(self)).long()
        index = index.clamp(max=len(self) - 1)
        edges = torch.cat([torch.zeros(1, dtype=torch.float64), self.values])
        return edges[index].to(device), edges[index + 1].to(device)

    def subsample(self, num_steps: int, seed: int = 0) -> Iterator[tuple[Tensor, Tensor, int]]:
        """(s, t, weight) of `num_steps` steps, later ones first, one drawn from each of as many runs of neighbours.

        The weight is the number of steps in the run: weighted, they stand for all T. Runs grow in proportion to their
        place, because what happens in a step falls off as 1/k.
        """
        num_steps = min(num_steps, len(self))
        edges = torch.cat([torch.zeros(1, dtype=torch.float64), self.values])
        ends = torch.expm1(torch.linspace(0, 1, num_steps + 1, dtype=torch.float64) * math.log1p(len(self)))
        ends = torch.maximum(ends.round().long(), torch.arange(num_steps + 1))  # no run is empty
        u = torch.rand(num_steps, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        for low, high, v in zip(*(x.flip(0).tolist() for x in (ends[:-1], ends[1:], u)), strict=True):
            k = low + int(v * (high - low))
            yield edges[k], edges[k + 1], high - low

    def backwards(self) -> Iterator[tuple[Tensor, Tensor]]:
        """(s, t) for each step from t_T down to 0, as float64 scalars."""
        edges = torch.cat([torch.zeros(1, dtype=torch.float64), self.values])
        for k in range(len(self), 0, -1):
            yield edges[k - 1], edges[k]


def _forgotten(process: MarkovProcess, t_end: float) -> Tensor:
    """`t_end` relaxation times, or as many as the law of X_t needs to be where that of pure death would be then.

    Rates of decay do not tell all: m -> m // 2 at rate one has no other, but a byte needs eight events. In a picture of
    thousands of pixels a walk back that starts before the end starts as only a dark picture would.
    """
    tau = torch.tensor(t_end / process.relaxation_rate, dtype=torch.float64)
    whole = isinstance(process, Chain)
    tau = tau.ceil() if whole else tau
    if process.num_states is None:
        return tau
    starts, end = _starts(process, None), process.terminal_log_prob(torch.arange(process.num_states)).exp()
    near = max(_NOISE, (process.num_states - 1) * math.exp(-t_end))
    longest = 1e4 * tau
    while tau < longest and float((process.probs_at(starts, tau) - end).abs().sum(-1).max()) / 2 > near:
        tau = (1.05 * tau).ceil() if whole else 1.05 * tau
    return tau


def _starts(process: MarkovProcess, x0: Sequence[int] | Tensor | None) -> Tensor:
    if x0 is not None:
        (starts,) = validate.states(process.num_states, x0=x0)
        return starts.reshape(-1)
    largest = 255 if process.num_states is None else process.num_states - 1
    return torch.linspace(0, largest, min(32, largest + 1)).round().long()


def _density(process: MarkovProcess, measure: str, tau: Tensor, starts: Tensor) -> Tensor:
    """The measure's change per unit of the homogeneous clock at each tau, averaged over the starts.

    Up to a factor: the length of pure death is 2 √o arccos(√p), the same for all starts o but for √o.
    """
    if isinstance(process, PureDeath) and measure in ("kl", "length"):
        return torch.rsqrt(torch.expm1(tau))
    size = process.num_states or int(starts.max()) + 1
    states = torch.arange(size)
    generator = _generator(process.forward_rates_at(states), process.jumps)
    out = []
    for one in tau:
        law = process.probs_at(starts, one)
        change = torch.sparse.mm(generator, law.T).T
        if measure in ("fisher", "kl", "length"):
            information = torch.where(law > 0, change**2 / law.clamp(min=1e-300), 0.0).sum(-1)
            if measure != "fisher":
                out.append(torch.sqrt(information).mean())
            else:  # about q = e^{-γτ}, per unit of τ: I_τ / |dq/dτ|
                gamma = process.relaxation_rate
                out.append(information.mean() / (gamma * torch.exp(-gamma * one)))
        elif measure == "entropy":
            out.append((change * torch.where(law > 0, torch.log(law), 0.0)).sum(-1).mean().abs())
        else:
            mean = (law * states).sum(-1, keepdim=True)
            out.append((change * (states - mean) ** 2).sum(-1).mean().abs())
    return torch.stack(out)


def _generator(rates: Tensor, jumps: tuple[int, ...]) -> Tensor:
    """The transposed generator, sparse, so that d/dt p = Q^T p is Eq. (3): one entry for each state and channel."""
    size = len(rates)
    source = torch.arange(size).unsqueeze(1).expand_as(rates)
    target = source + torch.tensor(jumps)
    inside = (target >= 0) & (target < size)
    moves = torch.stack([target[inside], source[inside]])
    stays = torch.arange(size).expand(2, -1)
    values = torch.cat([rates[inside], -rates.sum(1)])
    return torch.sparse_coo_tensor(torch.cat([moves, stays], 1), values, (size, size), check_invariants=True).coalesce()


def _interpolate(at: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """y as a piecewise linear function of the increasing x."""
    index = torch.searchsorted(x, at).clamp(1, len(x) - 1)
    x0, x1 = x[index - 1], x[index]
    weight = torch.where(x1 > x0, (at - x0) / (x1 - x0).clamp(min=1e-300), 1.0).clamp(0, 1)
    return torch.lerp(y[index - 1], y[index], weight)
