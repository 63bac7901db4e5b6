"""What the network is trained on: docs/mathematics.md#what-a-network-is-trained-on.

Losses return one value for each component; the caller reduces.

The three for pure death share one bracket, y - Δ log y with Δ = X_0 - X_t, and differ in its weight. Times are those of
the homogeneous process: `process.clock_time(t)`, if it has a schedule.
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
        _prediction("y", y, xt)
        if y.shape != xt.shape:
            raise ValueError(f"y has shape {tuple(y.shape)}, but xt has shape {tuple(xt.shape)}")
        if bool((xt > x0).any()):
            raise ValueError(f"xt must not exceed x0 under pure death, got xt={int(xt[xt > x0][0])}")
        return self.values(y, x0, xt, *validate.times(xt, s=s, t=t))

    def values(self, y: Tensor, x0: Tensor, xt: Tensor, s: Tensor, t: Tensor) -> Tensor:
        """The loss without the checks, for a loop that has made them: s and t are float64 tensors."""
        y = _wide(y)
        weight = validate.expand(self.weight(s, t), xt).to(y.dtype)
        return weight * (y - _times_log((x0 - xt).to(y.dtype), y))

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

    Its minimum is the mean of λ_r given X_t: docs/mathematics.md#what-a-network-is-trained-on.

    `kappa` has shape (..., R). With `channel`, an integer or a tensor of shape (batch,) drawn uniformly from the R
    channels, `kappa` is that channel's rate alone, with the shape of xt, and the value is multiplied by R.
    """

    def __init__(self, process: MarkovProcess) -> None:
        self.process = process

    def __call__(self, kappa: Tensor, x0: Tensor, xt: Tensor, s: Any, t: Any, channel: Any = None) -> Tensor:
        x0, xt = validate.states(self.process.num_states, x0=x0, xt=xt)
        early, late = validate.times(xt, s=s, t=t)
        _prediction("kappa", kappa, xt)
        num = len(self.process.jumps)
        expected = tuple(xt.shape) if channel is not None else (*xt.shape, num)
        if tuple(kappa.shape) != expected:
            raise ValueError(f"kappa must have shape {expected}, got {tuple(kappa.shape)}")
        kappa = _wide(kappa)
        step = validate.expand(late - early, xt).to(kappa.dtype)
        rates = self.process.reverse_rates(x0, xt, t).to(kappa.dtype)
        if channel is None:
            return step * (kappa - _times_log(rates, kappa)).sum(-1)
        try:
            index = torch.as_tensor(channel, device=xt.device)
        except (TypeError, ValueError, RuntimeError):
            raise ValueError(f"channel must hold integers from 0 to {num - 1}, got {channel!r}") from None
        if index.dtype not in validate.INTEGERS or bool(((index < 0) | (index >= num)).any()):
            raise ValueError(f"channel must hold integers from 0 to {num - 1}, got {channel!r}")
        if tuple(index.shape) not in ((), (len(xt),)):
            raise ValueError(f"channel must have shape () or ({len(xt)},), got {tuple(index.shape)}")
        chosen = validate.expand(index, xt).expand(xt.shape).unsqueeze(-1).long()
        drawn = rates.gather(-1, chosen).squeeze(-1)
        return num * step * (kappa - _times_log(drawn, kappa))


def _prediction(name: str, value: Any, xt: Tensor) -> None:
    if not isinstance(value, Tensor) or not value.is_floating_point():
        kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"{name} must be a floating-point tensor, got {kind}")
    if value.device != xt.device:
        raise ValueError(f"{name} is on {value.device}, but xt is on {xt.device}")


def nats(y: Tensor, x0: Tensor, xt: Tensor, s: Tensor, t: Tensor) -> Tensor:
    """(t - s) e^{-t} / (1 - e^{-t}) [y - Δ + Δ log(Δ / y)]: the likelihood's loss, with the constant it leaves out."""
    y = _wide(y)
    difference = (x0 - xt).to(y.dtype)  # never negative: every dtype holds it
    bracket = y - difference + torch.xlogy(difference, difference) - _times_log(difference, y)
    return validate.expand((t - s) / torch.expm1(t), xt).to(y.dtype) * bracket


def _wide(value: Tensor) -> Tensor:
    """Half precision holds neither the weights of the first steps nor large counts."""
    return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value


def _times_log(factor: Tensor, y: Tensor) -> Tensor:
    """factor log y, with 0 log 0 = 0 and a gradient of zero there."""
    return factor * torch.log(torch.where(factor > 0, y, 1.0))
