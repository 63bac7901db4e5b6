"""Scores of generated cells by classifiers: real against sampled, types of cells, and copies of training cells."""

from typing import Any

import numpy
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from blackout.cells.names import optional
from blackout.cells.tasks import fold_change_scores

_FOLDS = 5
_ITERATIONS = 100  # trees of gradient boosting
_CELLS = 2000  # of each set, at most, for a classifier

Floats = NDArray[numpy.float64]


def real_or_sampled(a: Tensor, b: Tensor, totals: tuple[Floats, Floats], seed: int) -> tuple[float, float]:
    """Areas under the ROC curves of two cross-validated classifiers of cells a against cells b; 0.5 at best.

    The first is logistic regression of standardised principal components, the second gradient boosting of these and of
    the logarithm of the library size. Both are unable to separate equal distributions, on average.
    """
    ensemble = optional("sklearn.ensemble", "classifiers of cells")
    x = torch.cat([a[:_CELLS], b[:_CELLS]]).numpy()
    library = numpy.log1p(numpy.concatenate([part[:_CELLS] for part in totals]))[:, None]
    target = numpy.arange(len(x)) < len(a[:_CELLS])
    trees = ensemble.HistGradientBoostingClassifier(max_iter=_ITERATIONS, random_state=seed)
    return _auc(_logistic(), x, target, seed), _auc(trees, numpy.hstack([x, library]), target, seed)


def _logistic() -> Any:
    """Logistic regression of standardised features."""
    linear, pipeline, scaling = (
        optional(f"sklearn.{name}", "classifiers of cells") for name in ("linear_model", "pipeline", "preprocessing")
    )
    return pipeline.make_pipeline(scaling.StandardScaler(), linear.LogisticRegression(max_iter=1000))


def _auc(classifier: Any, x: Floats, target: NDArray[numpy.bool_], seed: int) -> float:
    """Mean area over folds: scores of different folds are not comparable."""
    selection = optional("sklearn.model_selection", "classifiers of cells")
    folds = selection.StratifiedKFold(_FOLDS, shuffle=True, random_state=seed)
    return float(selection.cross_val_score(classifier, x, target, cv=folds, scoring="roc_auc").mean())


def nearer(samples: Tensor, training: Tensor, held_out: Tensor) -> float:
    """Share of samples nearer to a training cell than to one of as many held-out cells; ties count half."""
    near, far = (torch.cdist(samples, cells).min(1).values for cells in (training, held_out))
    return float(((near < far).double() + 0.5 * (near == far)).mean())


class TypeClassifier:
    """Types of cells by logistic regression in the principal components of `Space`, trained on labelled real cells."""

    def __init__(self, space: Any, x: Any, types: Any) -> None:
        self._space = space
        self._classifier = _logistic().fit(space.project(x).numpy(), numpy.asarray(types, str))

    def predict(self, x: Any) -> NDArray[Any]:
        return numpy.asarray(self._classifier.predict(self._space.project(x).numpy()))

    def scores(self, samples: Any, data: Any) -> dict[str, Any]:
        """Composition and fold changes of samples against data; types of both are predicted.

        `composition` is the total variation between the frequencies of types, 0 at best.
        """
        here, there = self.predict(samples), self.predict(data)
        names = numpy.unique(numpy.concatenate([here, there]))
        gap = sum(abs((here == name).mean() - (there == name).mean()) for name in names) / 2
        changes = fold_change_scores(scipy.sparse.csr_array(samples), list(here), data, list(there))
        return {"composition": float(gap), **(changes or {})}
