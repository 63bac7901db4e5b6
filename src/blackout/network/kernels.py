"""Triton kernels for CUDA: group normalisation and SiLU of channels-last images, in one pass over memory each way.

One program has all pixels of one image and `CHANNELS` neighbouring channels (complete groups). It reads them twice, the
second time from the cache. Compilers that see the two reductions apart read and write several times as much, and
change the layout around them. Imported only where there is a CUDA device.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _columns(block, channels: tl.constexpr, SIZE: tl.constexpr, PADDED: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The channels of this program, groups padded to a power of two: (number, whether it exists)."""
    j = tl.arange(0, COLUMNS)
    within = j % PADDED
    channel = (block * (COLUMNS // PADDED) + j // PADDED) * SIZE + within
    return channel, (within < SIZE) & (channel < channels)


@triton.jit
def _over_groups(v, PADDED: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Each column's sum over its group."""
    total = tl.sum(tl.reshape(v, (COLUMNS // PADDED, PADDED)), 1)
    return tl.reshape(tl.broadcast_to(total[:, None], (COLUMNS // PADDED, PADDED)), (COLUMNS,))


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    x_ptr, shift_ptr, weight_ptr, bias_ptr, y_ptr, mean_ptr, rstd_ptr, eps,
    pixels: tl.constexpr, channels: tl.constexpr, SIZE: tl.constexpr, PADDED: tl.constexpr, COLUMNS: tl.constexpr,
    ROWS: tl.constexpr, SHIFT: tl.constexpr, SILU: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    channel, real = _columns(tl.program_id(1), channels, SIZE, PADDED, COLUMNS)
    x_ptr += image * pixels * channels
    y_ptr += image * pixels * channels
    shift = tl.zeros((COLUMNS,), tl.float32)
    if SHIFT:
        shift = tl.load(shift_ptr + image * channels + channel, mask=real, other=0.0).to(tl.float32)
    rows = tl.arange(0, ROWS)
    total = tl.zeros((COLUMNS,), tl.float32)
    square = tl.zeros((COLUMNS,), tl.float32)
    for start in range(0, pixels, ROWS):
        row = start + rows
        keep = (row < pixels)[:, None] & real[None, :]
        x = tl.load(x_ptr + row[:, None] * channels + channel[None, :], mask=keep, other=0.0).to(tl.float32)
        x = tl.where(keep, x + shift[None, :], 0.0)
        total += tl.sum(x, 0)
        square += tl.sum(x * x, 0)
    count = pixels * SIZE
    mean = _over_groups(total, PADDED, COLUMNS) / count
    variance = tl.maximum(_over_groups(square, PADDED, COLUMNS) / count - mean * mean, 0.0)
    rstd = 1.0 / tl.sqrt(variance + eps)
    tl.store(mean_ptr + image * channels + channel, mean, mask=real)
    tl.store(rstd_ptr + image * channels + channel, rstd, mask=real)
    gain = tl.load(weight_ptr + channel, mask=real, other=0.0).to(tl.float32) * rstd
    offset = tl.load(bias_ptr + channel, mask=real, other=0.0).to(tl.float32) + (shift - mean) * gain
    for start in range(0, pixels, ROWS):
        row = start + rows
        keep = (row < pixels)[:, None] & real[None, :]
        x = tl.load(x_ptr + row[:, None] * channels + channel[None, :], mask=keep, other=0.0).to(tl.float32)
        z = x * gain[None, :] + offset[None, :]
        if SILU:
            z = z * tl.sigmoid(z)
        tl.store(y_ptr + row[:, None] * channels + channel[None, :], z.to(y_ptr.dtype.element_ty), mask=keep)


@triton.jit
def _backward(  # type: ignore[no-untyped-def]
    x_ptr, shift_ptr, weight_ptr, bias_ptr, mean_ptr, rstd_ptr, dy_ptr, dx_ptr, dshift_ptr, dweight_ptr, dbias_ptr,
    pixels: tl.constexpr, channels: tl.constexpr, SIZE: tl.constexpr, PADDED: tl.constexpr, COLUMNS: tl.constexpr,
    ROWS: tl.constexpr, SHIFT: tl.constexpr, SILU: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    channel, real = _columns(tl.program_id(1), channels, SIZE, PADDED, COLUMNS)
    x_ptr += image * pixels * channels
    dy_ptr += image * pixels * channels
    dx_ptr += image * pixels * channels
    mean = tl.load(mean_ptr + image * channels + channel, mask=real, other=0.0)
    rstd = tl.load(rstd_ptr + image * channels + channel, mask=real, other=0.0)
    weight = tl.load(weight_ptr + channel, mask=real, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + channel, mask=real, other=0.0).to(tl.float32)
    if SHIFT:
        mean -= tl.load(shift_ptr + image * channels + channel, mask=real, other=0.0).to(tl.float32)
    rows = tl.arange(0, ROWS)
    dweight = tl.zeros((COLUMNS,), tl.float32)
    dbias = tl.zeros((COLUMNS,), tl.float32)
    for start in range(0, pixels, ROWS):
        row = start + rows
        keep = (row < pixels)[:, None] & real[None, :]
        at = row[:, None] * channels + channel[None, :]
        x = (tl.load(x_ptr + at, mask=keep, other=0.0).to(tl.float32) - mean[None, :]) * rstd[None, :]
        dz = tl.load(dy_ptr + at, mask=keep, other=0.0).to(tl.float32)
        if SILU:
            z = x * weight[None, :] + bias[None, :]
            s = tl.sigmoid(z)
            dz = dz * (s * (1.0 + z * (1.0 - s)))
        dweight += tl.sum(dz * x, 0)
        dbias += tl.sum(dz, 0)
    tl.store(dweight_ptr + image * channels + channel, dweight, mask=real)
    tl.store(dbias_ptr + image * channels + channel, dbias, mask=real)
    count = pixels * SIZE
    along = _over_groups(dweight * weight, PADDED, COLUMNS) / count
    constant = _over_groups(dbias * weight, PADDED, COLUMNS) / count
    dshift = tl.zeros((COLUMNS,), tl.float32)
    for start in range(0, pixels, ROWS):
        row = start + rows
        keep = (row < pixels)[:, None] & real[None, :]
        at = row[:, None] * channels + channel[None, :]
        x = (tl.load(x_ptr + at, mask=keep, other=0.0).to(tl.float32) - mean[None, :]) * rstd[None, :]
        dz = tl.load(dy_ptr + at, mask=keep, other=0.0).to(tl.float32)
        if SILU:
            z = x * weight[None, :] + bias[None, :]
            s = tl.sigmoid(z)
            dz = dz * (s * (1.0 + z * (1.0 - s)))
        dx = (dz * weight[None, :] - constant[None, :] - x * along[None, :]) * rstd[None, :]
        dx = tl.where(keep, dx, 0.0)
        if SHIFT:
            dshift += tl.sum(dx, 0)
        tl.store(dx_ptr + at, dx.to(dx_ptr.dtype.element_ty), mask=keep)
    if SHIFT:
        tl.store(dshift_ptr + image * channels + channel, dshift, mask=real)


def forward(
    x: Tensor, shift: Tensor | None, weight: Tensor, bias: Tensor, groups: int, eps: float, silu: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """(y, mean, 1 / standard deviation), the last two for each image and channel."""
    y = torch.empty_like(x)
    mean, rstd = (torch.empty(x.shape[:2], dtype=torch.float32, device=x.device) for _ in range(2))
    grid, meta = _plan(x, groups)
    with torch.cuda.device(x.device):  # Triton launches on the current device, not on that of its tensors
        _forward[grid](x, shift, weight, bias, y, mean, rstd, eps, SHIFT=shift is not None, SILU=silu, **meta)
    return y, mean, rstd


def backward(
    dy: Tensor, x: Tensor, shift: Tensor | None, weight: Tensor, bias: Tensor, mean: Tensor, rstd: Tensor,
    groups: int, silu: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """(dx, dshift, dweight, dbias), the last three for each image and channel."""
    dx = torch.empty_like(x)
    dshift, dweight, dbias = (torch.empty(x.shape[:2], dtype=torch.float32, device=x.device) for _ in range(3))
    grid, meta = _plan(x, groups)
    with torch.cuda.device(x.device):
        _backward[grid](
            x,
            shift,
            weight,
            bias,
            mean,
            rstd,
            dy,
            dx,
            dshift,
            dweight,
            dbias,
            SHIFT=shift is not None,
            SILU=silu,
            **meta,
        )
    return dx, dshift, dweight, dbias


def _plan(x: Tensor, groups: int) -> tuple[tuple[int, int], dict[str, Any]]:
    pixels, channels = x.shape[2] * x.shape[3], x.shape[1]
    size = channels // groups
    padded = triton.next_power_of_2(size)
    columns = max(padded, 64)  # with 4 warps and these tiles: the fastest of 18 choices on an H200
    blocks = triton.cdiv(groups, columns // padded)
    rows = min(triton.next_power_of_2(pixels), max(1, (4096 if pixels > 256 else 8192) // columns))
    meta = {
        "pixels": pixels, "channels": channels, "SIZE": size, "PADDED": padded, "COLUMNS": columns, "ROWS": rows,
        "num_warps": 4,
    }  # fmt: skip
    return (x.shape[0], blocks), meta
