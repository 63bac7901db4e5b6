"""How far samples are from data, in the features of a network: Fréchet and kernel distance, precision and recall.

Fréchet distance, kernel distance and Inception score are those of torchmetrics, which is fed with features instead of
pictures; precision and recall, which it does not have, are computed here.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from blackout import validate
from blackout.evaluation.features import FeatureNetwork, optional
from blackout.evaluation.statistics import Reservoir, Statistics

Vectors = Tensor | NDArray[Any]

MINIMUM = 50  # samples, under which subsets and splits mean nothing
NEIGHBOURS = 3
_SUBSET, _SPLITS, _SEED = 1000, 10, 0
_LARGE = 1e50  # beyond it, sixth powers overflow


@dataclass(frozen=True, kw_only=True)
class QualityScores:
    """Scores of samples, as good as they can be at `frechet` = `kernel` = 0 and `precision` = `recall` = 1.

    Errors are standard deviations, of the kernel distance over 100 subsets and of the Inception score over 10 splits.
    Kernel distance, precision and recall see at most 10,000 samples and as many of the reference. If `rank_deficient`,
    there were fewer samples than features: such a Fréchet distance compares only with others of as many samples.
    """

    frechet: float
    kernel: float
    kernel_error: float
    inception_score: float
    inception_error: float
    precision: float
    recall: float
    num_samples: int
    num_reference: int
    features: str
    rank_deficient: bool


class Quality:
    """Compares a stream of samples, given as a network's features and logits, with the statistics of data."""

    def __init__(self, reference: Statistics, network: FeatureNetwork) -> None:
        if reference.network != network.name:
            raise ValueError(
                f"reference has the statistics of {reference.network}, but the network is {network.name}: collect anew"
            )
        if reference.mean.shape != (network.num_features,):
            raise ValueError(f"reference must have {network.num_features} features, got {len(reference.mean)}")
        if reference.number < MINIMUM:
            raise ValueError(f"reference must be of at least {MINIMUM} pictures, got {reference.number}: collect more")
        self.reference, self.network = reference, network
        self._number = 0
        self._kept = Reservoir()
        self._frechet = _metric("fid.FrechetInceptionDistance", network.num_features)
        n, mean = reference.number, reference.mean
        self._frechet.real_features_sum = n * mean
        self._frechet.real_features_cov_sum = (n - 1) * reference.covariance + n * mean.outer(mean)
        self._frechet.real_features_num_samples = torch.tensor(n)
        self._inception = _metric("inception.InceptionScore", network.num_classes, splits=_SPLITS)

    def update(self, features: Tensor, logits: Tensor) -> None:
        """Take in a batch, such as `network(images)` returns."""
        n = features.shape[0] if features.dim() else 1
        widths = {"features": self.network.num_features, "logits": self.network.num_classes}
        for (name, width), value in zip(widths.items(), (features, logits), strict=True):
            if tuple(value.shape) != (n, width):
                raise ValueError(f"{name} must have shape ({n}, {width}), got {tuple(value.shape)}")
            if not bool(torch.isfinite(value).all()):
                raise ValueError(f"{name} must be finite, got NaN or infinity among them")
        self._kept.update(features)
        self._frechet.update(features.detach().to("cpu", torch.float64), real=False)
        # A probability of e^-80 adds nothing, and one that underflows makes the score 0 · ∞.
        self._inception.update(logits.detach().cpu().double().log_softmax(1).clamp(min=-80).float())
        self._number += n

    def compute(self) -> QualityScores:
        """The scores of all samples so far."""
        n = self._number
        if n < MINIMUM:
            raise ValueError(f"scores need at least {MINIMUM} samples, got {n}: draw more")
        reference, samples = (x.to(self.network.device) for x in (self.reference.features, self._kept.rows()))
        kernel, kernel_error = kernel_distance(reference, samples)
        precision, recall = precision_recall(reference, samples)
        with _seeded():
            inception_score, inception_error = self._inception.compute()
        return QualityScores(
            frechet=max(0.0, float(self._frechet.compute())),
            kernel=kernel,
            kernel_error=kernel_error,
            inception_score=float(inception_score),
            inception_error=float(inception_error),
            precision=precision,
            recall=recall,
            num_samples=n,
            num_reference=self.reference.number,
            features=self.network.name,
            rank_deficient=min(n, self.reference.number) <= self.network.num_features,
        )


def kernel_distance(reference: Vectors, samples: Vectors) -> tuple[float, float]:
    """Bińkowski et al. 2018: the unbiased squared MMD under (x·y/d + 1)³, and its standard deviation over subsets.

    Subsets have 1000 members, or half of what there is: were they all the same, they would say nothing about the error.
    """
    reference, samples = _vectors(MINIMUM, reference, samples)
    size = min(_SUBSET, len(reference) // 2, len(samples) // 2)
    metric = _metric("kid.KernelInceptionDistance", samples.shape[1], subset_size=size)
    metric.update(reference, real=True)
    metric.update(samples, real=False)
    with _seeded():
        mean, deviation = metric.compute()
    return float(mean), float(deviation)


def precision_recall(reference: Vectors, samples: Vectors, neighbours: int = NEIGHBOURS) -> tuple[float, float]:
    """Kynkäänniemi et al. 2019, Eqs. (1) and (2): the share of either set that lies in the manifold of the other."""
    reference, samples = _vectors(validate.integer("neighbours", neighbours, 1) + 1, reference, samples)
    centre = reference.mean(0)  # smaller numbers, smaller rounding
    reference, samples = reference - centre, samples - centre
    return _share_inside(samples, reference, neighbours), _share_inside(reference, samples, neighbours)


def _vectors(minimum: int, *sets: Vectors) -> tuple[Tensor, ...]:
    """Reference and samples in double precision; refused are too few, other shapes, and what has no distance."""
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
        bad = ~(found[-1].abs() < _LARGE)  # NaN is not less either
        if bool(bad.any()):
            raise ValueError(f"{name} must be finite, and less than {_LARGE:g} in size, got {float(x[bad][0])}")
    if found[0].shape[1] != found[1].shape[1]:
        raise ValueError(f"samples must have {found[0].shape[1]} features, got {found[1].shape[1]}")
    return tuple(found)


def _share_inside(points: Tensor, manifold: Tensor, neighbours: int, block: int = 1024) -> float:
    """The manifold is a ball around each of its points, as large as the distance to its k-th nearest neighbour."""
    radii = [_distances(rows, manifold).kthvalue(neighbours + 1).values for rows in manifold.split(block)]
    radius = torch.cat(radii)  # a point is its own nearest neighbour, hence k + 1
    inside = [(_distances(rows, manifold) <= radius).any(1) for rows in points.split(block)]
    return float(torch.cat(inside).double().mean())


def _distances(x: Tensor, y: Tensor) -> Tensor:
    """Squared distances; those that rounding alone could have made are 0, so that equal points are at none."""
    sizes = x.square().sum(1)[:, None] + y.square().sum(1)
    squared = torch.addmm(sizes, x, y.T, alpha=-2)
    return torch.where(squared > 1e-12 * sizes, squared, 0.0)


class _Identity(nn.Module):
    """In the place of the network that torchmetrics asks for."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.num_features = num_features

    def forward(self, features: Tensor) -> Tensor:
        return features


def _metric(name: str, width: int, **options: Any) -> Any:
    module, _, kind = name.partition(".")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that features are kept, which is meant
        # A metric that synchronises would wait for processes that do not evaluate.
        image = optional(f"torchmetrics.image.{module}", "evaluation")
        return getattr(image, kind)(_Identity(width), sync_on_compute=False, **options)


@contextmanager
def _seeded() -> Iterator[None]:
    """torchmetrics draws subsets and splits from torch's global generator; it is given a seed, and put back."""
    state = torch.get_rng_state()
    torch.default_generator.manual_seed(_SEED)  # torch.manual_seed would seed every other device too
    try:
        yield
    finally:
        torch.set_rng_state(state)
