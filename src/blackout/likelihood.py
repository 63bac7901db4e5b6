"""The evidence bound: an upper bound on the nats that a model needs to encode a data point."""

import math

import torch
from torch import Tensor

from blackout import validate
from blackout.posterior import Denoiser, call, rate_divergence
from blackout.process.base import MarkovProcess
from blackout.process.ending import leaves_states, log_end_prob, sample_end
from blackout.random import Streams

_ROWS = 1 << 16  # (states x times) rows handed to the denoiser at once
_LATTICE = 512  # joint states up to which the expectation over X_t is a sum
_REACH = 32.0  # |log(e^{γτ} - 1)| beyond which nothing is left to integrate
_LEAST_NODES = 256
_IMPOSSIBLE = 1e-100  # probability below which the denoiser is not called for a state
_NEGLIGIBLE = 1e-12
_SPREAD = 3.0  # scale of the logistic distribution of sampled times


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
        Where sampling starts. Default: 15 relaxation times if the terminal distribution has all states, else infinity;
        if it has not, a mean over paths that have ended by t_end: docs/mathematics.md#the-prior-term.
    method
        ``"monte-carlo"``: one stratified time in each of `num_times` strata and one draw of X_t for each data point;
        unbiased. ``"exact"``: a quadrature with `num_times` nodes and a sum over all X_t. ``"auto"``: exact where there
        are at most 512 joint states (one component of a small count), else Monte Carlo.
    start_index
        Number of the first data point: the draws of a data point depend on the seed and its number alone.

    Examples
    --------
    >>> import blackout as bo
    >>> points, process = torch.tensor([[2], [8]]), bo.PureDeath(9)
    >>> bo.evidence_bound(bo.ExactPosterior(process, points), process, points)  # log 2
    tensor([0.6931, 0.6931], dtype=torch.float64)
    >>> bo.evidence_bound(bo.ExactPosterior(process, points), process, points, t_end=3.0)  # from black at t = 3
    tensor([0.5516, 0.8580], dtype=torch.float64)
    """
    (x0,) = validate.states(process.num_states, x0=x0)
    if x0.dim() == 0:
        raise ValueError("x0 must have shape (batch, ...), got a single state")
    if process.discrete_time:
        raise ValueError(f"process must run in continuous time, got {process!r}")
    num_times, seed = validate.integer("num_times", num_times, 1), validate.integer("seed", seed, 0)
    validate.choice("method", method, ("auto", "exact", "monte-carlo"))
    end, ended = _end(process, t_end)
    if x0.numel() == 0:
        return torch.zeros(len(x0), dtype=torch.float64, device=x0.device)
    states = process.num_reachable(x0) ** min(x0[0].numel(), 64)
    if method == "exact" and states > 1 << 20:
        raise ValueError(f"method='exact' sums over all joint states, of which there are {states}: too many")
    if method == "exact" or (method == "auto" and states <= _LATTICE):
        distinct, member = torch.unique(x0, dim=0, return_inverse=True)
        bound = _by_sum(denoise, process, distinct, num_times, end, ended)[member]
    else:
        source = Streams(seed, len(x0), start_index, x0.device)
        bound = _by_draws(denoise, process, x0, num_times, source, end, ended)
    return bound + _terminal_divergence(process, x0, end)


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
    denoise: Denoiser, process: MarkovProcess, x0: Tensor, num_times: int, end: float, ended: Tensor | None
) -> Tensor:
    num_states = process.num_reachable(x0)
    lattice = _joint_states(num_states, x0.shape[1:], x0.device)
    nodes = max(num_times, _LEAST_NODES)
    reach = _REACH + process.stiffness(num_states)
    g, weight = (v.to(x0.device) for v in _nodes(nodes, -reach, end, abrupt=ended is not None))
    # Every start against every state of one component; joint states index into this table.
    starts = torch.arange(num_states, device=x0.device).repeat_interleave(num_states)
    ends = torch.arange(num_states, device=x0.device).repeat(num_states)
    components = lattice.reshape(len(lattice), -1)
    index = (x0.reshape(len(x0), -1).long() * num_states).unsqueeze(1) + components  # (batch, joint states, components)
    total = torch.zeros(len(x0), dtype=torch.float64, device=x0.device)
    for part in torch.arange(nodes).split(max(1, _ROWS // len(lattice))):
        times, stretch = process.at_log_time(g[part])
        probs = torch.stack([torch.exp(_log_prob(process, ends, starts, t, ended)[index].sum(-1)) for t in times])
        kappa = _rates_where(probs.amax(1) > _IMPOSSIBLE, denoise, process, lattice, times)
        for k, t in enumerate(times):
            true = process.reverse_rates(starts, ends, t)[index]
            value = rate_divergence(kappa[k].unsqueeze(0), true).sum((-1, -2))
            share = probs[k] * stretch[k] * weight[part[k]]
            # A rate rounded to zero counts as infinite only where an event there is more than rounding itself.
            lost = torch.isinf(value) & (share * true.sum((-1, -2)) < _NEGLIGIBLE)
            total += torch.where((probs[k] > _IMPOSSIBLE) & ~lost, share * value, 0.0).sum(-1)
    return total


def _rates_where(possible: Tensor, denoise: Denoiser, process: MarkovProcess, lattice: Tensor, times: Tensor) -> Tensor:
    """κ for each time and joint state, (times, joint states, components, R); one where no data point leads to it."""
    which, state = possible.nonzero(as_tuple=True)
    answers = call(denoise, process, lattice[state], times[which]).rates()
    kappa = answers.new_ones(*possible.shape, lattice[0].numel(), len(process.jumps))
    kappa[which, state] = answers.reshape(len(state), *kappa.shape[2:])
    return kappa


def _joint_states(num_states: int, shape: torch.Size, device: torch.device) -> Tensor:
    components = int(shape.numel())
    levels = torch.arange(num_states, device=device)
    return torch.cartesian_prod(*[levels] * components).reshape(-1, *shape)


def _nodes(number: int, low: float, high: float, *, abrupt: bool) -> tuple[Tensor, Tensor]:
    """Nodes and weights of the trapezoidal rule: exponentially accurate for what decays at both ends.

    What ends abruptly at `high` is integrated over u, g = high - log(1 + e^{-u}), in which it decays.
    """
    if not abrupt:
        g = torch.linspace(low, high, number, dtype=torch.float64)
        weight = torch.full_like(g, (high - low) / (number - 1))
    else:
        u = torch.linspace(low - high, _REACH, number, dtype=torch.float64)
        g = high - torch.nn.functional.softplus(-u, threshold=50)
        weight = torch.sigmoid(-u) * (_REACH + high - low) / (number - 1)
    weight[[0, -1]] *= 0.5
    return g, weight


def _log_prob(process: MarkovProcess, xt: Tensor, x0: Tensor, t: Tensor, ended: Tensor | None) -> Tensor:
    """log p_t(xt | x0), elementwise; given a time, also given that the process has ended by then."""
    if ended is None:
        return process.log_prob(xt, x0, t)
    tau = process.clock_time(t)
    there = process.log_prob_at(xt, x0, tau) + log_end_prob(process, xt, (ended - tau).clamp(min=0))
    return there - log_end_prob(process, x0, ended)


def _end(process: MarkovProcess, t_end: float | None) -> tuple[float, Tensor | None]:
    """log(e^{γτ} - 1) at the time from which sampling starts; τ where paths must have ended by then."""
    if t_end is None:
        tau = torch.tensor(15.0 / process.relaxation_rate, dtype=torch.float64)
    else:
        time = torch.tensor(validate.real("t_end", t_end, 0.0, strict=True), dtype=torch.float64)
        tau = process.clock_time(time)
    end = min(float(process.log_time(tau)), 40.0)  # later, nothing is left to happen
    if not leaves_states(process):
        return end, None
    return (_REACH, None) if t_end is None else (end, tau)


def _terminal_divergence(process: MarkovProcess, x0: Tensor, end: float) -> Tensor:
    """KL(p_T(. | x0) ‖ terminal distribution), summed over components, given that X_T is a state of the latter."""
    if process.terminal_state is not None:
        return torch.zeros(len(x0), dtype=torch.float64, device=x0.device)
    t, _ = process.at_log_time(torch.tensor(end, dtype=torch.float64))
    starts, member = torch.unique(x0, return_inverse=True)
    probs = process.probs(starts, t)
    target = process.terminal_log_prob(torch.arange(probs.shape[-1], device=x0.device))
    probs = torch.where(torch.isfinite(target), probs, 0.0)
    probs = probs / probs.sum(-1, keepdim=True)
    each = (torch.xlogy(probs, probs) - probs * target.clamp(min=-1e300)).sum(-1)
    return each[member].reshape(len(x0), -1).sum(-1)


class BitsPerDim(float):
    """Bits per dimension with their standard error."""

    standard_error: float

    def __new__(cls, value: float, standard_error: float) -> "BitsPerDim":
        number = super().__new__(cls, value)
        number.standard_error = standard_error
        return number

    def __getnewargs__(self) -> tuple[float, float]:  # type: ignore[override]
        return float(self), self.standard_error

    def __str__(self) -> str:
        return f"{float(self):.4f} ± {self.standard_error:.4f}"

    @staticmethod
    def mean_of(bits: Tensor) -> "BitsPerDim":
        """The mean over data points, and the standard error of that mean."""
        error = float(bits.std() / math.sqrt(len(bits))) if len(bits) > 1 else math.nan
        return BitsPerDim(float(bits.mean()), error)
