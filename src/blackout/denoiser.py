"""What a denoiser is, and how it is asked: a network, or an exact posterior in its place."""

from collections.abc import Callable

import torch
from torch import Tensor

from blackout.process.base import MarkovProcess

Denoiser = Callable[[Tensor, Tensor], Tensor]
"""denoise(xt, t), t of shape (batch,): y = E[X_0 - X_t | X_t] for pure death, reverse rates (..., R) for the others."""


def ask(denoise: Denoiser, xt: Tensor, t: Tensor) -> Tensor:
    """The denoiser's answer, with one time for each sample and no NaN."""
    answer = denoise(xt, t.expand(len(xt)) if t.dim() == 0 else t)
    if not isinstance(answer, Tensor) or not answer.is_floating_point():
        kind = answer.dtype if isinstance(answer, Tensor) else type(answer).__name__
        raise ValueError(f"denoise must return a floating-point tensor, got {kind}")
    if answer.device != xt.device:
        raise ValueError(f"denoise must answer on {xt.device}, where it is asked, got {answer.device}")
    # One pass over an answer that may hold hundreds of numbers a component; a sum can overflow, so it only acquits.
    if not bool(torch.isfinite(answer.sum(dtype=torch.float64))):
        _refuse_infinite(answer, t.expand(len(xt)))
    return answer


def _refuse_infinite(answer: Tensor, t: Tensor) -> None:
    fine = torch.isfinite(answer)
    if not bool(fine.all()):
        row = int((~fine).reshape(len(answer), -1).any(-1).long().argmax())
        wrong = float(answer[~fine].reshape(-1)[0])
        shown = "NaN" if wrong != wrong else wrong
        raise ValueError(f"denoise must return finite numbers, got {shown} at t={float(t[row])}")


def reverse_rates(denoise: Denoiser, process: MarkovProcess, xt: Tensor, t: Tensor) -> Tensor:
    """κ_r at time t, shape (..., R)."""
    return not_negative(process.rates_from(ask(denoise, xt, t), xt, t))


def not_negative(rates: Tensor) -> Tensor:
    if rates.numel() and float(rates.min()) < 0:
        raise ValueError(f"denoise must return rates that are not negative, got {float(rates.min())}")
    return rates
