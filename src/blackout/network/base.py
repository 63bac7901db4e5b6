"""Network: what a predictor needs to know of the module that maps inputs to raw outputs."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from blackout import validate
from blackout.labels import Conditions

_MOST_BLOCKS = 1 << 10  # to build many more would take minutes


def check_sizes(width: int, dropout: float, blocks: int) -> None:
    """Raise ValueError for an odd width, a dropout that is no probability less than 1, or too many blocks."""
    if validate.real("dropout", dropout, 0.0) >= 1:
        raise ValueError(f"dropout must be less than 1, got {dropout}")
    validate.integer("blocks", blocks, 0, _MOST_BLOCKS)
    if width < 4 or width % 2:  # half of the embedding of time are sines, half cosines
        raise ValueError(f"width must be even and at least 4, got {width}")


@dataclass(frozen=True, kw_only=True)
class NetworkSpec:
    """What a new network has to fit: the data, the head, and the sizes that a configuration asks for."""

    shape: tuple[int, ...]
    """Of a data point: (features,) or (channels, height, width)."""
    inputs: int
    """Numbers that the network is shown of each component."""
    outputs: int
    """Raw outputs for each component."""
    pyramid: int = 0
    """How many of the inputs enter a U-Net again at lower resolutions; 0: all."""
    preset: str = "tiny"
    width: int = 0
    """0: the preset's."""
    blocks: int = 0
    """0: the preset's."""
    patch: int = 0
    """Of images: side of the squares of pixels that are channels of one; 0: the preset's."""
    dropout: float | None = None
    """None: the preset's."""
    num_classes: int = 0
    conditions: Conditions | None = None
    """What a network without `num_classes` is conditioned on."""
    labels: int = 0
    """How many labels the inputs are digits of; 0: they are numbers."""
    pad_state: int | None = None
    """The label of padding, if there is one."""

    def sizes(self) -> dict[str, Any]:
        """Width, blocks and dropout, those that are given."""
        given = {"width": self.width or None, "blocks": self.blocks or None, "dropout": self.dropout}
        return {name: value for name, value in given.items() if value is not None}


class Network(nn.Module, ABC):
    """network(x, position, label) -> raw output.

    x has shape (batch, inputs * channels, ...), position (batch,) is the time on a scale of 0 to 1000, label is None,
    (batch,) or rows of `Conditions`; the output has shape (batch, outputs * channels, ...). See docs/extending.md.
    """

    exact_input: ClassVar[bool] = False
    """Whether x is always float32, and `forward` has a further argument: the `dtype` that the network computes in."""

    @property
    def num_classes(self) -> int:
        """Number of classes; 0: the network ignores labels."""
        return 0

    class_weights: ClassVar[tuple[str, ...]] = ("classes.weight",)
    """Names of the weights that a network has for classes alone: where all are zero, labels have no effect."""

    @property
    def conditions(self) -> Conditions | None:
        """The rows that are its labels; None: it takes classes alone."""
        return None

    @property
    def size_unit(self) -> int:
        """Sides of images must be multiples of this."""
        return 1

    @abstractmethod
    def forward(self, x: Tensor, position: Tensor, label: Tensor | None = None) -> Tensor: ...

    def features(self, x: Tensor, position: Tensor, label: Tensor | None = None) -> Tensor:
        """The last hidden layer for the arguments of `forward`, shape (batch, width), where there is such a layer."""
        raise ValueError(f"{type(self).__name__} has no hidden layer that represents a data point")

    @classmethod
    @abstractmethod
    def for_spec(cls, spec: NetworkSpec) -> Self:
        """A new network that fits; ValueError if this kind of network cannot."""

    def with_inputs(self, extra: int) -> "Network":
        """The same network with `extra` further inputs of each component, which follow the others.

        Their weights are those of a new network, drawn from torch's default generator; all others are copies.
        """
        raise ValueError(f"{type(self).__name__} cannot be given further inputs, got extra={extra}")

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The constructor's arguments, as plain JSON."""

    @classmethod
    @abstractmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The network that `config` described, its weights still to be loaded."""


@torch.no_grad()
def copy_weights(network: Network, source: Network) -> None:
    """Copy the weights of `source`; where `network` has more inputs, its own weights for these stay."""
    old = source.state_dict()
    for name, weight in network.state_dict().items():
        (weight[:, : old[name].shape[1]] if weight.dim() > 1 else weight).copy_(old[name])
