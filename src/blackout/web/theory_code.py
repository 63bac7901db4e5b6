"""The Python code that reproduces the numbers of the theory tab, with public names only."""

import textwrap

_PROGRAM = """\
import math

import torch

import blackout as bo
from blackout.process import PROCESSES

weights = torch.tensor(
    {weights},
    dtype=torch.float64,
)
process = PROCESSES["{process}"].for_levels(21)
k, xt, x0 = {k}, {xt}, {x0}  # observed in state xt at time number k, started in x0

angles = torch.arange(1, 80, dtype=torch.float64) * (math.pi / 160)
values = torch.tensor([*(-2 * torch.log(torch.cos(angles))).tolist(), 15.0], dtype=torch.float64)
times = bo.ObservationTimes.from_values(values / process.relaxation_rate)
clock = [0.0, *times.values.tolist()]
S = process.num_states
states = torch.arange(S)
initial = torch.cat([weights, weights.new_zeros(S - 21)]) / weights.sum()
denoise = bo.ExactPosterior(process, states[:21].unsqueeze(-1), weights)

# Forward: P(X_t = m) for each time t and state m.
forward = torch.stack([initial @ process.probs(states, t) for t in clock])

# Reverse: the distribution at the last time, taken back by exact reverse steps.
xs, xn = (x.reshape(-1, 1) for x in torch.meshgrid(states, states, indexing="ij"))
distributions = [forward[-1]]
for s, t in times.backwards():
    step = bo.PosteriorBridge().step_log_prob(denoise, process, xs, xn, s, t).exp().reshape(S, S)
    distributions.append(step @ distributions[-1])
reverse = torch.stack(distributions).flip(0)

# Posterior: P(X_0 = o | X_t = xt); and y = E[X_0 - X_t | X_t = m] for each state m.
m = states.unsqueeze(-1)
posteriors = torch.stack([denoise(m, t).probs()[:, 0] for t in clock])  # [k, m, o]
posterior = posteriors[:, xt]
difference = posteriors @ states.double() - states

# Reverse rates and score of each channel, from the first time after 0 on: shape (80, S, channels).
rates, score = [], []
for t, probs in zip(times.values, posteriors[1:]):
    rates.append(denoise(m, t).rates()[:, 0])
    given = process.score(states.expand(S, -1), m.expand(-1, S), t)  # given X_0 = o
    score.append((probs.unsqueeze(-1) * given).sum(1))
rates, score = torch.stack(rates), torch.stack(score)
up = torch.tensor(process.jumps) < 0  # the reverse of a jump down
rates_up, rates_down = rates[..., up].sum(-1), rates[..., ~up].sum(-1)
score_up, score_down = score[..., up].sum(-1), score[..., ~up].sum(-1)

# Bridge: P(X_s = m | X_t = xt, X_0 = x0) before t; after t it is the forward process from xt.
start, end = torch.full((S,), x0), torch.full((S,), xt)
before = [process.bridge_log_prob(states, start, end, s, clock[k]).exp() for s in clock[:k]]
after = [process.probs(torch.tensor([xt]), s - clock[k])[0] for s in clock[k:]]
bridge = torch.stack(before + after)
{sampling}
print(f"forward and reverse differ by {{float((forward - reverse).abs().max()):.1e}}")
"""
_SAMPLING = """
# Reverse trajectories from the terminal distribution, exact for one component.
x = bo.PosteriorBridge().sample(denoise, process, times.subset(40), ({number}, 1), seed={seed}, trajectory=True)
trajectories = x.squeeze(-1).flip(0).T  # each from t = 0 on
"""


def program(process: str, weights: list[float], k: int, xt: int, x0: int, seed: int, number: int) -> str:
    """Python code whose variables have the names of the fields that `theory` returns."""
    return _PROGRAM.format(
        weights=textwrap.fill(str(weights), 100, subsequent_indent="     "),
        process=process,
        k=k,
        xt=xt,
        x0=x0,
        sampling=_SAMPLING.format(number=number, seed=seed) if number else "",
    )
