"""LibrarySizes: the distribution of library sizes (total counts of cells) in each group of cells."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp, ndtri

_QUANTILES = 256  # kept for each group
_MIN_WIDTH = 0.02  # of a kernel, in log library size
_NARROW = 1e-6  # part of a kernel's width in which its density is constant


@dataclass(frozen=True)
class LibrarySizes:
    """A kernel density estimate of the log library size: normal kernels on the quantiles of each group of cells.

    A group are the training cells of one combination of codes. Cells of other codes, some of which may be unknown, have
    the distribution of all groups that agree with them in the most columns.
    """

    groups: NDArray[numpy.int64]
    """The codes of each group, (groups, columns)."""
    shares: NDArray[numpy.float64]
    """How frequent each group is."""
    quantiles: tuple[NDArray[numpy.float64], ...]
    widths: tuple[float, ...]
    ranges: tuple[tuple[int, int], ...]
    """Smallest and largest library size."""
    mean: float
    """Mean and standard deviation of the log library size of all cells, by which the network's input is scaled."""
    std: float

    @staticmethod
    def fit(totals: NDArray[Any], codes: NDArray[Any]) -> "LibrarySizes":
        """Fit to the total count, (cells,), and the codes of each cell, (cells, columns)."""
        logs, parts = _log(totals), list(patterns(codes))
        groups = [logs[rows] for _, rows in parts]
        grid = (numpy.arange(_QUANTILES) + 0.5) / _QUANTILES
        quantiles = tuple(numpy.sort(g) if len(g) <= _QUANTILES else numpy.quantile(g, grid) for g in groups)
        # Silverman's rule with the robust estimate of the spread.
        widths = tuple(max(_MIN_WIDTH, 0.9 * _spread(g) * len(g) ** -0.2) for g in groups)
        ranges = tuple((round(math.exp(g.min())), round(math.exp(g.max()))) for g in groups)
        shares, scale = numpy.array([len(g) / len(logs) for g in groups]), float(max(logs.std(), _MIN_WIDTH))
        seen = numpy.array([pattern for pattern, _ in parts], numpy.int64)
        return LibrarySizes(seen, shares, quantiles, widths, ranges, float(logs.mean()), scale)

    def _kernels(self, pattern: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Centres, widths and probabilities of the kernels for cells of these codes."""
        chosen = numpy.flatnonzero(closest(self.groups, pattern))
        lengths = [len(self.quantiles[k]) for k in chosen]
        chance = numpy.repeat(self.shares[chosen] / lengths, lengths)
        widths = numpy.repeat(numpy.array(self.widths)[chosen], lengths)
        return numpy.concatenate([self.quantiles[k] for k in chosen]), widths, chance / chance.sum()

    def sample(self, codes: NDArray[Any], uniform: NDArray[numpy.float64]) -> NDArray[numpy.int64]:
        """A library size for each row of codes, (n, columns), from uniform numbers of shape (n, 2)."""
        out = numpy.empty(len(codes), numpy.int64)
        for pattern, rows in patterns(codes):
            centres, widths, chance = self._kernels(pattern)
            pick = numpy.searchsorted(chance.cumsum()[:-1], uniform[rows, 0], side="right")
            logs = centres[pick] + widths[pick] * ndtri(uniform[rows, 1])
            out[rows] = numpy.exp(logs).round().clip(1, 2**31 - 1)
        return out

    def bits(self, totals: NDArray[Any], codes: NDArray[Any]) -> NDArray[numpy.float64]:
        """-log2 P(total | codes), P being the mass of the kernels from total - 1/2 to total + 1/2 (from 0 for 1)."""
        out = numpy.empty(len(totals))
        for pattern, rows in patterns(codes):
            kernels = self._kernels(pattern)
            out[rows] = [_bits(total, *kernels) for total in totals[rows]]
        return out

    def ranges_of(self, codes: NDArray[Any]) -> NDArray[numpy.int64]:
        """The smallest and largest library size of training cells like these, (n, 2)."""
        out, ranges = numpy.empty((len(codes), 2), numpy.int64), numpy.array(self.ranges)
        for pattern, rows in patterns(codes):
            own = ranges[closest(self.groups, pattern)]
            out[rows] = own[:, 0].min(), own[:, 1].max()
        return out

    def encode(self, totals: NDArray[Any]) -> NDArray[numpy.float64]:
        """The network's input: the standardised log library size."""
        return (_log(totals) - self.mean) / self.std

    def to_dict(self) -> dict[str, Any]:
        lists = {"quantiles": [q.tolist() for q in self.quantiles], "ranges": [list(ends) for ends in self.ranges]}
        lists |= {"groups": self.groups.tolist(), "shares": self.shares.tolist()}
        return {**lists, "widths": list(self.widths), "mean": self.mean, "std": self.std}

    @staticmethod
    def from_dict(values: dict[str, Any]) -> "LibrarySizes":
        quantiles = tuple(numpy.asarray(q, numpy.float64) for q in values["quantiles"])
        ranges = tuple((int(low), int(high)) for low, high in values["ranges"])
        widths, shares = tuple(map(float, values["widths"])), numpy.asarray(values["shares"], numpy.float64)
        groups = numpy.asarray(values["groups"], numpy.int64).reshape(len(shares), -1)
        if not len(groups) == len(quantiles) == len(ranges) == len(widths) > 0:
            raise ValueError(f"library sizes of {len(groups)} groups need as many quantiles, ranges and widths")
        if not all(len(q) and numpy.isfinite(q).all() for q in quantiles) or not (shares > 0).all() or min(widths) <= 0:
            raise ValueError("library sizes need finite quantiles, and positive shares and widths")
        return LibrarySizes(groups, shares, quantiles, widths, ranges, float(values["mean"]), float(values["std"]))


def closest(groups: NDArray[Any], pattern: NDArray[Any]) -> NDArray[numpy.bool_]:
    """Which groups of codes agree with a pattern in the most columns; codes below zero agree with none."""
    agreement = ((groups == pattern) & (pattern >= 0)).sum(1)
    chosen: NDArray[numpy.bool_] = agreement == agreement.max()
    return chosen


def patterns(codes: NDArray[Any]) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """The different rows of codes, (n, columns), each with the numbers of the rows that are equal to it."""
    if not codes.size:
        if len(codes):
            yield codes[0], numpy.arange(len(codes))
        return
    found, place = numpy.unique(codes, axis=0, return_inverse=True)
    order = numpy.argsort(place.ravel(), kind="stable")
    edges = numpy.searchsorted(place.ravel()[order], numpy.arange(len(found) + 1))
    for k, pattern in enumerate(found):
        yield pattern, order[edges[k] : edges[k + 1]]


def _bits(total: float, centres: NDArray[Any], widths: NDArray[Any], chance: NDArray[Any]) -> float:
    high = (math.log(max(total, 1) + 0.5) - centres) / widths
    step = numpy.full(len(widths), math.inf) if total <= 1 else math.log1p(1 / (total - 0.5)) / widths
    low = high - step
    if step.max() < _NARROW:
        mass = numpy.log(step) - 0.5 * (((low + high) / 2) ** 2 + math.log(2 * math.pi))
    else:
        mass = log_mass(low, high)
    return -float(logsumexp(mass, b=chance)) / math.log(2)


def log_mass(low: NDArray[Any], high: NDArray[Any]) -> NDArray[numpy.float64]:
    """log(Φ(high) - Φ(low)), Φ being the distribution function of a standard normal number."""
    upper = low > 0  # this tail is mirrored to the lower one, where nothing cancels
    a, b = log_ndtr(numpy.where(upper, -low, high)), log_ndtr(numpy.where(upper, -high, low))
    return numpy.asarray(a + numpy.log1p(-numpy.exp(b - a)))


def _log(totals: NDArray[Any]) -> NDArray[numpy.float64]:
    logs: NDArray[numpy.float64] = numpy.log(numpy.asarray(totals, numpy.float64).clip(min=1))
    return logs


def _spread(x: NDArray[Any]) -> float:
    low, high = numpy.quantile(x, [0.25, 0.75])
    return float(min(x.std(), (high - low) / 1.34) or x.std())
