"""The evidence bound: an upper bound on the nats that a model needs to encode a data point."""

import warnings

import numpy
import torch
from torch import Tensor

from blackout import validate
from blackout.posterior import Denoiser, call, rate_divergence
from blackout.process.base import MarkovProcess
from blackout.process.data import check_process
from blackout.process.ending import ending_points, leaves_states, log_end_prob, sample_end
from blackout.random import Streams

_MOST = 1 << 24  # times
_ROWS = 1 << 16  # (states x times) rows handed to the denoiser at once
_LATTICE = 512  # joint states up to which the expectation over X_t is a sum
_REACH = 32.0  # |log(e^{γτ} - 1)| beyond which nothing is left to integrate
_LEAST_NODES = 256
_IMPOSSIBLE = 1e-100  # probability below which the denoiser is not called for a state
_NEGLIGIBLE = 1e-12
_LEVELS = 40  # intervals are halved so often after a time at which rates jump
_GAUSS = 8  # nodes of a Gauss-Legendre rule
_SPREAD = 3.0  # scale of the logistic distribution of sampled times
_INTERVAL = 4.0  # of g, over which an integrand that converges must fall to less than half
_NOISE = 1e-6  # of a component, per unit of g: a rate that is zero up to rounding
_JUMP = -24.0  # g at which a jump from x0 must be reversible
_ENTRIES = 1 << 24  # rates of a batch computed at once


class InfiniteBoundWarning(UserWarning):
    """The evidence bound in continuous time is infinite, while that of a sampler's steps may be finite."""


@torch.no_grad()
def evidence_bound(
    denoise: Denoiser,
    process: MarkovProcess,
    x0: Tensor,
    num_times: int = 1024,
    seed: int = 0,
    *,
    t_end: float | None = None,
    method: str = "auto",
    start_index: int = 0,
    check: bool = True,
) -> Tensor:
    """The bound on -log p(x0) of the continuous-time model, in nats, shape (batch,), summed over components.

    ∫ E[Σ_r κ_r - λ_r + λ_r log(λ_r / κ_r)] dt, plus KL(p_T(. | x0) ‖ terminal distribution) where sampling starts from
    a finite time: Appendices F and G, with the terms that do not depend on the model kept. For pure death that is
    ∫ E[y - Δ + Δ log(Δ / y)] e^{-t} / (1 - e^{-t}) dt. Derived in docs/mathematics.md#the-evidence-bound.

    Parameters
    ----------
    x0, num_times
        Data points, integers of shape (batch, ...), and the number of times at which each is evaluated.
    t_end
        Time at which sampling starts. Default: infinity if some states have terminal probability zero, as under pure
        death, else 15 relaxation times. In the former case, a finite time means a mean over paths that have ended.
    method
        ``"monte-carlo"``: one stratified time in each of `num_times` strata and one draw of X_t for each data point;
        unbiased. ``"exact"``: a quadrature with `num_times` nodes and a sum over all X_t. ``"auto"``: exact where there
        are at most 512 joint states (one component of a small count), else Monte Carlo.
    start_index
        Number of the first data point: the draws of a data point depend on the seed and its number alone.
    check
        Whether to test, with three calls of the denoiser, that the integral converges as t → 0. Where it does not, the
        bound is infinite, with an `InfiniteBoundWarning`; it is infinite too where no jump of the model leads to x0.

    Examples
    --------
    >>> import blackout as bo
    >>> points, process = torch.tensor([[2], [8]]), bo.PureDeath(9)
    >>> bo.evidence_bound(bo.ExactPosterior(process, points), process, points)  # log 2
    tensor([0.6931, 0.6931], dtype=torch.float64)
    >>> bo.evidence_bound(bo.ExactPosterior(process, points), process, points, t_end=3.0)  # from black at t = 3
    tensor([0.5516, 0.8580], dtype=torch.float64)
    """
    x0 = _check(denoise, process, x0)
    num_times, seed = validate.integer("num_times", num_times, 1, _MOST), validate.integer("seed", seed, 0)
    start_index, check = validate.integer("start_index", start_index, 0), validate.boolean("check", check)
    validate.choice("method", method, ("auto", "exact", "monte-carlo"))
    end, ended = _end(process, t_end, x0.device)
    if x0.numel() == 0:
        return torch.zeros(len(x0), dtype=torch.float64, device=x0.device)
    x0, possible = ending_points(process, x0, ended)
    if _sums(method, process.num_reachable(x0) ** min(x0[0].numel(), 64)):
        bound = _by_sum(denoise, process, x0, num_times, end, ended, abrupt=t_end is not None)
    else:
        source = Streams(seed, len(x0), start_index, x0.device)
        bound = _by_draws(denoise, process, x0, num_times, source, end, ended)
    if check:
        possible = possible & ~_is_infinite(denoise, process, x0)
    return torch.where(possible, bound + _terminal_divergence(process, x0, end), torch.inf)


def _check(denoise: Denoiser, process: MarkovProcess, x0: Tensor) -> Tensor:
    (x0,) = validate.states(check_process(process).num_states, x0=x0)
    if x0.dim() == 0:
        raise ValueError("x0 must have shape (batch, ...), got a single state")
    if process.discrete_time:
        raise ValueError(f"process must run in continuous time, got {process!r}")
    validate.function("denoise", denoise)
    return x0


def _sums(method: str, states: int) -> bool:
    """Whether the expectation over X_t is a sum over so many joint states."""
    if method == "exact" and states > 1 << 20:
        raise ValueError(f"method='exact' sums over all joint states, of which there are {states}: too many")
    return method == "exact" or (method == "auto" and states <= _LATTICE)


def warn_infinite(number: int, total: int) -> None:
    """Warn that the bound of so many data points is infinite because its integral diverges as t → 0."""
    warnings.warn(
        f"the evidence bound in continuous time is infinite for {number} of {total} data points: as t → 0 the "
        "predicted rate of leaving the data point grows as 1/t. This is so where a prediction y stays above zero, as "
        "with softplus, and for data that the model cannot produce. The bound of the steps of a sampler may be finite: "
        "Sampler.bound, or DiffusionModel.bits_per_dim(x, bound='steps').",
        InfiniteBoundWarning,
        stacklevel=3,
    )


def divergence_at(denoise: Denoiser, process: MarkovProcess, x0: Tensor, xt: Tensor, t: Tensor) -> Tensor:
    """`Posterior.divergence` summed over components, in nats per unit of time, shape (batch,)."""
    return call(denoise, process, xt, t).divergence(x0).reshape(len(x0), -1).sum(-1)


def _by_draws(
    denoise: Denoiser,
    process: MarkovProcess,
    x0: Tensor,
    num_times: int,
    source: Streams,
    end: float,
    ended: Tensor | None,
) -> Tensor:
    total = torch.zeros(len(x0), dtype=torch.float64, device=x0.device)
    largest = torch.sigmoid(torch.tensor(end / _SPREAD, dtype=torch.float64))
    for k in range(num_times):
        v = (k + source.uniform((len(x0),)).clamp(1e-9, 1 - 1e-9)) / num_times * largest
        g = _SPREAD * torch.logit(v)
        density = v * (1 - v) / (_SPREAD * largest)
        t, stretch = process.at_log_time(g)
        tau = process.clock_time(t)
        if ended is None:
            xt = process.sample_at(x0, tau, source)
        else:
            xt = process.sample_bridge_at(x0, sample_end(process, x0, ended, source), tau, ended.expand_as(tau), source)
        total += divergence_at(denoise, process, x0, xt, t) * stretch / density
    return total / num_times


def _by_sum(
    denoise: Denoiser,
    process: MarkovProcess,
    x0: Tensor,
    num_times: int,
    end: float,
    ended: Tensor | None,
    *,
    abrupt: bool,
) -> Tensor:
    num_states, (x0, member) = process.num_reachable(x0), torch.unique(x0, dim=0, return_inverse=True)
    lattice = torch.cartesian_prod(*[torch.arange(num_states, device=x0.device)] * x0[0].numel())
    lattice = lattice.reshape(-1, *x0.shape[1:])
    nodes = max(num_times, _LEAST_NODES)
    g, weight = (v.to(x0.device) for v in _nodes(process, nodes, _start(process, x0), end, abrupt=abrupt))
    # Every start against every state of one component; joint states index into this table.
    starts = torch.arange(num_states, device=x0.device).repeat_interleave(num_states)
    ends = torch.arange(num_states, device=x0.device).repeat(num_states)
    components = lattice.reshape(len(lattice), -1)
    index = (x0.reshape(len(x0), -1).long() * num_states).unsqueeze(1) + components  # (batch, joint states, components)
    total = torch.zeros(len(x0), dtype=torch.float64, device=x0.device)
    for part in torch.arange(len(g)).split(max(1, _ROWS // len(lattice))):
        times, stretch = process.at_log_time(g[part])
        probs = torch.stack([torch.exp(_log_prob(process, ends, starts, t, ended)[index].sum(-1)) for t in times])
        kappa = _rates_where(probs.amax(1) > _IMPOSSIBLE, denoise, process, lattice, times)
        for k, t in enumerate(times):
            true = process.reverse_rates(starts, ends, t)[index]
            value = rate_divergence(kappa[k].unsqueeze(0), true)
            share = probs[k] * stretch[k] * weight[part[k]]
            # A rate rounded to zero counts as infinite only where an event there is more than rounding itself.
            lost = torch.isinf(value) & (share[..., None, None] * true < _NEGLIGIBLE)
            each = torch.where(lost, 0.0, value).sum((-1, -2))
            total += torch.where(probs[k] > _IMPOSSIBLE, share * each, 0.0).sum(-1)
    return total[member]


def _start(process: MarkovProcess, x0: Tensor) -> float:
    """g = log(e^{γτ} - 1) before which integrands decay as e^g, if they decay at all."""
    return -_REACH - process.stiffness(process.num_reachable(x0))


def _is_infinite(denoise: Denoiser, process: MarkovProcess, x0: Tensor) -> Tensor:
    """Whether the bound of each data point is infinite: docs/mathematics.md#where-the-bound-is-infinite.

    As t → 0, X_t = x0. There the rate of leaving x0, times dt/dg, must vanish for the integral over g to converge. One
    jump from x0, the rate of the jump back must not be zero, or the model never arrives in x0.
    """
    parts = x0.split(max(1, _ENTRIES // (x0[0].numel() * len(process.jumps))))
    start = _start(process, x0)
    last, before = (torch.cat([_leaving(denoise, process, x, g) for x in parts]) for g in (start, start + _INTERVAL))
    diverges = (last > _NOISE * x0[0].numel()) & (last > before / 2)
    if bool(diverges.any()):
        warn_infinite(int(diverges.sum()), len(x0))
    return diverges | torch.cat([_never_arrives(denoise, process, x) for x in parts])


def _leaving(denoise: Denoiser, process: MarkovProcess, x0: Tensor, g: float) -> Tensor:
    """Σ κ dt/dg in x0, over components and channels."""
    t, stretch = process.at_log_time(torch.tensor(g, dtype=torch.float64, device=x0.device))
    return call(denoise, process, x0.long(), t).rates().reshape(len(x0), -1).sum(-1) * stretch


def _never_arrives(denoise: Denoiser, process: MarkovProcess, x0: Tensor) -> Tensor:
    """Whether the model's rate into x0 is zero in the state where its fastest jump leads."""
    t, _ = process.at_log_time(torch.tensor(_JUMP, dtype=torch.float64, device=x0.device))
    rate, jump = process.forward_rates_at(x0, process.clock_time(t)).reshape(len(x0), -1).max(-1)
    component, channel = jump // len(process.jumps), jump % len(process.jumps)
    rows = torch.arange(len(x0), device=x0.device)
    moved = x0.long().reshape(len(x0), -1).clone()
    moved[rows, component] += torch.where(rate > 0, torch.tensor(process.jumps, device=x0.device)[channel], 0)
    back = call(denoise, process, moved.reshape(x0.shape), t).rates().reshape(len(x0), -1)[rows, jump]
    return (rate > 0) & (back == 0)


def _rates_where(possible: Tensor, denoise: Denoiser, process: MarkovProcess, lattice: Tensor, times: Tensor) -> Tensor:
    """κ for each time and joint state, (times, joint states, components, R); one where no data point leads to it."""
    which, state = possible.nonzero(as_tuple=True)
    answers = call(denoise, process, lattice[state], times[which]).rates()
    kappa = answers.new_ones(*possible.shape, lattice[0].numel(), len(process.jumps))
    kappa[which, state] = answers.reshape(len(state), *kappa.shape[2:])
    return kappa


def _nodes(process: MarkovProcess, number: int, low: float, high: float, *, abrupt: bool) -> tuple[Tensor, Tensor]:
    """Nodes between low and high, at least so many, and their weights.

    The trapezoidal rule is exponentially accurate for what decays at both ends. What ends abruptly at `high` is
    integrated over u, g = high - log(1 + e^{-u}), in which it decays. Where rates jump, so does the integrand:
    Gauss-Legendre rules on short intervals, and on ever shorter ones after a jump.
    """
    if process.breaks:
        even = torch.linspace(low, high, number // _GAUSS + 2, dtype=torch.float64)
        edges = torch.unique(torch.cat([even, process.log_time_edges(low, high, _LEVELS)]))
        place, share = (torch.from_numpy(a) for a in numpy.polynomial.legendre.leggauss(_GAUSS))
        half = torch.diff(edges).unsqueeze(-1) / 2
        return (edges[:-1].unsqueeze(-1) + half * (1 + place)).flatten(), (half * share).flatten()
    if not abrupt:
        g = torch.linspace(low, high, number, dtype=torch.float64)
        weight = torch.full_like(g, (high - low) / (number - 1))
    else:
        u = torch.linspace(low - high, _REACH, number, dtype=torch.float64)
        g = high - torch.nn.functional.softplus(-u, threshold=50)
        weight = torch.sigmoid(-u) * (_REACH + high - low) / (number - 1)
    weight[[0, -1]] *= 0.5
    weight[0] += 1.0  # what lies before the first node decays as e^g
    return g, weight


def _log_prob(process: MarkovProcess, xt: Tensor, x0: Tensor, t: Tensor, ended: Tensor | None) -> Tensor:
    """log p_t(xt | x0), elementwise; given a time, also given that the process has ended by then."""
    if ended is None:
        return process.log_prob(xt, x0, t)
    tau = process.clock_time(t)
    there = process.log_prob_at(xt, x0, tau) + log_end_prob(process, xt, ended, tau)
    return there - log_end_prob(process, x0, ended)


def _end(process: MarkovProcess, t_end: float | None, device: torch.device) -> tuple[float, Tensor | None]:
    """log(e^{γτ} - 1) at the time from which sampling starts; τ where paths must have ended by then."""
    if t_end is None:
        tau = torch.tensor(15.0 / process.relaxation_rate, dtype=torch.float64)
    else:
        time = torch.tensor(validate.real("t_end", t_end, 0.0, strict=True), dtype=torch.float64)
        tau = process.clock_time(time)
    end = min(float(process.log_time(tau)), 40.0)  # later, nothing is left to happen
    if not leaves_states(process):
        return end, None
    return (_REACH, None) if t_end is None else (end, tau.to(device))


def _terminal_divergence(process: MarkovProcess, x0: Tensor, end: float) -> Tensor:
    """KL(p_T(. | x0) ‖ terminal distribution), summed over components, given that X_T is a state of the latter."""
    if process.terminal_state is not None:
        return torch.zeros(len(x0), dtype=torch.float64, device=x0.device)
    t, _ = process.at_log_time(torch.tensor(end, dtype=torch.float64))
    starts, member = process.representatives(x0)
    probs = process.probs(starts, t)
    target = process.terminal_log_prob(torch.arange(probs.shape[-1], device=x0.device))
    probs = torch.where(torch.isfinite(target), probs, 0.0)
    probs = probs / probs.sum(-1, keepdim=True)
    each = (torch.xlogy(probs, probs) - probs * target.clamp(min=-1e300)).sum(-1)
    return each[member].reshape(len(x0), -1).sum(-1)
