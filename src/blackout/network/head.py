"""What a network's raw output means, and what it is shown: one place for every parametrisation of pure death.

All work from `logit_p`, the logit of the survival probability p = e^{-t}: p and 1 - p both follow from it exactly.
"""

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from blackout import validate

_LEAST_MEAN = 1e-4  # of a component that is hardly ever anything but zero
_FURTHEST = 12.0  # that a network may move a logarithm: tails are heavy, but e^12 is no overflow


class Head(nn.Module, ABC):
    """The statistics of the data, per channel, and two maps: state -> network input, raw output -> y."""

    mean: Tensor
    std: Tensor
    outputs = 1
    """How many raw outputs a component has; of several, `raw` has them as its last dimension."""

    def __init__(self, mean: Tensor, std: Tensor, max_count: int | None = None) -> None:
        super().__init__()
        self.max_count = None if max_count is None else validate.integer("max_count", max_count, 1)
        # Copies: with one tensor handed in twice, what is loaded into one would be loaded into the other.
        self.register_buffer("mean", torch.as_tensor(mean, dtype=torch.float32).clone())
        self.register_buffer("std", torch.as_tensor(std, dtype=torch.float32).clone())

    @abstractmethod
    def scale(self, xt: Tensor, logit_p: Tensor) -> Tensor:
        """What the network is shown of xt; logit_p broadcasts with it."""

    @abstractmethod
    def difference(self, raw: Tensor, xt: Tensor, logit_p: Tensor) -> Tensor:
        """y, the prediction of X_0 - X_t."""

    def _standardised(self, xt: Tensor, logit_p: Tensor) -> Tensor:
        """(X_t - pμ) / sqrt(p²σ² + p(1-p)μ): mean zero and variance one at every time."""
        p, q = torch.sigmoid(logit_p), torch.sigmoid(-logit_p)
        variance = p * (p * self.std**2 + q * self.mean)
        return (xt - p * self.mean) * torch.rsqrt(variance.clamp(min=1e-12))


class SoftplusHead(Head):
    """The paper's: y = softplus(F), with input X_t - (M/2) e^{-t} (Section 3, and the authors' code)."""

    def scale(self, xt: Tensor, logit_p: Tensor) -> Tensor:
        return xt - 0.5 * (self.max_count or float(2 * self.mean.mean())) * torch.sigmoid(logit_p)

    def difference(self, raw: Tensor, xt: Tensor, logit_p: Tensor) -> Tensor:
        return F.softplus(raw)


class BoundedLogitHead(Head):
    """y = (M - X_t) sigmoid(logit q + log(1 - p) + F), q = μ/M. Not in the paper.

    Each of the M - X_t units that are dark now was lit at time zero with some probability; F = 0 is the answer for
    independent units at every time, and y cannot leave [0, M - X_t].
    """

    def __init__(self, mean: Tensor, std: Tensor, max_count: int | None = None) -> None:
        if max_count is None:
            raise ValueError("max_count is needed for the bounded logit head, got None")
        super().__init__(mean, std, max_count)

    def scale(self, xt: Tensor, logit_p: Tensor) -> Tensor:
        return self._standardised(xt, logit_p)

    def difference(self, raw: Tensor, xt: Tensor, logit_p: Tensor) -> Tensor:
        assert self.max_count is not None
        q = (self.mean / self.max_count).clamp(1e-6, 1 - 1e-6)
        return (self.max_count - xt) * torch.sigmoid(torch.logit(q) + F.logsigmoid(-logit_p) + raw)


class GammaPoissonHead(Head):
    """y = (1 - p)(a + X_t) / (a/μ + p): the posterior mean under X_0 ~ NB(mean μ, shape a). Not in the paper.

    For counts without a largest one. The data give each component a mean and a shape; the network's two raw outputs
    are the logarithms by which it changes them, that is what the other components say about this one. What its own
    count says enters by Bayes' rule: a network narrower than the data need not carry every count through.
    """

    outputs = 2

    def scale(self, xt: Tensor, logit_p: Tensor) -> Tensor:
        p = torch.sigmoid(logit_p)
        return torch.log1p(xt) - torch.log1p(p * self.mean)

    def difference(self, raw: Tensor, xt: Tensor, logit_p: Tensor) -> Tensor:
        mean = self.mean.clamp(min=_LEAST_MEAN)
        shape = mean**2 / (self.std**2 - mean).clamp(min=1e-2 * mean)
        change = raw.clamp(-_FURTHEST, _FURTHEST)
        mean, shape = mean * torch.exp(change[..., 0]), shape * torch.exp(change[..., 1])
        p, q = torch.sigmoid(logit_p), torch.sigmoid(-logit_p)
        return q * (shape + xt) / (shape / mean + p)


HEADS: dict[str, type[Head]] = {
    "softplus": SoftplusHead,
    "bounded-logit": BoundedLogitHead,
    "gamma-poisson": GammaPoissonHead,
}
