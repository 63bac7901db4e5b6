"""Generators for labels: absorbing (mask), uniform, and a discretised Gaussian for ordered ones."""

import numpy
import torch
from torch import Tensor

from blackout import validate
from blackout.process.matrix import GeneratorProcess, check_num_states
from blackout.process.redraw import RedrawProcess
from blackout.process.schedule import Function, Schedule


class Absorbing(RedrawProcess):
    """Every state but one jumps to that one, the mask, at rate one. Not in the paper: masked diffusion, D3PM, 2021.

    `num_states` counts the mask, which is the last state unless `mask_state` names another, and the padding of
    sequences, `pad_state`, if there is one: it never changes, and is part of no loss and no bound.

    Examples
    --------
    >>> import blackout as bo
    >>> process = bo.Absorbing(num_states=5)  # four labels and the mask
    >>> process.mask_state, process.max_state
    (4, 3)
    """

    time_rule = "cosine"
    divergence_form = "mask"
    arguments = ("num_states", "mask_state", "pad_state")
    terminal_state: int

    def __init__(
        self,
        num_states: int,
        mask_state: int | None = None,
        pad_state: int | None = None,
        schedule: Schedule | Function | None = None,
    ) -> None:
        super().__init__(num_states, pad_state, schedule)
        size = self.num_states
        mask = size - 1 if mask_state is None else validate.integer("mask_state", mask_state, 0)
        if mask >= size:
            raise ValueError(f"mask_state must be less than num_states={size}, got {mask_state}")
        if mask == pad_state:
            raise ValueError(f"pad_state must not be the mask, got {pad_state} for both")
        self.mask_state, self.terminal_state = mask, mask
        self.jumps = tuple(mask - state for state in range(size - 1, -1, -1) if state not in (mask, pad_state))

    @classmethod
    def for_levels(cls, levels: int | None) -> "Absorbing":
        return cls(cls.finite_levels(levels) + 1)

    def _with_padding(self) -> "Absorbing":
        size, mask = self.num_states, self.terminal_state
        pad = size - (mask == size - 1)
        return Absorbing(size + 1, mask + (mask == pad), pad, self.schedule)

    def redraw_prob(self, x: Tensor) -> Tensor:
        return torch.eq(x, self.terminal_state).double()

    def redrawn(self, u: Tensor) -> Tensor:
        return torch.full_like(u, self.terminal_state, dtype=torch.int64)


class Uniform(RedrawProcess):
    """Every label is redrawn uniformly at rate one. Not in the paper: multinomial diffusion, 2021.

    `pad_state`, the padding of sequences, if there is one, is no label: it never changes, and is part of no loss and no
    bound.

    Examples
    --------
    >>> import blackout as bo
    >>> bo.Uniform(num_states=4).probs(torch.tensor([0]), 100.0)
    tensor([[0.2500, 0.2500, 0.2500, 0.2500]], dtype=torch.float64)
    """

    arguments = ("num_states", "pad_state")
    divergence_form = "uniform"
    terminal_state = None

    def __init__(
        self, num_states: int, pad_state: int | None = None, schedule: Schedule | Function | None = None
    ) -> None:
        super().__init__(num_states, pad_state, schedule)
        self.num_labels = self.num_states - (pad_state is not None)
        farthest = self.num_states - 1 - (pad_state in (0, self.num_states - 1))
        self.jumps = tuple(d for d in range(-farthest, farthest + 1) if d)

    def _with_padding(self) -> "Uniform":
        return Uniform(self.num_states + 1, self.num_states, self.schedule)

    def redraw_prob(self, x: Tensor) -> Tensor:
        return (x != self._pad).double() / self.num_labels

    def redrawn(self, u: Tensor) -> Tensor:
        label = (u * self.num_labels).long().clamp(max=self.num_labels - 1)
        return label if self.pad_state is None else label + (label >= self.pad_state)


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
        size = check_num_states(num_states)
        rates = numpy.zeros((size, size))
        states = numpy.arange(1, size)
        rates[states, states // 2] = 1.0
        rates[states, states] = -1.0
        super().__init__(rates, ordered=False, schedule=schedule)


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
        size = check_num_states(num_states)
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
