"""Metrics in the features of a network: Fréchet and kernel distance, Inception score, precision and recall.

Kernel distance and Inception score are computed by torchmetrics, from features instead of images.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from blackout import validate
from blackout.evaluation.config import MINIMUM
from blackout.evaluation.features import optional
from blackout.evaluation.metric import Metric, SampleSet

Vectors = Tensor | NDArray[Any]

_NEIGHBOURS = 3
_SUBSET, _SPLITS, _SEED = 1000, 10, 0
_BLOCK = 1024  # rows of a distance matrix computed at a time
_LARGE = 1e50  # sixth powers of larger numbers overflow


class FrechetDistance(Metric):
    """Heusel et al. 2017: squared Fréchet distance of two Gaussians with the means and covariances of the features."""

    title = "Fréchet distance"
    better = "↓ lower is better, 0 at best"
    description = "Distance between the features of samples and data, by their means and covariances."
    values: ClassVar = {"frechet": "Fréchet"}

    def __call__(self, samples: SampleSet, data: SampleSet) -> dict[str, float]:
        a, b = samples.features, data.features
        root = torch.linalg.eigvals(a.covariance @ b.covariance).sqrt().real.sum()  # trace of the matrix square root
        squared = (a.mean - b.mean).square().sum() + a.covariance.trace() + b.covariance.trace() - 2 * root
        return {"frechet": max(0.0, float(squared))}


class KernelDistance(Metric):
    """The kernel distance of at most 10,000 samples and as many data points; see `kernel_distance`."""

    title = "Kernel distance"
    better = "↓ lower is better, 0 at best"
    description = (
        "Squared maximum mean discrepancy of the features, unbiased for any number of samples. ± is the standard "
        "deviation over random subsets."
    )
    values: ClassVar = {"kernel": "kernel"}

    def __call__(self, samples: SampleSet, data: SampleSet) -> dict[str, float]:
        distance, deviation = kernel_distance(data.features.features, samples.features.features)
        return {"kernel": distance, "kernel_error": deviation}


class InceptionScore(Metric):
    """Salimans et al. 2016: exp of the mean KL divergence between the classes of one sample and those of all."""

    title = "Inception score"
    better = "↑ higher is better, as a rule"
    description = (
        "How confident the network is in the class of each sample, and how much the classes vary: 1 if all samples "
        "look alike, at most the number of classes. ± is the standard deviation over splits."
    )
    values: ClassVar = {"inception_score": "Inception score"}

    def __call__(self, samples: SampleSet, data: SampleSet) -> dict[str, float]:
        logits = samples.features.logits
        if logits is None:
            raise ValueError("samples must have logits for the Inception score, got None")
        metric = _torchmetric("inception.InceptionScore", logits.shape[1], splits=_SPLITS)
        # A probability of e^-80 adds nothing, and one that underflows makes the score 0 · ∞.
        metric.update(logits.double().log_softmax(1).clamp(min=-80).float())
        with _seeded():
            score, deviation = metric.compute()
        return {"inception_score": float(score), "inception_score_error": float(deviation)}


class PrecisionRecall(Metric):
    """Precision and recall of at most 10,000 samples and as many data points; see `precision_recall`."""

    title = "Precision and recall"
    better = "↑ higher is better, 1 at best"
    description = (
        "Precision is the share of samples that are near data, recall the share of data that is near samples. Blurred "
        "samples lower precision, a lack of variety lowers recall."
    )
    values: ClassVar = {"precision": "precision", "recall": "recall"}

    def __call__(self, samples: SampleSet, data: SampleSet) -> dict[str, float]:
        precision, recall = precision_recall(data.features.features, samples.features.features)
        return {"precision": precision, "recall": recall}


def kernel_distance(reference: Vectors, samples: Vectors) -> tuple[float, float]:
    """Compute the kernel distance of two sets of vectors, Bińkowski et al. 2018.

    Parameters
    ----------
    reference, samples
        Finite real vectors, shapes (n, d) and (m, d), at least 50 of each.

    Returns
    -------
    distance, deviation
        Unbiased squared MMD under the kernel (x·y/d + 1)³, and its standard deviation over 100 subsets. Subsets have
        1000 members, or half of the smaller set if that is less.
    """
    reference, samples = _vectors(MINIMUM, reference, samples)
    size = min(_SUBSET, len(reference) // 2, len(samples) // 2)
    metric = _torchmetric("kid.KernelInceptionDistance", samples.shape[1], subset_size=size)
    metric.update(reference, real=True)
    metric.update(samples, real=False)
    with _seeded():
        mean, deviation = metric.compute()
    return float(mean), float(deviation)


def precision_recall(reference: Vectors, samples: Vectors, neighbours: int = _NEIGHBOURS) -> tuple[float, float]:
    """Compute precision and recall, Kynkäänniemi et al. 2019, Eqs. (1) and (2).

    Parameters
    ----------
    reference, samples
        Finite real vectors, shapes (n, d) and (m, d).
    neighbours
        The manifold of a set is the union of balls around its points; each reaches to the k-th nearest neighbour.

    Returns
    -------
    precision, recall
        Share of samples in the manifold of the reference, and of the reference in the manifold of the samples.
    """
    reference, samples = _vectors(validate.integer("neighbours", neighbours, 1) + 1, reference, samples)
    centre = reference.mean(0)  # smaller numbers have smaller rounding errors
    reference, samples = reference - centre, samples - centre
    return _share_inside(samples, reference, neighbours), _share_inside(reference, samples, neighbours)


def _vectors(minimum: int, *sets: Vectors) -> tuple[Tensor, ...]:
    """Check reference and samples, and convert them to float64."""
    found = []
    for name, values in zip(("reference", "samples"), sets, strict=True):
        x: Any = values
        if isinstance(values, numpy.ndarray) and values.dtype.kind in "biuf":
            x = torch.from_numpy(values.astype(numpy.float64))
        if not isinstance(x, Tensor) or x.is_complex():
            raise ValueError(f"{name} must be a tensor or an array of real numbers, got {type(values).__name__}")
        if x.dim() != 2 or len(x) < minimum or x.shape[1] == 0:
            raise ValueError(f"{name} must be at least {minimum} vectors, got shape {tuple(x.shape)}")
        found.append(x.double())
        bad = ~(found[-1].abs() < _LARGE)  # true for NaN too
        if bool(bad.any()):
            raise ValueError(f"{name} must be finite, and less than {_LARGE:g} in size, got {float(x[bad][0])}")
    if found[0].shape[1] != found[1].shape[1]:
        raise ValueError(f"samples must have {found[0].shape[1]} features, got {found[1].shape[1]}")
    return tuple(found)


def _share_inside(points: Tensor, manifold: Tensor, neighbours: int) -> float:
    # A point is its own nearest neighbour, hence k + 1.
    radii = [_squared_distances(rows, manifold).kthvalue(neighbours + 1).values for rows in manifold.split(_BLOCK)]
    radius = torch.cat(radii)
    inside = [(_squared_distances(rows, manifold) <= radius).any(1) for rows in points.split(_BLOCK)]
    return float(torch.cat(inside).double().mean())


def _squared_distances(x: Tensor, y: Tensor) -> Tensor:
    sizes = x.square().sum(1)[:, None] + y.square().sum(1)
    squared = torch.addmm(sizes, x, y.T, alpha=-2)
    return torch.where(squared > 1e-12 * sizes, squared, 0.0)  # below, it is rounding error: equal points are at 0


class _Identity(nn.Module):
    """Replaces the feature network of torchmetrics."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.num_features = num_features

    def forward(self, features: Tensor) -> Tensor:
        return features


def _torchmetric(name: str, width: int, **options: Any) -> Any:
    module, _, kind = name.partition(".")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the memory that stored features need
        # A metric that synchronises would wait for processes that do not evaluate.
        image = optional(f"torchmetrics.image.{module}", "evaluation")
        return getattr(image, kind)(_Identity(width), sync_on_compute=False, **options)


@contextmanager
def _seeded() -> Iterator[None]:
    """Seed torch's global generator, from which torchmetrics draws subsets and splits; restore it afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(_SEED)  # torch.manual_seed would seed every other device too
        yield
