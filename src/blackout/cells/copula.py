"""A Gaussian copula as a baseline: the marginals of the data, and correlations of normal scores.

Not in the paper: Sun et al. 2021 (scDesign2) generate cells of one type this way.
"""

from typing import Any, Self

import numpy
import scipy.sparse
from scipy.special import ndtr, ndtri

from blackout import validate
from blackout.cells.baselines import Baseline
from blackout.cells.metrics import check_counts
from blackout.memory import check_memory

_SHRINKAGE = 0.05  # of the correlations towards 0: more genes than cells leave the matrix singular
_BLOCK = 512  # cells sampled at once


class GaussianCopula(Baseline):
    """Genes with the marginals of the training cells, correlated by a multivariate normal distribution.

    Ties are broken at random, which is the distributional transform of counts (Rüschendorf 2009). There is no density.
    """

    def fit(self, x: Any, labels: Any = None) -> Self:
        x = check_counts("x", x)
        cells, genes = x.shape
        check_memory(f"a copula of {genes:,} genes", 24.0 * genes * (genes + cells), "use fewer genes")
        dense = x.toarray()
        order = numpy.lexsort((numpy.random.default_rng(0).random(dense.shape), dense), axis=0)
        rank = numpy.empty(dense.shape)
        numpy.put_along_axis(rank, order, numpy.arange(cells)[:, None] + 0.5, 0)
        scores = ndtri(rank / cells)
        centred = scores - scores.mean(0)
        correlation = (1 - _SHRINKAGE) * numpy.atleast_2d(numpy.corrcoef(centred.T)) if cells > 1 else numpy.zeros(())
        correlation = numpy.broadcast_to(correlation, (genes, genes)).copy()
        numpy.fill_diagonal(correlation, 1.0)
        self._factor, self._sorted = numpy.linalg.cholesky(correlation), numpy.sort(dense, 0).astype(numpy.int64)
        return self

    def sample(self, n: int, seed: int = 0) -> scipy.sparse.csr_array:
        rng = numpy.random.default_rng(validate.integer("seed", seed, 0))
        cells, genes = self._sorted.shape
        parts = []
        for start in range(0, validate.integer("n", n, 1), _BLOCK):
            z = rng.standard_normal((min(_BLOCK, n - start), genes)) @ self._factor.T
            rank = numpy.minimum((ndtr(z) * cells).astype(numpy.int64), cells - 1)
            parts.append(scipy.sparse.csr_array(numpy.take_along_axis(self._sorted, rank, 0)))
        return scipy.sparse.vstack(parts, format="csr")

    def bits_per_dim(self, x: Any) -> None:
        return None
