"""What the network is trained on. Losses return one value for each component; the caller reduces.

The three for pure death share one bracket, y - Δ log y with Δ = X_0 - X_t, and differ in its weight.
"""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from blackout import validate
from blackout.process.base import MarkovProcess


class DifferenceLoss(ABC):
    """w(s, t) [y - (X_0 - X_t) log y], for a network that predicts y = E[X_0 - X_t | X_t] under pure death."""

    def __call__(self, y: Tensor, x0: Tensor, xt: Tensor, s: Any, t: Any) -> Tensor:
        x0, xt = validate.states(None, x0=x0, xt=xt)
        if y.shape != xt.shape:
            raise ValueError(f"y has shape {tuple(y.shape)}, but xt has shape {tuple(xt.shape)}")
        weight = self.weight(*validate.times(xt, s=s, t=t))
        difference = (x0.long() - xt.long()).to(y.dtype)
        return validate.expand(weight, xt).to(y.dtype) * (y - torch.xlogy(difference, y))

    @abstractmethod
    def weight(self, s: Tensor, t: Tensor) -> Tensor:
        """w for each pair of neighbouring observation times."""


class InstantaneousLoss(DifferenceLoss):
    """w = (t_k - t_{k-1}) e^{-t_k}: Eq. (11), `eq:lossInstantaneous`."""

    def weight(self, s: Tensor, t: Tensor) -> Tensor:
        return (t - s) * torch.exp(-t)


class FiniteTimeLoss(DifferenceLoss):
    """w = e^{-t_{k-1}} - e^{-t_k}: Eq. (12), `eq:lossFinite`."""

    def weight(self, s: Tensor, t: Tensor) -> Tensor:
        return -torch.exp(-s) * torch.expm1(s - t)


class LikelihoodLoss(DifferenceLoss):
    """w = (t_k - t_{k-1}) e^{-t_k} / (1 - e^{-t_k}): Appendix F without the second 1/φ, the evidence bound itself."""

    def weight(self, s: Tensor, t: Tensor) -> Tensor:
        return (t - s) / torch.expm1(t)


class RateLoss:
    """(t_k - t_{k-1}) Σ_r (κ_r - λ_r log κ_r) for any process: Algorithm 3 and Appendix G, with one step length.

    `kappa` has shape (..., R). With `channel`, an integer or a tensor of shape (batch,) drawn uniformly from the R
    channels, `kappa` is that channel's rate alone, with the shape of xt, and the value is multiplied by R.
    """

    def __init__(self, process: MarkovProcess) -> None:
        self.process = process

    def __call__(self, kappa: Tensor, x0: Tensor, xt: Tensor, s: Any, t: Any, channel: Any = None) -> Tensor:
        x0, xt = validate.states(self.process.num_states, x0=x0, xt=xt)
        early, late = validate.times(xt, s=s, t=t)
        num = len(self.process.jumps)
        expected = tuple(xt.shape) if channel is not None else (*xt.shape, num)
        if tuple(kappa.shape) != expected:
            raise ValueError(f"kappa must have shape {expected}, got {tuple(kappa.shape)}")
        step = validate.expand(late - early, xt).to(kappa.dtype)
        rates = self.process.reverse_rates(x0, xt, t).to(kappa.dtype)
        if channel is None:
            return step * (kappa - torch.xlogy(rates, kappa)).sum(-1)
        index = torch.as_tensor(channel, device=xt.device)
        if index.dtype not in validate.INTEGERS or index.dim() > 1 or bool(((index < 0) | (index >= num)).any()):
            raise ValueError(f"channel must hold integers from 0 to {num - 1}, got {channel!r}")
        chosen = validate.expand(index, xt).expand(xt.shape).unsqueeze(-1).long()
        drawn = rates.gather(-1, chosen).squeeze(-1)
        return num * step * (kappa - torch.xlogy(drawn, kappa))
