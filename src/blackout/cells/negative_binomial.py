"""Negative binomial laws of genes, by maximum likelihood, without ever writing out the zeros.

P(x | m, r) = Γ(x + r) / (Γ(r) x!) (r / (r + m))^r (m / (r + m))^x: mean m, variance m + m²/r; Poisson for r = ∞.
Here m is a level of the library times the gene's share. Not in the paper: Johnson, Kemp and Kotz 2005, section 5.8.
"""

import numpy
import scipy.sparse
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, zeta

Floats = NDArray[numpy.float64]

_LARGEST = 1e6  # of r, from which the law is Poisson's to six digits
_SMALLEST = 1e-8
_BLOCK = 512  # cells drawn at once


class NegativeBinomials:
    """Levels are the mean totals of equally many training cells; one level means that the library plays no part."""

    def __init__(self, x: scipy.sparse.csr_array, levels: int) -> None:
        cells, self.genes = x.shape
        totals = x.sum(1)
        groups = numpy.array_split(numpy.sort(totals), min(levels, cells))
        self.libraries = numpy.unique([max(group.mean(), 0.5) for group in groups])  # an empty cell has a level too
        level = self._level(totals)
        number = numpy.bincount(level, minlength=len(self.libraries)).astype(float)
        members = numpy.ones(cells), (level, numpy.arange(cells))
        sums = (scipy.sparse.csr_array(members, shape=(len(number), cells)) @ x).toarray()
        self.law_of_levels = (number + 0.5) / (number + 0.5).sum()
        self.share, self.size = _fit(scipy.sparse.csc_array(x), sums, number, self.libraries)

    def log_prob(self, x: scipy.sparse.csr_array) -> Floats:
        """Of each cell together with its level."""
        level = self._level(x.sum(1))
        rows = numpy.repeat(level, numpy.diff(x.indptr))
        finite, r = numpy.isfinite(self.size), numpy.minimum(self.size, _LARGEST)
        mean = self.libraries[:, None] * self.share
        zero = -numpy.where(finite, r * numpy.log1p(mean / r), mean)
        odds = numpy.log(mean) - numpy.where(finite, numpy.log(r + mean), 0.0)
        gene, value = x.indices, x.data
        rising = numpy.where(finite[gene], gammaln(value + r[gene]) - gammaln(r[gene]), 0.0)
        each = rising - gammaln(value + 1) + value * odds[rows, gene]
        return numpy.asarray(numpy.log(self.law_of_levels[level]) + zero.sum(1)[level] + sum_rows(x, each))

    def sample(self, n: int, seed: int) -> scipy.sparse.csr_array:
        """Poisson variables whose means are gamma variables."""
        rng = numpy.random.default_rng(seed)
        level = rng.choice(len(self.libraries), size=n, p=self.law_of_levels)
        finite, r = numpy.isfinite(self.size), numpy.minimum(self.size, _LARGEST)
        parts = []
        for start in range(0, n, _BLOCK):
            mean = self.libraries[level[start : start + _BLOCK], None] * self.share
            drawn = rng.gamma(r, size=mean.shape) / r
            parts.append(scipy.sparse.csr_array(rng.poisson(numpy.where(finite, mean * drawn, mean))))
        return scipy.sparse.vstack(parts, format="csr")

    def _level(self, totals: Floats) -> NDArray[numpy.int64]:
        """The nearest, in the logarithm."""
        return numpy.searchsorted(numpy.sqrt(self.libraries[1:] * self.libraries[:-1]), totals)


def histogram(columns: scipy.sparse.csc_array) -> tuple[NDArray[numpy.int64], Floats, Floats]:
    """Of each gene, without zeros: gene, value, and in how many cells it has that value; in this order."""
    width = int(columns.data.max(initial=0)) + 1
    gene = numpy.repeat(numpy.arange(columns.shape[1]), numpy.diff(columns.indptr))
    keys, number = numpy.unique(gene * width + columns.data.astype(numpy.int64), return_counts=True)
    return keys // width, (keys % width).astype(float), number.astype(float)


def sum_rows(x: scipy.sparse.csr_array, each: Floats) -> Floats:
    """Over the genes of each cell, of numbers that belong to the stored entries of x."""
    return numpy.asarray(scipy.sparse.csr_array((each, x.indices, x.indptr), shape=x.shape).sum(1))


def _fit(columns: scipy.sparse.csc_array, sums: Floats, number: Floats, libraries: Floats) -> tuple[Floats, Floats]:
    """Share and r of each gene, in turns, from its histogram and its sums in every level.

    A gene that was never seen gets half a count in all, or one held-out count would cost infinitely many bits.
    """
    genes = columns.shape[1]
    gene, value, weight = histogram(columns)
    weighted = (number * libraries)[:, None]
    share = numpy.maximum(sums.sum(0), 0.5) / weighted.sum()
    squares = numpy.bincount(gene, weight * value**2, genes)
    log_r, moving = numpy.zeros(genes), numpy.ones(genes, bool)
    for _ in range(100):
        mean = libraries[:, None] * share
        # Where the score in 1/r at 0, Σ (x - m)² - x, is not positive, no finite r is likelier than Poisson's law.
        excess = squares + (number[:, None] * mean**2 - 2 * sums * mean).sum(0) - sums.sum(0)
        poisson = (excess <= 1e-9 * squares) | (squares == 0)
        before, some = log_r.copy(), moving & ~poisson
        kept, place = some[gene], numpy.cumsum(some) - 1
        seen = place[gene[kept]], value[kept], weight[kept]
        log_r[some] = _newton(log_r[some], mean[:, some], sums[:, some], number[:, None], *seen)
        poisson |= log_r >= numpy.log(_LARGEST) - 1e-6
        r = numpy.exp(log_r)
        tilt = numpy.where(poisson, 1.0, r / (r + mean))
        renewed = numpy.maximum((tilt * sums).sum(0), 0.5 * tilt.mean(0)) / (tilt * weighted).sum(0)
        moving = numpy.abs(numpy.log(renewed / share)) + numpy.where(poisson, 0.0, numpy.abs(log_r - before)) > 1e-7
        share = renewed
        if not moving.any():
            break
    return share, numpy.where(poisson, numpy.inf, numpy.exp(log_r))


def _newton(
    log_r: Floats, mean: Floats, sums: Floats, number: Floats, gene: NDArray[numpy.int64], value: Floats, weight: Floats
) -> Floats:
    """The root of the score in log r, for all genes at once; bisection where Newton's step would leave the bracket.

    Zeros are in it by number only: Σ ψ(x + r) - ψ(r) has no term where x = 0.
    """
    genes = len(log_r)
    low, high = numpy.full(genes, numpy.log(_SMALLEST)), numpy.full(genes, numpy.log(_LARGEST))
    log_r = numpy.clip(log_r, low, high)
    for _ in range(100):
        r = numpy.exp(log_r)
        score = numpy.bincount(gene, weight * (digamma(value + r[gene]) - digamma(r)[gene]), genes)
        score = score + ((number * mean - sums) / (r + mean) - number * numpy.log1p(mean / r)).sum(0)
        slope = numpy.bincount(gene, weight * (zeta(2, value + r[gene]) - zeta(2, r)[gene]), genes)
        slope = slope + (number * mean / (r * (r + mean)) - (number * mean - sums) / (r + mean) ** 2).sum(0)
        low, high = numpy.where(score > 0, log_r, low), numpy.where(score > 0, high, log_r)
        with numpy.errstate(divide="ignore", invalid="ignore"):
            step = log_r - score / (r * slope)
        inside = (slope < 0) & (step > low) & (step < high)
        step = numpy.where(inside, step, (low + high) / 2)
        done = numpy.abs(step - log_r).max(initial=0.0) < 1e-9
        log_r = step
        if done:
            break
    return log_r
