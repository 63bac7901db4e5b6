"""NCSN++, the paper's network: a U-Net of BigGAN residual blocks (Song et al., 2021, its VP CIFAR-10 configuration)."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from blackout import validate
from blackout.network.base import Network, NetworkSpec, check_sizes, copy_weights
from blackout.network.layers import Attention, Conv, Dense, Norm, fir_down, fir_smooth, fir_up, positional_embedding


@dataclass(frozen=True, kw_only=True)
class UNetConfig:
    """The shape of the network; the defaults are the paper's for CIFAR-10."""

    channels: int = 3
    """Channels of the images."""
    resolution: int = 32
    """The shorter side of the images."""
    width: int = 128
    multipliers: tuple[float, ...] = (1, 2, 2, 2)
    """Width of each level, in units of `width`; each level has half the resolution of the one before."""
    blocks: int = 4
    """Residual blocks on each level on the way down; one more on the way up."""
    attention: tuple[int, ...] = (16,)
    """Resolutions that have attention."""
    dropout: float = 0.1
    num_classes: int = 0
    """Number of classes; 0: unconditional. One more embedding stands for "no class"."""
    outputs: int = 1
    """Raw outputs for each channel of the image."""
    inputs: int = 0
    """Channels of the network's input; 0: those of the image."""
    pyramid: int = 0
    """How many of them, the first ones, enter again at every level; 0: all."""
    patch: int = 1
    """Side of the squares whose pixels the network sees as channels of one: a quarter of the cost for 2."""

    def __post_init__(self) -> None:
        check_sizes(self.width, self.dropout, self.blocks)
        if self.resolution % self.size_unit:
            raise ValueError(
                f"resolution must be divisible by {self.size_unit}, to be halved on each of the "
                f"{len(self.multipliers)} levels, got {self.resolution}"
            )

    @property
    def size_unit(self) -> int:
        """Sides of images must be multiples of this."""
        return int(self.patch * 2 ** (len(self.multipliers) - 1))


PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "small": {"multipliers": (1, 1, 1), "dropout": 0.0},
    "tiny": {"width": 32, "multipliers": (1, 2), "blocks": 2, "attention": (), "dropout": 0.0},
}


class ResidualBlock(nn.Module):
    """Two convolutions, the time between them, and a resampling of both branches, `fir_up` or `fir_down`, if any."""

    def __init__(
        self, inputs: int, outputs: int, embedding: int, dropout: float, resample: Callable[[Tensor], Tensor] | None
    ) -> None:
        super().__init__()
        self.resample = resample or nn.Identity()
        self.norm1, self.conv1 = Norm(inputs), Conv(inputs, outputs)
        self.time = Dense(embedding, outputs)
        self.norm2, self.conv2 = Norm(outputs), Conv(outputs, outputs, scale=0.0)
        self.dropout = nn.Dropout(dropout)
        self.skip = Conv(inputs, outputs, size=1) if inputs != outputs or resample else nn.Identity()

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        h = self.conv1.apply_weight(self.resample(self.norm1(x, silu=True)))
        h = self.norm2(h, self.time(embedding) + self.conv1.bias.to(h.dtype), silu=True)
        h = self.conv2(self.dropout(h))
        return (self.skip(self.resample(x)) + h) * math.sqrt(0.5)


class NCSNpp(Network):
    """x (batch, channels, height, width), a position in time (batch,) -> raw output, `outputs` a channel.

    The time is embedded by its sines and cosines; the image enters again at every level, summed to the features. Where
    activations are in half precision, the first layer, the image where it first enters again and the embedding of time
    stay in float32: to round the image costs more bits than to round all activations after it.
    """

    exact_input = True

    def __init__(self, settings: UNetConfig) -> None:
        super().__init__()
        self.settings, config = settings, settings
        width, embedding = config.width, 4 * config.width
        self.embed = nn.ModuleList([Dense(width, embedding), Dense(embedding, embedding)])
        self.classes = nn.Embedding(config.num_classes + 1, embedding) if config.num_classes else None
        self.first = Conv(config.patch**2 * (config.inputs or config.channels), width)
        self.down = nn.ModuleList()
        self.pyramid = nn.ModuleList()
        self.up = nn.ModuleList()
        self._build(embedding)

    @property
    def num_classes(self) -> int:
        return self.settings.num_classes

    @property
    def size_unit(self) -> int:
        return self.settings.size_unit

    @classmethod
    def for_spec(cls, spec: NetworkSpec) -> "NCSNpp":
        """With as many levels of the preset as both sides can be halved."""
        if len(spec.shape) != 3:
            raise ValueError(f"ncsnpp needs images of shape (channels, height, width), got {spec.shape}")
        chosen = dict(PRESETS[validate.choice("preset", spec.preset, tuple(PRESETS))])
        channels, *sides = spec.shape
        levels = chosen.get("multipliers", UNetConfig.multipliers)
        chosen["patch"] = patch = spec.patch or 1
        if any(side % patch for side in sides):
            raise ValueError(f"patch must divide the sides of the images, {sides[0]} and {sides[1]}, got {patch}")
        chosen["multipliers"] = levels[: 1 + min(_halvings(side // patch) for side in sides)]
        chosen |= {"inputs": spec.inputs * channels, "pyramid": spec.pyramid * channels, "outputs": spec.outputs}
        chosen |= {"channels": channels, "resolution": min(sides), "num_classes": spec.num_classes, **spec.sizes()}
        return cls(UNetConfig(**chosen))

    def with_inputs(self, extra: int) -> "NCSNpp":
        """Further inputs enter at the highest resolution only."""
        config = self.settings
        inputs = config.inputs or config.channels
        more = inputs + extra * config.channels
        wider = NCSNpp(replace(config, inputs=more, pyramid=config.pyramid or inputs))
        copy_weights(wider, self)
        return wider

    def config(self) -> dict[str, Any]:
        return asdict(self.settings)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "NCSNpp":
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in config.items()}
        return cls(UNetConfig(**values))

    def _build(self, embedding: int) -> None:
        config = self.settings
        widths = [int(config.width * m) for m in config.multipliers]
        channels, kept = config.width, [config.width]
        image = config.patch**2 * (config.pyramid or config.inputs or config.channels)
        resolution = config.resolution // config.patch

        def block(inputs: int, outputs: int, resample: Callable[[Tensor], Tensor] | None = None) -> ResidualBlock:
            return ResidualBlock(inputs, outputs, embedding, config.dropout, resample)

        for level, width in enumerate(widths):
            attends = resolution >> level in config.attention
            for _ in range(config.blocks):
                self.down.append(nn.ModuleList([block(channels, width), *([Attention(width)] if attends else [])]))
                channels = width
                kept.append(channels)
            if level < len(widths) - 1:
                self.down.append(nn.ModuleList([block(channels, channels, fir_down)]))
                self.pyramid.append(Conv(image, channels, stride=2))
                image = channels
                kept.append(channels)
        self.middle = nn.ModuleList([block(channels, channels), Attention(channels), block(channels, channels)])
        for level, width in reversed(list(enumerate(widths))):
            for index in range(config.blocks + 1):
                last = index == config.blocks
                attends = last and resolution >> level in config.attention
                parts = [block(channels + kept.pop(), width), *([Attention(width)] if attends else [])]
                if last and level:
                    parts.append(block(width, width, fir_up))
                self.up.append(nn.ModuleList(parts))
                channels = width
        self.norm = Norm(channels)
        self.last = Conv(channels, config.patch**2 * config.channels * config.outputs, scale=0.0)

    def forward(
        self, x: Tensor, position: Tensor, label: Tensor | None = None, dtype: torch.dtype | None = None
    ) -> Tensor:
        dtype, patch = dtype or x.dtype, self.settings.patch
        embedding = self._embedding(position, label).to(dtype)
        x = F.pixel_unshuffle(x, patch)
        h = self.first(x).to(dtype)
        image = x[:, : patch**2 * self.settings.pyramid] if self.settings.pyramid else x
        kept, pyramid = [h], iter(self.pyramid)
        for parts in self.down:
            first, rest = _parts(parts)
            h = first(kept[-1], embedding)
            if first.resample is fir_down:
                image = (next(pyramid)(fir_smooth(image)).to(dtype) + h) * math.sqrt(0.5)
                h = image
            kept.append(_through(rest, h, embedding))
        first, rest = _parts(self.middle)
        h = _through(rest, first(kept[-1], embedding), embedding)
        for parts in self.up:
            first, rest = _parts(parts)
            h = _through(rest, first(torch.cat([h, kept.pop()], 1), embedding), embedding)
        return F.pixel_shuffle(self.last(self.norm(h, silu=True)), patch)

    def _embedding(self, position: Tensor, label: Tensor | None) -> Tensor:
        embedding = self.embed[1](F.silu(self.embed[0](positional_embedding(position, self.settings.width))))
        if self.classes is not None:
            none = torch.full(position.shape, self.settings.num_classes, device=position.device)
            embedding = embedding + self.classes(none if label is None else label).float()
        return F.silu(embedding)


def _parts(place: nn.Module) -> tuple[ResidualBlock, list[nn.Module]]:
    """The first block of a place in the network, and what follows it: attention, or further blocks."""
    assert isinstance(place, nn.ModuleList)
    first, *rest = place
    assert isinstance(first, ResidualBlock)
    return first, rest


def _through(parts: list[nn.Module], h: Tensor, embedding: Tensor) -> Tensor:
    for part in parts:
        h = part(h) if isinstance(part, Attention) else part(h, embedding)
    return h


def _halvings(side: int) -> int:
    """How often a side can be halved."""
    return (side & -side).bit_length() - 1
