"""Training loss and evidence bound from forward rates alone: docs/mathematics.md#coupled-components."""

from collections.abc import Callable

import torch
from torch import Tensor

from blackout import validate
from blackout.random import Streams
from blackout.reactions.clock import LogClock
from blackout.reactions.network import ReactionNetwork, check_network

Rates = Callable[[Tensor, Tensor], Tensor]
"""rates(x, t): states (batch, D), times (batch,) -> reverse rates κ of the R channels, shape (batch, R)."""

_ROWS = 1 << 16  # states handed to the network at once


def checked_rates(rates: Rates, process: ReactionNetwork, x: Tensor, t: Tensor) -> Tensor:
    """κ in float64, zero where no reaction can have led to x; ValueError for a wrong shape, NaN or negative rates."""
    kappa = rates(x, t)
    expected = (len(x), process.num_channels)
    if not isinstance(kappa, Tensor) or tuple(kappa.shape) != expected:
        raise ValueError(f"rates must return a tensor of shape {expected}, got {getattr(kappa, 'shape', kappa)!r}")
    kappa = torch.where(process.arrival_rates(x) > 0, kappa.double(), 0.0)
    wrong = ~(torch.isfinite(kappa) & (kappa >= 0))
    if bool(wrong.any()):
        raise ValueError(f"rates must be finite and not negative, got {float(kappa[wrong][0])}")
    return kappa


def path_divergence(
    rates: Rates,
    process: ReactionNetwork,
    x: Tensor,
    t: Tensor,
    channel: Tensor | None = None,
    *,
    equilibrium: bool = False,
) -> Tensor:
    """Σ_r κ_r(x) - a_r(x) + a_r(x) log(a_r(x) / κ_r(x + v_r)), nats per unit of time, shape (batch,).

    Algorithm 3 without the conditional rates λ_r: averaged over X_t, Σ_r λ_r(x) log κ_r(x) equals
    Σ_r a_r(x) log κ_r(x + v_r), so that the same κ is the minimum. The average over paths from x0 is the integrand of
    the evidence bound. Not in the paper in this form.

    Parameters
    ----------
    x, t
        Simulated states, int64 of shape (batch, D), and their times, shape (batch,).
    channel
        One channel for each state, drawn in proportion to a_r(x): the sum over the states after a reaction is replaced
        by that of the drawn one, without bias. None: all R.
    equilibrium
        Whether a_r(x) in the logarithm is multiplied by π(x) / π(x + v_r), with π the equilibrium distribution: the
        reverse rate of the process at equilibrium, relative to which κ has little variance. The integral over time then
        has the mean of log π(X_T) - log π(X_0) in addition.
    """
    forward = process.propensities(x)
    if channel is None:
        row, fired = (forward > 0).nonzero(as_tuple=True)
        weight = forward[row, fired]
    else:
        row = (forward.sum(-1) > 0).nonzero().flatten()  # the others have no reaction left
        fired, weight = channel[row], forward.sum(-1)[row]
    after = x[row] + process.stoichiometry.to(x.device)[fired]
    log_rate = torch.log(forward[row, fired])
    if equilibrium:
        log_rate = log_rate + process.terminal_log_prob(x[row]) - process.terminal_log_prob(after)
    kappa, ahead = rates(torch.cat([x, after]), torch.cat([t, t[row]])).split([len(x), len(row)])
    log_kappa = torch.log(ahead.gather(1, fired.unsqueeze(-1)).squeeze(-1))
    total: Tensor = kappa.sum(-1) - forward.sum(-1)
    return total.index_add(0, row, weight * (log_rate - log_kappa))


@torch.no_grad()
def path_bound(
    rates: Rates, process: ReactionNetwork, x0: Tensor, clock: LogClock, num_times: int = 64, seed: int = 0
) -> Tensor:
    """The evidence bound on -log p(x0), in nats, given the conserved quantities of x0, shape (batch,).

    -log π(x0) + ∫ E[Σ_r κ_r - a_r + a_r log(λ_r(X_t + v_r) / κ_r(X_t + v_r))] dt over paths of the forward process from
    x0, with π the equilibrium distribution, from which the model starts, and λ_r the reverse rates at equilibrium: an
    unbiased estimate, from one path of each data point at one time in each of `num_times` strata.
    """
    (x,) = check_network(process).check_states(x0=x0)
    validate.function("rates", rates)
    source = Streams(validate.integer("seed", seed, 0), len(x), device=x.device)
    times = clock.strata(source.uniform((len(x), validate.integer("num_times", num_times, 1))))
    states = process.sample_path(x, times, source)

    def kappa(x: Tensor, t: Tensor) -> Tensor:
        return checked_rates(rates, process, x, t)

    rows = max(1, _ROWS // process.num_channels)
    parts = zip(states.flatten(0, 1).split(rows), times.flatten().split(rows), strict=True)
    each = torch.cat([path_divergence(kappa, process, *part, equilibrium=True) for part in parts])
    return (each.reshape(times.shape) * clock.stretch(times)).mean(-1) - process.terminal_log_prob(x)
