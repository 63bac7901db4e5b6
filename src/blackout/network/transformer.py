"""A transformer for sequences of labels: pre-norm, rotary positions, adaptive layer norm. Not in the paper."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from blackout import validate
from blackout.network.base import Network, NetworkSpec, check_sizes
from blackout.network.layers import Dense, positional_embedding

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"width": 128, "blocks": 4},
    "small": {"width": 512, "blocks": 8},
    "paper": {"width": 768, "blocks": 12, "dropout": 0.1},
}
"""A CPU in minutes; one GPU in half an hour; the size of published masked language models."""

_HEAD = 64  # channels of an attention head, where the width has that many
_BASE = 256  # bfloat16 holds integers up to here exactly, so labels are shown as digits in this base


def label_digits(labels: int) -> int:
    """How many digits in base 256 the numbers below `labels` have."""
    return max(1, -(-(labels - 1).bit_length() // 8))


def to_digits(x: Tensor, labels: int) -> Tensor:
    """Labels (batch, length) as their digits in base 256, the lowest first, (batch, digits * length), float32."""
    return torch.cat([(x.long() >> 8 * k & _BASE - 1).float() for k in range(label_digits(labels))], 1)


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """The shape of the network."""

    length: int
    labels: int
    """Number of labels, padding and mask among them."""
    outputs: int
    """Raw outputs for each component."""
    width: int = 128
    blocks: int = 4
    dropout: float = 0.0
    num_classes: int = 0
    pad: int = -1
    """The label of padding, to which nothing attends; -1: there is none."""
    causal: bool = False
    """Whether a position sees those before it alone: the autoregressive reference."""

    def __post_init__(self) -> None:
        if self.width < 8 or self.width % 8:
            raise ValueError(f"width must be a multiple of 8, got {self.width}")
        check_sizes(self.width, self.dropout, self.blocks)

    @property
    def heads(self) -> int:
        return max(h for h in range(1, max(2, self.width // _HEAD + 1)) if self.width % (2 * h) == 0)


class Transformer(Network):
    """Digits of labels (batch, digits * length), a position in time (batch,) -> raw output (batch, length * outputs).

    Examples
    --------
    >>> network = Transformer(TransformerConfig(length=6, labels=5, outputs=5, width=16, blocks=1))
    >>> network(to_digits(torch.zeros(2, 6), 5), torch.zeros(2)).shape
    torch.Size([2, 30])
    """

    def __init__(self, settings: TransformerConfig) -> None:
        super().__init__()
        self.settings, config = settings, settings
        width = config.width
        self.labels = nn.Embedding(config.labels, width)
        self.embed = nn.Sequential(Dense(width, width), nn.SiLU(), Dense(width, width))
        self.classes = nn.Embedding(config.num_classes + 1, width) if config.num_classes else None
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.blocks))
        self.shift = Dense(width, 2 * width, 0.0)
        self.last = Dense(width, config.outputs, 0.0)

    @property
    def num_classes(self) -> int:
        return self.settings.num_classes

    @classmethod
    def for_spec(cls, spec: NetworkSpec) -> "Transformer":
        if len(spec.shape) != 1:
            raise ValueError(f"transformer needs sequences of labels, got data of shape {spec.shape}")
        if not spec.labels:
            raise ValueError("transformer needs the head 'sequence', which shows it labels")
        chosen = PRESETS[validate.choice("preset", spec.preset, tuple(PRESETS))]
        return cls(
            TransformerConfig(
                length=spec.shape[0], labels=spec.labels, outputs=spec.outputs, num_classes=spec.num_classes,
                pad=-1 if spec.pad_state is None else spec.pad_state, **{**chosen, **spec.sizes()},
            )
        )  # fmt: skip

    def config(self) -> dict[str, Any]:
        return asdict(self.settings)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Transformer":
        return cls(TransformerConfig(**config))

    def forward(self, x: Tensor, position: Tensor, label: Tensor | None = None) -> Tensor:
        config, digits = self.settings, x.unflatten(1, (-1, self.settings.length)).long()
        labels = (digits * _BASE ** torch.arange(digits.shape[1], device=x.device).unsqueeze(-1)).sum(1)
        time = self.embed(positional_embedding(position, config.width).to(x.dtype))
        if self.classes is not None:
            label = torch.full(position.shape, -1, device=x.device) if label is None else label
            time = time + self.classes(torch.where(label < 0, config.num_classes, label)).to(x.dtype)
        time = F.silu(time).unsqueeze(1)
        h, turn = self.labels(labels).to(x.dtype), _rotation(config, x)
        seen = None if config.pad < 0 else (labels != config.pad)[:, None, None]
        for block in self.blocks:
            h = block(h, time, turn, seen)
        return self.last(_modulated(h, *self.shift(time).chunk(2, -1))).flatten(1)


class Block(nn.Module):
    """Attention and a feed-forward layer, each after a normalisation that time shifts and scales."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        width = config.width
        self.heads, self.causal = config.heads, config.causal
        self.shift = Dense(width, 6 * width, 0.0)
        self.qkv, self.mix = Dense(width, 3 * width), Dense(width, width)
        self.inner, self.outer = Dense(width, 4 * width), Dense(4 * width, width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, h: Tensor, time: Tensor, turn: tuple[Tensor, Tensor], seen: Tensor | None) -> Tensor:
        shift, scale, gate, shift_2, scale_2, gate_2 = self.shift(time).chunk(6, -1)
        qkv = self.qkv(_modulated(h, shift, scale)).unflatten(-1, (3, self.heads, -1))
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        q, k = _turned(q, *turn), _turned(k, *turn)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, is_causal=self.causal)
        h = h + (1 + gate) * self.dropout(self.mix(mixed.transpose(1, 2).flatten(2)))
        inner = F.gelu(self.inner(_modulated(h, shift_2, scale_2)), approximate="tanh")
        return h + (1 + gate_2) * self.dropout(self.outer(inner))


def _modulated(h: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return F.layer_norm(h, h.shape[-1:]) * (1 + scale) + shift


def _rotation(config: TransformerConfig, x: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary embedding, shape (length, channels of a head / 2)."""
    half = config.width // config.heads // 2
    frequency = 10_000 ** (-torch.arange(half, device=x.device) / half)
    angle = torch.arange(config.length, device=x.device).unsqueeze(-1) * frequency
    return torch.cos(angle).to(x.dtype), torch.sin(angle).to(x.dtype)


def _turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], -1)
