"""Philox4x32-10 as one Triton kernel: the bits of `streams.philox`, without a launch for each of its operations.

Imported only where there is a CUDA device.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


@triton.jit(do_not_specialize=["draw", "attempt"])
def _pairs(  # type: ignore[no-untyped-def]
    out_ptr, key_ptr, sample_ptr, component_ptr, draw, attempt, number, per_sample,
    GRID: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = i < number
    if GRID:
        sample = tl.load(sample_ptr + i // per_sample, mask=real, other=0)
        component = i % per_sample
    else:
        sample = tl.load(sample_ptr + i, mask=real, other=0)
        component = tl.load(component_ptr + i, mask=real, other=0)
    k0, k1 = tl.load(key_ptr).to(tl.uint32), tl.load(key_ptr + 1).to(tl.uint32)
    c0, c1 = component.to(tl.uint32), sample.to(tl.uint32)
    c2, c3 = tl.zeros_like(c0) + draw.to(tl.uint32), tl.zeros_like(c0) + attempt.to(tl.uint32)
    for _ in tl.static_range(10):
        low0, low1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        high0, high1 = tl.umulhi(c0, 0xD2511F53), tl.umulhi(c2, 0xCD9E8D57)
        c0, c1 = high1 ^ c1 ^ k0, low1
        c2, c3 = high0 ^ c3 ^ k1, low0
        k0 += 0x9E3779B9
        k1 += 0xBB67AE85
    # 27 and 26 bits of two words: the sum is exact in float64.
    first = ((c0 >> 5).to(tl.float64) * 67108864.0 + (c1 >> 6).to(tl.float64)) * 1.1102230246251565e-16
    second = ((c2 >> 5).to(tl.float64) * 67108864.0 + (c3 >> 6).to(tl.float64)) * 1.1102230246251565e-16
    tl.store(out_ptr + 2 * i, first, mask=real)
    tl.store(out_ptr + 2 * i + 1, second, mask=real)


def grid(key: Tensor, samples: Tensor, per_sample: int, draw: int) -> Tensor:
    """Two uniform numbers for each of `per_sample` counters of each sample: shape (samples, per_sample, 2)."""
    out = torch.empty(len(samples), per_sample, 2, dtype=torch.float64, device=samples.device)
    _launch(out, key, samples, samples, draw, 0, per_sample, True)
    return out


def single(key: Tensor, sample: Tensor, component: Tensor, draw: int, attempt: int) -> Tensor:
    """Two uniform numbers for each pair of a sample and a component: shape (n, 2)."""
    out = torch.empty(len(sample), 2, dtype=torch.float64, device=sample.device)
    _launch(out, key, sample.contiguous(), component.contiguous(), draw, attempt, 1, False)
    return out


def _launch(
    out: Tensor, key: Tensor, sample: Tensor, component: Tensor, draw: int, attempt: int, per: int, grid: bool
) -> None:
    number = out.numel() // 2
    if number:
        kernel: Any = _pairs[(triton.cdiv(number, _BLOCK),)]
        kernel(out, key, sample, component, draw, attempt, number, per, GRID=grid, BLOCK=_BLOCK)
