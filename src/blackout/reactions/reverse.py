"""The reverse process of a reaction network, by its rates: Algorithm 4, and event by event."""

from collections.abc import Iterator

import torch
from torch import Tensor

from blackout import validate
from blackout.random import Streams, pick, poisson
from blackout.reactions.divergence import Rates, checked_rates
from blackout.reactions.network import ReactionNetwork, check_network
from blackout.times import ObservationTimes
from blackout.times.grid import check_times

METHODS = ("leaps", "events")


@torch.no_grad()
def sample_reverse(
    rates: Rates,
    process: ReactionNetwork,
    times: ObservationTimes,
    start: Tensor,
    seed: int = 0,
    *,
    method: str = "leaps",
    trajectory: bool = False,
) -> Tensor:
    """States at time zero, int64 of shape (batch, D), of the reverse process from `start`, states at the last time.

    Parameters
    ----------
    method
        ``"leaps"``: Algorithm 4, Poisson(κ_r (t - s)) reactions of channel r are undone in a step from t to s. Where
        they lead out of the states, they are undone in random order and those without room are left out, so that
        conserved quantities stay conserved; the error is of first order in the steps. ``"events"``: one event at a
        time, with κ evaluated after each, in the middle of what is left of the step, and held until the next event or
        observation time; slower, with an error of second order.
    seed
        Sample i depends on the seed, on i and on start[i] alone.
    trajectory
        Whether to return all states from `start` to time zero, shape (T + 1, batch, D).
    """
    (x,) = check_network(process).check_states(start=start)
    validate.function("rates", rates)
    check_times(times)
    run = {"leaps": _leaps, "events": _events}[validate.choice("method", method, METHODS)]
    path = torch.stack(
        [x, *run(rates, process, times, x, Streams(validate.integer("seed", seed, 0), len(x), 0, x.device))]
    )
    return path if trajectory else path[-1]


def _leaps(
    rates: Rates, process: ReactionNetwork, times: ObservationTimes, x: Tensor, rng: Streams
) -> Iterator[Tensor]:
    back = -process.stoichiometry.to(x.device)
    for s, t in times.backwards():
        kappa = checked_rates(rates, process, x, t.to(x.device).expand(len(x)))
        counts = poisson(kappa * float(t - s), rng)
        after = x + (counts.unsqueeze(-1) * back).sum(1)
        lost = (~process.contains(after)).nonzero().flatten()
        most = int(counts[lost].sum(-1).max()) if len(lost) else 0
        order = rng.uniform((len(x), most))  # always a draw, so that a sample does not depend on the others
        after[lost] = _in_order(process, x[lost], counts[lost], order[lost])
        x = after
        yield x


def _in_order(process: ReactionNetwork, x: Tensor, counts: Tensor, order: Tensor) -> Tensor:
    """x after the reverse events one by one, in the order of the random numbers, without those that have no room."""
    ends = counts.cumsum(-1)
    slots = torch.arange(order.shape[1], device=x.device).expand(len(x), -1).contiguous()
    channel = torch.searchsorted(ends, slots, right=True)  # the k-th event belongs to the first channel that reaches k
    order = torch.where(channel < counts.shape[1], order, 2.0)
    channel = channel.gather(1, order.argsort(-1))
    back = torch.cat([-process.stoichiometry, torch.zeros_like(process.stoichiometry[:1])]).to(x.device)
    for fired in channel.unbind(1):
        after = x + back[fired]
        x = torch.where(process.contains(after).unsqueeze(-1), after, x)
    return x


def _events(rates: Rates, process: ReactionNetwork, times: ObservationTimes, x: Tensor, rng: Streams) -> Tensor:
    """The states at t_{T-1}, ..., t_1, 0. Every sample has a clock of its own, and draws in every round."""
    edges = torch.cat([times.values.flip(0), torch.zeros(1, dtype=torch.float64)]).to(x.device)
    x, path = x.clone(), x.repeat(len(times), 1, 1)
    now, step = edges[0].repeat(len(x)), torch.zeros(len(x), dtype=torch.int64, device=x.device)
    rows = torch.arange(len(x), device=x.device)
    while len(rows):
        u = rng.uniform((len(x), 2))[rows]
        border = edges[step[rows] + 1]
        kappa = checked_rates(rates, process, x[rows], (now[rows] + border) / 2)
        before = now[rows] + torch.log1p(-u[:, 0]) / kappa.sum(-1)  # minus infinity where no reaction can be undone
        fires = before > border
        fired = pick(torch.where(fires.unsqueeze(-1), kappa, 1.0), u[:, 1])
        x[rows] = torch.where(fires.unsqueeze(-1), x[rows] - process.stoichiometry.to(x.device)[fired], x[rows])
        now[rows] = torch.where(fires, before, border)
        ended = rows[~fires]
        path[step[ended], ended] = x[ended]
        step[ended] += 1
        rows = rows[step[rows] < len(times)]
    return path
