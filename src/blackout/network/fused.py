"""Group normalisation and SiLU as one operator on CUDA, known to autograd and to the compiler."""

import importlib.util
from typing import Any

import torch
from torch import Tensor

AVAILABLE = importlib.util.find_spec("triton") is not None


def group_norm(
    x: Tensor, shift: Tensor | None, weight: Tensor, bias: Tensor, groups: int, eps: float, silu: bool
) -> Tensor:
    """silu(group_norm(x + shift)) of half-precision channels-last images; shift is (images, channels) or None."""
    x = x.contiguous(memory_format=torch.channels_last)
    shift = None if shift is None else shift.contiguous()
    y, _, _ = _forward(x, shift, weight, bias, groups, eps, silu)
    return y


@torch.library.custom_op("blackout::group_norm", mutates_args=())
def _forward(
    x: Tensor, shift: Tensor | None, weight: Tensor, bias: Tensor, groups: int, eps: float, silu: bool
) -> tuple[Tensor, Tensor, Tensor]:
    from blackout.network import kernels

    return kernels.forward(x, shift, weight, bias, groups, eps, silu)


@_forward.register_fake
def _(x: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(x), _per_channel(x), _per_channel(x)


@torch.library.custom_op("blackout::group_norm_backward", mutates_args=())
def _backward(
    dy: Tensor, x: Tensor, shift: Tensor | None, weight: Tensor, bias: Tensor, mean: Tensor, rstd: Tensor,
    groups: int, silu: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    from blackout.network import kernels

    dy = dy.contiguous(memory_format=torch.channels_last)
    return kernels.backward(dy, x, shift, weight, bias, mean, rstd, groups, silu)


@_backward.register_fake
def _(dy: Tensor, x: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return torch.empty_like(x), _per_channel(x), _per_channel(x), _per_channel(x)


def _per_channel(x: Tensor) -> Tensor:
    return torch.empty(x.shape[:2], dtype=torch.float32, device=x.device)


def _keep(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    x, shift, weight, bias, ctx.groups, _, ctx.silu = inputs
    _, mean, rstd = output
    ctx.save_for_backward(x, shift, weight, bias, mean, rstd)


def _gradients(ctx, dy, dmean, drstd):  # type: ignore[no-untyped-def]
    x, shift, weight, bias, mean, rstd = ctx.saved_tensors
    dx, dshift, dweight, dbias = _backward(dy, x, shift, weight, bias, mean, rstd, ctx.groups, ctx.silu)
    return (
        dx,
        None if shift is None else dshift.to(shift.dtype),
        dweight.sum(0).to(weight.dtype),
        dbias.sum(0).to(bias.dtype),
        None,
        None,
        None,
    )


_forward.register_autograd(_gradients, setup_context=_keep)
