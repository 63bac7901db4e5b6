"""The integral of a piecewise smooth function and its inverse, by adaptive quadrature.

Gauss–Legendre rules on intervals that are halved until the polynomial through the nodes of an interval agrees with the
function at the nodes of its halves. An interval with a step in it is halved down to rounding, one with a kink until the
kink does not matter.
"""

import math
import threading
from collections.abc import Callable
from itertools import pairwise

import numpy
import torch
from torch import Tensor

from blackout import validate

Function = Callable[[Tensor], Tensor]
_NODES = 16
_TOLERANCE = 1e-12  # of an interval, relative to the integral up to its end
_LEAST, _SHORTEST = 1e-15, 1e-30  # length of an interval that is not halved, relative to its end, and absolute
_MOST = 4096  # intervals
_LATEST = 2.0**64
_ITERATIONS = 100
_EXTENDING = threading.Lock()  # held by the one thread that adds intervals


class RateIntegral:
    """B(t) = ∫_0^t β for a rate β >= 0 that is smooth but for kinks and steps, and the inverse of B.

    Intervals are found at first use, in the order of time, so that values do not depend on what was called before.

    Parameters
    ----------
    rate
        β, on float64 tensors.
    breaks
        Where kinks and steps are, if that is known: intervals end there.
    """

    def __init__(self, rate: Function, breaks: tuple[float, ...] = ()) -> None:
        self._rate, self._breaks = rate, breaks
        nodes, weights = numpy.polynomial.legendre.leggauss(_NODES)
        within = numpy.concatenate([nodes - 1, nodes + 1]) / 2  # the nodes of both halves
        through = numpy.linalg.inv(numpy.polynomial.legendre.legvander(nodes, _NODES - 1))
        polynomial = numpy.polynomial.legendre.legvander(within, _NODES - 1) @ through
        self._nodes, self._weights, self._within, self._polynomial = (
            torch.from_numpy(a) for a in (nodes, weights, within, polynomial)
        )
        self._edges, self._totals = [0.0], [0.0]
        self._planned, self._pending = 0.0, list[tuple[float, float]]()

    def rate(self, t: Tensor) -> Tensor:
        """β(t); ValueError where it is negative or not finite."""
        values = self._values(t)
        wrong = ~_fine(values)
        if bool(wrong.any()):
            value, when = (float(v.expand(t.shape)[wrong].reshape(-1)[0]) for v in (values, t))
            raise ValueError(f"schedule must be a rate that is positive and finite, got {value} at t={when:.6g}")
        return values

    def __call__(self, t: Tensor) -> Tensor:
        edges, totals = self._table(time=float(t.max()) if t.numel() else 0.0, device=t.device)
        index = (torch.searchsorted(edges, t.contiguous(), right=True) - 1).clamp(0, len(edges) - 2)
        return totals[index] + self._between(edges[index], t)

    def inverse(self, b: Tensor) -> Tensor:
        """The earliest t with B(t) = b, by Newton's method within the interval that it lies in."""
        edges, totals = self._table(total=float(b.max()) if b.numel() else 0.0, device=b.device)
        index = (torch.searchsorted(totals, b.contiguous()) - 1).clamp(0, len(edges) - 2)
        start, low, high = edges[index], edges[index], edges[index + 1]
        wanted = b - totals[index]
        share = wanted / (totals[index + 1] - totals[index]).clamp(min=1e-300)
        t = torch.lerp(low, high, share.clamp(0, 1))
        for _ in range(_ITERATIONS):
            value, slope = self._between(start, t) - wanted, self.rate(t)
            low, high = torch.where(value < 0, t, low), torch.where(value < 0, high, t)
            newton = t - value / slope.clamp(min=1e-300)
            after = torch.where((newton >= low) & (newton <= high) & (slope > 0), newton, (low + high) / 2)
            done = (after - t).abs() <= 4e-16 * t.abs()
            t = after
            if bool(done.all()):
                break
        return t

    def _between(self, low: Tensor, t: Tensor) -> Tensor:
        """The integral from the start of an interval to t inside it."""
        half = ((t - low) / 2).unsqueeze(-1)
        values = self.rate(low.unsqueeze(-1) + half * (1 + self._nodes.to(t.device)))
        return (half * values * self._weights.to(t.device)).sum(-1)

    def _values(self, t: Tensor) -> Tensor:
        values = self._rate(t)
        try:
            return torch.as_tensor(values, dtype=torch.float64, device=t.device).expand(t.shape)
        except (TypeError, ValueError, RuntimeError):
            shape = tuple(t.shape)
            raise ValueError(
                f"schedule must return a number for each time, shape {shape}, got {validate.short(values)}"
            ) from None

    def _table(self, *, time: float = 0.0, total: float = 0.0, device: torch.device) -> tuple[Tensor, Tensor]:
        """The ends of the intervals and B there, as far as they are needed."""
        with _EXTENDING:
            while self._edges[-1] < time or self._totals[-1] < total or len(self._edges) < 2:
                self._extend()
            end = len(self._edges)
        return tuple(torch.tensor(v[:end], dtype=torch.float64, device=device) for v in (self._edges, self._totals))  # type: ignore[return-value]

    def _extend(self) -> None:
        """Add the next interval, or halve it."""
        if not self._pending:
            self._plan()
        low, high = self._pending.pop()
        value, error = self._estimate(low, high)
        total, shortest = self._totals[-1] + value, high - low <= max(_LEAST * high, _SHORTEST)
        if math.isfinite(total) and (shortest or error <= _TOLERANCE * total):
            self._edges.append(high)
            self._totals.append(total)
            if len(self._edges) > _MOST:
                raise ValueError(
                    f"schedule must be smooth but for kinks and steps: its integral up to t={high:.6g} takes more than "
                    f"{_MOST} intervals"
                )
            return
        if shortest:
            self.rate(torch.linspace(low, high, _NODES, dtype=torch.float64))  # raises, with the value
            raise ValueError(f"schedule must be a rate that is positive and finite, got another value at t={high:.6g}")
        middle = (low + high) / 2
        self._pending += [(middle, high), (low, middle)]

    def _plan(self) -> None:
        """The next intervals, each up to twice the time of the one before, divided at the breaks."""
        low, high = self._planned, max(1.0, 2 * self._planned)
        if low >= _LATEST:
            raise ValueError(
                f"schedule must have an integral that grows without end, got {self._totals[-1]:.6g} up to t={low:.3g}"
            )
        edges = [low, *(b for b in self._breaks if low < b < high), high]
        self._planned, self._pending = high, list(pairwise(edges))[::-1]

    def _estimate(self, low: float, high: float) -> tuple[float, float]:
        """The integral over an interval, and that of the error of the polynomial; NaN where β is no rate."""
        place = torch.cat([self._nodes, self._within])
        values = self._values(low + (high - low) * (1 + place) / 2)
        if not bool(_fine(values).all()):
            return math.nan, math.nan
        through, halves = values.split([_NODES, 2 * _NODES])
        weights = self._weights.repeat(2) * (high - low) / 4
        return float(weights @ halves), float(weights @ (halves - self._polynomial @ through).abs())


def _fine(values: Tensor) -> Tensor:
    return (values >= 0) & torch.isfinite(values)
