"""Mixing of batches in a representation of cells, in worlds where it is known."""

from typing import Any

import numpy
import pytest

from blackout.cells import mixing_scores

RNG = numpy.random.default_rng(0)
POINTS = RNG.standard_normal((600, 3))
BATCH = RNG.integers(2, size=600)
KIND = numpy.arange(600) % 3


def test_batches_at_random_mix() -> None:
    """Random neighbours: 30 of 600 lower the index by its bias, about 1/30 of it."""
    scores = mixing_scores(POINTS, BATCH)
    assert 0.85 < scores["batch_lisi"] <= 1
    assert scores["batch_silhouette"] > 0.9
    assert set(scores) == {"batch_lisi", "batch_silhouette"}


def test_separate_batches_do_not_mix_and_separate_types_are_found() -> None:
    apart = POINTS + 100 * BATCH[:, None]
    assert mixing_scores(apart, BATCH)["batch_lisi"] == 0
    assert mixing_scores(apart, BATCH)["batch_silhouette"] < 0.1
    types = mixing_scores(POINTS + 100 * KIND[:, None], BATCH, [f"type {k}" for k in KIND])
    assert types["type_accuracy"] == 1
    assert types["type_silhouette"] > 0.95
    assert types["batch_lisi"] > 0.85


def test_the_index_by_hand() -> None:
    """Four points on a line, two neighbours each: one of each batch gives 2, both of one batch 1."""
    line = numpy.array([[0.0], [1.0], [2.1], [3.3]])
    # Neighbours 1, 2 | 0, 2 | 1, 3 | 2, 1 with batches a, b, a, a: b a, a a, b a, a b.
    expected = (numpy.mean([2, 1, 2, 2]) - 1) / (1 / (0.75**2 + 0.25**2) - 1)
    assert mixing_scores(line, list("abaa"), neighbours=2)["batch_lisi"] == pytest.approx(min(1, expected))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"latent": POINTS[0]}, r"latent must be finite numbers of shape \(cells, width\), got shape \(3,\)"),
        ({"batch": BATCH[1:]}, r"batch must have one label for each of the 600 cells, got shape \(599,\)"),
        ({"types": [0] * 600}, "types must have two labels or more, got 1"),
        ({"neighbours": 600}, "neighbours must be less than the number of cells, 600, got 600"),
    ],
)
def test_errors_name_the_argument(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mixing_scores(**{"latent": POINTS, "batch": BATCH, **arguments})
