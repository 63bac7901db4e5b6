"""Generators for labels: absorbing (mask), uniform, and a discretised Gaussian for ordered ones."""

import numpy
import torch
from torch import Tensor

from blackout import validate
from blackout.process.generator import MOST_STATES
from blackout.process.matrix import GeneratorProcess
from blackout.process.propagator import Propagator
from blackout.process.schedule import Function, Schedule


class Absorbing(GeneratorProcess):
    """Every state but one jumps to that one, the mask, at rate one. Not in the paper: masked diffusion, D3PM, 2021.

    `num_states` counts the mask, which is the last state unless `mask_state` names another.

    Examples
    --------
    >>> import blackout as bo
    >>> process = bo.Absorbing(num_states=5)  # four labels and the mask
    >>> process.mask_state, process.max_state
    (4, 3)
    """

    time_rule = "survival"
    arguments = ("num_states", "mask_state")
    relaxation_rate = 1.0

    def __init__(
        self, num_states: int, mask_state: int | None = None, schedule: Schedule | Function | None = None
    ) -> None:
        size = validate.integer("num_states", num_states, 2, MOST_STATES)
        mask = size - 1 if mask_state is None else validate.integer("mask_state", mask_state, 0)
        if mask >= size:
            raise ValueError(f"mask_state must be less than num_states={size}, got {mask_state}")
        self.mask_state = mask
        rates = numpy.zeros((size, size))
        rates[:, mask] = 1.0
        super().__init__(rates - numpy.eye(size), ordered=False, schedule=schedule)

    def __repr__(self) -> str:
        return f"Absorbing(num_states={self.num_states}, mask_state={self.mask_state})"

    @classmethod
    def for_levels(cls, levels: int | None) -> "Absorbing":
        return cls(cls.finite_levels(levels) + 1)

    @property
    def divergence_form(self) -> str:
        return "mask"

    def _new_propagator(self, device: torch.device) -> Propagator:
        target = torch.zeros(self.num_states, dtype=torch.float64, device=device)
        target[self.mask_state] = 1.0
        return Redraw(target)


class Uniform(GeneratorProcess):
    """Every label is redrawn uniformly at rate one. Not in the paper: multinomial diffusion, 2021.

    Examples
    --------
    >>> import blackout as bo
    >>> bo.Uniform(num_states=4).probs(torch.tensor([0]), 100.0)
    tensor([[0.2500, 0.2500, 0.2500, 0.2500]], dtype=torch.float64)
    """

    arguments = ("num_states",)
    relaxation_rate = 1.0

    def __init__(self, num_states: int, schedule: Schedule | Function | None = None) -> None:
        size = validate.integer("num_states", num_states, 2, MOST_STATES)
        super().__init__(numpy.full((size, size), 1 / size) - numpy.eye(size), ordered=False, schedule=schedule)

    def __repr__(self) -> str:
        return f"Uniform(num_states={self.num_states})"

    def _new_propagator(self, device: torch.device) -> Propagator:
        return Redraw(torch.full((self.num_states,), 1 / self.num_states, dtype=torch.float64, device=device))


class Halving(GeneratorProcess):
    """m -> m // 2 at rate one: the last binary digit is lost, until the state is zero. Not in the paper.

    A grey level of eight bits is black after at most eight events. In reverse, an image is made coarse to fine, one
    binary digit of a pixel at a time.

    Examples
    --------
    >>> import blackout as bo
    >>> bo.Halving(num_states=256).terminal_state
    0
    """

    arguments = ("num_states",)

    def __init__(self, num_states: int, schedule: Schedule | Function | None = None) -> None:
        size = validate.integer("num_states", num_states, 2, MOST_STATES)
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
    states), so that a state away from the border is left at `rate`. The terminal distribution is uniform; with
    `terminal_std` it is a discretised Gaussian of that standard deviation about the middle, by detailed balance.

    Examples
    --------
    >>> import blackout as bo
    >>> bo.DiscretizedGaussian(num_states=16)
    DiscretizedGaussian(num_states=16, bandwidth=2.0, rate=1.0, terminal_std=None)
    """

    arguments = ("num_states", "bandwidth", "rate", "terminal_std")

    def __init__(
        self,
        num_states: int,
        bandwidth: float | None = None,
        rate: float = 1.0,
        terminal_std: float | None = None,
        schedule: Schedule | Function | None = None,
    ) -> None:
        size = validate.integer("num_states", num_states, 2, MOST_STATES)
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


class Redraw(Propagator):
    """exp(Q tau) in closed form where a state is redrawn from one distribution at rate one."""

    def __init__(self, target: Tensor) -> None:
        self.target = target
        self.num_states = len(target)

    def prob(self, start: Tensor, end: Tensor, taus: Tensor, which: Tensor) -> Tensor:
        keep, redraw = (v[which].unsqueeze(-1) for v in (torch.exp(-taus), -torch.expm1(-taus)))
        return torch.where(start.unsqueeze(-1) == end, keep, 0.0) + redraw * self.target[end]

    def rows(self, start: Tensor, taus: Tensor, which: Tensor) -> Tensor:
        out = -torch.expm1(-taus)[which].unsqueeze(-1) * self.target
        out[torch.arange(len(start), device=start.device), start] += torch.exp(-taus)[which]
        return out

    def columns(self, end: Tensor, taus: Tensor, which: Tensor) -> Tensor:
        out = (-torch.expm1(-taus)[which] * self.target[end]).unsqueeze(-1).repeat(1, self.num_states)
        out[torch.arange(len(end), device=end.device), end] += torch.exp(-taus)[which]
        return out
