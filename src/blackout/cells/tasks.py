"""Tasks that a model of cells is used for, scored: imputation of hidden counts, and differences between classes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy
import scipy.sparse
import scipy.stats
from numpy.typing import NDArray

from blackout.cells.counts import Counts

if TYPE_CHECKING:
    from blackout.cells.model import CountModel

_CELLS = 500  # at most, whose counts are imputed
_FEWEST = 10  # cells of a class on both sides
_TOP = 20  # genes of a class whose ranks are compared
_LIBRARY, _SMALLEST = 1e4, 0.1  # of normalised counts, and what is added before the logarithm

Floats = NDArray[numpy.float64]


def imputation_scores(
    model: "CountModel", test: Counts, train: Counts | None, share: float, seed: int
) -> dict[str, Any]:
    """Scores of imputed counts of held-out cells, of which a share is hidden at random; of gene means too.

    Root mean square and mean absolute error, Pearson's and Spearman's correlation, of log(1 + count) over all hidden
    entries. Gene means are those of the training cells, scaled to the observed total of the cell.
    """
    rng = numpy.random.default_rng(seed)
    some = test.take(numpy.sort(rng.permutation(len(test))[:_CELLS]))
    x = some.x.toarray()
    observed = rng.random(x.shape) >= share
    truth = x[~observed]
    found = {"model": model.impute(some, observed, draws=0, seed=seed).X.toarray()[~observed]}
    if train is not None:
        mean = numpy.asarray(train.x.mean(0)).ravel()
        seen = numpy.maximum((observed * mean).sum(1), 1e-12)
        found["gene_means"] = (((x * observed).sum(1) / seen)[:, None] * mean)[~observed]
    scores = {name: _of_logs(guess, truth) for name, guess in found.items()}
    return {"share": share, "num_cells": len(some), **scores}


def fold_change_scores(
    samples: Any, sampled_labels: Sequence[Any], data: Any, labels: Sequence[Any]
) -> dict[str, Any] | None:
    """Agreement of the log-fold changes of genes, each class against all others, in samples and in data.

    `correlation` is Pearson's over genes, `top_genes` the share of the 20 most increased genes of the data that are
    among those of the samples; both are means over classes with at least 10 cells on both sides. None: no such class.
    """
    here, there = numpy.asarray([str(v) for v in sampled_labels]), numpy.asarray([str(v) for v in labels])
    correlations, shared = [], []
    for name in numpy.unique(there):
        groups = [(where == name, where != name) for where in (here, there)]
        if min(part.sum() for pair in groups for part in pair) < _FEWEST:
            continue
        a, b = (_fold_changes(x, own) for x, (own, _) in zip((samples, data), groups, strict=True))
        correlations.append(_pearson(a, b))
        top = min(_TOP, len(b))
        shared.append(len(numpy.intersect1d(numpy.argsort(-a)[:top], numpy.argsort(-b)[:top])) / top)
    if not correlations:
        return None
    correlation, top_genes = float(numpy.mean(correlations)), float(numpy.mean(shared))
    return {"classes": len(shared), "correlation": correlation, "top_genes": top_genes}


def _fold_changes(x: Any, own: NDArray[numpy.bool_]) -> Floats:
    """log2 of the ratio of mean normalised counts, of the class and of the others, for each gene."""
    x = scipy.sparse.csr_array(x, dtype=numpy.float64)
    x = x.multiply((_LIBRARY / numpy.maximum(x.sum(1), 1))[:, None]).tocsr()
    inside, outside = (numpy.asarray(x[rows].mean(0)).ravel() for rows in (own, ~own))
    return numpy.log2(inside + _SMALLEST) - numpy.log2(outside + _SMALLEST)


def _of_logs(guess: NDArray[Any], truth: NDArray[Any]) -> dict[str, float]:
    a, b = numpy.log1p(guess.astype(numpy.float64)), numpy.log1p(truth.astype(numpy.float64))
    return {
        "rmse": float(numpy.sqrt(((a - b) ** 2).mean())),
        "mae": float(numpy.abs(a - b).mean()),
        "pearson": _pearson(a, b),
        "spearman": float(scipy.stats.spearmanr(a, b).statistic) if a.std() and b.std() else 0.0,
    }


def _pearson(a: Floats, b: Floats) -> float:
    """0 where one of the two is constant."""
    return float(numpy.corrcoef(a, b)[0, 1]) if a.std() > 0 and b.std() > 0 else 0.0
