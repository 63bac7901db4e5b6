"""LogClock: times that are uniform in their logarithm, down to a first time, and uniform below it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from blackout import validate
from blackout.times import ObservationTimes


@dataclass(frozen=True)
class LogClock:
    """u = log(1 + t / t_first) / log(1 + t_end / t_first), from 0 to 1: a time scale that needs no closed forms.

    A reaction that has to be undone has a reverse rate near 1 / t, so that equally many happen in equal steps of u.
    """

    t_first: float
    t_end: float

    def __post_init__(self) -> None:
        validate.real("t_first", self.t_first, 0.0, strict=True)
        if validate.real("t_end", self.t_end, 0.0, strict=True) <= self.t_first:
            raise ValueError(f"t_end must be more than t_first, got t_end={self.t_end} and t_first={self.t_first}")

    @property
    def _length(self) -> Tensor:
        return torch.log1p(torch.tensor(self.t_end / self.t_first, dtype=torch.float64))

    def time(self, u: Tensor) -> Tensor:
        """t at u."""
        return self.t_first * torch.expm1(u * self._length)

    def place(self, t: Tensor) -> Tensor:
        """u at t."""
        return torch.log1p(t / self.t_first) / self._length

    def stretch(self, t: Tensor) -> Tensor:
        """dt / du at t: the length of time that a time drawn uniformly in u stands for."""
        return (t + self.t_first) * self._length

    def strata(self, noise: Tensor) -> Tensor:
        """Increasing times, one in each of K equal strata of u, from uniform noise of shape (..., K)."""
        return self.time((torch.arange(noise.shape[-1], device=noise.device) + noise) / noise.shape[-1])

    def grid(self, num_steps: int) -> ObservationTimes:
        """Observation times in equal steps of u."""
        steps = validate.integer("num_steps", num_steps, 1)
        times = self.time(torch.arange(1, steps + 1, dtype=torch.float64) / steps)
        times[-1] = self.t_end
        return ObservationTimes.from_values(times)
