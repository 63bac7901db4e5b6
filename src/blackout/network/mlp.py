"""A residual network for vectors."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from blackout.labels import Conditions
from blackout.network.base import Network, NetworkSpec, check_sizes, copy_weights
from blackout.network.layers import Dense, LayerNorm, positional_embedding


@dataclass(frozen=True, kw_only=True)
class MLPConfig:
    """The shape of the network."""

    features: int
    width: int = 256
    blocks: int = 4
    dropout: float = 0.0
    num_classes: int = 0
    conditions: Conditions | None = None
    """What the network is conditioned on, instead of classes: classes in several columns, and numbers."""
    inputs: int = 1
    """Numbers that the network is shown of each feature."""
    outputs: int = 1
    """Raw outputs for each feature."""

    def __post_init__(self) -> None:
        check_sizes(self.width, self.dropout, self.blocks)
        if self.num_classes and self.conditions is not None:
            raise ValueError(f"num_classes must be 0 for a network with conditions, got {self.num_classes}")

    @property
    def rows(self) -> Conditions:
        """The conditions, or those of classes alone."""
        return self.conditions or Conditions((self.num_classes,) if self.num_classes else (), int(self.num_classes > 0))


class MLP(Network):
    """x (batch, features * inputs), a position in time (batch,) -> raw output (batch, features * outputs)."""

    def __init__(self, settings: MLPConfig) -> None:
        super().__init__()
        self.settings, config = settings, settings
        width, rows = config.width, config.rows
        self.first = Dense(config.features * config.inputs, width)
        self.embed = Dense(width, width)
        # The embeddings of all columns in one table; the last of each is for "unknown".
        self.classes = nn.Embedding(sum(rows.columns) + len(rows.columns), width) if rows.columns else None
        self.given = Dense(2 * rows.numbers, width) if rows.numbers else None
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
    def conditions(self) -> Conditions | None:
        return self.settings.conditions

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
                conditions=spec.conditions,
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
        given = config.get("conditions")
        return cls(MLPConfig(**{**config, "conditions": None if given is None else Conditions(**given)}))

    def forward(self, x: Tensor, position: Tensor, label: Tensor | None = None) -> Tensor:
        return self.last(F.silu(self.features(x, position, label)))

    def features(self, x: Tensor, position: Tensor, label: Tensor | None = None) -> Tensor:
        embedding = self.embed(positional_embedding(position, self.settings.width).to(x.dtype))
        embedding, h = F.silu(self._add_conditions(embedding, label)), self.first(x)
        for block in self.blocks:
            assert isinstance(block, nn.ModuleList)
            norm, inner, time, outer = block
            h = (h + outer(self.dropout(F.silu(inner(norm(h)) + time(embedding))))) * math.sqrt(0.5)
        return self.norm(h)

    def _add_conditions(self, embedding: Tensor, label: Tensor | None) -> Tensor:
        """The embedding of time plus those of the classes of all columns and of the numbers."""
        rows, dtype = self.settings.rows, embedding.dtype
        if label is not None and label.dim() == 1:
            label = label.unsqueeze(-1)
        if self.classes is not None:
            sizes = torch.tensor(rows.columns, device=embedding.device)
            codes = sizes.expand(len(embedding), -1) if label is None else label[:, : len(rows.columns)].long()
            places = torch.where(codes < 0, sizes, codes) + (sizes + 1).cumsum(0) - sizes - 1
            embedding = embedding + self.classes(places).to(dtype).sum(1)
        if self.given is not None:
            unknown = embedding.new_full((len(embedding), rows.numbers), torch.nan)
            numbers = unknown if label is None else label[:, len(rows.columns) :].to(dtype)
            known = ~torch.isnan(numbers)
            embedding = embedding + self.given(torch.cat([torch.nan_to_num(numbers), known.to(dtype)], -1))
        return embedding
