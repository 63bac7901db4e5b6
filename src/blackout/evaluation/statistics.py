"""Statistics of the features of a data set, computed once and cached."""

import contextlib
import dataclasses
import hashlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from blackout import validate
from blackout.atomic import atomic
from blackout.evaluation.features import FeatureNetwork

CAPACITY = 10_000  # feature vectors that are kept
_FORMAT = "blackout statistics 1"

Callback = Callable[[int, int], None]  # images done, images in total


@dataclass(frozen=True, kw_only=True, eq=False)
class Statistics:
    """Features of a set of images.

    Attributes
    ----------
    network, checksum, number
        Name of the feature network, SHA-256 of the images, and their number.
    mean, covariance
        Sample mean and covariance (divisor n - 1) of all features, float64, shapes (d,) and (d, d).
    features
        A random subset of at most 10,000 feature vectors, float16.
    logits
        Logits of all images, float32 (n, classes), if they were kept. They are not saved.
    """

    network: str
    checksum: str
    number: int
    mean: Tensor
    covariance: Tensor
    features: Tensor
    logits: Tensor | None = None

    def __post_init__(self) -> None:
        validate.integer("number", self.number, 2)
        width = self.mean.numel()
        for name, shape, dtype in (
            ("mean", (width,), torch.float64),
            ("covariance", (width, width), torch.float64),
            ("features", (min(self.number, CAPACITY), width), torch.float16),
        ):
            value: Tensor = getattr(self, name)
            if tuple(value.shape) != shape or value.dtype != dtype:
                got = f"{value.dtype} of shape {tuple(value.shape)}"
                raise ValueError(f"{name} must be {dtype} of shape {shape}, got {got}")

    def to(self, device: torch.device) -> "Statistics":
        """Move the feature vectors to a device, where distances between them are computed."""
        return dataclasses.replace(self, features=self.features.to(device))

    def check_network(self, name: str, num_features: int) -> None:
        """Raise ValueError if the statistics are those of another feature network."""
        if self.network != name:
            raise ValueError(f"network must be {self.network}, that of the statistics, got {name}: collect them anew")
        if self.mean.numel() != num_features:
            raise ValueError(f"statistics must have {num_features} features, got {self.mean.numel()}")

    def save(self, path: str | Path) -> None:
        """Write a safetensors file, atomically."""
        path = Path(path)
        tensors = {name: getattr(self, name).contiguous() for name in ("mean", "covariance", "features")}
        metadata = {"format": _FORMAT, "network": self.network, "checksum": self.checksum, "number": str(self.number)}
        try:
            with atomic(path) as partial:
                save_file(tensors, partial, metadata | {"digest": _digest(tensors, metadata)})
        except (OSError, SafetensorError) as error:
            raise ValueError(f"{path}: cannot be written: {error}") from None

    @classmethod
    def load(cls, path: str | Path, network: FeatureNetwork | None = None) -> "Statistics":
        """Read statistics from a file; raise ValueError if they are not those of `network`, if one is given."""
        try:
            with safe_open(path, "pt") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if metadata.pop("digest", None) != _digest(tensors, metadata) or metadata.pop("format") != _FORMAT:
                raise ValueError("damaged, or of another format")
            found = cls(**metadata | {"number": int(metadata["number"])}, **tensors)
        except FileNotFoundError:
            raise ValueError(f"{path}: no such file") from None
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: not a file of statistics: {error}") from None
        if network is not None:
            found.check_network(network.name, network.num_features)
        return found


class Collector:
    """Accumulates the statistics of `total` images over batches of features, and logits if they are given."""

    def __init__(self, network: FeatureNetwork, total: int) -> None:
        width = network.num_features
        self.network, self.number = network, 0
        self._mean = torch.zeros(width, dtype=torch.float64)
        self._scatter = torch.zeros(width, width, dtype=torch.float64)
        self._kept = torch.zeros(total, dtype=torch.bool)
        order = numpy.argsort(numpy.random.default_rng(0).random(total), kind="stable")
        self._kept[torch.from_numpy(order[:CAPACITY])] = True
        self._features: list[Tensor] = []
        self._logits: list[Tensor] = []

    def update(self, features: Tensor, logits: Tensor | None = None) -> None:
        """Add a batch: features (n, num_features) and logits (n, num_classes)."""
        n = features.shape[0] if features.dim() else 1
        given = {"features": (features, self.network.num_features), "logits": (logits, self.network.num_classes)}
        for name, (value, width) in given.items():
            if value is not None and tuple(value.shape) != (n, width):
                raise ValueError(f"{name} must have shape ({n}, {width}), got {tuple(value.shape)}")
            if value is not None and not bool(torch.isfinite(value).all()):
                raise ValueError(f"{name} must be finite, got NaN or infinity")
        x, total = features.detach().to("cpu", torch.float64), self.number + n
        half = x.half()
        if not bool(torch.isfinite(half).all()):
            raise ValueError(f"features must fit in float16, got {float(x.abs().max())}")
        self._features.append(half[self._kept[self.number : total]])
        # Chan, Golub and LeVeque 1979: moments about the running mean, without cancellation.
        shift, centred = x.mean(0) - self._mean, x - x.mean(0)
        self._scatter += centred.T @ centred + shift.outer(shift) * (self.number * n / total)
        self._mean += shift * (n / total)
        self.number = total
        if logits is not None:
            self._logits.append(logits.detach().to("cpu", torch.float32))

    def statistics(self, checksum: str = "") -> Statistics:
        """Return the statistics, of at least two images."""
        return Statistics(
            network=self.network.name,
            checksum=checksum,
            number=self.number,
            mean=self._mean,
            covariance=self._scatter / (self.number - 1),
            features=torch.cat(self._features),
            logits=torch.cat(self._logits) if self._logits else None,
        )


def collect(
    network: FeatureNetwork,
    images: Tensor,
    *,
    max_count: int = 255,
    batch_size: int = 64,
    keep_logits: bool = False,
    callback: Callback | None = None,
) -> Statistics:
    """Compute the statistics of images.

    Parameters
    ----------
    images
        Integers from 0 to `max_count`, which is white, shape (n, 1 or 3, height, width), n at least 2.
    batch_size
        Images per call of the network.
    keep_logits
        Whether to keep the logits of all images.
    callback
        Called with the numbers of images done and in total.
    """
    validate.integer("batch_size", batch_size, 1)
    (images,) = validate.states(validate.integer("max_count", max_count, 1) + 1, images=images)
    if images.dim() == 0 or len(images) < 2:
        raise ValueError(f"images must hold at least 2, for a covariance, got shape {tuple(images.shape)}")
    collector = Collector(network, len(images))
    for start in range(0, len(images), batch_size):
        features, logits = network(images[start : start + batch_size], max_count=max_count)
        collector.update(features, logits if keep_logits else None)
        if callback is not None:
            callback(collector.number, len(images))
    return collector.statistics(checksum(images, max_count))


def cached(
    network: FeatureNetwork,
    images: Tensor,
    folder: str | Path | None = None,
    *,
    max_count: int = 255,
    batch_size: int = 64,
    callback: Callback | None = None,
) -> Statistics:
    """Return the statistics of images from a folder; `collect` and store them if they are not there.

    The default folder is ~/.cache/blackout/statistics, or `statistics` in the folder that BLACKOUT_CACHE names.
    """
    if folder is None:
        folder = Path(os.environ.get("BLACKOUT_CACHE") or Path.home() / ".cache" / "blackout", "statistics")
    (images,) = validate.states(None, images=images)
    digest = checksum(images, max_count)
    path = Path(folder, f"{re.sub(r'[^A-Za-z0-9.-]', '_', network.name)}-{digest}.safetensors")
    with contextlib.suppress(ValueError):  # missing, damaged, or of another network of this name
        found = Statistics.load(path, network)
        if found.checksum == digest:
            return found
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(path.parent, os.W_OK):  # fail before the computation, not after
            raise PermissionError("not writable")
    except OSError as error:
        raise ValueError(f"{path.parent}: cannot store statistics: {error}; set BLACKOUT_CACHE to another") from None
    statistics = collect(network, images, max_count=max_count, batch_size=batch_size, callback=callback)
    statistics.save(path)
    return statistics


def checksum(images: Tensor, max_count: int = 255) -> str:
    """SHA-256 of what determines the features: shape, dtype, `max_count` and bytes."""
    digest = hashlib.sha256(f"{tuple(images.shape)} {images.dtype} {max_count}\n".encode())
    digest.update(_bytes(images))
    return digest.hexdigest()


def _digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    digest = hashlib.sha256(repr(sorted(metadata.items())).encode())
    for name in sorted(tensors):
        digest.update(_bytes(tensors[name]))
    return digest.hexdigest()


def _bytes(x: Tensor) -> memoryview:
    return x.cpu().contiguous().view(-1).view(torch.uint8).numpy().data
