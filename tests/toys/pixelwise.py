"""A network: each pixel on its own."""

from typing import Any

import torch
from torch import Tensor, nn

from blackout.network import NETWORKS, Network
from blackout.network.base import NetworkSpec


class Pixelwise(Network):
    """A convolution of size one, and a gain that depends on time."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.sizes = {"inputs": inputs, "outputs": outputs}
        self.layer, self.gain = nn.Conv2d(inputs, outputs, 1), nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor, position: Tensor, label: Tensor | None = None) -> Tensor:
        return self.layer(x) * (self.gain * position / 1000).reshape(-1, 1, 1, 1).to(x.dtype)

    @classmethod
    def for_spec(cls, spec: NetworkSpec) -> "Pixelwise":
        return cls(spec.inputs * spec.shape[0], spec.outputs * spec.shape[0])

    def config(self) -> dict[str, Any]:
        return self.sizes

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Pixelwise":
        return cls(**config)


NETWORKS.add("pixelwise", Pixelwise, "each pixel on its own")
