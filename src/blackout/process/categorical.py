"""Generators for labels: absorbing (mask), uniform, and a discretised Gaussian for ordered ones."""

import numpy
import torch
from torch import Tensor

from blackout import validate
from blackout.process.matrix import GeneratorProcess
from blackout.process.propagator import Propagator
from blackout.process.schedule import Function, Schedule


class Absorbing(GeneratorProcess):
    """Every state but one jumps to that one, the mask, at rate one. Not in the paper: masked diffusion, D3PM, 2021.

    `num_states` counts the mask, which is the last state unless `mask_state` names another.
    """

    def __init__(
        self, num_states: int, mask_state: int | None = None, schedule: Schedule | Function | None = None
    ) -> None:
        size = validate.integer("num_states", num_states, 2)
        self.mask_state = size - 1 if mask_state is None else validate.integer("mask_state", mask_state, 0)
        if self.mask_state >= size:
            raise ValueError(f"mask_state must be less than num_states={size}, got {mask_state}")
        rates = numpy.zeros((size, size))
        rates[:, self.mask_state] = 1.0
        super().__init__(rates - numpy.eye(size), ordered=False, schedule=schedule)

    def __repr__(self) -> str:
        return f"Absorbing(num_states={self.num_states}, mask_state={self.mask_state})"

    def _new_propagator(self, device: torch.device) -> Propagator:
        law = torch.zeros(self.num_states, dtype=torch.float64, device=device)
        law[self.mask_state] = 1.0
        return Forgetting(law)


class Uniform(GeneratorProcess):
    """Every label is drawn anew, uniformly, at rate one. Not in the paper: multinomial diffusion, 2021."""

    def __init__(self, num_states: int, schedule: Schedule | Function | None = None) -> None:
        size = validate.integer("num_states", num_states, 2)
        super().__init__(numpy.full((size, size), 1 / size) - numpy.eye(size), ordered=False, schedule=schedule)

    def __repr__(self) -> str:
        return f"Uniform(num_states={self.num_states})"

    def _new_propagator(self, device: torch.device) -> Propagator:
        return Forgetting(torch.full((self.num_states,), 1 / self.num_states, dtype=torch.float64, device=device))


class Halving(GeneratorProcess):
    """m -> m // 2 at rate one: the last binary digit is lost, until the state is zero. Not in the paper.

    A grey level of eight bits is black after at most eight events. Backwards, a picture is made coarse to fine, a digit
    at a time, each pixel when its time comes.
    """

    def __init__(self, num_states: int, schedule: Schedule | Function | None = None) -> None:
        size = validate.integer("num_states", num_states, 2)
        rates = numpy.zeros((size, size))
        states = numpy.arange(1, size)
        rates[states, states // 2] = 1.0
        rates[states, states] = -1.0
        super().__init__(rates, ordered=False, schedule=schedule)

    def __repr__(self) -> str:
        return f"Halving(num_states={self.num_states})"


class DiscretizedGaussian(GeneratorProcess):
    """Jumps of Gaussian length. Not in the paper: the ordered setting of D3PM and τLDR, in continuous time.

    The rate i -> j is `rate` times a discretised Gaussian of standard deviation `bandwidth` (default: an eighth of the
    states), so that a state away from the border is left at `rate`. The terminal law is uniform; with `terminal_std` it
    is a discretised Gaussian of that standard deviation about the middle, by detailed balance.
    """

    def __init__(
        self,
        num_states: int,
        bandwidth: float | None = None,
        rate: float = 1.0,
        terminal_std: float | None = None,
        schedule: Schedule | Function | None = None,
    ) -> None:
        size = validate.integer("num_states", num_states, 2)
        self.bandwidth = validate.real(
            "bandwidth", max(1.0, size / 8) if bandwidth is None else bandwidth, 0.0, strict=True
        )
        self.rate = validate.real("rate", rate, 0.0, strict=True)
        self.terminal_std = (
            None if terminal_std is None else validate.real("terminal_std", terminal_std, 0.0, strict=True)
        )
        lengths = numpy.arange(-size + 1, size)
        excess = numpy.maximum(lengths**2 - 1, 0)
        with numpy.errstate(over="ignore", under="ignore"):
            kernel = numpy.exp(-excess / (2 * self.bandwidth**2))  # a jump by one has weight one
        kernel[size - 1] = 0.0
        kernel *= self.rate / kernel.sum()
        states = numpy.arange(size)
        rates = kernel[states[None, :] - states[:, None] + size - 1]
        if self.terminal_std is not None:
            energy = (states - (size - 1) / 2) ** 2 / (2 * self.terminal_std**2)
            rates *= numpy.exp(-numpy.maximum(energy[None, :] - energy[:, None], 0.0))
        super().__init__(rates - numpy.diag(rates.sum(1)), ordered=True, schedule=schedule)

    def __repr__(self) -> str:
        return (
            f"DiscretizedGaussian(num_states={self.num_states}, bandwidth={self.bandwidth}, rate={self.rate}, "
            f"terminal_std={self.terminal_std})"
        )


class Forgetting(Propagator):
    """exp(Q tau) in closed form where a state is redrawn from one law at rate one: e^{-tau} 1 + (1 - e^{-tau}) law."""

    def __init__(self, law: Tensor) -> None:
        self.law = law
        self.num_states = len(law)

    def prob(self, start: Tensor, end: Tensor, taus: Tensor, which: Tensor) -> Tensor:
        keep, redraw = (v[which].unsqueeze(-1) for v in (torch.exp(-taus), -torch.expm1(-taus)))
        return torch.where(start.unsqueeze(-1) == end, keep, 0.0) + redraw * self.law[end]

    def rows(self, start: Tensor, taus: Tensor, which: Tensor) -> Tensor:
        out = -torch.expm1(-taus)[which].unsqueeze(-1) * self.law
        out[torch.arange(len(start), device=start.device), start] += torch.exp(-taus)[which]
        return out

    def columns(self, end: Tensor, taus: Tensor, which: Tensor) -> Tensor:
        out = (-torch.expm1(-taus)[which] * self.law[end]).unsqueeze(-1).repeat(1, self.num_states)
        out[torch.arange(len(end), device=end.device), end] += torch.exp(-taus)[which]
        return out
