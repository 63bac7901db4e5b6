"""Time-inhomogeneous processes by a scalar schedule: the generator at time t is β(t) times a constant one.

Such a process is a homogeneous one on the clock B(t) = ∫_0^t β, so a schedule is β, B and the inverse of B.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from blackout import validate
from blackout.process.integral import Function as Function
from blackout.process.integral import RateIntegral


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
    made: tuple[Any, ...] | None = None
    """The name of the constructor and its arguments; None: an arbitrary function, which cannot be saved."""

    def __repr__(self) -> str:
        name, *arguments = self.made or ("from_rate", "...")
        return f"Schedule.{name}({', '.join(map(str, arguments))})"

    def on_real_clock(self, length: Tensor, t: Tensor) -> Tensor:
        """A short time on the homogeneous clock in real time, length / β(t); zero where the clock stands still."""
        rate = self.rate(t)
        return torch.where(rate > 0, length / rate, 0.0)

    def config(self) -> list[Any]:
        """The constructor and its arguments, as plain JSON."""
        if self.made is None:
            raise ValueError(
                "schedule must be Schedule.constant, linear, exponential or piecewise to be saved, got a function"
            )
        return list(self.made)

    @staticmethod
    def from_config(config: Any) -> "Schedule":
        """The schedule that `config` described."""
        makers: dict[str, Callable[..., Schedule]] = {
            "constant": Schedule.constant,
            "linear": Schedule.linear,
            "exponential": Schedule.exponential,
            "piecewise": Schedule.piecewise,
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
    def piecewise(rates: Sequence[float], breaks: Sequence[float]) -> "Schedule":
        """β(t) = rates[k] for breaks[k - 1] < t <= breaks[k].

        `len(rates) == len(breaks) + 1`; breaks increase; rates are at least zero, the first and the last positive.
        """
        values = validate.numbers("rates", rates, 0.0)
        edges = validate.numbers("breaks", breaks, 0.0, increasing=True)
        if len(values) != len(edges) + 1:
            raise ValueError(f"rates must be one more than breaks, got {len(values)} and {len(edges)}")
        for place in (0, -1):
            validate.real(f"rates[{place}]", values[place], 0.0, strict=True)
        rate, start = (torch.tensor(v, dtype=torch.float64) for v in (values, (0.0, *edges)))
        ends = start[1:]
        total = torch.cat([torch.zeros(1, dtype=torch.float64), (rate[:-1] * torch.diff(start)).cumsum(0)])
        # Times next to a piece in which nothing happens must not be rounded into it.
        infinite = torch.full_like(start, torch.inf)
        first, last = torch.nextafter(start, infinite), torch.cat([ends, infinite[:1]])
        first[0] = 0.0

        def at(table: Tensor, index: Tensor) -> Tensor:
            return table.to(index.device)[index]

        def beta(t: Tensor) -> Tensor:
            return at(rate, torch.bucketize(t.contiguous(), ends.to(t.device)))

        def integral(t: Tensor) -> Tensor:
            k = torch.bucketize(t.contiguous(), ends.to(t.device))
            return at(total, k) + at(rate, k) * (t - at(start, k))

        def inverse(b: Tensor) -> Tensor:
            # Of several times the earliest, where β is positive.
            k = torch.bucketize(b.contiguous(), total[1:].to(b.device))
            t = at(start, k) + (b - at(total, k)) / at(rate, k)
            return torch.maximum(torch.minimum(t, at(last, k)), at(first, k))

        return Schedule(beta, integral, inverse, ("piecewise", list(values), list(edges)))

    @staticmethod
    def from_rate(rate: Function, breaks: Sequence[float] = ()) -> "Schedule":
        """Any rate β >= 0 that is smooth but for kinks and steps.

        Its integral is computed to a relative error of about 1e-10 by adaptive quadrature, which finds kinks and steps;
        `breaks` names them beforehand, which is quicker, and needed for pulses that are too short to be found. Where β
        is zero for a while, the inverse is the earliest time. The integral must grow without end.
        """
        found = RateIntegral(rate, validate.numbers("breaks", breaks, 0.0, increasing=True))
        return Schedule(found.rate, found, found.inverse)
