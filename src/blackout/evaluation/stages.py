"""Evaluation: the stages of an evaluation, each cached under a key of all that it depends on."""

import dataclasses
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from blackout.bits import num_entries
from blackout.data import Dataset
from blackout.data.arrays import load_arrays
from blackout.evaluation.cache import Cache
from blackout.evaluation.checks import is_image_model, steps_of
from blackout.evaluation.config import EvalConfig
from blackout.evaluation.copying import copying
from blackout.evaluation.features import FeatureNetwork, feature_network, optional
from blackout.evaluation.likelihood import Progress, bits_by_time, bits_per_dim
from blackout.evaluation.metric import SampleSet, applicable, compute_metrics
from blackout.evaluation.references import references
from blackout.evaluation.speed import Speed
from blackout.evaluation.splits import subsample
from blackout.evaluation.statistics import cached, collect
from blackout.evaluation.structure import compare_structure
from blackout.io import checksum, write_samples
from blackout.model import DiffusionModel
from blackout.sampling import SAMPLERS
from blackout.sampling.choice import bound_sampler

_CURVE_DATA = 64
_MAX_LAG = 32


class Evaluation:
    """One model under one configuration.

    Parameters
    ----------
    cache, samples
        Where finished stages are stored, and the file of samples, .npz.
    progress
        Called with the name of the stage, how much of it is done, and of how much.
    """

    def __init__(
        self, model: DiffusionModel, config: EvalConfig, cache: Cache, samples: Path, progress: Progress
    ) -> None:
        if config.dropout is not None:
            model = model.with_sampling(dropout=config.dropout)
        self.model, self.config, self.cache, self.samples, self.progress = model, config, cache, samples, progress
        self.num_steps, self.times = steps_of(model, config.num_steps), config.times or None
        self.num_samples = config.samples_on(model.device.type)
        self.has_bound = model.predictor.head.has_bound
        on_gpu = model.device.type == "cuda"
        self.batch_size = config.batch_size or (500 if on_gpu else 64)
        # An interruption loses at most one shard: seconds of work on CUDA; on a CPU, a batch would be minutes.
        self.shard_size = max(256, self.batch_size) if on_gpu else min(32, self.batch_size)
        self.key = {"model": checksum(model), "device": model.device.type, "seed": config.seed}
        self.sampler = model.default_sampler(self.num_steps) if config.sampler == "auto" else config.sampler
        self.sampling_key = self.key | {
            "sampler": self.sampler,
            "corrector_steps": config.corrector_steps,
            "num_steps": self.num_steps,
            "times": model.sampling_rule(self.num_steps, self.times),
            "num_samples": self.num_samples,
        }
        if model.record.sampling.dropout:
            self.sampling_key["dropout"] = True

    def network(self) -> FeatureNetwork | None:
        """Load the feature network if there are samples and they are images."""
        if not self.num_samples or not is_image_model(self.model):
            return None
        optional("torchmetrics", "evaluation")  # which the metrics need after hours of sampling
        return feature_network(self.config.features, self.config.weights or None, self.model.device)

    def bits(self, name: str, data: Dataset, like: Dataset | None = None) -> dict[str, Any] | None:
        """Compute bits/dim of the bound of the configuration, by default for as many data points as `like` has.

        None for a distilled model, which has no bound.
        """
        if not self.has_bound:
            return None
        x, key = self._subset(data, self.config.num_data or len(like or data))
        kind = self.model.bound_kind(self.config.bound)
        options: dict[str, Any] = {"num_times": self.config.num_times, "bound": kind}
        key |= self.key | options

        def compute(start: int, stop: int) -> NDArray[Any]:
            return self.model.bits_of_each(x[start:stop], self.config.seed, start_index=start, **options).numpy()

        bits = bits_per_dim(self.cache, name, key, len(x), self.batch_size, compute, self.progress)
        return bits | {"bound": kind}

    def sampler_bits(self, data: Dataset) -> dict[str, Any]:
        """Compute bits/dim of the bound of the sampler's steps.

        For a bridge, whose bound is infinite, it is that of leaps in as many steps: see `bound_sampler`.
        """
        name = bound_sampler(self.sampler, self.model.process, self.model.predictor.head.finite_bound)
        replaces = self.sampler if name != self.sampler else None
        sampler, (x, key) = SAMPLERS.make(name), self._subset(data, self.config.num_bound_data)
        key |= self.key | {"sampler": name, **{name: self.sampling_key[name] for name in ("num_steps", "times")}}
        times, denoise = self.model.sampling_times(self.num_steps, self.times), self.model.denoiser()

        def compute(start: int, stop: int) -> NDArray[Any]:
            part = x[start:stop].to(self.model.device)
            nats = sampler.bound(denoise, self.model.process, times, part, self.config.seed, start_index=start)
            bits: NDArray[Any] = (nats.cpu() / (math.log(2) * num_entries(self.model.process, part).cpu())).numpy()
            return bits

        bits = bits_per_dim(self.cache, "sampler", key, len(x), self.batch_size, compute, self.progress)
        return bits | {"sampler": name, "replaces": replaces, "num_steps": self.num_steps}

    def sample(self) -> dict[str, Any]:
        """Generate the samples, in shards that survive an interruption, and measure the speed."""
        config, speed = self.config, Speed(partial(self.progress, f"samples, {self.num_steps} steps"))
        if _is_damaged(self.samples):
            self.samples.unlink()
        # Returns at once if the samples exist.
        write_samples(
            self.model, self.samples, self.num_samples, num_steps=self.num_steps, times=self.times, seed=config.seed,
            sampler=self.model.sampler(self.sampler, config.corrector_steps), batch_size=self.batch_size,
            shard=self.shard_size, overwrite=True, progress=speed,
        )  # fmt: skip

        def summary() -> dict[str, Any]:
            return {
                "sampler": self.sampler,
                "num_steps": self.num_steps,
                "corrector_steps": config.corrector_steps,
                "dropout": self.model.record.sampling.dropout,
                "times": self.times,
                "seed": config.seed,
                "num_samples": self.num_samples,
                **speed.of(self.num_samples),
            }

        return self.cache.get("sampling", self.sampling_key, summary)

    def quality(self, reference: Dataset, network: FeatureNetwork | None) -> dict[str, Any] | None:
        """Compute the metrics of the samples against data; None if there are no metrics for such data."""
        key = self.sampling_key | self._metrics_key(reference, network)
        if not key["metrics"]:
            return None
        return self.cache.get(
            "quality", key, lambda: self._scores(torch.from_numpy(load_samples(self.samples)), reference, network)
        )

    def real_vs_real(self, test: Dataset, reference: Dataset, network: FeatureNetwork | None) -> dict[str, Any] | None:
        """Compute the metrics of as many held-out data points as there are samples: those of a perfect model."""
        x, key = self._subset(test, self.num_samples)
        key |= self._metrics_key(reference, network) | {"device": self.key["device"]}
        if not key["metrics"]:
            return None
        return self.cache.get("real-vs-real", key, lambda: self._scores(x, reference, network))

    def copying(self, test: Dataset, train: Dataset) -> dict[str, Any]:
        """Compare samples with their nearest training images."""
        data, key = self._reference(train)
        key |= self.sampling_key | {"test": test.checksum}

        def summary() -> dict[str, Any]:
            return copying(torch.from_numpy(load_samples(self.samples)), data, test.x, self.model.device)

        return self.cache.get("copying", key, summary)

    def copied_pairs(self, pairs: list[list[int]], train: Dataset) -> NDArray[Any]:
        """Return the samples of `pairs` of `copying`, followed by their nearest training images."""
        own, nearest = (list(index) for index in zip(*pairs, strict=True))
        data = self._reference(train)[0][nearest]
        return numpy.concatenate([load_samples(self.samples)[own], data.cpu().numpy()])

    def structure(self, test: Dataset, train: Dataset | None) -> dict[str, Any]:
        """Compare each phase but the first with test data and, because rock differs from place to place, train data."""
        sets = {"test": test} if train is None else {"test": test, "train": train}
        key = self.sampling_key | {name: data.checksum for name, data in sets.items()}

        def summary() -> dict[str, Any]:
            x, lag = torch.from_numpy(load_samples(self.samples)), min(_MAX_LAG, min(test.x.shape[-2:]) - 1)
            return {
                f"phase_{phase}": {
                    name: dataclasses.asdict(compare_structure(x, data.x, phase, lag)) for name, data in sets.items()
                }
                for phase in range(1, test.max_state + 1)
            }

        return self.cache.get("structure", key, summary)

    def references(self, test: Dataset, train: Dataset) -> dict[str, Any]:
        """Compute bits per label of sequences under a compressor and an autoregressive transformer."""
        x, part = self._subset(test, self.config.num_data or len(test))
        key = self.key | part | {"train": train.checksum}
        return self.cache.get("references", key, lambda: references(self.model, test, train, x, self.config.seed))

    def bits_by_time(self, data: Dataset) -> dict[str, Any] | None:
        """Compute the contribution of each time to bits/dim; None if the continuous-time bound is not finite."""
        if not self.has_bound or self.model.bound_kind() != "continuous":
            return None
        x, key = self._subset(data, min(_CURVE_DATA, self.config.num_data or len(data)))
        return self.cache.get(
            "bits-by-time", self.key | key, lambda: bits_by_time(self.model, x, self.config.seed, self.progress)
        )

    def _metrics_key(self, reference: Dataset, network: FeatureNetwork | None) -> dict[str, Any]:
        return {
            "reference": self._reference(reference)[1],
            "features": None if network is None else network.name,
            "max_state": self._max_state(reference),
            "metrics": applicable(self.config.metrics, features=network is not None, sequences=self._sequences),
        }

    @property
    def _sequences(self) -> bool:
        return self.model.predictor.head.labels > 0

    def _reference(self, data: Dataset) -> tuple[Tensor, dict[str, Any]]:
        return self._subset(data, self.config.num_reference or len(data))

    def _max_state(self, reference: Dataset) -> int:
        """The state that is white in images: the largest of the model, even if the data do not reach it."""
        return self.model.max_state or reference.max_state

    def _scores(self, x: Tensor, reference: Dataset, network: FeatureNetwork | None) -> dict[str, Any]:
        white, (data, _) = self._max_state(reference), self._reference(reference)
        if self.model.max_state is None:
            x = x.clamp(max=white)
        pad = self.model.process.pad_state
        samples, real = SampleSet(x=x, pad_state=pad), SampleSet(x=data, pad_state=pad)
        if network is not None:
            options: dict[str, Any] = {"max_count": white, "batch_size": self.batch_size}
            of_data = cached(network, data, **options, callback=partial(self.progress, "features of the data"))
            of_samples = collect(
                network, x, **options, keep_logits=True, callback=partial(self.progress, "features of the samples")
            )
            samples = SampleSet(x=x, statistics=of_samples.to(network.device))
            real = SampleSet(x=data, statistics=of_data.to(network.device))
        return {
            "scores": compute_metrics(samples, real, self.config.metrics, sequences=self._sequences),
            "num_samples": len(x),
            "num_reference": len(data),
            "reference": reference.name,
            "features": None if network is None else network.name,
            "rank_deficient": network is not None and min(len(x), len(data)) <= network.num_features,
        }

    def _subset(self, data: Dataset, number: int) -> tuple[Tensor, dict[str, Any]]:
        """Return at most `number` data points, and their part of a key."""
        number = min(number, len(data))
        key: dict[str, Any] = {"data": data.checksum, "number": number}
        if not data.named and number < len(data):
            key["subset_seed"] = self.config.seed
        return subsample(data, number, self.config.seed), key


def load_samples(path: Path) -> NDArray[Any]:
    """Read samples from a file of `write_samples`."""
    return load_arrays(path)["x"]


def _is_damaged(path: Path) -> bool:
    try:
        return path.exists() and len(load_samples(path)) == 0
    except (KeyError, ValueError):
        return True
