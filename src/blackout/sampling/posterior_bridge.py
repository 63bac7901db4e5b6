"""The posterior bridge: X_0 is sampled from its posterior, then X_s from the exact bridge."""

import torch
from torch import Tensor

from blackout import validate
from blackout.process.base import MarkovProcess
from blackout.random import Streams, categorical
from blackout.sampling.base import Sampler
from blackout.sampling.step import Step

_WORKSPACE = 1 << 22


class PosteriorBridge(Sampler):
    """X_0 ~ p(. | X_t) for each component, then X_s from the bridge between the two. Not in the paper.

    The step is p(x_s | x_t) = Σ_o p(o | x_t) p_{(x_s,s)|(x_t,t),(o,0)}, as in D3PM (2021). With the exact posterior it
    has no error in one component; in several its only error is that a step draws them independently of each other. The
    denoiser must give a distribution over X_0. Any process with finitely many states, chains in discrete time too.

    Examples
    --------
    >>> import blackout as bo
    >>> process, times = bo.PureDeath(9), bo.ObservationTimes.fisher(5)
    >>> denoise = bo.ExactPosterior(process, torch.tensor([[2], [8]]))
    >>> samples = bo.PosteriorBridge().sample(denoise, process, times, (100, 1), seed=0)
    >>> samples.unique()
    tensor([2, 8])
    """

    needs_probs = True

    def check(self, process: MarkovProcess) -> None:
        process.finite_states()
        if process.discrete_time and self.corrector_steps:
            raise ValueError(f"corrector_steps must be 0 for a chain, which has no rates, got {self.corrector_steps}")

    def step(self, at: Step, xt: Tensor, rng: Streams) -> Tensor:
        return at.bridge(categorical(origin_weights(at, xt), rng), xt, rng)

    def step_log_prob(self, at: Step, xs: Tensor, xt: Tensor) -> Tensor:
        return draw_log_prob(at, origin_weights(at, xt), xs, xt)


def draw_log_prob(at: Step, weights: Tensor, xs: Tensor, xt: Tensor) -> Tensor:
    """The logarithm of the probability, elementwise, of X_s = xs on the bridge to a draw of X_0.

    X_0 is drawn in proportion to weights of shape (..., S).
    """
    process, log_probs = at.process, torch.log(weights / weights.sum(-1, keepdim=True))
    tau_s, tau_t = process.clock_time(at.s), process.clock_time(at.t)
    total = torch.full(xt.shape, -torch.inf, dtype=torch.float64, device=xt.device)
    for x0 in torch.arange(process.finite_states(), device=xt.device).split(max(1, _WORKSPACE // max(1, xt.numel()))):
        shape = (*xt.shape, len(x0))
        early, late = (x.unsqueeze(-1).expand(shape) for x in (xs, xt))
        bridge = process.bridge_log_prob_at(early, x0.expand(shape), late, tau_s, tau_t)
        total = torch.logaddexp(total, torch.logsumexp(log_probs[..., x0] + bridge, -1))
    return total


def origin_weights(at: Step, xt: Tensor) -> Tensor:
    """p(o | x_t) without the states o that do not lead to x_t; uniform over the others where nothing is left."""
    values, member, log_prob = log_likelihoods(at.process, xt, at.t)
    leads = torch.isfinite(log_prob)
    lost = ~leads.any(-1)
    if bool(lost.any()):
        when = float(validate.expand(at.t, values).expand_as(values)[lost][0])
        raise ValueError(f"xt={int(values[lost][0])} cannot be reached from any state at t={when}")
    probs = at.posterior(xt).probs()
    if bool(leads.all()):
        return probs
    impossible = (~leads)[member]
    probs = probs.masked_fill(impossible, 0.0)
    nothing = probs.sum(-1, keepdim=True) == 0
    return torch.where(nothing, (~impossible).double(), probs) if bool(nothing.any()) else probs


def log_likelihoods(process: MarkovProcess, xt: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Distinct states, the index of each entry of xt among them, and log p_{(state,t)|(o,0)} for all o, (..., S)."""
    if t.dim() == 0:
        values, member = torch.unique(xt, return_inverse=True)
    else:
        values, member = xt, torch.arange(len(xt), device=xt.device)
    every = torch.arange(process.finite_states(), device=xt.device).expand(*values.shape, -1)
    return values, member, process.log_prob_at(values.unsqueeze(-1).expand_as(every), every, process.clock_time(t))
