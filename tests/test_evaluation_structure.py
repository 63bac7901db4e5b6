import dataclasses
import math
from typing import Any

import pytest
import scipy.stats
import torch
from torch import Tensor

from blackout.evaluation import (
    StructureDifferences,
    chord_lengths,
    compare_structure,
    porosity,
    specific_surface,
    two_point,
)


def _independent(n: int, height: int, width: int, share: float, seed: int = 0) -> Tensor:
    uniform = torch.rand(n, height, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (uniform < share).to(torch.uint8)


def _differences(scores: StructureDifferences) -> dict[str, float]:
    return dataclasses.asdict(scores)


def test_by_hand() -> None:
    x = torch.tensor([[[0, 2, 0, 0, 2], [1, 2, 2, 0, 2], [2, 1, 2, 2, 0]]])
    assert porosity(x, 2)[0] == 8 / 15
    assert math.isnan(porosity(x, 2)[1])
    # At r = 1, 2 of 12 pairs in rows and 3 of 10 in columns; at r = 2, 2 of 9 and 0 of 5.
    assert two_point(x, 2, 2).tolist() == [8 / 15, 5 / 22, 2 / 14]
    assert specific_surface(x, 2) == 9 / 12 + 5 / 10
    assert chord_lengths(x, 2).tolist() == [0, 1, 2, 0, 0]
    assert chord_lengths(x, 2, -2).tolist() == [0, 0, 0]
    assert chord_lengths(x, 0).tolist() == [0, 1, 1, 0, 0]
    assert chord_lengths(x, 0, -2).tolist() == [0, 0, 0]
    assert chord_lengths(x, 1, -1).tolist() == [0, 1, 0, 0, 0]
    assert porosity(torch.cat([x, x * 0]), 2) == pytest.approx((4 / 15, 4 / 15))
    assert torch.equal(two_point(x[:, None], 2, 2), two_point(x, 2, 2))


def test_checkerboard() -> None:
    x = (torch.arange(12)[:, None] + torch.arange(10)).remainder(2).expand(3, 12, 10)
    assert porosity(x, 1) == (0.5, 0)
    assert two_point(x, 1, 9).tolist() == [0.5, 0] * 5
    assert specific_surface(x, 1) == 2
    assert chord_lengths(x, 1).tolist() == [0, 3 * 12 * 4, *[0] * 8]
    assert chord_lengths(x, 1, -2).tolist() == [0, 3 * 10 * 5, *[0] * 10]


def test_stripes() -> None:
    """Columns 2, 3, 6, 7, ... of 16: along columns S2 is 1/2 everywhere, along rows it is counted."""
    x = (torch.arange(16) // 2 % 2).expand(2, 16, 16)
    along_rows = [8, 4, 0, 3, 6, 3, 0, 2, 4]
    expected = [(16 * hits + 8 * (16 - r)) / (2 * 16 * (16 - r)) for r, hits in enumerate(along_rows)]
    assert two_point(x, 1, 8).tolist() == pytest.approx(expected, rel=1e-14)
    assert specific_surface(x, 1) == 7 / 15
    assert chord_lengths(x, 1)[2] == chord_lengths(x, 1).sum() == 2 * 16 * 3  # the last stripe touches the border
    assert chord_lengths(x, 0)[2] == chord_lengths(x, 0).sum() == 2 * 16 * 3
    assert chord_lengths(x, 1, -2).sum() == 0


def test_against_plain_loops() -> None:
    x = torch.randint(0, 3, (4, 7, 9), generator=torch.Generator().manual_seed(1))
    images = (x == 1).tolist()
    columns = [list(zip(*image, strict=True)) for image in images]
    for r, found in enumerate(two_point(x, 1, 6).tolist()):
        lines = [line for image in (*images, *columns) for line in image]
        pairs = [a and b for line in lines for a, b in zip(line, line[r:], strict=False)]
        assert found == sum(pairs) / len(pairs)
    for axis, side in ((-1, images), (-2, columns)):
        texts = ["".join("#" if inside else "." for inside in line) for image in side for line in image]
        runs = [run for text in texts for run in text.strip("#").split(".") if run]
        counts = chord_lengths(x, 1, axis)
        assert counts.tolist() == [sum(len(run) == length for run in runs) for length in range(len(counts))]


def test_independent_pixels() -> None:
    """S2(r) = φ² for r > 0, and 4φ(1-φ) edges per pixel. 18 comparisons at 5 deviations: fails once in 90,000."""
    share, n = 0.3, 400
    x = _independent(n, 32, 24, share)
    mean, error = porosity(x, 1)
    assert error == pytest.approx(math.sqrt(share * (1 - share) / (32 * 24) / n), rel=0.2)
    assert abs(mean - share) < 5 * error
    each = torch.stack([two_point(image, 1, 16) for image in x.split(1)])
    assert torch.allclose(each.mean(0), two_point(x, 1, 16), rtol=1e-12)
    deviation = each.std(0) / math.sqrt(n)
    assert bool(((each.mean(0) - share**2).abs()[1:] < 5 * deviation[1:]).all())
    edges = torch.tensor([specific_surface(image, 1) for image in x.split(1)], dtype=torch.float64)
    assert abs(float(edges.mean()) - 4 * share * (1 - share)) < 5 * float(edges.std()) / math.sqrt(n)


def test_chords_of_independent_pixels_are_geometric() -> None:
    """The line is so long that its ends do not matter. The chi-square test fails for one seed in a million."""
    share = 0.6
    counts = chord_lengths(_independent(1, 2, 200_000, share), 1)
    number, tail = int(counts.sum()), 15
    probs = [(1 - share) * share ** (length - 1) for length in range(1, tail)]
    observed = [*counts[1:tail].tolist(), int(counts[tail:].sum())]
    expected = [number * p for p in (*probs, 1 - sum(probs))]
    assert number > 90_000
    assert scipy.stats.chisquare(observed, expected).pvalue > 1e-6


def test_the_border_removes_long_chords_as_documented() -> None:
    """(w - 1 - l) places for length l, each (1-φ)² φ^l. 10 comparisons at 5 deviations: fails once in 100,000."""
    share, width, rows = 0.6, 12, 50_000
    x = _independent(1, rows, width, share, seed=3)
    each = chord_lengths(x, 1)[1 : width - 1].double() / rows
    lengths = torch.arange(1, width - 1, dtype=torch.float64)
    expected = (width - 1 - lengths) * (1 - share) ** 2 * share**lengths
    # Places that overlap exclude each other, so the variance is a little less than Poisson's.
    assert bool(((each - expected).abs() < 5 * (expected / rows).sqrt()).all())


def test_stairs_around_a_disc_are_longer_than_its_circle() -> None:
    side, radius = 400, 150.3
    along = torch.arange(side) - side / 2
    x = (along[:, None] ** 2 + along**2 < radius**2).long()[None]
    length = specific_surface(x, 1) * side * (side - 1)
    assert length * math.pi / 4 == pytest.approx(2 * math.pi * radius, rel=0.01)


def test_equal_sets_do_not_differ() -> None:
    x = _independent(20, 16, 16, 0.4)
    scores = compare_structure(x, x, 1, max_lag=8)
    assert set(_differences(scores.difference).values()) == {0.0}
    assert all(value > 0 for value in _differences(scores.real_vs_real).values())
    assert (
        (scores.porosity, scores.porosity_error) == porosity(x, 1) == (scores.data_porosity, scores.data_porosity_error)
    )
    assert scores.surface == scores.data_surface == specific_surface(x, 1)
    assert (scores.num_samples, scores.num_data, scores.phase, scores.max_lag) == (20, 20, 1, 8)
    halves = compare_structure(x[:10], x[10:], 1, max_lag=8).difference
    assert halves == scores.real_vs_real
    assert scores.two_point == scores.data_two_point == tuple(two_point(x, 1, 8).tolist())
    chords = chord_lengths(x, 1) + chord_lengths(x, 1, -2)
    assert scores.chord_probs == scores.data_chord_probs == tuple((chords.double() / chords.sum()).tolist())


def test_differences() -> None:
    a, b = _independent(200, 20, 14, 0.4), _independent(300, 20, 14, 0.5, seed=1)
    difference = compare_structure(a, b[:, None], 1, max_lag=8).difference
    lags = (two_point(a, 1, 8) - two_point(b, 1, 8)).abs()
    assert difference.porosity == pytest.approx(0.1, abs=0.02)
    assert difference.surface == pytest.approx(abs(4 * 0.24 - 4 * 0.25), abs=0.02)
    assert (difference.two_point_mean, difference.two_point_max) == (float(lags.mean()), float(lags.max()))
    lengths = []
    for x in (a, b):
        along = [chord_lengths(x, 1, axis) for axis in (-1, -2)]
        lengths.append(torch.cat([torch.arange(len(counts)).repeat_interleave(counts) for counts in along]))
    expected = scipy.stats.ks_2samp(*(x.numpy() for x in lengths), method="asymp").statistic
    assert difference.chords == pytest.approx(expected, rel=1e-12)


def test_noise_gives_about_0_7_of_real_vs_real() -> None:
    """√(2/n) to √(4/n) is 0.71. Means of 100 repetitions vary by 7.5 % each: bounds at 5 deviations."""
    found = []
    for seed in range(100):
        samples, data = (_independent(20, 8, 8, 0.3, seed=2 * seed + k) for k in (0, 1))
        scores = compare_structure(samples, data, 1, max_lag=1)
        found.append((scores.difference.porosity, scores.real_vs_real.porosity))
    difference, real = torch.tensor(found, dtype=torch.float64).mean(0).tolist()
    assert 0.41 < difference / real < 1.21


def test_a_missing_phase() -> None:
    x = _independent(4, 12, 12, 0.4)
    scores = compare_structure(torch.zeros_like(x), x, 1, max_lag=4)
    assert scores.difference.chords == 1.0
    assert scores.difference.porosity == scores.data_porosity
    assert set(_differences(compare_structure(x, x, 7, max_lag=4).difference).values()) == {0.0}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: porosity(x.double(), 1), "x must hold integers, got dtype torch.float64"),
        (lambda x: porosity(x, -1), "phase must be at least 0, got -1"),
        (lambda x: porosity(x[0], 1), r"x must have shape \(n, height, width\) or .*, got \(8, 6\)"),
        (lambda x: porosity(x[:0], 1), r"x must have shape .*, got \(0, 8, 6\)"),
        (lambda x: porosity(x.reshape(2, 2, 8, 6), 1), r"x must have shape .*, got \(2, 2, 8, 6\)"),
        (lambda x: two_point(x, 1, 6), "max_lag must be less than 6, the side of x, got 6"),
        (lambda x: two_point(x, 1, -1), "max_lag must be at least 0, got -1"),
        (lambda x: chord_lengths(x, 1, 0), r"axis must be -1 \(along rows\) or -2 \(along columns\), got 0"),
        (lambda x: compare_structure(x, x[:1], 1), "data must be at least two images, got 1"),
        (lambda x: compare_structure(x[:, :7], x, 1), r"samples must be images of \(8, 6\), like data, got \(7, 6\)"),
        (lambda x: compare_structure(x, x, 1), "max_lag must be less than 6, the side of x, got 32"),
    ],
)
def test_errors_name_the_argument(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(_independent(4, 8, 6, 0.5))
