"""Scores of a representation of cells: how well batches mix in it, and how well types of cells stay apart."""

from typing import Any

import numpy
from numpy.typing import NDArray

from blackout import validate
from blackout.cells.names import optional


def mixing_scores(latent: Any, batch: Any, types: Any = None, *, neighbours: int = 30) -> dict[str, float]:
    """Scores of vectors of cells, all between 0 and 1 and 1 at best, except that biology may forbid mixing.

    Parameters
    ----------
    latent : array of shape (cells, width)
        Such as `CountModel.get_latent_representation`, or principal components.
    batch, types : sequence of length cells
        Labels that should mix, and optionally labels that should not.
    neighbours : int
        Nearest neighbours of a cell, without the cell itself.

    Returns
    -------
    dict
        `batch_lisi`: mean inverse Simpson index of the batches of the neighbours (Korsunsky et al. 2019, with equal
        weights), relative to that of random neighbours. `batch_silhouette`: one minus the absolute silhouette width of
        batches. With types, `type_accuracy`: share of cells whose type most neighbours have; `type_silhouette`:
        (1 + width) / 2.
    """
    x = numpy.asarray(latent, numpy.float64)
    if x.ndim != 2 or not numpy.isfinite(x).all():
        raise ValueError(f"latent must be finite numbers of shape (cells, width), got shape {x.shape}")
    neighbours = validate.integer("neighbours", neighbours, 1)
    if neighbours >= len(x):
        raise ValueError(f"neighbours must be less than the number of cells, {len(x)}, got {neighbours}")
    metrics, search = (optional(f"sklearn.{name}", "mixing_scores") for name in ("metrics", "neighbors"))
    index = search.NearestNeighbors(n_neighbors=neighbours).fit(x)
    near = index.kneighbors(return_distance=False)  # of the points of the index: without themselves
    codes = _codes("batch", batch, len(x))
    one_hot = numpy.eye(codes.max() + 1)[codes]
    observed = 1 / (one_hot[near].mean(1) ** 2).sum(1)
    random = 1 / (one_hot.mean(0) ** 2).sum()
    found = {
        "batch_lisi": float(min(1.0, (observed.mean() - 1) / (random - 1))),
        "batch_silhouette": float(1 - numpy.abs(metrics.silhouette_samples(x, codes)).mean()),
    }
    if types is not None:
        kinds = _codes("types", types, len(x))
        votes = numpy.eye(kinds.max() + 1)[kinds][near].sum(1)
        found["type_accuracy"] = float((votes.argmax(1) == kinds).mean())
        found["type_silhouette"] = float((1 + metrics.silhouette_score(x, kinds)) / 2)
    return found


def _codes(name: str, labels: Any, number: int) -> NDArray[numpy.int64]:
    values = numpy.asarray(labels).astype(str)
    if values.shape != (number,):
        raise ValueError(f"{name} must have one label for each of the {number} cells, got shape {values.shape}")
    names, codes = numpy.unique(values, return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"{name} must have two labels or more, got {len(names)}")
    return numpy.asarray(codes)
