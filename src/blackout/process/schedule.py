"""Time-inhomogeneous processes by a scalar schedule: the generator at time t is β(t) times a constant one.

Such a process is a homogeneous one on the clock B(t) = ∫_0^t β, so a schedule is β, B and the inverse of B.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor

from blackout import validate

Function = Callable[[Tensor], Tensor]
_NODES, _PIECES = 32, 2


@dataclass(frozen=True)
class Schedule:
    """β(t), its integral and the inverse of the integral, each on float64 tensors. Not in the paper, whose γ is 1.

    Examples
    --------
    >>> import blackout as bo
    >>> process = bo.PureDeath(max_count=9, schedule=bo.Schedule.linear(start=0.1, slope=2.0))
    >>> process.clock_time(torch.tensor(3.0, dtype=torch.float64))
    tensor(9.3000, dtype=torch.float64)
    """

    rate: Function
    integral: Function
    inverse: Function
    made: tuple[str, float, float] | tuple[str, float] | None = None
    """The name of the constructor and its arguments; None: an arbitrary function, which cannot be saved."""

    def config(self) -> list[Any]:
        """The constructor and its arguments, as plain JSON."""
        if self.made is None:
            raise ValueError("schedule must be Schedule.constant, linear or exponential to be saved, got a function")
        return list(self.made)

    @staticmethod
    def from_config(config: Any) -> "Schedule":
        """The schedule that `config` described."""
        makers: dict[str, Callable[..., Schedule]] = {
            "constant": Schedule.constant,
            "linear": Schedule.linear,
            "exponential": Schedule.exponential,
        }
        if not isinstance(config, list) or not config or config[0] not in makers:
            raise ValueError(f"schedule must be one of {', '.join(makers)} and its arguments, got {config!r}")
        return makers[config[0]](*config[1:])

    @staticmethod
    def constant(rate: float = 1.0) -> "Schedule":
        """β(t) = rate."""
        rate = validate.real("rate", rate, 0.0, strict=True)
        made = ("constant", rate)
        return Schedule(lambda t: torch.full_like(t, rate), lambda t: rate * t, lambda b: b / rate, made)

    @staticmethod
    def linear(start: float, slope: float) -> "Schedule":
        """β(t) = start + slope t."""
        start = validate.real("start", start, 0.0)
        slope = validate.real("slope", slope, 0.0, strict=True)
        return Schedule(
            lambda t: start + slope * t,
            lambda t: (start + 0.5 * slope * t) * t,
            lambda b: 2 * b / (start + torch.sqrt(start**2 + 2 * slope * b)).clamp(min=1e-300),
            ("linear", start, slope),
        )

    @staticmethod
    def exponential(scale: float, base: float) -> "Schedule":
        """β(t) = scale log(base) base^t."""
        scale = validate.real("scale", scale, 0.0, strict=True)
        base = validate.real("base", base, 1.0, strict=True)
        return Schedule(
            lambda t: scale * math.log(base) * base**t,
            lambda t: scale * torch.expm1(t * math.log(base)),
            lambda b: torch.log1p(b / scale) / math.log(base),
            ("exponential", scale, base),
        )

    @staticmethod
    def from_rate(rate: Function) -> "Schedule":
        """Any smooth positive β: the integral by Gauss–Legendre quadrature on ever more pieces, until two agree.

        Its inverse is found by bisection.
        """
        nodes, weights = (torch.from_numpy(a) for a in numpy.polynomial.legendre.leggauss(_NODES))

        def beta(t: Tensor) -> Tensor:
            values = torch.as_tensor(rate(t), dtype=torch.float64, device=t.device).expand(t.shape)
            if not bool((values >= 0).all() & torch.isfinite(values).all()):
                k = int((~((values >= 0) & torch.isfinite(values))).reshape(-1).long().argmax())
                wrong, when = float(values.reshape(-1)[k]), float(t.reshape(-1)[k])
                raise ValueError(f"schedule must be a rate that is positive and finite, got {wrong} at t={when:.6g}")
            return values

        def on_pieces(t: Tensor, number: int) -> Tensor:
            place = (torch.arange(number, device=t.device).unsqueeze(-1) + (nodes.to(t.device) + 1) / 2) / number
            values = beta(t.unsqueeze(-1) * place.flatten())
            return (values * weights.to(t.device).repeat(number)).sum(-1) * t / (2 * number)

        def integral(t: Tensor) -> Tensor:
            coarse = on_pieces(t, _PIECES)
            for number in (2 * _PIECES, 8 * _PIECES, 32 * _PIECES):
                fine = on_pieces(t, number)
                if bool(((fine - coarse).abs() <= 1e-9 * fine.abs()).all()):
                    return fine
                coarse = fine
            raise ValueError(f"schedule must be smooth: its integral up to t={float(t.max()):.6g} cannot be computed")

        def inverse(b: Tensor) -> Tensor:
            low, high = torch.zeros_like(b), torch.ones_like(b)
            while bool((integral(high) < b).any()):
                high = high * 2
            for _ in range(80):
                middle = (low + high) / 2
                below = integral(middle) < b
                low, high = torch.where(below, middle, low), torch.where(below, high, middle)
            return (low + high) / 2

        return Schedule(beta, integral, inverse)
