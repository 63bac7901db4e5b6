"""The multistep binomial bridge: the binomial bridge, corrected with the mean of the step before."""

import torch
from torch import Tensor

from blackout.process.base import MarkovProcess
from blackout.random import Streams
from blackout.sampling.bridge import BinomialBridge
from blackout.sampling.step import Past, Step

_LEAST = 0.1  # share of y that a correction leaves


class MultistepBinomialBridge(BinomialBridge):
    """`BinomialBridge` with a memory, for images of many levels in few steps. Not in the paper.

    A step of `BinomialBridge` holds E[X_0 | X_t] constant, although it would change within the step with what other
    components become. So large steps lose variance: images are grey. Here X_s = X_t + Binomial(y + w d, r), where
    d = E[X_0 | X_t] - E[X_0 | X_past] is the change since the step before, and

        w = √G / (1 + √G),   G = (odds of e^{-s}) / (odds of e^{-t}),

    which tends to 1/2 for short steps. For linear Gaussian data, at times of constant G, the variance of the samples
    is then that of the data: docs/mathematics.md#steps-with-memory. A step is one network call.

    It assumes many components that determine each other: for few components, and for counts of a few units, where a
    component's own births are most of the change, `BinomialBridge` is better. The first step, corrector steps and the
    repeated steps of `Inpainting` are those of `BinomialBridge`. Pure death only.

    Examples
    --------
    >>> import blackout as bo, torch
    >>> process, times = bo.PureDeath(255), bo.ObservationTimes.fisher(16)
    >>> denoise = bo.ExactPosterior(process, torch.tensor([[20] * 9, [200] * 9]))
    >>> bo.MultistepBinomialBridge().sample(denoise, process, times, (4, 9), seed=0).shape
    torch.Size([4, 9])
    """

    has_memory = True

    def next_step(self, at: Step, xt: Tensor, rng: Streams, past: Past | None) -> tuple[Tensor, Past | None]:
        y, now = _present(at, xt)
        return self._births(at, xt, _corrected(at, y, now, past), rng), now

    def next_log_prob(self, at: Step, xs: Tensor, xt: Tensor, past: Past | None) -> tuple[Tensor, Past | None]:
        y, now = _present(at, xt)
        return self._births_log_prob(at, xs, xt, _corrected(at, y, now, past)), now


def _present(at: Step, xt: Tensor) -> tuple[Tensor, Past]:
    posterior = at.posterior(xt)
    return posterior.difference(), Past(xt, at.t, posterior.mean())


def _corrected(at: Step, y: Tensor, now: Past, past: Past | None) -> Tensor:
    """y + w d, at least a tenth of y, and at most what the states have room for."""
    if past is None:
        return y
    changed = y + _weight(at.process, at.s, at.t) * (now.origin - past.origin)
    largest = at.process.max_state
    changed = torch.maximum(changed, _LEAST * y)
    return changed if largest is None else torch.minimum(changed, (largest - now.x).to(changed))


def _weight(process: MarkovProcess, s: Tensor, t: Tensor) -> Tensor:
    """w of a step from t to s: 1 / (1 + 1/√G) = sigmoid(log G / 2), which is 1 for the last step."""
    early, late = (process.log_time(process.clock_time(time)) for time in (s, t))
    return torch.sigmoid((late - early) / 2)
