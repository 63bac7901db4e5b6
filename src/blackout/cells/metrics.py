"""How near generated cells are to real ones: genes one by one, in pairs, whole cells, and whether one can tell them.

Cells are rows of a scipy.sparse matrix of whole counts, genes are columns. Two sets of real cells differ too: what
noise alone gives, the floor, is `compare_cells(other_real_cells, data)` with as many cells.
"""

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
from blackout.evaluation.two_sample import neighbour_accuracy, squared_mmd

MINIMUM = 50  # cells
COMPONENTS = 30
_VARIABLE = 2000  # genes for the principal components, as is usual with scanpy
_PAIRED = 100  # genes whose correlations are compared
_LIBRARY = 10_000.0
_SEEN = 0.01  # the share of reference cells in which a gene must be seen to be compared
_SMALLEST = 1e-4  # a hundredth of the least mean of such genes: one that samples lack counts as 2 decades or more

Floats = NDArray[numpy.float64]


@dataclass(frozen=True, kw_only=True)
class CellScores:
    """Between `num` samples and as many cells of the data, `empty` of the samples without a count.

    `mean`, `variance`, `zeros`: root mean square difference over genes of log10 mean, log10 variance, share of zeros.
    `correlation`: that of the Pearson correlations of all pairs among the 100 most variable genes, in log1p of counts
    scaled to the median library; `correlation_agreement` is the correlation of these correlations, 1 at best.
    `library`, `detected`: Kolmogorov–Smirnov distance of the totals, and of the numbers of genes seen in a cell.
    `kernel`: unbiased squared MMD, and its jackknife error, which is up to √2 too large where the two laws are equal.
    `neighbours`: share of cells whose five nearest tell rightly on which side they are; 0.5 at best, less for copies.
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
    kernel: float
    kernel_error: float
    neighbours: float


def compare_cells(samples: Any, data: Any, *, reference: Any = None, seed: int = 0) -> CellScores:
    """Samples beside held-out cells; of the larger set as many cells as the smaller has, drawn with the seed.

    Genes, principal components and bandwidth are chosen in `reference`, by default the data. Better are the training
    cells: components that were fitted to the very cells compared tell them from all others, even from real ones.
    """
    samples, data = counts("samples", samples, MINIMUM), counts("data", data, MINIMUM)
    reference = data if reference is None else counts("reference", reference, MINIMUM)
    for name, x in (("samples", samples), ("reference", reference)):
        if x.shape[1] != data.shape[1]:
            raise ValueError(f"{name} must have {data.shape[1]} genes, like data, got {x.shape[1]}")
    rng = numpy.random.default_rng(validate.integer("seed", seed, 0))
    num = min(samples.shape[0], data.shape[0])
    a, b = (x[rng.permutation(x.shape[0])[:num]] for x in (samples, data))
    of_genes = [_of_genes(x, reference) for x in (a, b)]
    mean, variance, zeros = (_rms(x - y) for x, y in zip(*of_genes, strict=True))
    pairs = [_correlations(x, reference) for x in (a, b)]
    space = _Space(reference, rng)
    x, y = space.place(a), space.place(b)
    kernel, kernel_error = squared_mmd(x, y, space.bandwidth)
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
        kernel=kernel,
        kernel_error=kernel_error,
        neighbours=neighbour_accuracy(x, y, rng),
    )


def counts(name: str, x: Any, minimum: int = 1) -> scipy.sparse.csr_array:
    """Whole counts of at least `minimum` cells, as a csr array in float64 that stores no zeros."""
    if not scipy.sparse.issparse(x) or x.ndim != 2:
        raise ValueError(f"{name} must be a scipy.sparse matrix of cells and genes, got {type(x).__name__}")
    if x.shape[0] < minimum or x.shape[1] == 0:
        raise ValueError(f"{name} must be at least {minimum} cells of one gene or more, got shape {x.shape}")
    x = scipy.sparse.csr_array(x, dtype=numpy.float64, copy=True)
    x.sum_duplicates()
    x.eliminate_zeros()
    wrong = ~((x.data >= 0) & (x.data == numpy.floor(x.data)) & numpy.isfinite(x.data))
    if wrong.any():
        raise ValueError(f"{name} must hold whole counts, not negative and not normalised, got {x.data[wrong][0]}")
    return x


class _Space:
    """Normalise to 10,000, log1p, the 2,000 most variable genes, 30 principal components; all of it from real cells."""

    def __init__(self, reference: scipy.sparse.csr_array, rng: numpy.random.Generator) -> None:
        x = _log_normalised(reference, _LIBRARY)
        self.genes = _most_variable(x, _VARIABLE)
        x = x[:, self.genes]
        self.centre = x.mean(0)
        self.axes = _principal_axes(x, self.centre, rng)
        some = self.place(reference[rng.permutation(reference.shape[0])[:2000]])
        # Cells that are all alike have no distance to go by; then any bandwidth will do.
        self.bandwidth = float(torch.pdist(some).median()) or 1.0

    def place(self, x: scipy.sparse.csr_array) -> Tensor:
        chosen = _log_normalised(x, _LIBRARY)[:, self.genes]
        return torch.from_numpy(chosen @ self.axes - self.centre @ self.axes)


def _principal_axes(x: scipy.sparse.csr_array, centre: Floats, rng: numpy.random.Generator) -> Floats:
    """Of the covariance, which is applied and never written out: the zeros of x stay where they are."""
    cells, genes = x.shape
    across = x.T.tocsr()

    def covariance(v: Floats) -> Floats:
        return numpy.asarray(across @ (x @ v) / cells - numpy.multiply.outer(centre, centre @ v))

    if genes <= 2 * COMPONENTS:
        return numpy.asarray(numpy.linalg.eigh(covariance(numpy.eye(genes)))[1][:, -COMPONENTS:])
    operator = scipy.sparse.linalg.LinearOperator((genes, genes), matvec=covariance, dtype=numpy.float64)
    return numpy.asarray(scipy.sparse.linalg.eigsh(operator, COMPONENTS, v0=rng.standard_normal(genes))[1])


def _log_normalised(x: scipy.sparse.csr_array, library: float) -> scipy.sparse.csr_array:
    """log1p of counts as if every cell had this total; an empty cell stays empty."""
    x = x.multiply((library / numpy.maximum(x.sum(1), 1))[:, None]).tocsr()
    x.data = numpy.log1p(x.data)
    return x


def _variances(x: scipy.sparse.csr_array) -> Floats:
    return numpy.asarray(numpy.maximum(x.power(2).mean(0) - x.mean(0) ** 2, 0.0))


def _most_variable(x: scipy.sparse.csr_array, number: int) -> NDArray[numpy.int64]:
    return numpy.sort(numpy.argsort(-_variances(x), kind="stable")[:number])


def _of_genes(x: scipy.sparse.csr_array, reference: scipy.sparse.csr_array) -> tuple[Floats, Floats, Floats]:
    """Log10 mean, log10 variance and share of zeros, of the genes that are seen often enough to have them."""
    x = x[:, (reference > 0).mean(0) >= _SEEN]
    return numpy.log10(x.mean(0) + _SMALLEST), numpy.log10(_variances(x) + _SMALLEST), 1 - (x > 0).mean(0)


def _correlations(x: scipy.sparse.csr_array, reference: scipy.sparse.csr_array) -> Floats:
    """Of all pairs of genes, each once."""
    library = max(1.0, float(numpy.median(reference.sum(1))))
    genes = _most_variable(_log_normalised(reference, library), _PAIRED)
    all_pairs = _correlate(_log_normalised(x, library)[:, genes].toarray())
    return all_pairs[numpy.triu_indices(len(genes), 1)]


def _correlate(x: Floats) -> Floats:
    """Pearson's, between columns; that of a constant is 0."""
    x = x - x.mean(0)
    size = numpy.sqrt((x**2).sum(0))
    x = x / numpy.where(size > 1e-12, size, numpy.inf)
    return numpy.asarray(x.T @ x)


def _rms(x: Floats) -> float:
    return float(numpy.sqrt(numpy.mean(x**2))) if x.size else 0.0


def _kolmogorov_smirnov(a: Floats, b: Floats) -> float:
    return float(scipy.stats.ks_2samp(a, b, method="asymp").statistic)
