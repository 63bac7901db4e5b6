"""Checks of the tensors that a denoiser answers with."""

from typing import Any

import torch
from torch import Tensor

from blackout import validate


def check_tensor(name: str, value: Any) -> None:
    """ValueError for anything but a tensor."""
    if not isinstance(value, Tensor):
        raise ValueError(f"{name} must be a tensor, got {validate.short(value)}")


def check_finite(values: Any, xt: Tensor, t: Tensor) -> Tensor:
    """A floating-point tensor on the device of xt without NaN or infinity."""
    if not isinstance(values, Tensor) or not values.is_floating_point():
        kind = values.dtype if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(f"denoise must return a floating-point tensor, got {kind}")
    if values.device != xt.device:
        raise ValueError(f"denoise must return a tensor on {xt.device}, where xt is, got {values.device}")
    # One pass. A finite sum proves that every entry is finite; an overflow proves nothing.
    if not bool(torch.isfinite(values.sum(dtype=torch.float64))):
        fine = torch.isfinite(values)
        if not bool(fine.all()):
            row = int((~fine).reshape(len(values), -1).any(-1).long().argmax())
            wrong = float(values[~fine].reshape(-1)[0])
            when = float(t.expand(len(values))[row])
            raise ValueError(
                f"denoise must return finite numbers, got {'NaN' if wrong != wrong else wrong} at t={when}"
            )
    return values


def check_probs(probs: Tensor, expected: tuple[int, ...], xt: Tensor, t: Tensor) -> Tensor:
    """Non-negative weights of the expected shape, in float64."""
    if tuple(probs.shape) != expected:
        raise ValueError(f"denoise must return probabilities of shape {expected}, got {tuple(probs.shape)}")
    probs = check_finite(probs, xt, t)
    if probs.numel() and float(least := probs.min()) < 0:
        raise ValueError(f"denoise must return probabilities that are not negative, got {float(least)}")
    return probs.double()
