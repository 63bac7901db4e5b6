"""The parts of an image network. Activations keep the dtype they come in with; weights are cast to it where they act.

So one network runs in float32 or bfloat16 by the dtype of its input alone, with its weights kept in float32.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from blackout.network import fused

_EPS = 1e-6
_SMALL = 1024  # pixels


class Conv(nn.Module):
    """A convolution of size 1 or 3 that keeps the resolution (or halves it, with stride 2 and no padding)."""

    def __init__(self, inputs: int, outputs: int, size: int = 3, stride: int = 1, scale: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(_variance_scaled((outputs, inputs, size, size), scale))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.stride = stride
        self.padding = size // 2 if stride == 1 else 0

    def forward(self, x: Tensor) -> Tensor:
        return self.apply_weight(x, self.bias.to(x.dtype))

    def apply_weight(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """The convolution with this bias, or without one where it is added later."""
        return F.conv2d(x, self.weight.to(x.dtype), bias, stride=self.stride, padding=self.padding)


class Dense(nn.Module):
    """A linear map of the last dimension."""

    def __init__(self, inputs: int, outputs: int, scale: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(_variance_scaled((outputs, inputs), scale))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(x.dtype), self.bias.to(x.dtype))


class Norm(nn.Module):
    """Group normalisation with at most 32 groups of at least four channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.groups = max(g for g in range(1, min(32, max(1, channels // 4)) + 1) if channels % g == 0)
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor, shift: Tensor | None = None, silu: bool = False) -> Tensor:
        """The normalised x + shift, through SiLU if `silu`; shift is (images, channels)."""
        if fused.AVAILABLE and x.is_cuda and x.dtype in (torch.bfloat16, torch.float16):
            return fused.group_norm(x, shift, self.weight, self.bias, self.groups, _EPS, silu)
        if shift is not None:
            x = x + shift[:, :, None, None]
        # torch's group normalisation of small images in half precision is several times slower on a CPU.
        wide = x.float() if _is_half_on_cpu(x) and x[0, 0].numel() < _SMALL else x
        weight, bias = self.weight.to(wide.dtype), self.bias.to(wide.dtype)
        x = F.group_norm(wide, self.groups, weight, bias, eps=_EPS).to(x.dtype)
        return F.silu(x) if silu else x


class LayerNorm(nn.Module):
    """Normalisation over the last dimension."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.weight.to(x.dtype), self.bias.to(x.dtype))


class Attention(nn.Module):
    """Self-attention over all pixels, one head, added to its input and rescaled."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = Norm(channels)
        self.qkv = Conv(channels, 3 * channels, size=1, scale=0.2)  # variance 0.1 / channels, as in score_sde
        self.out = Conv(channels, channels, size=1, scale=0.0)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.flatten(2).transpose(1, 2).unsqueeze(1) for part in self.qkv(self.norm(x)).chunk(3, 1))
        mixed = _attend(q, k, v).squeeze(1).transpose(1, 2).reshape(x.shape)
        return (x + self.out(mixed)) * math.sqrt(0.5)


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Scaled dot-product attention. In half precision on a CPU, plain products are three times faster than torch's."""
    if not _is_half_on_cpu(q):
        return F.scaled_dot_product_attention(q, k, v)
    logits = (q / math.sqrt(q.shape[-1])) @ k.transpose(-1, -2)
    return torch.softmax(logits, -1, dtype=torch.float32).to(v.dtype) @ v


def _is_half_on_cpu(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype in (torch.bfloat16, torch.float16)


def fir_down(x: Tensor) -> Tensor:
    """Half the resolution after the binomial filter [1, 3, 3, 1] / 8 in both directions, zeros beyond the border."""
    return _fir(x, border=1, stride=2)


def fir_up(x: Tensor) -> Tensor:
    """Twice the resolution, interpolated by the same filter (with gain four)."""
    padded = F.pad(x, (1, 1))
    even, odd = padded[..., :-2] + 3 * x, padded[..., 2:] + 3 * x
    x = torch.stack([even, odd], -1).flatten(-2) * 0.25
    padded = F.pad(x, (0, 0, 1, 1))
    even, odd = padded[..., :-2, :] + 3 * x, padded[..., 2:, :] + 3 * x
    return torch.stack([even, odd], -2).flatten(-3, -2) * 0.25


def fir_smooth(x: Tensor) -> Tensor:
    """The same filter at full resolution, with a border two pixels wide: what a strided convolution then reads."""
    return _fir(x, border=2, stride=1)


def _fir(x: Tensor, border: int, stride: int) -> Tensor:
    x, k = F.pad(x, (border,) * 4), stride
    x = (x[..., :-3:k] + 3 * x[..., 1:-2:k] + 3 * x[..., 2:-1:k] + x[..., 3::k]) * 0.125
    return (x[..., :-3:k, :] + 3 * x[..., 1:-2:k, :] + 3 * x[..., 2:-1:k, :] + x[..., 3::k, :]) * 0.125


def positional_embedding(position: Tensor, size: int) -> Tensor:
    """Sines and cosines of a position in about [0, 1000], shape (batch, size), float32."""
    half = size // 2
    frequency = torch.exp(-math.log(10_000) / (half - 1) * torch.arange(half, device=position.device))
    angle = position.float().unsqueeze(-1) * frequency
    return torch.cat([torch.sin(angle), torch.cos(angle)], -1)


def waves(counts: Tensor, periods: tuple[float, ...]) -> Tensor:
    """Sines and cosines of float32 counts with these periods, as further channels."""
    angles = [counts * (2 * math.pi / period) for period in periods]
    return torch.cat([wave(angle) for angle in angles for wave in (torch.sin, torch.cos)], 1)


def _variance_scaled(shape: tuple[int, ...], scale: float) -> Tensor:
    """Uniform with variance scale / (mean of fan in and fan out); a scale of zero is practically zero, not quite."""
    area = math.prod(shape[2:])
    fan = (shape[0] + shape[1]) * area / 2
    bound = math.sqrt(3 * max(scale, 1e-10) / fan)
    return torch.empty(shape).uniform_(-bound, bound)
