"""Simple generators of cells, for a model to beat; each is fitted to a scipy.sparse matrix of training cells."""

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy
import scipy.sparse
import scipy.special
from numpy.typing import NDArray

from blackout import validate
from blackout.cells.metrics import counts
from blackout.cells.negative_binomial import NegativeBinomials, histogram, sum_rows

Floats = NDArray[numpy.float64]


class CellGenerator(ABC):
    """Fitted to cells, it makes more of them."""

    @abstractmethod
    def fit(self, x: Any, labels: Any = None) -> Self:
        """Labels, one for each cell, are for those that can use them."""

    @abstractmethod
    def sample(self, n: int, seed: int = 0) -> scipy.sparse.csr_array:
        """n cells; the same for the same seed."""

    @abstractmethod
    def bits_per_dim(self, x: Any) -> tuple[float, float] | None:
        """Bits for each entry of held-out cells, and the standard error over cells; None if it has no likelihood."""


class _FromNegativeBinomials(CellGenerator):
    """Genes that are negative binomial given one of `levels` libraries. Labels are not used."""

    def __init__(self, levels: int) -> None:
        self.levels = validate.integer("levels", levels, 1)

    def fit(self, x: Any, labels: Any = None) -> Self:
        self._law = NegativeBinomials(counts("x", x), self.levels)
        return self

    def sample(self, n: int, seed: int = 0) -> scipy.sparse.csr_array:
        return self._law.sample(validate.integer("n", n, 1), validate.integer("seed", seed, 0))

    def bits_per_dim(self, x: Any) -> tuple[float, float]:
        x = same_genes(self._law.genes, x)
        return bits(self._law.log_prob(x), x.shape[1])


class IndependentNegativeBinomials(_FromNegativeBinomials):
    """Each gene has a negative binomial law of its own, by maximum likelihood."""

    def __init__(self) -> None:
        super().__init__(levels=1)


class NegativeBinomialsWithLibrary(_FromNegativeBinomials):
    """Means are library times share of the gene, dispersions the gene's; the library takes one of `levels` values.

    Its bits are a bound: the level nearest to a cell's total is coded first, then the cell, which tells it again.
    """

    def __init__(self, levels: int = 64) -> None:
        super().__init__(levels)


class GeneBootstrap(CellGenerator):
    """Each gene on its own is drawn from the training cells: marginals are the data's, and nothing else is.

    Its bits are those of each gene's histogram with half a count added to 0, ..., max and to all beyond, where the law
    is geometric with mean max + 2: finite, but dear for genes with few cells and large counts.
    """

    def fit(self, x: Any, labels: Any = None) -> Self:
        self._columns = scipy.sparse.csc_array(counts("x", x))
        return self

    def sample(self, n: int, seed: int = 0) -> scipy.sparse.csr_array:
        rng = numpy.random.default_rng(validate.integer("seed", seed, 0))
        cells, genes = self._columns.shape
        rows, values, ends = [], [], [0]
        for start, end in zip(self._columns.indptr[:-1], self._columns.indptr[1:], strict=True):
            # Which cell a count came from does not matter: the first of them have one, the others have 0.
            drawn = rng.integers(cells, size=validate.integer("n", n, 1))
            (seen,) = numpy.nonzero(drawn < end - start)
            rows.append(seen)
            values.append(self._columns.data[start + drawn[seen]])
            ends.append(ends[-1] + len(seen))
        flat = numpy.concatenate(values).astype(numpy.int64), numpy.concatenate(rows), numpy.array(ends)
        return scipy.sparse.csc_array(flat, shape=(n, genes)).tocsr()

    def bits_per_dim(self, x: Any) -> tuple[float, float]:
        cells, genes = self._columns.shape
        x = same_genes(genes, x)
        gene, value, number = histogram(self._columns)
        largest = numpy.zeros(genes)
        numpy.maximum.at(largest, gene, value)
        whole = cells + (largest + 2) / 2
        zero = numpy.log((cells - numpy.diff(self._columns.indptr) + 0.5) / whole)
        # Counts of held-out cells are looked up in the histogram by one number for each pair of gene and value.
        width = 1 + max(largest.max(), x.max())
        keys, wanted = gene * width + value, x.indices * width + x.data
        place = numpy.minimum(numpy.searchsorted(keys, wanted), max(0, len(keys) - 1))
        found = numpy.where(keys[place] == wanted, number[place], 0.0) if len(keys) else numpy.zeros(len(wanted))
        beyond = numpy.maximum(x.data - largest[x.indices] - 1, -1)
        stop = 1 / (largest + 2)[x.indices]
        tail = numpy.where(beyond >= 0, numpy.log(stop) + beyond * numpy.log1p(-stop), 0.0)
        each = numpy.log((found + 0.5) / whole[x.indices]) + tail - zero[x.indices]
        return bits(zero.sum() + sum_rows(x, each), genes)


def bits(log_prob: Floats, genes: int) -> tuple[float, float]:
    """Of natural logarithms, one for each cell; the error of a single cell is nan."""
    each = -log_prob / (genes * numpy.log(2))
    error = each.std(ddof=1) / numpy.sqrt(len(each)) if len(each) > 1 else numpy.nan
    return float(each.mean()), float(error)


def code_length(totals: Floats, mean: float, deviation: float) -> Floats:
    """-log P of whole numbers, if their logarithm before rounding down is normal."""
    low = numpy.where(totals > 0, (numpy.log(numpy.maximum(totals, 1)) - mean) / deviation, -numpy.inf)
    high = (numpy.log(totals + 1) - mean) / deviation
    # In the upper tail both are 1 to rounding; there the mirror image is exact.
    low, high = numpy.where(low > 0, -high, low), numpy.where(low > 0, -low, high)
    upper, lower = scipy.special.log_ndtr(high), scipy.special.log_ndtr(low)
    return numpy.asarray(-(upper + numpy.log1p(-numpy.exp(lower - upper))))


def same_genes(genes: int, x: Any) -> scipy.sparse.csr_array:
    """Held-out cells, checked."""
    x = counts("x", x)
    if x.shape[1] != genes:
        raise ValueError(f"x must have {genes} genes, like the training cells, got {x.shape[1]}")
    return x
