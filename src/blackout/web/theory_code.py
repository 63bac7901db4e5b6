"""The program that gives the numbers of the theory room again, with public names only."""

import textwrap

from blackout.process import MarkovProcess

_PROGRAM = """\
import math

import torch

import blackout as bo

weights = torch.tensor(
    {weights},
    dtype=torch.float64,
)
process = bo.{process}
k, xt, x0 = {k}, {xt}, {x0}  # seen in state xt at time number k, begun in x0

angles = torch.arange(1, 80, dtype=torch.float64) * (math.pi / 160)
times = bo.ObservationTimes.from_values([*(-2 * torch.log(torch.cos(angles))).tolist(), 15.0])
clock = [0.0, *times.values.tolist()]
states = torch.arange(21)
law = weights / weights.sum()
denoise = bo.ExactPosterior(process, states.unsqueeze(-1), law)

# Forward: P(X_t = m) for each time t and state m.
forward = torch.stack([law @ process.probs(states, t) for t in clock])

# Reverse: the law at the last time, taken back by exact reverse steps.
xs, xn = (x.reshape(-1, 1) for x in torch.meshgrid(states, states, indexing="ij"))
laws = [forward[-1]]
for s, t in times.backwards():
    step = bo.PosteriorBridge().step_log_prob(denoise, process, xs, xn, s, t).exp().reshape(21, 21)
    laws.append(step @ laws[-1])
reverse = torch.stack(laws).flip(0)

# Posterior: P(X_0 = o | X_t = xt); and y = E[X_0 - X_t | X_t = m] for each state m.
posterior = torch.stack([denoise.law(torch.tensor([[xt]]), t)[0, 0] for t in clock])
difference = torch.stack([denoise.law(states.unsqueeze(-1), t)[:, 0] @ states.double() - states for t in clock])

# Reverse rates and score of each channel, from the first time after 0 on: shape (80, 21, channels).
rates, score = [], []
for t in times.values:
    m = states.unsqueeze(-1)
    rates.append(process.rates_from(denoise(m, t), m, t)[:, 0])
    given = process.score(states.expand(21, -1), m.expand(-1, 21), t)  # given X_0 = o
    score.append((denoise.law(m, t)[:, 0].unsqueeze(-1) * given).sum(1))
rates, score = torch.stack(rates), torch.stack(score)
up = torch.tensor(process.jumps) < 0  # a channel leads back against its jump
rates_up, rates_down = rates[..., up].sum(-1), rates[..., ~up].sum(-1)
score_up, score_down = score[..., up].sum(-1), score[..., ~up].sum(-1)

# Bridge: P(X_s = m | X_t = xt, X_0 = x0) before t; after t the past is forgotten.
begin, seen = torch.full((21,), x0), torch.full((21,), xt)
before = [process.bridge_log_prob(states, begin, seen, s, clock[k]).exp() for s in clock[:k]]
after = [process.probs(torch.tensor([xt]), s - clock[k])[0] for s in clock[k:]]
bridge = torch.stack(before + after)
{walks}
print(f"forward and reverse differ by {{float((forward - reverse).abs().max()):.1e}}")
"""
_WALKS = """
# Walks back from the terminal law, exact in one component.
walks = bo.PosteriorBridge().sample(denoise, process, times.subset(40), ({number}, 1), seed={seed}, trajectory=True)
paths = walks.squeeze(-1).flip(0).T  # each from t = 0 on
"""


def program(process: MarkovProcess, weights: list[float], k: int, xt: int, x0: int, seed: int, number: int) -> str:
    """Python code whose variables are named as the fields of the answer."""
    numbers = textwrap.fill(str(weights), 100, subsequent_indent="     ")
    return _PROGRAM.format(
        weights=numbers,
        process=process,
        k=k,
        xt=xt,
        x0=x0,
        walks=_WALKS.format(number=number, seed=seed) if number else "",
    )
