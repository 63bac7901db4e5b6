"""Imputation of hidden counts by other methods, fitted to training cells: neighbours, ridge regression, MAGIC."""

from collections.abc import Callable
from typing import Any

import numpy
from numpy.typing import NDArray

from blackout.cells.counts import Counts
from blackout.cells.tasks import Imputer, gene_means

_COMPONENTS, _NEIGHBOURS, _PENALTY = 30, 30, 3000.0
_HIDDEN = 0.1  # share of the training entries that ridge regression is not shown

Floats = NDArray[numpy.float64]


class _Normalised:
    """Training cells in log1p of counts scaled to the median total, and cells with hidden counts in the same scale."""

    def __init__(self, train: Counts) -> None:
        known = train.x.toarray().astype(float)
        self.scale, self.parts = numpy.median(known.sum(1)), known / known.sum(1, keepdims=True)
        self.logs, self.mean, self._means = numpy.log1p(self.scale * self.parts), known.mean(0), gene_means(train)

    def given(self, x: Floats, observed: NDArray[numpy.bool_]) -> tuple[Floats, Floats]:
        """Log counts with gene means in place of hidden ones, and the estimated totals, (cells, 1)."""
        guess = self._means(x, observed)
        assert guess is not None
        filled = numpy.where(observed, x, guess)
        total = numpy.maximum(guess.sum(1, keepdims=True), 1e-12)
        return numpy.log1p(self.scale * filled / numpy.maximum(filled.sum(1, keepdims=True), 1)), total


def neighbours(train: Counts, seed: int) -> Imputer:
    """Means of the 30 nearest training cells in 30 principal components, scaled to the cell."""
    from sklearn.decomposition import PCA
    from sklearn.neighbors import NearestNeighbors

    cells = _Normalised(train)
    space = PCA(min(_COMPONENTS, *cells.logs.shape), random_state=seed).fit(cells.logs)
    index = NearestNeighbors(n_neighbors=_NEIGHBOURS).fit(space.transform(cells.logs))

    def impute(x: Floats, observed: NDArray[numpy.bool_]) -> Floats:
        logs, total = cells.given(x, observed)
        near = index.kneighbors(space.transform(logs), return_distance=False)
        return numpy.asarray(total * cells.parts[near].mean(1))

    return impute


def ridge(train: Counts, seed: int) -> Imputer:
    """Ridge regression of all genes on all others, trained with a tenth of the entries hidden."""
    from sklearn.linear_model import Ridge

    cells = _Normalised(train)
    hidden = numpy.random.default_rng(seed).random(cells.logs.shape) < _HIDDEN
    model = Ridge(_PENALTY).fit(numpy.where(hidden, cells.logs.mean(0), cells.logs), cells.logs)

    def impute(x: Floats, observed: NDArray[numpy.bool_]) -> Floats:
        logs, total = cells.given(x, observed)
        guess = model.predict(numpy.where(observed, logs, cells.logs.mean(0)))
        return numpy.asarray(numpy.expm1(guess).clip(0) / cells.scale * total)

    return impute


def magic(train: Counts, seed: int) -> Imputer:
    """MAGIC (van Dijk et al. 2018, package magic-impute) of training cells and of the cells together."""
    import magic as package

    cells = _Normalised(train)

    def impute(x: Floats, observed: NDArray[numpy.bool_]) -> Floats:
        # Square roots of normalised counts, as its authors use it; hidden counts start as gene means.
        logs, total = cells.given(x, observed)
        both = numpy.sqrt(numpy.expm1(numpy.vstack([cells.logs, logs])))
        found: Any = package.MAGIC(random_state=seed, verbose=0).fit_transform(both)
        return numpy.asarray(numpy.square(numpy.asarray(found)[len(cells.logs) :]).clip(0) / cells.scale * total)

    return impute


IMPUTERS: dict[str, Callable[[Counts, int], Imputer]] = {"neighbours": neighbours, "ridge": ridge, "magic": magic}
