"""Baseline generators of cells, each fitted to a scipy.sparse matrix of training cells."""

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy
import scipy.sparse
from numpy.typing import NDArray

from blackout import validate
from blackout.cells.metrics import Floats, check_counts
from blackout.registry import Registry

BASELINES = Registry("baseline")
BASELINES.add("negative_binomial", "blackout.cells.negative_binomial:NegativeBinomial", "independent genes")
BASELINES.add(
    "negative_binomial_library",
    "blackout.cells.negative_binomial:NegativeBinomial",
    "genes that are independent given the library size",
    levels=64,
)
BASELINES.add("gene_bootstrap", "blackout.cells.baselines:GeneBootstrap", "genes resampled from the training cells")
BASELINES.add("copula", "blackout.cells.copula:GaussianCopula", "marginals of genes, correlated by a Gaussian copula")
BASELINES.add("scvi", "blackout.cells.scvi:ScVI", "the variational autoencoder scVI (extra `scvi`)")


class Baseline(ABC):
    """A generative model of cells."""

    @abstractmethod
    def fit(self, x: Any, labels: Any = None) -> Self:
        """Fit to counts of shape (cells, genes) and, where they are used, labels of shape (cells,)."""

    @abstractmethod
    def sample(self, n: int, seed: int = 0) -> scipy.sparse.csr_array:
        """Sample n cells; the seed determines them."""

    @abstractmethod
    def bits_per_dim(self, x: Any) -> tuple[float, float] | None:
        """Bits per count of held-out cells and the standard error over cells; None without a likelihood."""

    def impute(self, x: Floats, observed: NDArray[numpy.bool_]) -> Floats | None:
        """Means of all counts of shape (cells, genes) given the observed ones; None where there is no such method."""
        return None

    def variants(self) -> "dict[str, Baseline]":
        """Ways to sample from this fit, by what is added to its name."""
        return {"": self}


class GeneBootstrap(Baseline):
    """Independent genes, each resampled from the training cells: the marginals of the data without correlations.

    Its bits are those of each gene's histogram with half a count added to 0, ..., max and to a geometric tail of mean
    max + 2: finite, but high for genes with few cells and large counts.
    """

    def fit(self, x: Any, labels: Any = None) -> Self:
        self._columns = scipy.sparse.csc_array(check_counts("x", x))
        return self

    def sample(self, n: int, seed: int = 0) -> scipy.sparse.csr_array:
        rng = numpy.random.default_rng(validate.integer("seed", seed, 0))
        cells, genes = self._columns.shape
        rows, values, ends = [], [], [0]
        for start, end in zip(self._columns.indptr[:-1], self._columns.indptr[1:], strict=True):
            # Only the number of cells with each count matters: say that the first cells have the counts.
            picked = rng.integers(cells, size=validate.integer("n", n, 1))
            (seen,) = numpy.nonzero(picked < end - start)
            rows.append(seen)
            values.append(self._columns.data[start + picked[seen]])
            ends.append(ends[-1] + len(seen))
        flat = numpy.concatenate(values).astype(numpy.int64), numpy.concatenate(rows), numpy.array(ends)
        return scipy.sparse.csc_array(flat, shape=(n, genes)).tocsr()

    def bits_per_dim(self, x: Any) -> tuple[float, float]:
        cells, genes = self._columns.shape
        x = same_genes(genes, x)
        gene, value, number = histogram(self._columns)
        largest = numpy.zeros(genes)
        numpy.maximum.at(largest, gene, value)
        total = cells + (largest + 2) / 2
        zero = numpy.log((cells - numpy.diff(self._columns.indptr) + 0.5) / total)
        # Each pair of gene and value becomes one number, by which held-out counts are found in the histogram.
        width = 1 + max(largest.max(), x.max())
        keys, wanted = gene * width + value, x.indices * width + x.data
        place = numpy.minimum(numpy.searchsorted(keys, wanted), max(0, len(keys) - 1))
        found = numpy.where(keys[place] == wanted, number[place], 0.0) if len(keys) else numpy.zeros(len(wanted))
        beyond = numpy.maximum(x.data - largest[x.indices] - 1, -1)
        stop = 1 / (largest + 2)[x.indices]
        tail = numpy.where(beyond >= 0, numpy.log(stop) + beyond * numpy.log1p(-stop), 0.0)
        each = numpy.log((found + 0.5) / total[x.indices]) + tail - zero[x.indices]
        return bits(zero.sum() + sum_rows(x, each), genes)


def histogram(columns: scipy.sparse.csc_array) -> tuple[NDArray[numpy.int64], Floats, Floats]:
    """Gene, nonzero value, and number of cells with this value of the gene, sorted by the first two."""
    width = int(columns.data.max(initial=0)) + 1
    gene = numpy.repeat(numpy.arange(columns.shape[1]), numpy.diff(columns.indptr))
    keys, number = numpy.unique(gene * width + columns.data.astype(numpy.int64), return_counts=True)
    return keys // width, (keys % width).astype(float), number.astype(float)


def sum_rows(x: scipy.sparse.csr_array, each: Floats) -> Floats:
    """Sum over the genes of each cell of numbers given for the stored entries of x."""
    return numpy.asarray(scipy.sparse.csr_array((each, x.indices, x.indptr), shape=x.shape).sum(1))


def bits(log_prob: Floats, genes: int) -> tuple[float, float]:
    """Mean and standard error of the bits per count, from log probabilities of cells; NaN error for a single cell."""
    each = -log_prob / (genes * numpy.log(2))
    error = each.std(ddof=1) / numpy.sqrt(len(each)) if len(each) > 1 else numpy.nan
    return float(each.mean()), float(error)


def same_genes(genes: int, x: Any) -> scipy.sparse.csr_array:
    """Held-out cells with the genes of the training cells, checked."""
    x = check_counts("x", x)
    if x.shape[1] != genes:
        raise ValueError(f"x must have {genes} genes, like the training cells, got {x.shape[1]}")
    return x
