"""Metrics of generated cells: statistics of genes and pairs of genes, and two-sample tests of cells.

Cells are rows of a scipy.sparse matrix of counts, genes are columns. Two sets of real cells differ by chance: compare
the scores with real vs real, `compare_cells(other_real_cells, data)` with as many cells.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy
import scipy.sparse
import scipy.sparse.linalg
import scipy.stats
import torch
from numpy.typing import NDArray
from torch import Tensor

from blackout import validate
from blackout.cells.classifiers import nearer, real_or_sampled
from blackout.evaluation.config import MINIMUM
from blackout.evaluation.two_sample import neighbour_accuracy, squared_mmd

COMPONENTS = 30
_VARIABLE = 2000  # genes for the principal components, as is usual with scanpy
_PAIRED = 100  # genes whose correlations are compared
_LIBRARY = 10_000.0
_SEEN = 0.01  # share of reference cells that must have a gene for it to be compared
_SMALLEST = 1e-4  # a hundredth of the least mean of such genes: one that the samples lack is off by 2 decades or more

Floats = NDArray[numpy.float64]


@dataclass(frozen=True, kw_only=True)
class CellScores:
    """Scores of `num` samples against as many cells of the data; `empty` samples have no counts.

    `mean`, `variance`, `zeros`: root mean square difference over genes of log10 mean, log10 variance, share of zeros.
    `correlation`: the same of the Pearson correlations of all pairs among the 100 most variable genes, in log1p of
    counts scaled to the median library size; `correlation_agreement`: the correlation of these, 1 at best.
    `library`, `detected`: Kolmogorov–Smirnov distance of the library sizes, and of the numbers of genes in a cell.
    `mmd`: unbiased squared MMD, and its jackknife error, which is up to √2 too large for equal distributions.
    `c2st`: nearest-neighbour two-sample accuracy with five neighbours; 0.5 at best, less for copies of the data.
    `linear`, `boosting`: cross-validated area under the ROC curve of logistic regression in 30 principal components,
    and of gradient boosting of these and the library size; 0.5 at best.
    `copying`: share of samples nearer to a cell of `reference` than to one of the data; 0.5 without memorisation of
    the reference, NaN without one.
    """

    num: int
    empty: int
    mean: float
    variance: float
    zeros: float
    correlation: float
    correlation_agreement: float
    library: float
    detected: float
    mmd: float
    mmd_error: float
    c2st: float
    linear: float
    boosting: float
    copying: float


def compare_cells(samples: Any, data: Any, *, reference: Any = None, seed: int = 0) -> CellScores:
    """Compare samples with held-out cells, as many of each as the smaller set has.

    Parameters
    ----------
    samples, data : scipy.sparse matrix
        Counts of shape (cells, genes), at least 50 cells.
    reference : scipy.sparse matrix, optional
        Cells that select genes, principal components and bandwidth; by default the data. Training cells are better:
        components fitted to the compared cells separate them from all others, even from real ones.
    seed : int
        Seed of the subsample and of tie-breaking.
    """
    samples, data = check_counts("samples", samples, MINIMUM), check_counts("data", data, MINIMUM)
    training, reference = reference, data if reference is None else check_counts("reference", reference, MINIMUM)
    for name, x in (("samples", samples), ("reference", reference)):
        if x.shape[1] != data.shape[1]:
            raise ValueError(f"{name} must have {data.shape[1]} genes, like data, got {x.shape[1]}")
    rng = numpy.random.default_rng(validate.integer("seed", seed, 0))
    num = min(samples.shape[0], data.shape[0])
    a, b = (x[rng.permutation(x.shape[0])[:num]] for x in (samples, data))
    of_genes = [_of_genes(x, reference) for x in (a, b)]
    mean, variance, zeros = (_rms(x - y) for x, y in zip(*of_genes, strict=True))
    pairs = [_correlations(x, reference) for x in (a, b)]
    space = Space(reference, rng)
    x, y = space.project(a), space.project(b)
    linear, boosting = real_or_sampled(x, y, (a.sum(1), b.sum(1)), seed)
    mmd, mmd_error = squared_mmd(x, y, space.bandwidth)
    return CellScores(
        num=num,
        empty=int((a.sum(1) == 0).sum()),
        mean=mean,
        variance=variance,
        zeros=zeros,
        correlation=_rms(pairs[0] - pairs[1]),
        correlation_agreement=float(_correlate(numpy.stack(pairs, 1))[0, 1]),
        library=_kolmogorov_smirnov(a.sum(1), b.sum(1)),
        detected=_kolmogorov_smirnov(numpy.diff(a.indptr), numpy.diff(b.indptr)),
        mmd=mmd,
        mmd_error=mmd_error,
        c2st=neighbour_accuracy(x, y, rng),
        linear=linear,
        boosting=boosting,
        copying=math.nan if training is None else _copying(a, reference, b, rng),
    )


def _copying(
    samples: scipy.sparse.csr_array,
    training: scipy.sparse.csr_array,
    held_out: scipy.sparse.csr_array,
    rng: numpy.random.Generator,
) -> float:
    """Mean of `nearer` over disjoint sets of as many training cells as there are held-out ones.

    Both fit the principal components together: components of one alone spread its own cells more than others.
    """
    number = min(training.shape[0], held_out.shape[0])
    order, shares = rng.permutation(training.shape[0]), []
    for start in range(0, len(order) - number + 1, number):
        own, other = training[order[start : start + number]], held_out[:number]
        space = Space(scipy.sparse.vstack([own, other], format="csr"), rng)
        shares.append(nearer(space.project(samples), space.project(own), space.project(other)))
    return float(numpy.mean(shares))


def check_counts(name: str, x: Any, minimum: int = 1) -> scipy.sparse.csr_array:
    """Counts of at least `minimum` cells as a float64 csr array without stored zeros."""
    if not scipy.sparse.issparse(x) or x.ndim != 2:
        raise ValueError(f"{name} must be a scipy.sparse matrix of cells and genes, got {type(x).__name__}")
    if x.shape[0] < minimum or x.shape[1] == 0:
        raise ValueError(f"{name} must be at least {minimum} cells of one gene or more, got shape {x.shape}")
    x = scipy.sparse.csr_array(x, dtype=numpy.float64, copy=True)
    x.sum_duplicates()
    x.eliminate_zeros()
    wrong = ~((x.data >= 0) & (x.data == numpy.floor(x.data)) & numpy.isfinite(x.data))
    if wrong.any():
        raise ValueError(f"{name} must hold raw counts, not negative or normalised values, got {x.data[wrong][0]}")
    return x


class Space:
    """30 principal components of the 2,000 most variable genes, in log1p of counts scaled to 10,000, of real cells."""

    def __init__(self, reference: scipy.sparse.csr_array, rng: numpy.random.Generator) -> None:
        x = _log_normalised(reference, _LIBRARY)
        self.genes = _most_variable(x, _VARIABLE)
        x = x[:, self.genes]
        self.centre = x.mean(0)
        self.axes = _principal_axes(x, self.centre, rng)
        subset = self.project(reference[rng.permutation(reference.shape[0])[:2000]])
        # Identical cells have median distance 0; then any bandwidth will do.
        self.bandwidth = float(torch.pdist(subset).median()) or 1.0

    def project(self, x: scipy.sparse.csr_array) -> Tensor:
        chosen = _log_normalised(x, _LIBRARY)[:, self.genes]
        return torch.from_numpy(chosen @ self.axes - self.centre @ self.axes)


def _principal_axes(x: scipy.sparse.csr_array, centre: Floats, rng: numpy.random.Generator) -> Floats:
    """Eigenvectors of the covariance, applied as an operator so that x stays sparse."""
    cells, genes = x.shape
    across = x.T.tocsr()

    def covariance(v: Floats) -> Floats:
        return numpy.asarray(across @ (x @ v) / cells - numpy.multiply.outer(centre, centre @ v))

    if genes <= 2 * COMPONENTS:
        return numpy.asarray(numpy.linalg.eigh(covariance(numpy.eye(genes)))[1][:, -COMPONENTS:])
    operator = scipy.sparse.linalg.LinearOperator((genes, genes), matvec=covariance, dtype=numpy.float64)
    return numpy.asarray(scipy.sparse.linalg.eigsh(operator, COMPONENTS, v0=rng.standard_normal(genes))[1])


def _log_normalised(x: scipy.sparse.csr_array, library: float) -> scipy.sparse.csr_array:
    """log1p of counts scaled to this library size; an empty cell stays empty."""
    x = x.multiply((library / numpy.maximum(x.sum(1), 1))[:, None]).tocsr()
    x.data = numpy.log1p(x.data)
    return x


def _variances(x: scipy.sparse.csr_array) -> Floats:
    return numpy.asarray(numpy.maximum(x.power(2).mean(0) - x.mean(0) ** 2, 0.0))


def _most_variable(x: scipy.sparse.csr_array, number: int) -> NDArray[numpy.int64]:
    return numpy.sort(numpy.argsort(-_variances(x), kind="stable")[:number])


def _of_genes(x: scipy.sparse.csr_array, reference: scipy.sparse.csr_array) -> tuple[Floats, Floats, Floats]:
    """Log10 mean, log10 variance and share of zeros of the genes that enough reference cells have."""
    x = x[:, (reference > 0).mean(0) >= _SEEN]
    return numpy.log10(x.mean(0) + _SMALLEST), numpy.log10(_variances(x) + _SMALLEST), 1 - (x > 0).mean(0)


def _correlations(x: scipy.sparse.csr_array, reference: scipy.sparse.csr_array) -> Floats:
    """Correlations of all pairs of genes, each once."""
    library = max(1.0, float(numpy.median(reference.sum(1))))
    genes = _most_variable(_log_normalised(reference, library), _PAIRED)
    all_pairs = _correlate(_log_normalised(x, library)[:, genes].toarray())
    return all_pairs[numpy.triu_indices(len(genes), 1)]


def _correlate(x: Floats) -> Floats:
    """Pearson correlations of columns; 0 for a constant column."""
    x = x - x.mean(0)
    size = numpy.sqrt((x**2).sum(0))
    x = x / numpy.where(size > 1e-12, size, numpy.inf)
    return numpy.asarray(x.T @ x)


def _rms(x: Floats) -> float:
    return float(numpy.sqrt(numpy.mean(x**2))) if x.size else 0.0


def _kolmogorov_smirnov(a: Floats, b: Floats) -> float:
    return float(scipy.stats.ks_2samp(a, b, method="asymp").statistic)
