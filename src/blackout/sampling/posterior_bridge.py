"""X_0 drawn from its posterior, then the exact bridge."""

import torch
from torch import Tensor

from blackout.denoiser import Denoiser
from blackout.law import ask_law, finite
from blackout.process.base import MarkovProcess
from blackout.process.chain import Chain
from blackout.random import pick, uniform
from blackout.sampling.base import Sampler
from blackout.streams import Streams

_WORKSPACE = 1 << 22


class PosteriorBridge(Sampler):
    """X_0 ~ p(. | X_t) for each component, then X_s from the bridge between the two. Not in the paper.

    The step is p(x_s | x_t) = Σ_o p(o | x_t) p_{(x_s,s)|(x_t,t),(o,0)}, as in D3PM (2021). With the exact posterior it
    has no error in one component; in several its only error is that a step draws them independently of each other. The
    denoiser has to have a `law`. Any process with finitely many states, chains in discrete time too.
    """

    def check(self, process: MarkovProcess) -> None:
        finite(process)
        if isinstance(process, Chain) and self.corrector_steps:
            raise ValueError(f"corrector_steps must be 0 for a chain, which has no rates, got {self.corrector_steps}")

    def step(
        self, denoise: Denoiser, process: MarkovProcess, xt: Tensor, s: Tensor, t: Tensor, source: Streams
    ) -> Tensor:
        x0 = pick(self._weights(denoise, process, xt, t), uniform(tuple(xt.shape), xt.device, source))
        if float(s) == 0:
            return x0
        tau_s, tau_t = process.checked_clock(xt, s=s, t=t)
        return process.sample_bridge_at(x0, xt, tau_s, tau_t, source)

    def step_log_prob(
        self, denoise: Denoiser, process: MarkovProcess, xs: Tensor, xt: Tensor, s: Tensor, t: Tensor
    ) -> Tensor:
        weights = self._weights(denoise, process, xt, t)
        log_law = torch.log(weights / weights.sum(-1, keepdim=True))
        tau_s, tau_t = process.checked_clock(xt, s=s, t=t)
        total = torch.full(xt.shape, -torch.inf, dtype=torch.float64, device=xt.device)
        for x0 in torch.arange(finite(process), device=xt.device).split(max(1, _WORKSPACE // max(1, xt.numel()))):
            shape = (*xt.shape, len(x0))
            early, late = (x.unsqueeze(-1).expand(shape) for x in (xs, xt))
            bridge = process.bridge_log_prob_at(early, x0.expand(shape), late, tau_s, tau_t)
            total = torch.logaddexp(total, torch.logsumexp(log_law[..., x0] + bridge, -1))
        return total

    def _weights(self, denoise: Denoiser, process: MarkovProcess, xt: Tensor, t: Tensor) -> Tensor:
        """p(o | x_t) without the states o that do not lead to x_t; flat over those that do where nothing is left."""
        values, member = torch.unique(xt, return_inverse=True)
        every = torch.arange(finite(process), device=xt.device).expand(len(values), -1)
        log_prob = process.log_prob_at(values.unsqueeze(-1).expand_as(every), every, *process.checked_clock(xt, t=t))
        leads = torch.isfinite(log_prob)
        lost = ~leads.any(-1)
        if bool(lost.any()):
            raise ValueError(f"xt={int(values[lost][0])} cannot be reached from any state at t={float(t)}")
        law = ask_law(denoise, process, xt, t)
        if bool(leads.all()):
            return law
        impossible = (~leads)[member]
        law = law.masked_fill_(impossible, 0.0)
        nothing = law.sum(-1, keepdim=True) == 0
        return torch.where(nothing, (~impossible).double(), law) if bool(nothing.any()) else law
