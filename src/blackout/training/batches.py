"""Batches: which data, times and noise belong to step number k. All of it depends on the seed and on k alone."""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from blackout.data import SparseRows
from blackout.process import MarkovProcess
from blackout.times import ObservationTimes
from blackout.training.config import TrainConfig


@dataclass(frozen=True)
class Batch:
    """One process's share of a global batch. t - s is the weight of t; sigma and tau are s and t by the clock B(t)."""

    x0: Tensor
    xt: Tensor
    s: Tensor
    t: Tensor
    sigma: Tensor
    tau: Tensor
    label: Tensor | None

    def split(self, count: int) -> list["Batch"]:
        """`count` equal micro-batches."""
        size = len(self.x0) // count
        return [self.take(slice(k * size, (k + 1) * size)) for k in range(count)]

    def take(self, rows: slice) -> "Batch":
        parts: list[Any] = [getattr(self, f.name) for f in fields(self)]
        parts = [None if part is None else part[rows] for part in parts]
        return Batch(*parts)


class Batches:
    """Draws global batches, and hands process `index` of `processes` its share of each."""

    def __init__(
        self,
        config: TrainConfig,
        process: MarkovProcess,
        times: ObservationTimes,
        device: torch.device,
        index: int,
        processes: int,
    ) -> None:
        self.config, self.process, self.grid, self.device = config, process, times, device
        self._share = slice(index, None, processes)
        self._order: tuple[int, Tensor] = (-1, torch.empty(0))

    @property
    def scale(self) -> float:
        """From a mean over drawn times to the sum, or integral, over all of them."""
        return float(len(self.grid)) if self.config.time_law == "grid" else 1.0

    def draw(self, step: int, x: Tensor | SparseRows, labels: Tensor | None, no_class: int) -> Batch:
        config = self.config
        host = torch.Generator().manual_seed(mix(config.seed, step, 0))
        local = torch.Generator(self.device).manual_seed(mix(config.seed, step, 1))
        index = self.indices(len(x), step)
        chance = torch.rand(2, len(index), generator=host, dtype=torch.float64)
        drawn = torch.stack([index.double(), *chance, *self.times(len(index), host)])
        if self.device.type == "cuda":  # one copy that the host does not wait for
            drawn = drawn.pin_memory().to(self.device, non_blocking=True)
        index, (flip, hide, s, t) = drawn[0].long(), drawn[1:]
        x0 = x[index]
        if config.flip:
            x0 = torch.where((flip < 0.5).reshape(-1, *(1,) * (x0.dim() - 1)), x0.flip(-1), x0)
        sigma, tau = self.on_clock(s, t)
        xt = self.process.sample_at(x0, tau, local).to(self.process.state_dtype(x0))
        label = None if labels is None else self._hide(labels[index], hide, flip, no_class)
        if self.device.type == "cuda" and x0.dim() == 4:
            x0, xt = (v.contiguous(memory_format=torch.channels_last) for v in (x0, xt))
        return Batch(x0, xt, s, t, sigma, tau, label).take(self._share)

    def _hide(self, label: Tensor, hide: Tensor, other: Tensor, no_class: int) -> Tensor:
        """Some labels are hidden; so are the numbers beside a class, by a chance of their own."""
        hidden = hide < self.config.label_dropout
        if label.dim() == 1:
            return torch.where(hidden, no_class, label)
        numbers = torch.where((other < self.config.label_dropout).unsqueeze(-1), torch.nan, label[:, 1:])
        return torch.cat([torch.where(hidden, -1.0, label[:, 0]).unsqueeze(-1), numbers], -1)

    def indices(self, size: int, step: int) -> Tensor:
        """The data of batch `step`: epochs are permutations, one after another."""
        first, wanted = step * self.config.batch_size, self.config.batch_size
        parts = []
        while wanted:
            epoch, offset = divmod(first, size)
            if self._order[0] != epoch:
                generator = torch.Generator().manual_seed(mix(self.config.seed, epoch, 3))
                self._order = (epoch, torch.randperm(size, generator=generator))
            part = self._order[1][offset : offset + wanted]
            parts.append(part)
            first, wanted = first + len(part), wanted - len(part)
        return torch.cat(parts)

    def times(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """(s, t), with t - s the weight of t: the step of the grid, or one over the density."""
        config = self.config
        if config.time_law == "grid":
            return self.grid.draw(size, generator, stratified=config.stratified)
        v = torch.rand(size, generator=generator, dtype=torch.float64)
        v = ((torch.arange(size) + v) / size if config.stratified else v).clamp(1e-6, 1 - 1e-6)
        t, stretch = self.process.at_log_time(-(config.time_loc + config.time_scale * torch.logit(v)))
        return t - stretch * config.time_scale / (v * (1 - v)), t

    def on_clock(self, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """The same on the homogeneous clock; where times are drawn from a density, s is nothing but the weight."""
        schedule = self.process.schedule
        if schedule is None:
            return s, t
        tau = schedule.integral(t)
        on_grid = self.config.time_law == "grid"
        return schedule.integral(s) if on_grid else tau - schedule.rate(t) * (t - s), tau


def mix(seed: int, number: int, purpose: int) -> int:
    """A seed for each (seed, number, purpose), well spread (SplitMix64)."""
    z = (seed * 0x9E3779B97F4A7C15 + number * 0xBF58476D1CE4E5B9 + purpose * 0x94D049BB133111EB + 1) & (2**64 - 1)
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
    return (z ^ (z >> 31)) >> 1
