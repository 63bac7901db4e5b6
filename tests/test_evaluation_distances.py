"""Metrics in the features of a network."""

import io
import math
import sys
from contextlib import redirect_stdout
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

from blackout.evaluation import (
    Collector,
    FeatureNetwork,
    SampleSet,
    Statistics,
    compute_metrics,
    kernel_distance,
    precision_recall,
)
from blackout.evaluation.statistics import CAPACITY

pytest.importorskip("torchmetrics")


class Toy(FeatureNetwork):
    """Never called: the tests collect features of their own."""

    num_classes, device = 7, torch.device("cpu")

    def __init__(self, num_features: int = 5, name: str = "toy-00000001") -> None:
        self.name, self.num_features = name, num_features

    def forward(self, levels: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError


def _normal(n: int, d: int = 5, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _statistics(
    features: Tensor, network: FeatureNetwork, logits: Tensor | None = None, batch: int = 1000
) -> Statistics:
    collector = Collector(network, len(features))
    for start in range(0, len(features), batch):
        rows = slice(start, start + batch)
        collector.update(features[rows], None if logits is None else logits[rows])
    return collector.statistics()


def _scores(
    reference: Tensor, samples: Tensor, logits: Tensor | None = None, batch: int = 1000, names: tuple[str, ...] = ()
) -> dict[str, float]:
    network = Toy(reference.shape[1])
    logits = torch.zeros(len(samples), 7) if logits is None else logits
    return compute_metrics(
        SampleSet(x=samples, statistics=_statistics(samples, network, logits, batch)),
        SampleSet(x=reference, statistics=_statistics(reference, network)),
        names,
    )


def _frechet(reference: Tensor, samples: Tensor) -> float:
    return _scores(reference, samples, names=("frechet",))["frechet"]


# --- known values


@pytest.mark.parametrize("d", [5, 200])
def test_a_set_is_at_distance_0_from_itself(d: int) -> None:
    x = _normal(120, d) + 3
    scores = _scores(x, x)
    assert scores["frechet"] <= 1e-6 * d
    # The kernel distance is unbiased for independent sets; here some vectors are compared with themselves.
    assert abs(scores["kernel"]) < 0.01 * float((x.square().mean(1) + 1).pow(3).mean())
    assert scores["precision"] == scores["recall"] == 1


def test_frechet_distance_of_a_shifted_set_is_the_shift_squared() -> None:
    x, shift = _normal(500), torch.tensor([1.0, -2.0, 0.5, 0.0, 3.0])
    assert _frechet(x, x + shift) == pytest.approx(float(shift.square().sum()), rel=1e-9)


def test_frechet_distance_of_gaussians_is_the_closed_form() -> None:
    # With a basis in common, tr((A B)^(1/2)) is the sum of the products of the standard deviations.
    white = _normal(400)
    white = white - white.mean(0)
    white = white @ torch.linalg.inv(torch.linalg.cholesky(torch.cov(white.T))).T  # covariance 1, exactly
    basis = torch.linalg.qr(_normal(5, seed=1)).Q
    a, b = torch.tensor([1.0, 2, 3, 4, 5]).double(), torch.tensor([2.0, 2, 0.5, 7, 1]).double()
    mean = torch.tensor([3.0, 0, 0, -1, 2]).double()
    wanted = mean.square().sum() + (a - b).square().sum()
    assert _frechet(white * a @ basis, mean + white * b @ basis) == pytest.approx(float(wanted), rel=1e-9)


def test_frechet_distance_without_a_basis_in_common_is_that_of_scipy() -> None:
    linalg = pytest.importorskip("scipy.linalg")
    x, y = _normal(300), _normal(200, seed=1) @ _normal(5, seed=2)
    first, second = torch.cov(x.T), torch.cov(y.T)
    root = torch.from_numpy(linalg.sqrtm((first @ second).numpy()).real)
    wanted = (x.mean(0) - y.mean(0)).square().sum() + torch.trace(first + second - 2 * root)
    assert _frechet(x, y) == pytest.approx(float(wanted), rel=1e-8)


def test_frechet_distance_is_that_of_torchmetrics() -> None:
    fid = pytest.importorskip("torchmetrics.image.fid")
    x, y = _normal(300), _normal(200, seed=1) @ _normal(5, seed=2)
    theirs = fid._compute_fid(x.mean(0), torch.cov(x.T), y.mean(0), torch.cov(y.T))
    assert _frechet(x, y) == pytest.approx(float(theirs), rel=1e-9)


def test_inception_score_of_equal_logits_is_one() -> None:
    x = _normal(100)
    scores = _scores(x, x, torch.arange(7.0).expand(100, 7))
    assert scores["inception_score"] == pytest.approx(1, abs=1e-5)
    assert scores["inception_score_error"] == pytest.approx(0, abs=1e-5)


def test_inception_score_of_confident_even_logits_is_the_number_of_classes() -> None:
    x, classes = _normal(1400), torch.arange(1400) % 7
    logits = torch.nn.functional.one_hot(classes).float() * 1000  # e^-1000 underflows
    scores = _scores(x, x, logits, names=("inception-score",))
    assert scores["inception_score"] == pytest.approx(7, rel=0.03)  # splits of 140 are nearly even
    assert 0 < scores["inception_score_error"] < 0.2


def test_kernel_distance_is_unbiased_and_sees_a_difference() -> None:
    values = [kernel_distance(_normal(100, seed=2 * k), _normal(100, seed=2 * k + 1))[0] for k in range(20)]
    error = torch.tensor(values).std() / math.sqrt(20)
    assert abs(sum(values) / 20) < 4 * error
    distance, deviation = kernel_distance(_normal(100), _normal(100, seed=1) + 1)
    assert distance > 10 * error
    assert 0 < deviation < distance


def test_kernel_distance_of_all_there_is_agrees_with_its_formula() -> None:
    x, y = _normal(400), _normal(400, seed=1) * 1.3 + 0.2

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        return (a @ b.T / 5 + 1) ** 3

    def within(a: Tensor) -> Tensor:
        k = kernel(a, a)
        return (k.sum() - k.trace()) / (len(a) * (len(a) - 1))

    wanted = float(within(x) + within(y) - 2 * kernel(x, y).mean())
    distance, deviation = kernel_distance(x, y)
    assert distance == pytest.approx(wanted, abs=deviation / 2)


# --- precision and recall


def _brute_force(reference: Tensor, samples: Tensor, k: int) -> tuple[float, float]:
    def share(points: Tensor, manifold: Tensor) -> float:
        radii = [(manifold - q).norm(dim=1).sort().values[k] for q in manifold]
        inside = [any((p - q).norm() <= radius for q, radius in zip(manifold, radii, strict=True)) for p in points]
        return sum(inside) / len(points)

    return share(samples, reference), share(reference, samples)


@pytest.mark.parametrize("k", [1, 3])
def test_precision_and_recall_are_those_of_the_definition(k: int) -> None:
    x, y = _normal(40, 3), _normal(30, 3, seed=1) * 0.7 + 0.5
    ours, wanted = precision_recall(x, y, k), _brute_force(x, y, k)
    assert ours == pytest.approx(wanted)
    assert len({*ours, 1.0}) == 3


def test_precision_and_recall_are_those_of_prdc() -> None:
    prdc = pytest.importorskip("prdc")
    x, y = _normal(1500, 12), _normal(1300, 12, seed=1) * 0.8 + 0.3  # more than one block
    with redirect_stdout(io.StringIO()):
        wanted = prdc.compute_prdc(real_features=x.numpy(), fake_features=y.numpy(), nearest_k=3)
    assert precision_recall(x, y) == pytest.approx((wanted["precision"], wanted["recall"]), abs=1e-12)


def test_samples_of_one_mode_have_high_precision_and_low_recall() -> None:
    x = torch.cat([_normal(200), _normal(200, seed=1) + 50])
    precision, recall = precision_recall(x, _normal(200, seed=2))
    assert precision > 0.9
    assert 0.4 < recall < 0.55


def test_equal_points_are_at_distance_0() -> None:
    x = torch.full((60, 1280), 0.3).double()
    assert precision_recall(x, x[:55]) == (1, 1)
    assert precision_recall(x, x[:55] + 1e-3) == (0, 0)


# --- collection


def test_scores_depend_neither_on_batches_nor_on_the_global_generator() -> None:
    x, y, logits = _normal(150).float(), _normal(130, seed=1).float() + 0.5, 2 * _normal(130, 7, seed=2).float()
    state = torch.get_rng_state()
    first = _scores(x, y, logits)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(3)
    assert _scores(x, y, logits, batch=17) == pytest.approx(first, rel=1e-9)


def test_a_subset_of_many_features_is_kept() -> None:
    x = _normal(CAPACITY + 500, 2)
    kept = _statistics(x, Toy(2)).features
    assert kept.shape == (CAPACITY, 2)
    assert torch.equal(_statistics(x, Toy(2), batch=3000).features, kept)


# --- errors


def test_too_few_samples() -> None:
    x, network = _normal(60), Toy()
    full, few = (SampleSet(x=part, statistics=_statistics(part, network)) for part in (x, x[:49]))
    with pytest.raises(ValueError, match="samples must hold at least 50 data points, got 49"):
        compute_metrics(few, full)
    with pytest.raises(ValueError, match="data must hold at least 50 data points, got 49"):
        compute_metrics(full, few)
    with pytest.raises(ValueError, match=r"samples must be at least 50 vectors, got shape \(49, 5\)"):
        kernel_distance(x, x[:49])
    with pytest.raises(ValueError, match=r"reference must be at least 4 vectors, got shape \(3, 5\)"):
        precision_recall(x[:3], x)


def test_another_network() -> None:
    x = _normal(60)
    data = SampleSet(x=x, statistics=_statistics(x, Toy()))
    for network, features, reason in (
        (Toy(name="toy-00000002"), x, "network must be toy-00000001, that of the statistics, got toy-00000002"),
        (Toy(6), _normal(60, 6), "statistics must have 6 features, got 5"),
    ):
        with pytest.raises(ValueError, match=reason):
            compute_metrics(SampleSet(x=x, statistics=_statistics(features, network)), data)
    with pytest.raises(ValueError, match="samples must have 5 features, got 6"):
        precision_recall(_normal(60), _normal(60, 6))
    with pytest.raises(ValueError, match="samples must have logits for the Inception score, got None"):
        compute_metrics(data, data, ["inception-score"])
    with pytest.raises(ValueError, match=r"metric must be one of frechet, .*, got 'fid'"):
        compute_metrics(data, data, ["fid"])


@pytest.mark.parametrize(
    ("features", "logits", "message"),
    [
        (torch.zeros(3, 6), torch.zeros(3, 7), r"features must have shape \(3, 5\), got \(3, 6\)"),
        (torch.zeros(()), torch.zeros(3, 7), r"features must have shape \(1, 5\), got \(\)"),
        (torch.zeros(3, 5), torch.zeros(4, 7), r"logits must have shape \(3, 7\), got \(4, 7\)"),
        (torch.full((3, 5), math.nan), torch.zeros(3, 7), "features must be finite"),
        (torch.zeros(3, 5), torch.full((3, 7), math.inf), "logits must be finite"),
        (torch.full((3, 5), 1e5), torch.zeros(3, 7), "features must fit in float16, got 100000.0"),
    ],
)
def test_bad_batches_do_not_change_the_statistics(features: Tensor, logits: Tensor, message: str) -> None:
    x, collector = _normal(60), Collector(Toy(), 60)
    collector.update(x, torch.zeros(60, 7))
    with pytest.raises(ValueError, match=message):
        collector.update(features, logits)
    found = collector.statistics()
    assert found.number == len(found.features) == 60
    assert found.logits is not None
    assert len(found.logits) == 60
    torch.testing.assert_close(found.mean, x.mean(0))


def test_arrays_are_vectors_too() -> None:
    x, y = _normal(60), _normal(60, seed=1)
    assert kernel_distance(x.numpy(), y.numpy()) == kernel_distance(x, y)
    assert precision_recall(x.numpy(), y) == precision_recall(x, y)
    counts = numpy.arange(120).reshape(60, 2) % 7
    assert precision_recall(counts, torch.from_numpy(counts)) == (1, 1)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e60])
def test_vectors_must_be_finite(bad: float) -> None:
    x = _normal(60)
    y = x.clone()
    y[3, 2] = bad
    for score in (kernel_distance, precision_recall):
        with pytest.raises(ValueError, match=r"reference must be finite.*got (nan|inf|1e.60)"):
            score(y, x)
        with pytest.raises(ValueError, match="samples must be finite"):
            score(x, y.numpy())


@pytest.mark.parametrize("neighbours", [0, 2.5, "3", True])
def test_neighbours_must_be_a_positive_integer(neighbours: Any) -> None:
    with pytest.raises(ValueError, match="neighbours must be"):
        precision_recall(_normal(60), _normal(60), neighbours)


@pytest.mark.parametrize("bad", [[[1.0, 2.0]] * 60, numpy.full((60, 5), "a"), _normal(60) + 0j])
def test_vectors_must_be_real_numbers(bad: Any) -> None:
    with pytest.raises(ValueError, match="samples must be a tensor or an array of real numbers"):
        kernel_distance(_normal(60), bad)


def test_a_missing_torchmetrics_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchmetrics"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    with pytest.raises(ValueError, match=r"torchmetrics is not installed: pip install 'blackout-diffusion\[evaluation"):
        kernel_distance(_normal(60), _normal(60))
