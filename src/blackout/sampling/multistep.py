"""The multistep bridge: the posterior bridge, corrected with the posterior of the step before."""

import torch
from torch import Tensor

from blackout import validate
from blackout.process.base import MarkovProcess
from blackout.random import Streams, categorical
from blackout.sampling.posterior_bridge import PosteriorBridge, draw_log_prob, log_likelihoods, origin_weights
from blackout.sampling.step import Past, Step

_LEAST = 0.1  # share of its probability that a state keeps under the linear rule
_MOST = 100.0  # ratio p / p̃ up to which the log rule follows it
_WORKSPACE = 1 << 22  # numbers of one pass


class MultistepBridge(PosteriorBridge):
    """`PosteriorBridge` of second order for data that vary smoothly, at one network call per step. Not in the paper.

    A step of `PosteriorBridge` samples components independently of each other. The posterior of a component changes
    from p̃(o) ∝ p(o | x_past) p_{(x_t,t)|(x_past,·),(o,0)}, which follows from its own new state alone, to p(o | x_t),
    which depends on the other components too. This change is extrapolated: half of it, for steps of similar length,
    replaces the dependence that the next step lacks (Adams-Bashforth for a posterior). Derived in
    docs/mathematics.md#steps-with-memory; measured in docs/samplers.md#few-steps.

    The first step, corrector steps and the repeated steps of `Inpainting` are those of `PosteriorBridge`; so is every
    step of a single component. Any process with finitely many states, chains in discrete time too.

    Parameters
    ----------
    rule
        X_0 is drawn from p + w (p - p̃) (``"linear"``), at least a tenth of p, or from p (p / p̃)^w (``"log"``), with
        the ratio at most 100; both are normalised. So what p allows keeps a probability, and the bound is finite.
    weight
        w. 1/2 is right for steps of similar length; 0 is `PosteriorBridge`.

    Examples
    --------
    >>> import blackout as bo
    >>> process, times = bo.PureDeath(9), bo.ObservationTimes.fisher(8)
    >>> denoise = bo.ExactPosterior(process, torch.tensor([[2, 3], [8, 7]]))
    >>> samples = bo.MultistepBridge().sample(denoise, process, times, (100, 2), seed=0)
    >>> int((samples == torch.tensor([2, 3])).all(-1).sum() + (samples == torch.tensor([8, 7])).all(-1).sum())
    100
    """

    has_memory = True

    def __init__(
        self, rule: str = "linear", weight: float = 0.5, corrector_steps: int = 0, corrector_size: float = 0.1
    ) -> None:
        super().__init__(corrector_steps, corrector_size)
        self.rule = validate.choice("rule", rule, ("linear", "log"))
        self.weight = validate.real("weight", weight, 0.0)

    def next_step(self, at: Step, xt: Tensor, rng: Streams, past: Past | None) -> tuple[Tensor, Past | None]:
        now = _present(at, xt)
        return at.bridge(categorical(self._corrected(at.process, now, past), rng), xt, rng), now

    def next_log_prob(self, at: Step, xs: Tensor, xt: Tensor, past: Past | None) -> tuple[Tensor, Past | None]:
        now = _present(at, xt)
        return draw_log_prob(at, self._corrected(at.process, now, past), xs, xt), now

    def _corrected(self, process: MarkovProcess, now: Past, past: Past | None) -> Tensor:
        """Weights from which X_0 is drawn, a few samples at a time."""
        if past is None:
            return now.origin
        (_, then, before), (_, here, after) = (log_likelihoods(process, p.x, p.t) for p in (past, now))
        parts = torch.arange(len(now.x), device=now.x.device).split(_rows(now.origin))
        weights = torch.empty_like(now.origin)
        for rows in parts:
            probs, told = now.origin[rows], past.origin[rows]
            # p̃: the factor P_t(o, x) of the component's own state is replaced, what others have told is not.
            logs = torch.where(told > 0, torch.log(told) - before[then[rows]], 0.0) + after[here[rows]]
            carried = torch.softmax(logs.masked_fill(told == 0, -torch.inf), -1)
            weights[rows] = self._combined(probs, torch.where(carried.isnan(), probs, carried))
        return weights

    def _combined(self, probs: Tensor, carried: Tensor) -> Tensor:
        if self.rule == "log":
            ratio = torch.where(probs > 0, probs / carried, 1.0).clamp(max=_MOST)
            return probs * ratio**self.weight
        return torch.maximum(probs + self.weight * (probs - carried), _LEAST * probs)


def _present(at: Step, xt: Tensor) -> Past:
    weights = origin_weights(at, xt)
    return Past(xt, at.t, weights / weights.sum(-1, keepdim=True))


def _rows(probs: Tensor) -> int:
    """How many samples are corrected in one pass."""
    workspace = _WORKSPACE << 4 if probs.is_cuda else _WORKSPACE
    return max(1, workspace // max(1, probs[:1].numel()))
