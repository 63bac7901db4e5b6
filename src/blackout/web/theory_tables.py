"""Exact quantities of a process whose initial distribution is given: what the theory tab shows.

The tab exports this file, followed by a call of `tables`, as a script; so it uses public names only.
"""

import math

import torch
from torch import Tensor

import blackout as bo

STEPS = 80


def observation_times(process: bo.MarkovProcess) -> bo.ObservationTimes:
    """-2 log cos θ with θ in equal steps, then 15, in relaxation times: not in the paper.

    Equal steps of the Fisher–Rao length of a unit that is alive with probability e^{-t}: neighbouring times differ
    equally. Equal steps of Fisher information (Appendix E) are dense where twenty units hardly change.
    """
    angles = torch.arange(1, STEPS, dtype=torch.float64) * (math.pi / (2 * STEPS))
    values = torch.tensor([*(-2 * torch.log(torch.cos(angles))).tolist(), 15.0], dtype=torch.float64)
    return bo.ObservationTimes.from_values(values / process.relaxation_rate)


def tables(process: bo.MarkovProcess, weights: Tensor) -> dict[str, Tensor]:
    """Tables over K = 81 times, from 0 on, and S states, for an initial distribution proportional to weights.

    times (K,), initial (S,), transition [k, o, m], forward [k, m], reverse [k, m], posterior [k, m, o], difference
    [k, m], and from the second time on rates_up, rates_down, score_up, score_down [k, m].
    """
    assert process.num_states is not None
    S, states = process.num_states, torch.arange(process.num_states)
    times = torch.cat([torch.zeros(1, dtype=torch.float64), observation_times(process).values])
    initial = torch.cat([weights, weights.new_zeros(S - len(weights))]) / weights.sum()
    transition = process.probs(states.expand(len(times), -1), times)  # P(X_t = m | X_0 = o)
    forward = initial @ transition

    # Posterior P(X_0 = o | X_t = m) by Bayes' rule, and y = E[X_0 - X_t | X_t = m], for every state at every time.
    x, t = states.repeat(len(times)).unsqueeze(-1), times.repeat_interleave(S)
    denoise = bo.ExactPosterior(process, states[: len(weights)].unsqueeze(-1), weights)
    posterior = denoise(x, t).probs().reshape_as(transition)
    difference = (posterior * (states - states.unsqueeze(-1))).sum(-1)

    # Reverse: the distribution at the last time, taken back by exact steps, Eq. (5) integrated over each step.
    # P(X_s = m | X_t = n) is the posterior of X_0 given X_t = n, times the bridge between the two, summed over X_0.
    step = process.probs(states.expand(STEPS, -1), torch.diff(times))  # [k, m, n]
    reached = transition[1:].mT  # [k, n, o]
    ratio = torch.where(reached > 0, posterior[1:] / reached, 0.0)
    distributions = [forward[-1]]
    for matrix in (step * torch.einsum("kno,kom->kmn", ratio, transition[:-1])).flip(0):
        distributions.append(matrix @ distributions[-1])
    reverse = torch.stack(distributions).flip(0)

    # Reverse rates (5) and score (6) of every channel; the score is the posterior mean of the score given X_0.
    x, t = x[S:], t[S:]
    rates = denoise(x, t).rates().squeeze(1)
    given = process.score(states.expand(len(x), -1), x.expand(-1, S), t)
    score = torch.einsum("no,nor->nr", posterior[1:].flatten(0, 1), given)
    up = torch.tensor(process.jumps) < 0  # the reverse of a jump down leads up
    sides = {
        f"{name}_{side}": values[:, channels].sum(-1).reshape(STEPS, S)
        for name, values in (("rates", rates), ("score", score))
        for side, channels in (("up", up), ("down", ~up))
    }
    return {
        "times": times, "initial": initial, "transition": transition, "forward": forward, "reverse": reverse,
        "posterior": posterior, "difference": difference, **sides,
    }  # fmt: skip


def bridge(process: bo.MarkovProcess, times: Tensor, k: int, xt: int, x0: int) -> Tensor:
    """P(X_s = m | X_t = xt, X_0 = x0), [s, m]: Eq. (10) before t, the time number k; after t the process from xt."""
    assert process.num_states is not None
    xs = torch.arange(process.num_states).expand(k, -1)
    start, end = torch.full_like(xs, x0), torch.full_like(xs, xt)
    before = process.bridge_log_prob(xs, start, end, times[:k], float(times[k])).exp()
    after = process.probs(torch.full((len(times) - k,), xt), times[k:] - times[k])
    return torch.cat([before, after])


def trajectories(process: bo.MarkovProcess, weights: Tensor, number: int, seed: int) -> tuple[Tensor, Tensor]:
    """Times from 0 on and reverse trajectories, one per row. For one component the posterior bridge is exact."""
    times = observation_times(process).subset(STEPS // 2)
    denoise = bo.ExactPosterior(process, torch.arange(len(weights)).unsqueeze(-1), weights)
    x = bo.PosteriorBridge().sample(denoise, process, times, (number, 1), seed=seed, trajectory=True)
    return torch.cat([times.values.new_zeros(1), times.values]), x.squeeze(-1).flip(0).T
