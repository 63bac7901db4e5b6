"""Tasks that a model of cells is used for, scored: imputation of hidden counts, and differences between classes."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy
import scipy.sparse
import scipy.stats
from numpy.typing import NDArray

from blackout.cells.counts import Counts
from blackout.evaluation.splits import random_subset

if TYPE_CHECKING:
    from blackout.cells.model import CountModel

_CELLS = 500  # at most, whose counts are imputed
_DRAWN = 50  # at most, of which draws are made too
_HIDDEN_GENES = 0.1  # share of the genes that "genes" hides
_FEWEST = 10  # cells of a class on both sides
_TOP = 20  # genes of a class whose ranks are compared
_LIBRARY, _SMALLEST = 1e4, 0.1  # of normalised counts, and what is added before the logarithm

Floats = NDArray[numpy.float64]
Imputer = Callable[[Floats, NDArray[numpy.bool_]], Floats | None]


def hide(cells: Counts, what: str, seed: int) -> tuple[Counts, NDArray[numpy.bool_]]:
    """At most 500 of the cells, and which of their counts stay observed.

    `what` is "genes", which hides a tenth of the genes in all cells, or the share of counts to hide at random.
    """
    rng = numpy.random.default_rng(seed)
    some = cells.take(numpy.sort(rng.permutation(len(cells))[:_CELLS]))
    if what == "genes":
        number = max(1, round(_HIDDEN_GENES * cells.num_genes))
        observed = numpy.ones(some.x.shape, bool)
        observed[:, rng.permutation(cells.num_genes)[:number]] = False
        return some, observed
    return some, rng.random(some.x.shape) >= float(what)


def imputation_scores(impute: Imputer, test: Counts, hidden: Sequence[str], seed: int) -> dict[str, Any] | None:
    """Scores of imputed means of hidden counts of held-out cells, by what is hidden; None if nothing is imputed.

    Root mean square and mean absolute error, Pearson's and Spearman's correlation, of log(1 + count) over all hidden
    entries.
    """
    found: dict[str, Any] = {}
    for what in hidden:
        some, observed = hide(test, what, seed)
        x = some.x.toarray()
        guess = impute(x, observed)
        if guess is None:
            return None
        found[what] = {"num_cells": len(some), **_of_logs(guess[~observed], x[~observed])}
    return found


def gene_means(train: Counts) -> Imputer:
    """Imputation by the means of genes in training cells, scaled to the observed total of the cell."""
    mean = numpy.asarray(train.x.mean(0)).ravel()

    def impute(x: Floats, observed: NDArray[numpy.bool_]) -> Floats:
        seen = numpy.maximum((observed * mean).sum(1), 1e-12)
        return numpy.asarray(((x * observed).sum(1) / seen)[:, None] * mean)

    return impute


def model_means(model: "CountModel", test: Counts, seed: int) -> Imputer:
    """Imputation by the posterior means of a model; labels are those of the held-out cells."""
    rows = random_subset(len(test), _CELLS, seed)  # those of `hide`

    def impute(x: Floats, observed: NDArray[numpy.bool_]) -> Floats:
        return numpy.asarray(model.impute(test.take(rows), observed, draws=0, seed=seed).X.toarray())

    return impute


def coverage(model: "CountModel", test: Counts, what: str, draws: int, seed: int) -> dict[str, float]:
    """Share of hidden counts of at most 50 cells in the central 50 % and 90 % intervals of draws; 0.5 and 0.9 at best.

    The rank of the truth among the draws is uniform if both have the same distribution; ties are broken at random, so
    that this holds for counts too.
    """
    some, observed = hide(test, what, seed)
    some, observed = some.take(slice(0, _DRAWN)), observed[:_DRAWN]
    drawn = model.impute(some, observed, draws=draws, seed=seed)
    layers = [drawn.layers[f"draw_{k + 1}"] for k in range(draws)] if draws > 1 else [drawn.X]
    truth = some.x.toarray()[~observed]
    rng = numpy.random.default_rng(seed)
    below, equal = numpy.zeros(truth.shape), numpy.zeros(truth.shape)
    for layer in layers:
        value = layer.toarray()[~observed]
        below, equal = below + (value < truth), equal + (value == truth)
    rank = (below + rng.random(truth.shape) * (equal + 1)) / (draws + 1)
    inside = {f"within_{round(100 * level)}": float((abs(rank - 0.5) <= level / 2).mean()) for level in (0.5, 0.9)}
    return {"draws": draws, "drawn_cells": len(some), **inside}


def fold_change_scores(
    samples: Any, sampled_labels: Sequence[Any], data: Any, labels: Sequence[Any]
) -> dict[str, Any] | None:
    """Agreement of the log-fold changes of genes, each class against all others, in samples and in data.

    `correlation` is Pearson's and `rank_correlation` Spearman's over genes, `top_genes` the share of the 20 most
    increased genes of the data that are among those of the samples, `slope` that of the regression of the samples on
    the data, less than 1 if differences are too small; all are means over classes with at least 10 cells on both
    sides. None: no such class.
    """
    here, there = numpy.asarray([str(v) for v in sampled_labels]), numpy.asarray([str(v) for v in labels])
    found = []
    for name in numpy.unique(there):
        groups = [(where == name, where != name) for where in (here, there)]
        if min(part.sum() for pair in groups for part in pair) < _FEWEST:
            continue
        a, b = (_fold_changes(x, own) for x, (own, _) in zip((samples, data), groups, strict=True))
        top = min(_TOP, len(b))
        shared = len(numpy.intersect1d(numpy.argsort(-a)[:top], numpy.argsort(-b)[:top])) / top
        slope = float(numpy.cov(a, b)[0, 1] / b.var(ddof=1)) if b.std() > 0 else 0.0
        found.append((_pearson(a, b), _spearman(a, b), shared, slope))
    if not found:
        return None
    names = ("correlation", "rank_correlation", "top_genes", "slope")
    return {"classes": len(found), **dict(zip(names, numpy.mean(found, 0).tolist(), strict=True))}


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
        "spearman": _spearman(a, b),
    }


def _pearson(a: Floats, b: Floats) -> float:
    """0 where one of the two is constant."""
    return float(numpy.corrcoef(a, b)[0, 1]) if a.std() > 0 and b.std() > 0 else 0.0


def _spearman(a: Floats, b: Floats) -> float:
    return float(scipy.stats.spearmanr(a, b).statistic) if a.std() > 0 and b.std() > 0 else 0.0
