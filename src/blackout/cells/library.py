"""LibraryLaw: how many counts a cell has in all, for each class: to draw totals, and to say what one costs."""

import math
from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

_KEPT = 256  # quantiles of the totals of a class
_LEAST_WIDTH = 0.02  # of the kernel, in logarithms: two per cent
_NARROW = 1e-6  # of a kernel's width


@dataclass(frozen=True)
class LibraryLaw:
    """A smooth law of log totals: normal kernels on the quantiles of each class, the last of all cells together."""

    quantiles: tuple[NDArray[numpy.float64], ...]
    widths: tuple[float, ...]
    centre: float
    scale: float
    ranges: tuple[tuple[int, int], ...]
    """The least and the largest total of each class, and of all cells."""

    @staticmethod
    def fit(totals: NDArray[Any], labels: NDArray[Any], num_classes: int) -> "LibraryLaw":
        logs = numpy.log(numpy.asarray(totals, numpy.float64).clip(min=1))
        groups = [logs[labels == k] for k in range(num_classes)]
        groups = [g if len(g) else logs for g in groups] + [logs]
        grid = (numpy.arange(_KEPT) + 0.5) / _KEPT
        quantiles = tuple(numpy.sort(g) if len(g) <= _KEPT else numpy.quantile(g, grid) for g in groups)
        # Silverman's rule, of the spread that a few outliers do not change.
        widths = tuple(max(_LEAST_WIDTH, 0.9 * _spread(g) * len(g) ** -0.2) for g in groups)
        scale = float(max(logs.std(), _LEAST_WIDTH))
        return LibraryLaw(quantiles, widths, float(logs.mean()), scale, tuple(_range(g) for g in groups))

    def sample(self, labels: NDArray[Any], chance: NDArray[numpy.float64]) -> NDArray[numpy.int64]:
        """A total for each label; `chance`, (n, 2), holds numbers in (0, 1). A label below zero: of all cells."""
        from scipy.special import ndtri

        out = numpy.empty(len(labels), numpy.int64)
        for k in numpy.unique(labels):
            rows, centres = labels == k, self.quantiles[k]
            pick = (chance[rows, 0] * len(centres)).astype(int)
            logs = centres[pick] + self.widths[k] * ndtri(chance[rows, 1])
            out[rows] = numpy.exp(logs).round().clip(1, 2**31 - 1)
        return out

    def bits(self, totals: NDArray[Any], labels: NDArray[Any]) -> NDArray[numpy.float64]:
        """-log2 P(total | label): the kernels' mass between total - 1/2 and total + 1/2; one, from nothing on."""
        from scipy.special import log_ndtr, logsumexp

        out = numpy.empty(len(totals))
        for row, (total, label) in enumerate(zip(totals, labels, strict=True)):
            centres, width = self.quantiles[label], self.widths[label]
            high = (math.log(max(total, 1) + 0.5) - centres) / width
            step = math.inf if total <= 1 else math.log1p(1 / (total - 0.5)) / width
            low = high - step
            flip = low > 0  # the upper tail as the lower one of the mirror image: no cancellation there
            low, high = numpy.where(flip, -high, low), numpy.where(flip, -low, high)
            if step < _NARROW:  # so narrow that the density does not change in between
                mass = math.log(step) - 0.5 * (((low + high) / 2) ** 2 + math.log(2 * math.pi))
            else:
                a, b = log_ndtr(high), log_ndtr(low)
                mass = a + numpy.log1p(-numpy.exp(b - a))
            out[row] = -(logsumexp(mass) - math.log(len(centres))) / math.log(2)
        return out

    def outside(self, totals: NDArray[Any], labels: NDArray[Any]) -> NDArray[numpy.bool_]:
        """Which totals no training cell of the class came near: less than the least, or more than the largest."""
        low, high = numpy.array(self.ranges)[labels].T
        far: NDArray[numpy.bool_] = (totals < low) | (totals > high)
        return far

    def number(self, totals: NDArray[Any]) -> NDArray[numpy.float64]:
        """What the network is shown of a total."""
        logs: NDArray[numpy.float64] = numpy.log(numpy.asarray(totals, numpy.float64).clip(min=1))
        return (logs - self.centre) / self.scale

    def as_dict(self) -> dict[str, Any]:
        return {
            "quantiles": [q.tolist() for q in self.quantiles],
            "widths": list(self.widths),
            "centre": self.centre,
            "scale": self.scale,
            "ranges": [list(ends) for ends in self.ranges],
        }

    @staticmethod
    def from_dict(values: dict[str, Any]) -> "LibraryLaw":
        quantiles = tuple(numpy.asarray(q, numpy.float64) for q in values["quantiles"])
        # The first version kept no ranges; its quantiles leave out the outermost of many cells.
        ranges = tuple((int(low), int(high)) for low, high in values.get("ranges", map(_range, quantiles)))
        widths, centre, scale = tuple(values["widths"]), float(values["centre"]), float(values["scale"])
        return LibraryLaw(quantiles, widths, centre, scale, ranges)


def _range(logs: NDArray[Any]) -> tuple[int, int]:
    return round(math.exp(logs.min())), round(math.exp(logs.max()))


def _spread(x: NDArray[Any]) -> float:
    low, high = numpy.quantile(x, [0.25, 0.75])
    return float(min(x.std(), (high - low) / 1.34) or x.std())
