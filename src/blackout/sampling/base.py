"""Sampler: the walk back, written once."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from blackout import validate
from blackout.denoiser import Denoiser
from blackout.process.base import MarkovProcess
from blackout.process.chain import Chain
from blackout.sampling.corrector import correct
from blackout.streams import Streams
from blackout.times import ObservationTimes

_FEW = 16  # states over which the divergence of a step is summed
_NEGLIGIBLE = 1e-12  # probability of one of them


class Sampler(ABC):
    """One loop from the terminal law to time zero; a sampler is one `step`: docs/mathematics.md#samplers."""

    def __init__(self, corrector_steps: int = 0, corrector_size: float = 0.1) -> None:
        self.corrector_steps = validate.integer("corrector_steps", corrector_steps, 0)
        self.corrector_size = validate.real("corrector_size", corrector_size, 0.0, strict=True)

    @abstractmethod
    def step(
        self, denoise: Denoiser, process: MarkovProcess, xt: Tensor, s: Tensor, t: Tensor, source: Streams
    ) -> Tensor:
        """A draw of X_s given X_t = xt, for one step s < t of the grid."""

    @abstractmethod
    def step_log_prob(
        self, denoise: Denoiser, process: MarkovProcess, xs: Tensor, xt: Tensor, s: Tensor, t: Tensor
    ) -> Tensor:
        """The logarithm of the probability, elementwise, with which `step` would have led from xt to xs."""

    @abstractmethod
    def check(self, process: MarkovProcess) -> None:
        """Refuse, with a ValueError, a process that this sampler cannot walk back."""

    def start(self, process: MarkovProcess, times: ObservationTimes, shape: tuple[int, ...], source: Streams) -> Tensor:
        """Where the walk begins: a draw of the terminal law."""
        return process.terminal(shape, source)

    def correct(
        self, denoise: Denoiser, process: MarkovProcess, x: Tensor, s: Tensor, t: Tensor, source: Streams
    ) -> Tensor:
        """x after the corrector steps at s, where a step from t has ended; at time zero nothing is left to correct."""

        def back(xt: Tensor, s: Tensor, t: Tensor) -> Tensor:
            return self._once(denoise, process, xt, s, t, source)

        for _ in range(self.corrector_steps if float(s) > 0 else 0):
            x = correct(process, x, s, t, self.corrector_size, back, source)
        return x

    def _once(
        self, denoise: Denoiser, process: MarkovProcess, xt: Tensor, s: Tensor, t: Tensor, source: Streams
    ) -> Tensor:
        """`step`, taken once, for those samplers that take it several times."""
        return self.step(denoise, process, xt, s, t, source)

    @torch.no_grad()
    def sample(
        self,
        denoise: Denoiser,
        process: MarkovProcess,
        times: ObservationTimes,
        shape: tuple[int, ...],
        seed: int = 0,
        trajectory: bool = False,
        *,
        start_index: int = 0,
        batch_size: int | None = None,
        device: Any = "cpu",
        callback: Callable[[int, int, Tensor], None] | None = None,
    ) -> Tensor:
        """Samples of the given shape (batch, ...), int64.

        Sample number i depends on the seed and on i alone, not on `batch_size` or on the other samples; `start_index` is the
        number of the first one. With `trajectory` the whole walk is returned, shape (T + 1, batch, ...), from X_{t_T}
        to X_0. `callback(k, T, x)` is called after each of the T steps of each batch.
        """
        self.check(process)
        shape, device = validate.shape(shape), validate.device(device)
        if not shape:
            raise ValueError("shape must begin with the number of samples, got ()")
        if not isinstance(times, ObservationTimes):
            raise ValueError(f"times must be ObservationTimes, got {type(times).__name__}")
        seed, start_index = validate.integer("seed", seed, 0), validate.integer("start_index", start_index, 0)
        batch = max(1, shape[0]) if batch_size is None else validate.integer("batch_size", batch_size, 1)
        walks = []
        for start in range(0, max(1, shape[0]), batch):
            rows = min(batch, shape[0] - start)
            source = Streams(seed, rows, start_index + start, device)
            walks.append(self._walk(denoise, process, times, (rows, *shape[1:]), source, trajectory, callback))
        return torch.cat(walks, dim=1 if trajectory else 0)

    def _walk(
        self,
        denoise: Denoiser,
        process: MarkovProcess,
        times: ObservationTimes,
        shape: tuple[int, ...],
        source: Streams,
        trajectory: bool,
        callback: Callable[[int, int, Tensor], None] | None,
    ) -> Tensor:
        x = self.start(process, times, shape, source)
        path = [x]
        for k, (s, t) in enumerate(times.backwards(), 1):
            s, t = s.to(x.device), t.to(x.device)
            x = self.correct(denoise, process, self.step(denoise, process, x, s, t, source), s, t, source)
            if trajectory:
                path.append(x)
            if callback is not None:
                callback(k, len(times), x)
        return torch.stack(path) if trajectory else x

    @torch.no_grad()
    def bound(
        self,
        denoise: Denoiser,
        process: MarkovProcess,
        times: ObservationTimes,
        x0: Tensor,
        seed: int = 0,
        *,
        start_index: int = 0,
        num_steps: int | None = None,
    ) -> Tensor:
        """The evidence bound of these very T steps, in nats, shape (batch,): not in the paper.

        Σ_k log q(x_{k-1} | x_k, x0) - log p(x_{k-1} | x_k) along one path of the forward process given x0; where the
        process ends in one state, given that it has. Infinite if a step cannot take a path that the data takes: so it
        is for a bridge that adds at most ceil(y). Corrector steps are not part of it. The path of a data point depends
        on the seed and on its number alone; `start_index` is the number of the first one here.

        With fewer than T `num_steps`, a step drawn with the seed stands for each of so many runs of neighbouring ones,
        at a draw of X_t of its own, and with few states its divergence is a sum over all of them: unbiased, for grids
        too long to be walked.
        """
        self.check(process)
        (x0,) = validate.states(process.num_states, x0=x0)
        if x0.dim() == 0:
            raise ValueError("x0 must have shape (batch, ...), got a single state")
        if x0.numel() == 0:
            return torch.zeros(len(x0), dtype=torch.float64, device=x0.device)
        x0 = x0.long()
        source = Streams(
            validate.integer("seed", seed, 0),
            len(x0),
            validate.integer("start_index", start_index, 0),
            device=x0.device,
        )
        end = torch.tensor(times.t_end, dtype=torch.float64, device=x0.device)
        if process.terminal_state is not None:
            xt = torch.full_like(x0, process.terminal_state)
            total = torch.zeros_like(x0, dtype=torch.float64)
        else:
            xt = process.sample(x0, end, source)
            total = process.log_prob(xt, x0, end) - process.terminal_log_prob(xt)
        if num_steps is not None and validate.integer("num_steps", num_steps, 1) < len(times):
            for s, t, weight in times.subsample(num_steps, seed):
                s, t = s.to(x0.device), t.to(x0.device)
                if process.terminal_state is None:
                    now = process.sample(x0, t, source)
                else:
                    now = xt if bool(t == end) else process.sample_bridge(x0, xt, t, end, source)
                total += weight * self._divergence(denoise, process, x0, now, s, t, source)
            return total.reshape(len(x0), -1).sum(-1)
        for s, t in times.backwards():
            s, t = s.to(x0.device), t.to(x0.device)
            xs = process.sample_bridge(x0, xt, s, t, source)
            true = process.bridge_log_prob(xs, x0, xt, s, t)
            total = total + true - self.step_log_prob(denoise, process, xs, xt, s, t)
            xt = xs
        return total.reshape(len(x0), -1).sum(-1)

    def _divergence(
        self, denoise: Denoiser, process: MarkovProcess, x0: Tensor, xt: Tensor, s: Tensor, t: Tensor, source: Streams
    ) -> Tensor:
        """KL(q(. | x_t, x_0) ‖ p(. | x_t)) of one step, elementwise; where states are many, one draw of it."""
        if process.num_states is None or process.num_states > _FEW:
            xs = process.sample_bridge(x0, xt, s, t, source)
            true = process.bridge_log_prob(xs, x0, xt, s, t)
            return true - self.step_log_prob(denoise, process, xs, xt, s, t)
        total = torch.zeros_like(x0, dtype=torch.float64)
        for state in range(process.num_states):
            xs = torch.full_like(x0, state)
            true = process.bridge_log_prob(xs, x0, xt, s, t)
            model = self.step_log_prob(denoise, process, xs, xt, s, t)
            # Where the model's law is rounded to zero, a state counts if the data goes there more than by rounding.
            total += torch.where(true < math.log(_NEGLIGIBLE), 0.0, torch.exp(true) * (true - model))
        return total


def refuse_chains(process: MarkovProcess) -> None:
    if isinstance(process, Chain):
        raise ValueError(f"process must run in continuous time for this sampler, got {process!r}")
