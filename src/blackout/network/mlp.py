"""A residual network for vectors."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from blackout.network.base import Network, NetworkSpec, check_dropout, copy_weights
from blackout.network.layers import Dense, LayerNorm, positional_embedding


@dataclass(frozen=True, kw_only=True)
class MLPConfig:
    """The shape of the network."""

    features: int
    width: int = 256
    blocks: int = 4
    dropout: float = 0.0
    num_classes: int = 0
    covariates: int = 0
    """Numbers beside the class that the network is conditioned on, such as the logarithm of a cell's total."""
    inputs: int = 1
    """Numbers that the network is shown of each feature."""
    outputs: int = 1
    """Raw outputs for each feature."""

    def __post_init__(self) -> None:
        check_dropout(self.dropout)
        if self.width < 4 or self.width % 2:  # half of the embedding of time are sines, half cosines
            raise ValueError(f"width must be even and at least 4, got {self.width}")


def split_label(label: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Classes, (batch,), and covariates: a label of two dimensions holds both, the class first.

    A class below zero and a number that is NaN are missing.
    """
    if label is None or label.dim() == 1:
        return label, None
    return label[:, 0].long(), label[:, 1:]


class MLP(Network):
    """x (batch, features * inputs), a position in time (batch,) -> raw output (batch, features * outputs)."""

    def __init__(self, settings: MLPConfig) -> None:
        super().__init__()
        self.settings, config = settings, settings
        width = config.width
        self.first = Dense(config.features * config.inputs, width)
        self.embed = Dense(width, width)
        self.classes = nn.Embedding(config.num_classes + 1, width) if config.num_classes else None
        self.given = Dense(2 * config.covariates, width) if config.covariates else None
        self.blocks = nn.ModuleList(
            nn.ModuleList(
                [LayerNorm(width), Dense(width, 2 * width), Dense(width, 2 * width), Dense(2 * width, width, 0.0)]
            )
            for _ in range(config.blocks)
        )
        self.norm = LayerNorm(width)
        self.last = Dense(width, config.features * config.outputs, 0.0)
        self.dropout = nn.Dropout(config.dropout)

    @property
    def num_classes(self) -> int:
        return self.settings.num_classes

    @property
    def num_covariates(self) -> int:
        return self.settings.covariates

    @classmethod
    def for_spec(cls, spec: NetworkSpec) -> "MLP":
        if len(spec.shape) != 1:
            raise ValueError(f"mlp needs vectors, got data of shape {spec.shape}")
        return cls(
            MLPConfig(
                features=spec.shape[0],
                inputs=spec.inputs,
                outputs=spec.outputs,
                num_classes=spec.num_classes,
                covariates=spec.covariates,
                **spec.sizes(),
            )
        )

    def with_inputs(self, extra: int) -> "MLP":
        wider = MLP(replace(self.settings, inputs=self.settings.inputs + extra))
        copy_weights(wider, self)
        return wider

    def config(self) -> dict[str, Any]:
        return asdict(self.settings)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "MLP":
        return cls(MLPConfig(**config))

    def forward(self, x: Tensor, position: Tensor, label: Tensor | None = None) -> Tensor:
        return self.last(F.silu(self.features(x, position, label)))

    def features(self, x: Tensor, position: Tensor, label: Tensor | None = None) -> Tensor:
        embedding = self.embed(positional_embedding(position, self.settings.width).to(x.dtype))
        label, numbers = split_label(label)
        if self.classes is not None:
            none = self.settings.num_classes
            label = torch.full(position.shape, none, device=x.device) if label is None else label
            embedding = embedding + self.classes(torch.where(label < 0, none, label)).to(x.dtype)
        if self.given is not None:
            shape = (len(x), self.settings.covariates)
            numbers = x.new_full(shape, torch.nan) if numbers is None else numbers.to(x.dtype)
            known = ~torch.isnan(numbers)
            embedding = embedding + self.given(torch.cat([torch.nan_to_num(numbers), known.to(x.dtype)], -1))
        embedding, h = F.silu(embedding), self.first(x)
        for block in self.blocks:
            assert isinstance(block, nn.ModuleList)
            norm, inner, time, outer = block
            h = (h + outer(self.dropout(F.silu(inner(norm(h)) + time(embedding))))) * math.sqrt(0.5)
        return self.norm(h)
