"""Losses: weights over time on one divergence; docs/mathematics.md#losses.

The paper's two losses and the likelihood share the bracket y - Δ log y with Δ = X_0 - X_t and differ in its weight
alone. Called, they return one value for each component; the caller reduces. Times are those of the homogeneous process:
`process.clock_time(t)`, if it has a schedule.
"""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from blackout import validate
from blackout.process.base import MarkovProcess
from blackout.process.data import check_process

_LATEST = 700.0  # e^t is a number of double precision; later, e^{-t} is zero beside all others


class Loss(ABC):
    """w(s, t) [y - (X_0 - X_t) log y], for a network that predicts y = E[X_0 - X_t | X_t] under pure death."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __call__(self, y: Tensor, x0: Tensor, xt: Tensor, s: Any, t: Any) -> Tensor:
        """The loss of each component, the shape of xt, for neighbouring observation times s < t."""
        x0, xt = validate.states(None, x0=x0, xt=xt)
        _check_prediction("y", y, xt)
        if y.shape != xt.shape:
            raise ValueError(f"y has shape {tuple(y.shape)}, but xt has shape {tuple(xt.shape)}")
        if bool((xt > x0).any()):
            raise ValueError(f"xt must not exceed x0 under pure death, got xt={int(xt[xt > x0][0])}")
        early, late = (time.clamp(max=_LATEST) for time in validate.times(xt, s=s, t=t))
        y = _wide(y)
        weight = validate.expand(self.weight(late, late - early) / torch.expm1(late), xt).to(y.dtype)
        return weight * (y - _times_log((x0 - xt).to(y.dtype), y))

    @abstractmethod
    def weight(self, tau: Tensor, span: Tensor) -> Tensor:
        """The weight of `Posterior.divergence` at time tau, which stands for the interval (tau - span, tau]."""


class LikelihoodLoss(Loss):
    """The evidence bound itself: Appendix F without the second 1/φ, w = (t_k - t_{k-1}) e^{-t_k} / (1 - e^{-t_k}).

    Examples
    --------
    >>> y, x0, xt = torch.tensor([2.0]), torch.tensor([5]), torch.tensor([3])
    >>> LikelihoodLoss()(y, x0, xt, 0.5, 1.0).shape
    torch.Size([1])
    """

    def weight(self, tau: Tensor, span: Tensor) -> Tensor:
        return span


class InstantaneousLoss(Loss):
    """w = (t_k - t_{k-1}) e^{-t_k}: Eq. (11), `eq:lossInstantaneous`.

    Examples
    --------
    >>> y, x0, xt = torch.tensor([2.0]), torch.tensor([5]), torch.tensor([3])
    >>> InstantaneousLoss()(y, x0, xt, 0.5, 1.0)  # 0.5 e^-1 (2 - 2 log 2)
    tensor([0.1129])
    """

    def weight(self, tau: Tensor, span: Tensor) -> Tensor:
        return span * -torch.expm1(-tau)


class FiniteTimeLoss(Loss):
    """w = e^{-t_{k-1}} - e^{-t_k}: Eq. (12), `eq:lossFinite`.

    Examples
    --------
    >>> y, x0, xt = torch.tensor([2.0]), torch.tensor([5]), torch.tensor([3])
    >>> FiniteTimeLoss()(y, x0, xt, 0.5, 1.0)  # (e^-0.5 - e^-1) (2 - 2 log 2)
    tensor([0.1465])
    """

    def weight(self, tau: Tensor, span: Tensor) -> Tensor:
        return torch.expm1(span) * -torch.expm1(-tau)


class RateLoss:
    """(t_k - t_{k-1}) Σ_r (κ_r - λ_r log κ_r) for any process: Algorithm 3 and Appendix G, with one step length.

    Its minimum is the mean of λ_r given X_t: docs/mathematics.md#losses.

    `kappa` has shape (..., R). With `channel`, an integer or a tensor of shape (batch,) drawn uniformly from the R
    channels, `kappa` is that channel's rate alone, with the shape of xt, and the value is multiplied by R.

    Examples
    --------
    >>> import blackout as bo
    >>> process = bo.Uniform(num_states=3)
    >>> kappa, x0, xt = torch.ones(2, 1, len(process.jumps)), torch.tensor([[0], [1]]), torch.tensor([[2], [1]])
    >>> RateLoss(process)(kappa, x0, xt, 0.4, 0.5).shape
    torch.Size([2, 1])
    """

    def __init__(self, process: MarkovProcess) -> None:
        self.process = check_process(process)

    def __repr__(self) -> str:
        return f"RateLoss({self.process!r})"

    def __call__(self, kappa: Tensor, x0: Tensor, xt: Tensor, s: Any, t: Any, channel: Any = None) -> Tensor:
        x0, xt = validate.states(self.process.num_states, x0=x0, xt=xt)
        early, late = validate.times(xt, s=s, t=t)
        _check_prediction("kappa", kappa, xt)
        num = len(self.process.jumps)
        expected = tuple(xt.shape) if channel is not None else (*xt.shape, num)
        if tuple(kappa.shape) != expected:
            raise ValueError(f"kappa must have shape {expected}, got {tuple(kappa.shape)}")
        kappa = _wide(kappa)
        step = validate.expand(late - early, xt).to(kappa.dtype)
        rates = self.process.reverse_rates(x0, xt, t).to(kappa.dtype)
        if channel is None:
            return step * (kappa - _times_log(rates, kappa)).sum(-1)
        index = _check_channel(channel, num, xt)
        chosen = validate.expand(index, xt).expand(xt.shape).unsqueeze(-1).long()
        drawn = rates.gather(-1, chosen).squeeze(-1)
        return num * step * (kappa - _times_log(drawn, kappa))


def _check_channel(channel: Any, num: int, xt: Tensor) -> Tensor:
    try:
        index = torch.as_tensor(channel, device=xt.device)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ValueError(f"channel must hold integers from 0 to {num - 1}, got {channel!r}") from None
    if not validate.is_integer(index.dtype) or bool(((index < 0) | (index >= num)).any()):
        raise ValueError(f"channel must hold integers from 0 to {num - 1}, got {channel!r}")
    if tuple(index.shape) not in ((), (len(xt),)):
        raise ValueError(f"channel must have shape () or ({len(xt)},), got {tuple(index.shape)}")
    return index


def _check_prediction(name: str, value: Any, xt: Tensor) -> None:
    if not isinstance(value, Tensor) or not value.is_floating_point():
        kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"{name} must be a floating-point tensor, got {kind}")
    if value.device != xt.device:
        raise ValueError(f"{name} is on {value.device}, but xt is on {xt.device}")


def _wide(value: Tensor) -> Tensor:
    """Half precision holds neither the weights of the first steps nor large counts."""
    return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value


def _times_log(factor: Tensor, y: Tensor) -> Tensor:
    """factor log y, with 0 log 0 = 0 and a gradient of zero there."""
    return factor * torch.log(torch.where(factor > 0, y, 1.0))
