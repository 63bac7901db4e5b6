"""A residual network for vectors."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from blackout.network.layers import Dense, LayerNorm, positional_embedding


@dataclass(frozen=True, kw_only=True)
class MLPConfig:
    """The shape of the network."""

    features: int
    width: int = 256
    blocks: int = 4
    dropout: float = 0.0
    num_classes: int = 0
    inputs: int = 1
    """Numbers that the network is shown of each feature."""
    outputs: int = 1
    """Raw outputs for each feature."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class MLP(nn.Module):
    """x (batch, features * inputs), a position in time (batch,) -> raw output (batch, features * outputs)."""

    def __init__(self, config: MLPConfig) -> None:
        super().__init__()
        self.config = config
        width = config.width
        self.first = Dense(config.features * config.inputs, width)
        self.embed = Dense(width, width)
        self.classes = nn.Embedding(config.num_classes + 1, width) if config.num_classes else None
        self.blocks = nn.ModuleList(
            nn.ModuleList(
                [LayerNorm(width), Dense(width, 2 * width), Dense(width, 2 * width), Dense(2 * width, width, 0.0)]
            )
            for _ in range(config.blocks)
        )
        self.norm = LayerNorm(width)
        self.last = Dense(width, config.features * config.outputs, 0.0)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, position: Tensor, label: Tensor | None = None) -> Tensor:
        embedding = self.embed(positional_embedding(position, self.config.width).to(x.dtype))
        if self.classes is not None:
            none = torch.full(position.shape, self.config.num_classes, device=x.device)
            embedding = embedding + self.classes(none if label is None else label).to(x.dtype)
        embedding, h = F.silu(embedding), self.first(x)
        for block in self.blocks:
            assert isinstance(block, nn.ModuleList)
            norm, inner, time, outer = block
            h = (h + outer(self.dropout(F.silu(inner(norm(h)) + time(embedding))))) * math.sqrt(0.5)
        return self.last(F.silu(self.norm(h)))
