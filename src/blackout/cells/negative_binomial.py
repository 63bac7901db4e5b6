"""Negative binomial distributions of genes, fitted by maximum likelihood on sparse counts.

P(x | m, r) = Γ(x + r) / (Γ(r) x!) (r / (r + m))^r (m / (r + m))^x: mean m, variance m + m²/r; Poisson for r = ∞.
Here m is a library size times the gene's share. Not in the paper: Johnson, Kemp and Kotz 2005, section 5.8.
"""

from typing import Any, Self

import numpy
import scipy.sparse
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, zeta

from blackout import validate
from blackout.cells.baselines import Baseline, bits, histogram, same_genes, sum_rows
from blackout.cells.metrics import Floats, check_counts

_LARGEST = 1e6  # r from which on the distribution is Poisson to six digits
_SMALLEST = 1e-8
_BLOCK = 512  # cells sampled at once


class NegativeBinomial(Baseline):
    """Negative binomial genes given one of `levels` library sizes, the mean totals of equally many training cells.

    With one level the library size has no effect. Its bits are an upper bound: the level nearest to the total of a cell
    is coded first, then the cell. Labels are not used.
    """

    def __init__(self, levels: int = 1) -> None:
        self.levels = validate.integer("levels", levels, 1)

    def fit(self, x: Any, labels: Any = None) -> Self:
        x = check_counts("x", x)
        cells, self.genes = x.shape
        totals = x.sum(1)
        groups = numpy.array_split(numpy.sort(totals), min(self.levels, cells))
        self.libraries = numpy.unique([max(group.mean(), 0.5) for group in groups])  # an empty cell needs a level too
        level = self._level(totals)
        number = numpy.bincount(level, minlength=len(self.libraries)).astype(float)
        members = numpy.ones(cells), (level, numpy.arange(cells))
        sums = (scipy.sparse.csr_array(members, shape=(len(number), cells)) @ x).toarray()
        self.level_probs = (number + 0.5) / (number + 0.5).sum()
        self.share, self.size = _fit(scipy.sparse.csc_array(x), sums, number, self.libraries)
        return self

    def bits_per_dim(self, x: Any) -> tuple[float, float]:
        x = same_genes(self.genes, x)
        return bits(self.log_prob(x), self.genes)

    def log_prob(self, x: scipy.sparse.csr_array) -> Floats:
        """Joint log probability of each cell and its level."""
        level = self._level(x.sum(1))
        rows = numpy.repeat(level, numpy.diff(x.indptr))
        finite, r = numpy.isfinite(self.size), numpy.minimum(self.size, _LARGEST)
        mean = self.libraries[:, None] * self.share
        zero = -numpy.where(finite, r * numpy.log1p(mean / r), mean)
        odds = numpy.log(mean) - numpy.where(finite, numpy.log(r + mean), 0.0)
        gene, value = x.indices, x.data
        rising = numpy.where(finite[gene], gammaln(value + r[gene]) - gammaln(r[gene]), 0.0)
        each = rising - gammaln(value + 1) + value * odds[rows, gene]
        return numpy.asarray(numpy.log(self.level_probs[level]) + zero.sum(1)[level] + sum_rows(x, each))

    def sample(self, n: int, seed: int = 0) -> scipy.sparse.csr_array:
        """n cells: Poisson counts with gamma-distributed means."""
        rng = numpy.random.default_rng(validate.integer("seed", seed, 0))
        level = rng.choice(len(self.libraries), size=validate.integer("n", n, 1), p=self.level_probs)
        finite, r = numpy.isfinite(self.size), numpy.minimum(self.size, _LARGEST)
        parts = []
        for start in range(0, n, _BLOCK):
            mean = self.libraries[level[start : start + _BLOCK], None] * self.share
            factor = rng.gamma(r, size=mean.shape) / r
            parts.append(scipy.sparse.csr_array(rng.poisson(numpy.where(finite, mean * factor, mean))))
        return scipy.sparse.vstack(parts, format="csr")

    def _level(self, totals: Floats) -> NDArray[numpy.int64]:
        """The level nearest in the logarithm."""
        return numpy.searchsorted(numpy.sqrt(self.libraries[1:] * self.libraries[:-1]), totals)


def _fit(columns: scipy.sparse.csc_array, sums: Floats, number: Floats, libraries: Floats) -> tuple[Floats, Floats]:
    """Share and r of each gene, updated in turn, from its histogram and its sum in every level.

    A gene without counts gets half a count in total, so that a held-out count costs finitely many bits.
    """
    genes = columns.shape[1]
    gene, value, weight = histogram(columns)
    weighted = (number * libraries)[:, None]
    share = numpy.maximum(sums.sum(0), 0.5) / weighted.sum()
    squares = numpy.bincount(gene, weight * value**2, genes)
    log_r, moving = numpy.zeros(genes), numpy.ones(genes, bool)
    for _ in range(100):
        mean = libraries[:, None] * share
        # Where the score in 1/r at 0, Σ (x - m)² - x, is not positive, no finite r is likelier than Poisson.
        excess = squares + (number[:, None] * mean**2 - 2 * sums * mean).sum(0) - sums.sum(0)
        poisson = (excess <= 1e-9 * squares) | (squares == 0)
        before, some = log_r.copy(), moving & ~poisson
        kept, place = some[gene], numpy.cumsum(some) - 1
        seen = place[gene[kept]], value[kept], weight[kept]
        log_r[some] = _newton(log_r[some], mean[:, some], sums[:, some], number[:, None], *seen)
        poisson |= log_r >= numpy.log(_LARGEST) - 1e-6
        r = numpy.exp(log_r)
        weights = numpy.where(poisson, 1.0, r / (r + mean))
        renewed = numpy.maximum((weights * sums).sum(0), 0.5 * weights.mean(0)) / (weights * weighted).sum(0)
        moving = numpy.abs(numpy.log(renewed / share)) + numpy.where(poisson, 0.0, numpy.abs(log_r - before)) > 1e-7
        share = renewed
        if not moving.any():
            break
    return share, numpy.where(poisson, numpy.inf, numpy.exp(log_r))


def _newton(
    log_r: Floats, mean: Floats, sums: Floats, number: Floats, gene: NDArray[numpy.int64], value: Floats, weight: Floats
) -> Floats:
    """The root of the score in log r of all genes at once; bisection where Newton's step leaves the bracket.

    Zeros enter by their number alone: Σ ψ(x + r) - ψ(r) has no term where x = 0.
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
