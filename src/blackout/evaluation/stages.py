"""Measurement: the parts of an evaluation, each kept in a notebook under a key that names all it depends on."""

import dataclasses
import math
import time
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from blackout.classes import ModelDenoiser
from blackout.data import Dataset
from blackout.data.arrays import load_arrays
from blackout.evaluation import FeatureNetwork, Quality, cached, compare_structure, feature_network
from blackout.evaluation.bits import Tell, bits_by_time, measure_bits
from blackout.evaluation.cache import Notebook
from blackout.evaluation.config import Plan
from blackout.evaluation.splits import some
from blackout.io import SAMPLERS, checksum, sampler_for, sampler_name, write_samples
from blackout.likelihood import BitsPerDim
from blackout.model import DiffusionModel
from blackout.process import Chain, PureDeath

_CURVE_IMAGES = 64


class Measurement:
    """One model under one plan."""

    def __init__(self, model: DiffusionModel, notebook: Notebook, plan: Plan, tell: Tell) -> None:
        self.model, self.notebook, self.plan, self.tell = model, notebook, plan, tell
        self.batch = plan.batch_size or (500 if model.device.type == "cuda" else 64)
        self.key = {"model": checksum(model), "device": model.device.type, "seed": plan.seed}
        self.sampler, self.steps = sampler_for(model, plan.sampler, plan.correctors), plan.steps
        self.grid = {"grid": plan.grid} if plan.grid else {}
        by = plan.grid or model.walks_by(plan.steps)
        self.walk = {"steps": plan.steps, **({"grid": by} if by else {})}
        self.how = {"sampler": plan.sampler, "correctors": plan.correctors, **self.walk}
        # What a kill may lose: seconds of CUDA, and of a CPU, where a batch takes minutes, as little as pays.
        self.shard = max(256, self.batch) if model.device.type == "cuda" else min(32, self.batch)

    @cached_property
    def walked(self) -> DiffusionModel:
        """The model at the times of the plan."""
        return self.plan.walked(self.model)

    def network(self) -> FeatureNetwork:
        return feature_network(self.plan.features, self.plan.weights or None, self.model.device)

    def bits(self, name: str, data: Dataset, like: Dataset | None = None) -> dict[str, Any]:
        """Bits per dimension of the exact continuous-time bound; of as many data points as `like` has."""
        x, key = self._some(data, self.plan.images or len(like or data))
        number, key = len(x), {**self.key, **key, "times": self.plan.times}

        def bits(start: int, stop: int) -> NDArray[Any]:
            part = x[start:stop]
            return self.model.bits_of_each(part, self.plan.seed, num_times=self.plan.times, start_index=start).numpy()

        size = {"images": number, "times": self.plan.times}
        return measure_bits(self.notebook, name, key, number, self.batch, bits, self.tell, size)

    def bound(self, data: Dataset) -> dict[str, Any]:
        """Bits per dimension of the T steps that the sampler takes.

        A bridge adds at most ceil(y) units, so that its own bound is infinite as soon as data does otherwise; in its
        place stands the binomial leap, which takes as many steps and can go anywhere.
        """
        name = self.plan.sampler
        if name.startswith("bridge"):
            name = "binomial" if isinstance(self.model.process, PureDeath) else sampler_name(self.model, "bridge")
        if name == "binomial" and self.model.max_state is None:
            name = "poisson"
        denoise = ModelDenoiser(self.model, None)
        sampler, (x, key) = SAMPLERS[name](), self._some(data, self.plan.bound_images)
        number, key = len(x), {**self.key, **key, "sampler": name, **self.walk}

        def measure(start: int, stop: int) -> NDArray[Any]:
            part, times = x[start:stop].to(self.model.device), self.walked.walk(self.steps)
            nats = sampler.bound(denoise, self.model.process, times, part, self.plan.seed, start_index=start)
            self.tell(f"bits/dim of {self.steps} steps", stop, number)
            return nats.cpu().numpy() / (math.log(2) * part[0].numel())

        def summary() -> dict[str, Any]:
            bits = self.notebook.rows("bound", key, number, self.batch, measure)
            finite = numpy.isfinite(bits)
            mean = BitsPerDim.mean_of(torch.from_numpy(bits)) if finite.all() else None
            return {
                "mean": None if mean is None else float(mean),
                "standard_error": None if mean is None or math.isnan(mean.standard_error) else mean.standard_error,
                "infinite": float(1 - finite.mean()),
                "images": number,
                "sampler": name,
                "steps": self.steps,
            }

        return self.notebook.part("bound", key, summary)

    def draw(self, path: Path) -> dict[str, Any]:
        """Samples, in shards that survive a kill, and how fast they came."""
        plan, spent = self.plan, {"drawn": 0.0, "seconds": 0.0}
        key = {**self.key, **self.how, "samples": plan.samples}
        begun: list[tuple[float, float]] = []

        def note(done: float, total: int) -> None:
            now = time.perf_counter()
            begun[:] = begun or [(now, done)]  # the first step of the first batch warms up
            spent["drawn"], spent["seconds"] = done - begun[0][1], now - begun[0][0]
            self.tell(f"samples, {self.steps} steps", done, total)

        if _is_damaged(path):
            path.unlink()
        # Every time: where the samples are already there it returns at once, and where they are not, they are drawn.
        write_samples(
            self.walked, path, plan.samples, num_steps=self.steps, sampler=self.sampler, seed=plan.seed,
            batch_size=self.batch, shard=self.shard, progress=note,
        )  # fmt: skip

        def summary() -> dict[str, Any]:
            rate = spent["drawn"] / spent["seconds"] if spent["seconds"] > 0 else None
            return {
                "sampler": plan.sampler,
                "steps": self.steps,
                "corrector_steps": plan.correctors,
                **self.grid,
                "seed": plan.seed,
                "num": plan.samples,
                "seconds": plan.samples / rate if rate else None,
                "images_per_second": rate,
            }

        return self.notebook.part("sampling", key, summary)

    def quality(self, path: Path, reference: Dataset, network: FeatureNetwork) -> dict[str, Any]:
        """The scores of the stored samples against data."""
        key = {**self.key, **self.how, "samples": self.plan.samples, **self._against(reference, network)}

        def summary() -> dict[str, Any]:
            return self._scores(torch.from_numpy(stored(path)), reference, network)

        return self.notebook.part("quality", key, summary)

    def floor(self, test: Dataset, reference: Dataset, network: FeatureNetwork) -> dict[str, Any]:
        """The scores of held-out data, of as many as there are samples: what a perfect model would get."""
        x, key = self._some(test, self.plan.samples)
        key |= {**self._against(reference, network), "device": self.key["device"]}
        return self.notebook.part("floor", key, lambda: self._scores(x, reference, network))

    def _reference(self, data: Dataset) -> tuple[Tensor, dict[str, Any]]:
        return self._some(data, self.plan.reference or len(data))

    def _against(self, reference: Dataset, network: FeatureNetwork) -> dict[str, Any]:
        """What scores are taken against, as a key says it."""
        about = self._reference(reference)[1]
        key: dict[str, Any] = {"reference": list(about.values()), "features": network.name}
        return key if self._largest(reference) == reference.max_state else {**key, "largest": self._largest(reference)}

    def _largest(self, reference: Dataset) -> int:
        """What is white in a picture: the model's largest count, whatever the data happen to reach."""
        return self.model.max_state or reference.max_state

    def _scores(self, x: Tensor, reference: Dataset, network: FeatureNetwork) -> dict[str, Any]:
        tell, largest = self.tell, self._largest(reference)
        statistics = cached(
            network, self._reference(reference)[0], max_count=largest, batch_size=self.batch,
            callback=lambda done, total: tell("features of the data", done, total),
        )  # fmt: skip
        quality = Quality(statistics, network)
        if self.model.max_state is None:
            x = x.clamp(max=largest)
        for start in range(0, len(x), self.batch):
            quality.update(*network(x[start : start + self.batch], max_count=largest))
            tell("features of the samples", min(start + self.batch, len(x)), len(x))
        return {**dataclasses.asdict(quality.compute()), "reference": reference.name}

    def structure(self, path: Path, test: Dataset, train: Dataset | None) -> dict[str, Any]:
        """Each phase but the first, beside held-out data; and beside training data, for a rock differs by place."""
        sums = [test.checksum, None if train is None else train.checksum]
        key = {**self.key, **self.how, "samples": self.plan.samples, "data": sums}

        def summary() -> dict[str, Any]:
            x, lag = torch.from_numpy(stored(path)), min(32, min(test.x.shape[-2:]) - 1)
            sets = {"test": test, "train": train}
            return {
                f"phase_{phase}": {
                    name: dataclasses.asdict(compare_structure(x, data.x, phase, lag))
                    for name, data in sets.items()
                    if data is not None
                }
                for phase in range(1, test.max_state + 1)
            }

        return self.notebook.part("structure", key, summary)

    def bits_by_time(self, data: Dataset) -> dict[str, Any] | None:
        """Where the bits are."""
        if isinstance(self.model.process, Chain):  # which has no time between its steps
            return None
        x, key = self._some(data, min(_CURVE_IMAGES, self.plan.images or len(data)))
        return self.notebook.part(
            "bits-by-time", {**self.key, **key}, lambda: bits_by_time(self.model, x, self.plan.seed, self.tell)
        )

    def _some(self, data: Dataset, number: int) -> tuple[Tensor, dict[str, Any]]:
        """That many data points, and what a key says of them."""
        number = min(number, len(data))
        key: dict[str, Any] = {"data": data.checksum, "number": number}
        if not data.named and number < len(data):
            key["drawn"] = self.plan.seed
        return some(data, number, self.plan.seed), key


def stored(path: Path) -> NDArray[Any]:
    """Samples from the file that `write_samples` made."""
    return load_arrays(path)["x"]


def _is_damaged(path: Path) -> bool:
    try:
        return path.exists() and len(stored(path)) == 0
    except (KeyError, ValueError):
        return True
