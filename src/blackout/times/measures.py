"""Observation times at equal steps of a measure of change: Appendix E, for any process."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from blackout import validate
from blackout.process.base import MarkovProcess
from blackout.process.data import check_process
from blackout.slow import SlowWork
from blackout.times.grid import MOST_STEPS, ObservationTimes

MEASURES = ("fisher", "entropy", "production", "variance", "snr", "kl", "length")
_T_END = 15.0  # the paper's, in relaxation times
_LEVELS = 10  # points at which the measure is evaluated after a time at which rates jump
_NOISE = 1e-9  # in computed distributions
_REMAINING = 1e-3  # largest distance of a data point from the terminal distribution, all components together
_LONGEST = 1_000_000  # steps of a chain
_LARGEST_TABLE = 1 << 27  # rates of all states
_LAST = 1e-3  # share of the length after which nothing is left to decide


def fisher(process: MarkovProcess, num_steps: int, t_end: float) -> ObservationTimes:
    """Equal steps of Fisher information."""
    if process.time_rule != "fisher":
        return ObservationTimes.equalize(process, "fisher", num_steps, t_end)
    return _on_real_clock(process, ObservationTimes.fisher(num_steps, _clock(process, t_end)), t_end)


def uniform(process: MarkovProcess, num_steps: int, t_end: float) -> ObservationTimes:
    """Equal steps of time on the homogeneous clock."""
    return _on_real_clock(process, ObservationTimes.uniform(num_steps, _clock(process, t_end)), t_end)


def survival(process: MarkovProcess, num_steps: int, t_end: float) -> ObservationTimes:
    """Equal steps of e^{-t} on the homogeneous clock."""
    return _on_real_clock(process, ObservationTimes.survival(num_steps, _clock(process, t_end)), t_end)


def cosine(process: MarkovProcess, num_steps: int, t_end: float) -> ObservationTimes:
    """The cosine schedule of masking on the homogeneous clock."""
    return _on_real_clock(process, ObservationTimes.cosine(num_steps, _clock(process, t_end)), t_end)


def equalized(process: MarkovProcess, num_steps: int, t_end: float, *, measure: str) -> ObservationTimes:
    """Equal steps of a measure of change."""
    return ObservationTimes.equalize(process, measure, num_steps, t_end)


def every_step(process: MarkovProcess, num_steps: int, t_end: float) -> ObservationTimes:
    """Every step of a chain."""
    if not process.discrete_time:
        raise ValueError(f"time rule 'steps' is for chains in discrete time, got {process!r}")
    if t_end > _LONGEST:
        raise ValueError(f"process must mix within {_LONGEST:,} steps, but it takes {int(t_end):,}")
    return ObservationTimes(range(1, max(2, int(t_end)) + 1))


def equal_steps(
    process: MarkovProcess,
    measure: str,
    num_steps: int,
    t_end: float | None,
    x0: Sequence[int] | Tensor | None,
    resolution: int,
) -> Tensor:
    """The values of `ObservationTimes.equalize`."""
    validate.choice("measure", measure, MEASURES)
    num_steps = validate.integer("num_steps", num_steps, 2, MOST_STEPS)
    if check_process(process).discrete_time:
        raise ValueError(f"process must run in continuous time: the times of {process!r} are its steps")
    process.terminal((0,))  # raises, with the reason, for a process without a terminal distribution
    gamma = process.relaxation_rate
    time = mixing_time(process) if t_end is None else validate.real("t_end", t_end, 0.0, strict=True)
    tau_end = process.clock_time(torch.tensor(time, dtype=torch.float64))
    g_end = float(process.log_time(tau_end))
    if g_end <= 0:
        raise ValueError(
            f"t_end must be more than {0.6931 / gamma:.4g} on the clock of the process, got {float(tau_end):.4g}"
        )
    g = torch.linspace(-g_end, g_end, validate.integer("resolution", resolution, 16, MOST_STEPS), dtype=torch.float64)
    g = torch.unique(torch.cat([g, process.log_time_edges(-g_end, g_end, _LEVELS)]))
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
    values[-1] = time  # where the measure has stopped changing before, so has the interpolation
    return values


def mixing_time(process: MarkovProcess, units: float = _T_END, x0: Tensor | None = None) -> float:
    """`units` relaxation times, or as many as X_t needs to be as near its end as pure death, on the real clock.

    Decay rates are not enough: m -> m // 2 at rate one has no other rate, but a byte needs eight events. Sampling that
    starts before the process has mixed starts from the wrong distribution. With data points x0, (n, ...), no sooner
    than each of them, all components together, is within 1e-3 of the terminal distribution, in total variation; for
    pure death, log(S / 1e-3) with S the largest total count.
    """
    tau = torch.tensor(units / process.relaxation_rate, dtype=torch.float64)
    tau = tau.ceil() if process.discrete_time else tau
    if process.num_states is not None:
        ends = torch.tensor([[0], [process.num_states - 1]])  # what lies between is not needed, and may be much
        near = (process.num_states - 1) * math.exp(-units)
        tau = _first_near(process, ends, near, tau * 1.05 ** torch.arange(190, dtype=torch.float64))  # up to 1e4 tau
    if x0 is not None:
        later = [float(tau)]
        while later[-1] < 1e4 * tau:
            after = later[-1] + max(0.5 / process.relaxation_rate, later[-1] / 200)
            later.append(math.ceil(after) if process.discrete_time else after)
        tau = _first_near(process, x0, _REMAINING, torch.tensor(later, dtype=torch.float64))
    return float(process.real_time(tau))


def _first_near(process: MarkovProcess, x0: Tensor, near: float, taus: Tensor) -> Tensor:
    """The first of the increasing taus at which each of x0 is that near its end, in total variation; else the last."""
    starts, number = process.slowest_starts(x0)
    near = max(near, number * _NOISE) * (1 + 1e-9)
    taus = taus.ceil().unique() if process.discrete_time else taus
    for k, logs in enumerate(process.log_overlap_along(starts, taus)):
        if -math.expm1(number * float(logs.min())) <= near:
            return taus[k]
    return taus[-1]


def _clock(process: MarkovProcess, t_end: float) -> float:
    return float(process.clock_time(torch.tensor(t_end, dtype=torch.float64)))


def _on_real_clock(process: MarkovProcess, times: ObservationTimes, t_end: float) -> ObservationTimes:
    values = process.real_time(times.values)
    values[-1] = t_end  # which may lie where nothing happens, or be rounded
    return ObservationTimes(values)


def _starts(process: MarkovProcess, x0: Sequence[int] | Tensor | None) -> Tensor:
    if x0 is not None:
        (starts,) = validate.states(process.num_states, x0=x0)
        return starts.reshape(-1)
    max_state = 255 if process.num_states is None else process.num_states - 1
    return torch.linspace(0, max_state, min(32, max_state + 1)).round().long()


def _density(process: MarkovProcess, measure: str, tau: Tensor, starts: Tensor) -> Tensor:
    """The measure's change per unit of the homogeneous clock at each tau, averaged over the starts, up to a factor."""
    closed = process.length_density(tau)
    if closed is not None and measure in ("kl", "length"):
        return closed
    size = process.num_states or int(starts.max()) + 1
    if size * len(process.jumps) > _LARGEST_TABLE:
        raise ValueError(
            f"measure {measure!r} needs the rates of all {len(process.jumps)} jumps of {size} states: too many; "
            "the measure 'length' and the time rules 'uniform', 'survival' and 'cosine' do not"
        )
    pieces = torch.bucketize(tau, torch.tensor(process.breaks, dtype=torch.float64)).tolist()
    changes = {}
    for piece in set(pieces):
        rates = process.forward_rates_at(torch.arange(size), tau[pieces.index(piece)])
        production = measure == "production"
        changes[piece] = _Production(rates, process.jumps) if production else _Change(measure, rates, process)
    work = SlowWork(
        f"placing observation times for {process!r}",
        "use a rule without a forward solution, such as 'uniform', fewer states or starts, or a lower resolution",
    )
    out = []
    for one, piece, probs in zip(tau, pieces, process.probs_along(starts, tau), strict=True):
        out.append(changes[piece](probs, one))
        work.done((len(out) / len(tau) + float(one / tau[-1])) / 2)  # some of the cost is per time, some per jump
    return torch.stack(out)


class _Change:
    """The change of a measure that follows from the distribution and its derivative."""

    def __init__(self, measure: str, rates: Tensor, process: MarkovProcess) -> None:
        self.measure, self.gamma = measure, process.relaxation_rate
        self.generator, self.states = _generator(rates, process.jumps), torch.arange(len(rates))

    def __call__(self, probs: Tensor, tau: Tensor) -> Tensor:
        change = (self.generator @ probs.T).T
        if self.measure in ("fisher", "kl", "length"):
            information = torch.where(probs > 0, change**2 / probs.clamp(min=1e-300), 0.0).sum(-1)
            if self.measure != "fisher":
                return torch.sqrt(information).mean()
            # About q = e^{-γτ}, per unit of τ: I_τ / |dq/dτ|.
            return information.mean() / (self.gamma * torch.exp(-self.gamma * tau))
        if self.measure == "entropy":
            return (change * torch.where(probs > 0, torch.log(probs), 0.0)).sum(-1).mean().abs()
        mean = (probs * self.states).sum(-1, keepdim=True)
        spread = (change * (self.states - mean) ** 2).sum(-1)
        if self.measure == "variance":
            return spread.mean().abs()
        # log(mean² / variance), where both are positive.
        mean, variance = mean.squeeze(-1), (probs * (self.states - mean) ** 2).sum(-1)
        shift = (change * self.states).sum(-1)
        known = (mean > 0) & (variance > 0)
        return (
            torch.where(known, 2 * shift / mean.clamp(min=1e-300) - spread / variance.clamp(min=1e-300), 0.0)
            .mean()
            .abs()
        )


class _Production:
    """Entropy production, Σ J_mn log(J_mn / J_nm) with J_mn = p_m W_mn; with one-way jumps, the flux of those alone."""

    def __init__(self, rates: Tensor, jumps: tuple[int, ...]) -> None:
        size, steps = len(rates), torch.tensor(jumps)
        source, channel = (rates > 0).nonzero().unbind(-1)
        target = source + steps[channel]
        inside = (target >= 0) & (target < size)
        self.source, self.target, self.rate = source[inside], target[inside], rates[source, channel][inside]
        order = {jump: r for r, jump in enumerate(jumps)}
        opposite = torch.tensor([order.get(-jump, -1) for jump in jumps])[channel[inside]]
        self.back = torch.where(opposite >= 0, rates[self.target, opposite], 0.0)
        if bool((one_way := self.back == 0).any()):
            self.source, self.target, self.rate = self.source[one_way], self.target[one_way], self.rate[one_way]
            self.back = self.back[one_way]

    def __call__(self, probs: Tensor, tau: Tensor) -> Tensor:
        flux = probs[:, self.source] * self.rate
        if bool((self.back == 0).any()):
            return flux.sum(-1).mean()
        back = (probs[:, self.target] * self.back).clamp(min=1e-300)
        return torch.where(flux > 0, flux * torch.log(flux.clamp(min=1e-300) / back), 0.0).sum(-1).mean().abs()


def _generator(rates: Tensor, jumps: tuple[int, ...]) -> Tensor:
    """The transposed generator, so that d/dt p = Q^T p is Eq. (3); sparse if it has few channels."""
    size = len(rates)
    source = torch.arange(size).unsqueeze(1).expand_as(rates)
    target = source + torch.tensor(jumps)
    inside = (target >= 0) & (target < size)
    moves = torch.stack([target[inside], source[inside]])
    stays = torch.arange(size).expand(2, -1)
    values = torch.cat([rates[inside], -rates.sum(1)])
    places = torch.cat([moves, stays], 1)
    matrix = torch.sparse_coo_tensor(places, values, (size, size), check_invariants=True).coalesce()
    return matrix if 4 * len(jumps) < size else matrix.to_dense()


def _interpolate(at: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """y as a piecewise linear function of the increasing x."""
    index = torch.searchsorted(x, at).clamp(1, len(x) - 1)
    x0, x1 = x[index - 1], x[index]
    weight = torch.where(x1 > x0, (at - x0) / (x1 - x0).clamp(min=1e-300), 1.0).clamp(0, 1)
    return torch.lerp(y[index - 1], y[index], weight)
