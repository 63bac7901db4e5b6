"""Rates over a piece of time, as polynomials through their values at Radau nodes: what `Exact` integrates."""

import functools

import numpy
from numpy.typing import NDArray

NODES = 5
_UNRESOLVED = 1e-3  # events in the highest term of the polynomial above which a piece is shortened
_NEWTON = 2, 4  # steps for all crossings, and for those that the first ones have missed
_SMALLEST = 1e-300
_ACCURACY = 1e-11  # of the integral at a crossing, relative to that of the piece
_BISECTIONS = 50

_Floats = NDArray[numpy.float64]


class Polynomials:
    """Polynomials of the depth in [0, 1] of a piece, one for each state, row and channel.

    Parameters
    ----------
    values
        At the nodes, in events per piece, shape (states, nodes, rows, channels).

    Attributes
    ----------
    events, resolved
        The integral over the piece of the sum over channels, and whether all polynomials have converged, shape
        (states, rows).
    """

    def __init__(self, values: _Floats) -> None:
        # Sums, not matrix products, whose rounding would depend on the number of rows.
        _, coefficients, highest = _collocation()
        self._values = values
        total = values.sum(-1)
        self._rates = (coefficients[:, :, None] * total[:, None]).sum(2)
        self._integrals = self._rates / _ORDERS[:, None]
        self.events = self._integrals.sum(1).clip(min=0)
        self.resolved = numpy.abs((highest[:, None, None] * values).sum(1)).sum(-1) <= _UNRESOLVED

    def integral(self, state: int, depth: _Floats) -> _Floats:
        """The integral of the sum over channels from 0 to a depth for each row."""
        return _integral(self._integrals[state], depth)

    def crossing(self, state: int, rows: NDArray[numpy.int64], start: _Floats, target: _Floats) -> _Floats:
        """The depths beyond `start` at which the integrals of these rows, which begin below their targets, reach them.

        By Newton's method, or bisection where that has not converged.
        """
        integrals, rates = self._integrals[state][:, rows], self._rates[state][:, rows]
        events = self.events[state, rows]
        below = target - _integral(integrals, start)
        depth: _Floats = start + (1 - start) * below / numpy.maximum(events - target + below, _SMALLEST)
        missed = slice(None)
        for steps in _NEWTON:
            depth[missed] = _newton(
                integrals[:, missed], rates[:, missed], depth[missed], start[missed], target[missed], steps
            )
            missed = numpy.abs(_integral(integrals, depth) - target) > _ACCURACY * events
            if not missed.any():
                return depth
        depth[missed] = _bisected(integrals[:, missed], start[missed], target[missed])
        return depth

    def at(self, state: int, rows: NDArray[numpy.int64], depth: _Floats) -> _Floats:
        """The rates of each channel in these rows at their depths, (rows, channels); not all of them are zero.

        Where the polynomials are not positive, their means over the piece.
        """
        values = self._values[state][:, rows]
        if values.shape[-1] == 1:
            return numpy.ones(values.shape[1:])
        _, coefficients, _ = _collocation()
        weights = _polynomial(coefficients[:, :, None], depth)
        rates: _Floats = (weights[:, :, None] * values).sum(0).clip(min=0)
        nothing = rates.sum(-1) <= 0
        if nothing.any():
            mean = (coefficients / _ORDERS[:, None]).sum(0)
            rates[nothing] = (mean[:, None, None] * values[:, nothing]).sum(0).clip(min=0)
        return rates


def node_places() -> _Floats:
    """The nodes, in [0, 1]; the first is 0."""
    return _collocation()[0]


@functools.cache
def _collocation() -> tuple[_Floats, _Floats, _Floats]:
    """Radau nodes on [0, 1] with 0 among them; of the polynomial through values there, the coefficients, row by power.

    Third, the weights of the highest Legendre polynomial in it.
    """
    legendre = numpy.polynomial.legendre
    nodes = (numpy.sort(legendre.legroots([0.0] * (NODES - 1) + [1.0, 1.0]).real) + 1) / 2
    nodes[0] = 0.0
    coefficients = numpy.linalg.inv(numpy.vander(nodes, increasing=True))
    highest: _Floats = numpy.linalg.inv(legendre.legvander(2 * nodes - 1, NODES - 1))[-1]
    return nodes, coefficients.astype(numpy.float64), highest


_ORDERS = numpy.arange(1.0, NODES + 1)


def _polynomial(coefficients: _Floats, depth: _Floats) -> _Floats:
    total: _Floats = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        total = total * depth + coefficient
    return total


def _integral(integrals: _Floats, depth: _Floats) -> _Floats:
    return _polynomial(integrals, depth) * depth


def _newton(integrals: _Floats, rates: _Floats, depth: _Floats, start: _Floats, target: _Floats, steps: int) -> _Floats:
    for _ in range(steps):
        slope = numpy.maximum(_polynomial(rates, depth), _SMALLEST)
        depth = depth - (_integral(integrals, depth) - target) / slope
        depth = numpy.minimum(numpy.maximum(depth, start), 1.0)
    return depth


def _bisected(integrals: _Floats, low: _Floats, target: _Floats) -> _Floats:
    high = numpy.ones_like(low)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        reached = _integral(integrals, middle) >= target
        low, high = numpy.where(reached, low, middle), numpy.where(reached, middle, high)
    return high
