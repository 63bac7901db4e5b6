"""Observation times fitted to a denoiser: what each step loses, measured along paths of data."""

from collections.abc import Callable

import torch
from torch import Tensor

from blackout import validate
from blackout.posterior import Denoiser, Posterior, call
from blackout.process.base import MarkovProcess
from blackout.process.data import check_data
from blackout.process.ending import ending_points, sample_end
from blackout.random import Streams
from blackout.sampling.posterior_bridge import PosteriorBridge
from blackout.sampling.step import Step
from blackout.times import FittedTimes, ObservationTimes


def fit_times(
    denoise: Denoiser,
    process: MarkovProcess,
    candidates: ObservationTimes,
    x0: Tensor,
    seed: int = 0,
    *,
    batch_size: int = 16,
    callback: Callable[[int, int], None] | None = None,
) -> FittedTimes:
    """Times for any number of steps, fitted to a denoiser and data x0, (n, ...): docs/mathematics.md#fitted-times.

    The denoiser is called once for each data point and candidate; callback(done, n) follows each batch.

    Examples
    --------
    >>> import blackout as bo
    >>> process, points = bo.PureDeath(9), torch.tensor([[2, 8], [8, 2]])
    >>> candidates = bo.ObservationTimes.for_process(process, 32)
    >>> fitted = fit_times(bo.ExactPosterior(process, points), process, candidates, points.repeat(50, 1))
    >>> fitted.choose(process, 8)
    ObservationTimes(8 times from 0.236 to 15)
    """
    x0, size = check_data(x0, process, name="x0").long(), validate.integer("batch_size", batch_size, 1)
    parts = []
    for start in range(0, len(x0), size):
        part = x0[start : start + size]
        parts.append(step_losses(denoise, process, candidates, part, seed, start_index=start))
        if callback is not None:
            callback(start + len(part), len(x0))
    losses, nats = (torch.cat(found).mean(0).cpu() for found in zip(*parts, strict=True))
    return FittedTimes.from_losses(candidates, losses, nats)


@torch.no_grad()
def step_losses(
    denoise: Denoiser,
    process: MarkovProcess,
    candidates: ObservationTimes,
    x0: Tensor,
    seed: int = 0,
    *,
    start_index: int = 0,
) -> tuple[Tensor, Tensor]:
    """Nats that each data point loses without a candidate, (n, M - 1), and decides in each step, (n, M).

    Without t_k, the step from t_{k+1} leads to t_{k-1}, and its last part uses the posterior at t_{k+1} instead of that
    at t_k; each component's own new state is all that it learns. The loss is the divergence between the two steps from
    t_k to t_{k-1}, as Σ (a - b)² / (a + b) over the mean numbers of jumps, which is always finite.
    """
    rng = Streams(validate.integer("seed", seed, 0), len(x0), start_index, device=x0.device)
    end = torch.tensor(candidates.t_end, dtype=torch.float64, device=x0.device)
    x0, _ = ending_points(process, x0, process.clock_time(end))
    xt, before = sample_end(process, x0, process.clock_time(end), rng), None
    losses, nats = [], []
    for s, t in candidates.backwards():
        s, t = s.to(x0.device), t.to(x0.device)
        posterior = call(denoise, process, xt, t)
        if before is not None:
            a, b = (_step(process, p, xt, s, t) for p in (posterior, before.carried(xt, posterior.t)))
            both = a + b
            losses.append(
                torch.where(both > 0, (a - b) ** 2 / both.clamp(min=1e-300), 0.0).reshape(len(x0), -1).sum(-1)
            )
        if process.discrete_time:
            each = PosteriorBridge()._divergence(_known(posterior, s, t), x0, xt, rng)
        else:
            each = posterior.divergence(x0) * process.step_length(s, t, xt, "finite")
        nats.append(torch.where(torch.isfinite(each), each, 0.0).reshape(len(x0), -1).sum(-1))
        xt, before = process.sample_bridge(x0, xt, s, t, rng), posterior
    empty = x0.new_zeros((len(x0), 0), dtype=torch.float64)
    return torch.stack(losses[::-1], -1) if losses else empty, torch.stack(nats[::-1], -1)


def _step(process: MarkovProcess, posterior: Posterior, xt: Tensor, s: Tensor, t: Tensor) -> Tensor:
    """The mean numbers of jumps from t to s, (..., R); for a chain the probabilities of all states, (..., S).

    Under pure death, the share of the predicted X_0 that is decided: a unit more or less in a large count is no loss.
    """
    if process.mean_suffices:
        return posterior.mean() * process.bridge_probability(s, t, xt)[0]
    if not process.discrete_time:
        return posterior.rates().double() * process.step_length(s, t, xt, "finite").unsqueeze(-1)
    at, log_prob = _known(posterior, s, t), PosteriorBridge().step_log_prob
    states = range(process.finite_states())
    return torch.exp(torch.stack([log_prob(at, torch.full_like(xt, state), xt) for state in states], -1))


def _known(posterior: Posterior, s: Tensor, t: Tensor) -> Step:
    """The step from t, at which the posterior is known, to s."""
    return Step(posterior.process, lambda xt, t: posterior, s, t)
