"""LibrarySizes: the distribution of library sizes (total counts of cells) in each class."""

import math
from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

_QUANTILES = 256  # kept for each class
_MIN_WIDTH = 0.02  # of a kernel, in log library size
_NARROW = 1e-6  # part of a kernel's width in which its density is constant


@dataclass(frozen=True)
class LibrarySizes:
    """A kernel density estimate of the log library size: normal kernels on the quantiles of each class.

    The last entry of each field is for all cells together, so that class -1 means no class.
    """

    quantiles: tuple[NDArray[numpy.float64], ...]
    widths: tuple[float, ...]
    ranges: tuple[tuple[int, int], ...]
    """Smallest and largest library size."""
    mean: float
    """Mean and standard deviation of the log library size of all cells, by which the network's input is scaled."""
    std: float

    @staticmethod
    def fit(totals: NDArray[Any], codes: NDArray[Any], num_classes: int) -> "LibrarySizes":
        """Fit to the total count and the class of each cell, both of shape (cells,)."""
        logs = _log(totals)
        groups = [logs[codes == k] for k in range(num_classes)]
        groups = [group if len(group) else logs for group in groups] + [logs]
        grid = (numpy.arange(_QUANTILES) + 0.5) / _QUANTILES
        quantiles = tuple(numpy.sort(g) if len(g) <= _QUANTILES else numpy.quantile(g, grid) for g in groups)
        # Silverman's rule with the robust estimate of the spread.
        widths = tuple(max(_MIN_WIDTH, 0.9 * _spread(g) * len(g) ** -0.2) for g in groups)
        ranges = tuple((round(math.exp(g.min())), round(math.exp(g.max()))) for g in groups)
        return LibrarySizes(quantiles, widths, ranges, float(logs.mean()), float(max(logs.std(), _MIN_WIDTH)))

    def sample(self, codes: NDArray[Any], uniform: NDArray[numpy.float64]) -> NDArray[numpy.int64]:
        """A library size for each class of `codes`, shape (n,), from uniform numbers of shape (n, 2)."""
        from scipy.special import ndtri

        out = numpy.empty(len(codes), numpy.int64)
        for k in numpy.unique(codes):
            rows, centres = codes == k, self.quantiles[k]
            pick = (uniform[rows, 0] * len(centres)).astype(int)
            logs = centres[pick] + self.widths[k] * ndtri(uniform[rows, 1])
            out[rows] = numpy.exp(logs).round().clip(1, 2**31 - 1)
        return out

    def bits(self, totals: NDArray[Any], codes: NDArray[Any]) -> NDArray[numpy.float64]:
        """-log2 P(total | class), P being the mass of the kernels from total - 1/2 to total + 1/2 (from 0 for 1)."""
        from scipy.special import log_ndtr, logsumexp

        out = numpy.empty(len(totals))
        for row, (total, code) in enumerate(zip(totals, codes, strict=True)):
            centres, width = self.quantiles[code], self.widths[code]
            high = (math.log(max(total, 1) + 0.5) - centres) / width
            step = math.inf if total <= 1 else math.log1p(1 / (total - 0.5)) / width
            low = high - step
            flip = low > 0  # mirror the upper tail to the lower one, where nothing cancels
            low, high = numpy.where(flip, -high, low), numpy.where(flip, -low, high)
            if step < _NARROW:
                mass = math.log(step) - 0.5 * (((low + high) / 2) ** 2 + math.log(2 * math.pi))
            else:
                a, b = log_ndtr(high), log_ndtr(low)
                mass = a + numpy.log1p(-numpy.exp(b - a))
            out[row] = -(logsumexp(mass) - math.log(len(centres))) / math.log(2)
        return out

    def is_outside(self, totals: NDArray[Any], codes: NDArray[Any]) -> NDArray[numpy.bool_]:
        """Which totals are outside the range of the training cells of their class."""
        low, high = numpy.array(self.ranges)[codes].T
        outside: NDArray[numpy.bool_] = (totals < low) | (totals > high)
        return outside

    def encode(self, totals: NDArray[Any]) -> NDArray[numpy.float64]:
        """The network's input: the standardised log library size."""
        return (_log(totals) - self.mean) / self.std

    def to_dict(self) -> dict[str, Any]:
        lists = {"quantiles": [q.tolist() for q in self.quantiles], "ranges": [list(ends) for ends in self.ranges]}
        return {**lists, "widths": list(self.widths), "mean": self.mean, "std": self.std}

    @staticmethod
    def from_dict(values: dict[str, Any]) -> "LibrarySizes":
        quantiles = tuple(numpy.asarray(q, numpy.float64) for q in values["quantiles"])
        ranges = tuple((int(low), int(high)) for low, high in values["ranges"])
        return LibrarySizes(quantiles, tuple(values["widths"]), ranges, float(values["mean"]), float(values["std"]))


def _log(totals: NDArray[Any]) -> NDArray[numpy.float64]:
    logs: NDArray[numpy.float64] = numpy.log(numpy.asarray(totals, numpy.float64).clip(min=1))
    return logs


def _spread(x: NDArray[Any]) -> float:
    low, high = numpy.quantile(x, [0.25, 0.75])
    return float(min(x.std(), (high - low) / 1.34) or x.std())
