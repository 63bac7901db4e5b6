"""Batches: which data, times and noise belong to step number k. All of it depends on the seed and on k alone."""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from blackout.data import SparseRows
from blackout.loss import LikelihoodLoss, Loss
from blackout.network import Predictor
from blackout.process import MarkovProcess
from blackout.random import mix
from blackout.times import ObservationTimes
from blackout.training.config import TrainConfig


@dataclass(frozen=True)
class Batch:
    """One process's share of a global batch."""

    x0: Tensor
    xt: Tensor
    t: Tensor
    weight: Tensor
    """What the loss and the density of t make of the divergence at t: the mean of the product is the loss."""
    span: Tensor
    """The same for the likelihood: its mean product with the divergence is the evidence bound, in nats."""
    s: Tensor | None
    """The time before t, for a chain in discrete time."""
    label: Tensor | None
    channel: Tensor | None = None
    """The channel of each row, where the loss has one of them alone."""

    def split(self, count: int) -> list["Batch"]:
        """`count` equal micro-batches."""
        size = len(self.x0) // count
        return [self.take(slice(k * size, (k + 1) * size)) for k in range(count)]

    def take(self, rows: slice) -> "Batch":
        parts: list[Any] = [getattr(self, f.name) for f in fields(self)]
        parts = [None if part is None else part[rows] for part in parts]
        return Batch(*parts)


class Batches:
    """Draws global batches, and gives process `index` of `processes` its share of each."""

    def __init__(
        self,
        config: TrainConfig,
        process: MarkovProcess,
        times: ObservationTimes,
        loss: Loss,
        device: torch.device,
        index: int,
        processes: int,
    ) -> None:
        if process.discrete_time and config.optimiser.time_density != "grid":
            density = config.optimiser.time_density
            raise ValueError(f"time_density must be 'grid' for a chain, whose times are integers, got {density!r}")
        if process.discrete_time and config.optimiser.channels == "one":
            raise ValueError(
                f"channels must be 'all' for a chain, which has no rates, got {config.optimiser.channels!r}"
            )
        self.config, self.process, self.grid, self.loss, self.device = config, process, times, loss, device
        self._share = slice(index, None, processes)
        self._order: tuple[int, Tensor] = (-1, torch.empty(0))

    def draw(self, step: int, x: Tensor | SparseRows, labels: Tensor | None, predictor: Predictor) -> Batch:
        seed = self.config.run.seed
        host = torch.Generator().manual_seed(mix(seed, step, 0))
        local = torch.Generator(self.device).manual_seed(mix(seed, step, 1))
        index = self.indices(len(x), step)
        chance = torch.rand(2, len(index), generator=host, dtype=torch.float64)
        drawn = torch.stack([index.double(), *chance, *self.times(len(index), host), self._channels(len(index), host)])
        if self.device.type == "cuda":  # one copy that the host does not wait for
            drawn = drawn.pin_memory().to(self.device, non_blocking=True)
        index, (flip, hide, s, t, span, channel) = drawn[0].long(), drawn[1:]
        x0 = x[index]
        if self.config.data.flip:
            x0 = torch.where((flip < 0.5).reshape(-1, *(1,) * (x0.dim() - 1)), x0.flip(-1), x0)
        tau = self.process.clock_time(t)
        xt = self.process.sample_at(x0, tau, local).to(self.process.state_dtype(x0))
        label = None if labels is None else self._hide(labels[index], hide, predictor, host)
        if self.device.type == "cuda" and x0.dim() == 4:
            x0, xt = (v.contiguous(memory_format=torch.channels_last) for v in (x0, xt))
        weight, span = self._weights(s, t, tau, span)
        before = s if self.process.discrete_time else None
        one = channel.long() if self.config.optimiser.channels == "one" else None
        return Batch(x0, xt, t, weight, span, before, label, one).take(self._share)

    def _channels(self, size: int, generator: torch.Generator) -> Tensor:
        """One channel for each row, uniform; no random numbers are used where the loss has all of them."""
        if self.config.optimiser.channels == "all":
            return torch.zeros(size, dtype=torch.float64)
        return torch.randint(len(self.process.jumps), (size,), generator=generator).double()

    def _weights(self, s: Tensor, t: Tensor, tau: Tensor, span: Tensor) -> tuple[Tensor, Tensor]:
        """Weights of the divergence per unit of real time: of the loss, and of the likelihood."""
        options = self.config.optimiser
        scale = float(len(self.grid)) if options.time_density == "grid" else 1.0
        if self.process.discrete_time:
            every = torch.full_like(t, scale)
            return options.loss_scale * every, every
        schedule = self.process.schedule
        rate = torch.ones_like(t) if schedule is None else schedule.rate(t)
        clock_span = tau - self.process.clock_time(s) if options.time_density == "grid" else rate * span
        gamma = self.process.relaxation_rate
        weight, bound = (
            scale * loss.weight(gamma * tau, gamma * clock_span) / gamma for loss in (self.loss, LikelihoodLoss())
        )
        if schedule is not None:
            weight, bound = schedule.on_real_clock(weight, t), schedule.on_real_clock(bound, t)
        return options.loss_scale * weight, bound

    def _hide(self, label: Tensor, hide: Tensor, predictor: Predictor, host: torch.Generator) -> Tensor:
        """Some labels are dropped: see `Conditions.hide` for rows of them."""
        share = self.config.network.label_dropout
        if predictor.conditions is None:
            return torch.where(hide < share, predictor.num_classes, label)
        chance = torch.rand(label.shape, generator=host).to(label.device)
        return predictor.conditions.hide(label, torch.cat([hide.to(chance.dtype).unsqueeze(-1), chance], -1), share)

    def indices(self, size: int, step: int) -> Tensor:
        """The data of batch `step`: epochs are permutations, one after another."""
        first, wanted = step * self.config.optimiser.batch_size, self.config.optimiser.batch_size
        parts = []
        while wanted:
            epoch, offset = divmod(first, size)
            if self._order[0] != epoch:
                generator = torch.Generator().manual_seed(mix(self.config.run.seed, epoch, 3))
                self._order = (epoch, torch.randperm(size, generator=generator))
            part = self._order[1][offset : offset + wanted]
            parts.append(part)
            first, wanted = first + len(part), wanted - len(part)
        return torch.cat(parts)

    def times(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """(s, t, span): the time before t on the grid, and the length that t stands for, one over its density."""
        config = self.config.optimiser
        if config.time_density == "grid":
            s, t = self.grid.draw(size, generator, stratified=config.stratified)
            return s, t, t - s
        v = torch.rand(size, generator=generator, dtype=torch.float64)
        v = ((torch.arange(size) + v) / size if config.stratified else v).clamp(1e-6, 1 - 1e-6)
        t, stretch = self.process.at_log_time(-(config.time_loc + config.time_scale * torch.logit(v)))
        return torch.zeros_like(t), t, stretch * config.time_scale / (v * (1 - v))
