"""Statistics: what a data set looks like to a feature network, computed once and kept."""

import contextlib
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

CAPACITY = 10_000  # features that are kept, for distances that need more than mean and covariance
_FORMAT = "blackout statistics 1"

Callback = Callable[[int, int], None]  # pictures done, pictures in all


@dataclass(frozen=True, kw_only=True, eq=False)
class Statistics:
    """Mean and covariance (of a sample: n - 1) of all features in float64, and up to 10,000 of them in float16."""

    network: str
    checksum: str
    number: int
    mean: Tensor
    covariance: Tensor
    features: Tensor

    def __post_init__(self) -> None:
        validate.integer("number", self.number, 2)
        width = self.mean.numel()
        kept = min(self.number, CAPACITY)
        for name, shape, dtype in (
            ("mean", (width,), torch.float64),
            ("covariance", (width, width), torch.float64),
            ("features", (kept, width), torch.float16),
        ):
            value: Tensor = getattr(self, name)
            if tuple(value.shape) != shape or value.dtype != dtype:
                got = f"{value.dtype} of shape {tuple(value.shape)}"
                raise ValueError(f"{name} must be {dtype} of shape {shape}, got {got}")

    def save(self, path: str | Path) -> None:
        """Write a safetensors file: it is there whole or not at all."""
        path = Path(path)
        tensors = {name: getattr(self, name).contiguous() for name in ("mean", "covariance", "features")}
        about = {"format": _FORMAT, "network": self.network, "checksum": self.checksum, "number": str(self.number)}
        try:
            with atomic(path) as partial:
                save_file(tensors, partial, about | {"digest": _digest(tensors, about)})
        except (OSError, SafetensorError) as error:
            raise ValueError(f"{path}: cannot be written: {error}") from None

    @classmethod
    def load(cls, path: str | Path, network: FeatureNetwork | None = None) -> "Statistics":
        """Statistics from a file; of `network`, if one is given, and refused otherwise."""
        try:
            with safe_open(path, "pt") as file:
                about = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if about.pop("digest", None) != _digest(tensors, about) or about.pop("format") != _FORMAT:
                raise ValueError("damaged, or of another format")
            found = cls(network=about["network"], checksum=about["checksum"], number=int(about["number"]), **tensors)
        except FileNotFoundError:
            raise ValueError(f"{path}: no such file") from None
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: not a file of statistics: {error}") from None
        if network is not None and found.network != network.name:
            raise ValueError(f"{path}: statistics of {found.network}, but the network is {network.name}: collect anew")
        return found


class Reservoir:
    """A uniform draw of at most `capacity` rows from a stream, the same one however the stream is cut into pieces."""

    def __init__(self, capacity: int = CAPACITY, seed: int = 0) -> None:
        self.capacity = capacity
        self._keys, self._rows = numpy.empty(0), torch.empty(0)
        self._new: list[Tensor] = []
        self._generator = numpy.random.default_rng(seed)

    def update(self, rows: Tensor) -> None:
        half = rows.detach().to("cpu", torch.float16)
        if not bool(torch.isfinite(half).all()):
            raise ValueError(f"features must be finite and fit in float16, got {float(rows.abs().max())}")
        self._new.append(half)
        if sum(map(len, self._new)) >= self.capacity:
            self.rows()

    def rows(self) -> Tensor:
        """Those with the smallest random keys, in the order in which they came."""
        if self._new:
            self._rows = torch.cat([*([self._rows] if len(self._keys) else []), *self._new])
            new = self._generator.random(sum(map(len, self._new)))
            self._keys = numpy.concatenate([self._keys, new])
            self._new = []
        if len(self._keys) > self.capacity:
            kept = numpy.sort(numpy.argsort(self._keys, kind="stable")[: self.capacity])
            self._keys, self._rows = self._keys[kept], self._rows[torch.from_numpy(kept)]
        return self._rows


def collect(
    network: FeatureNetwork,
    images: Tensor,
    *,
    max_count: int = 255,
    batch_size: int = 64,
    callback: Callback | None = None,
) -> Statistics:
    """The statistics of pictures (n, 1 or 3, height, width), integers from 0 to `max_count`."""
    validate.integer("batch_size", batch_size, 1)
    (images,) = validate.states(validate.integer("max_count", max_count, 1) + 1, images=images)
    if images.dim() == 0 or len(images) < 2:
        raise ValueError(f"images must hold at least 2, for a covariance, got shape {tuple(images.shape)}")
    mean = torch.zeros(network.num_features, dtype=torch.float64)
    scatter = torch.zeros(network.num_features, network.num_features, dtype=torch.float64)
    kept = Reservoir()
    for start in range(0, len(images), batch_size):
        features = network(images[start : start + batch_size], max_count=max_count)[0].cpu()
        kept.update(features)
        # Chan, Golub and LeVeque 1979: moments about the mean so far, in which nothing cancels.
        x = features.double()
        n, shift = start + len(x), x.mean(0) - mean
        centred = x - x.mean(0)
        scatter += centred.T @ centred + shift.outer(shift) * (start * len(x) / n)
        mean += shift * (len(x) / n)
        if callback is not None:
            callback(n, len(images))
    return Statistics(
        network=network.name,
        checksum=checksum(images, max_count),
        number=len(images),
        mean=mean,
        covariance=scatter / (len(images) - 1),
        features=kept.rows(),
    )


def cached(
    network: FeatureNetwork,
    images: Tensor,
    folder: str | Path | None = None,
    *,
    max_count: int = 255,
    batch_size: int = 64,
    callback: Callback | None = None,
) -> Statistics:
    """As `collect`, but at most once for each network and data set: the result is kept in a folder.

    The folder is ~/.cache/blackout/statistics, or `statistics` in the folder that BLACKOUT_CACHE names.
    """
    if folder is None:
        folder = Path(os.environ.get("BLACKOUT_CACHE") or Path.home() / ".cache" / "blackout", "statistics")
    (images,) = validate.states(None, images=images)
    digest = checksum(images, max_count)
    path = Path(folder, f"{re.sub(r'[^A-Za-z0-9.-]', '_', network.name)}-{digest}.safetensors")
    with contextlib.suppress(ValueError):  # not there, damaged, or of another network under this name
        found = Statistics.load(path, network)
        if found.checksum == digest:
            return found
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(path.parent, os.W_OK):  # better now than after an hour of computing
            raise PermissionError("not writable")
    except OSError as error:
        raise ValueError(f"{path.parent}: no place for statistics: {error}; set BLACKOUT_CACHE to another") from None
    statistics = collect(network, images, max_count=max_count, batch_size=batch_size, callback=callback)
    statistics.save(path)
    return statistics


def checksum(images: Tensor, max_count: int = 255) -> str:
    """SHA-256 of all that features depend on: shape, type, largest count and bytes."""
    digest = hashlib.sha256(f"{tuple(images.shape)} {images.dtype} {max_count}\n".encode())
    digest.update(_bytes(images))
    return digest.hexdigest()


def _digest(tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> str:
    digest = hashlib.sha256(repr(sorted(about.items())).encode())
    for name in sorted(tensors):
        digest.update(_bytes(tensors[name]))
    return digest.hexdigest()


def _bytes(x: Tensor) -> memoryview:
    return x.cpu().contiguous().view(-1).view(torch.uint8).numpy().data
