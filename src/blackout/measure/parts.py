"""Measurement: the parts of an evaluation, each kept in a notebook under a key that names all it depends on."""

import dataclasses
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from blackout.classes import ModelDenoiser
from blackout.data import Dataset
from blackout.evaluation import FeatureNetwork, Quality, cached, compare_structure, feature_network
from blackout.evaluation.distances import MINIMUM
from blackout.likelihood import BitsPerDim, rate_divergence
from blackout.measure.notebook import Notebook
from blackout.measure.plan import Plan
from blackout.model import DiffusionModel
from blackout.process import Chain, PureDeath
from blackout.samples import SAMPLERS, checksum, sampler_for, sampler_name, write_samples
from blackout.streams import Streams

Tell = Callable[[str, float, float], None]  # what is being measured, how much of it is done, of how much

_CURVE_POINTS, _CURVE_IMAGES = 48, 64


class Measurement:
    """One model under one plan."""

    def __init__(self, model: DiffusionModel, notebook: Notebook, plan: Plan, tell: Tell) -> None:
        self.model, self.notebook, self.plan, self.tell = model, notebook, plan, tell
        self.batch = plan.batch_size or (500 if model.device.type == "cuda" else 64)
        self.key = {"model": checksum(model), "device": model.device.type, "seed": plan.seed}
        self.sampler = sampler_for(model, plan.sampler, plan.correctors)
        self.steps = min(plan.steps, len(model.times))

    def network(self) -> FeatureNetwork:
        return feature_network(self.plan.features, self.plan.weights or None, self.model.device)

    def bits(self, name: str, data: Dataset, like: Dataset | None = None) -> dict[str, Any]:
        """Bits per dimension of the exact continuous-time bound; of as many data points as `like` has."""
        number = min(self.plan.images or len(like or data), len(data))
        key = {**self.key, "data": data.checksum, "number": number, "times": self.plan.times}

        def bits(start: int, stop: int) -> NDArray[Any]:
            part = data.x[start:stop]
            return self.model.bits_of_each(part, self.plan.seed, num_times=self.plan.times, first=start).numpy()

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
        if name == "binomial" and self.model.largest is None:
            name = "poisson"
        denoise = ModelDenoiser(self.model, None)
        sampler, number = SAMPLERS[name](), min(self.plan.bound_images, len(data))
        key = {**self.key, "data": data.checksum, "number": number, "sampler": name, "steps": self.steps}

        def measure(start: int, stop: int) -> NDArray[Any]:
            x, times = data.x[start:stop].to(self.model.device), self.model.times.subset(self.steps)
            nats = sampler.bound(denoise, self.model.process, times, x, self.plan.seed, first=start)
            self.tell(f"bits/dim of {self.steps} steps", stop, number)
            return nats.cpu().numpy() / (math.log(2) * x[0].numel())

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
        key = {**self.key, "sampler": plan.sampler, "correctors": plan.correctors, "steps": self.steps}
        key["samples"] = plan.samples
        begun: list[tuple[float, float]] = []

        def note(done: float, total: int) -> None:
            now = time.perf_counter()
            begun[:] = begun or [(now, done)]  # the first step of the first batch warms up
            spent["drawn"], spent["seconds"] = done - begun[0][1], now - begun[0][0]
            self.tell(f"samples, {self.steps} steps", done, total)

        # Every time: where the samples are already there it returns at once, and where they are not, they are drawn.
        write_samples(
            self.model, path, plan.samples, num_steps=self.steps, sampler=self.sampler, seed=plan.seed,
            batch_size=self.batch, shard=max(256, self.batch), progress=note,
        )  # fmt: skip

        def summary() -> dict[str, Any]:
            rate = spent["drawn"] / spent["seconds"] if spent["seconds"] > 0 else None
            return {
                "sampler": plan.sampler,
                "steps": self.steps,
                "corrector_steps": plan.correctors,
                "seed": plan.seed,
                "num": plan.samples,
                "seconds": plan.samples / rate if rate else None,
                "images_per_second": rate,
            }

        return self.notebook.part("sampling", key, summary)

    def quality(self, path: Path, reference: Dataset, network: FeatureNetwork) -> dict[str, Any]:
        """The scores of the stored samples against data."""
        x0 = self._reference(reference)
        key = {**self.key, "sampler": self.plan.sampler, "correctors": self.plan.correctors, "steps": self.steps}
        key |= {"samples": self.plan.samples, "reference": [reference.checksum, len(x0)], "features": network.name}

        def summary() -> dict[str, Any]:
            return self._scores(torch.from_numpy(stored(path)), reference, network)

        return self.notebook.part("quality", key, summary)

    def floor(self, test: Dataset, reference: Dataset, network: FeatureNetwork) -> dict[str, Any]:
        """The scores of held-out data, of as many as there are samples: what a perfect model would get."""
        number = min(self.plan.samples, len(test))
        key = {"data": test.checksum, "number": number, "features": network.name, "device": self.key["device"]}
        key["reference"] = [reference.checksum, len(self._reference(reference))]
        return self.notebook.part("floor", key, lambda: self._scores(test.x[:number], reference, network))

    def _reference(self, data: Dataset) -> Tensor:
        x0 = data.x[: self.plan.reference or len(data)]
        if len(x0) < MINIMUM:
            raise ValueError(f"the scores need at least {MINIMUM} pictures to compare with, got {len(x0)}: give more")
        return x0

    def _scores(self, x: Tensor, reference: Dataset, network: FeatureNetwork) -> dict[str, Any]:
        tell, largest = self.tell, reference.largest
        statistics = cached(
            network, self._reference(reference), max_count=largest, batch_size=self.batch,
            callback=lambda done, total: tell("features of the data", done, total),
        )  # fmt: skip
        quality = Quality(statistics, network)
        for start in range(0, len(x), self.batch):
            quality.update(*network(x[start : start + self.batch], max_count=largest))
            tell("features of the samples", min(start + self.batch, len(x)), len(x))
        return {**dataclasses.asdict(quality.compute()), "reference": reference.name}

    def structure(self, path: Path, test: Dataset, train: Dataset | None) -> dict[str, Any]:
        """Each phase but the first, beside held-out data; and beside training data, for a rock differs by place."""
        key = {**self.key, "sampler": self.plan.sampler, "correctors": self.plan.correctors, "steps": self.steps}
        key |= {"samples": self.plan.samples, "data": [test.checksum, None if train is None else train.checksum]}

        def summary() -> dict[str, Any]:
            x, lag = torch.from_numpy(stored(path)), min(32, min(test.x.shape[-2:]) - 1)
            sets = {"test": test, "train": train}
            return {
                f"phase_{phase}": {
                    name: dataclasses.asdict(compare_structure(x, data.x, phase, lag))
                    for name, data in sets.items()
                    if data is not None
                }
                for phase in range(1, test.largest + 1)
            }

        return self.notebook.part("structure", key, summary)

    def bits_by_time(self, data: Dataset) -> dict[str, Any] | None:
        """Where the bits are: bits per dimension for each unit of logit p, at even distances. The area is bits/dim."""
        if isinstance(self.model.process, Chain):  # which has no time between its steps
            return None
        key = {**self.key, "data": data.checksum}

        def summary() -> dict[str, Any]:
            model = self.model
            x = data.x[:_CURVE_IMAGES].to(model.device)
            grid = torch.linspace(-12, 12, _CURVE_POINTS, dtype=torch.float64, device=model.device)
            source, bits = Streams(self.plan.seed, len(x), device=model.device), []
            for k, logit_p in enumerate(grid):
                t, stretch = model.process.at_log_time((-logit_p).expand(len(x)))
                xt = model.process.sample(x, t, source)
                nats = rate_divergence(model.denoise, model.process, x.long(), xt, t) * stretch
                bits.append(float(nats.mean()) / (math.log(2) * x[0].numel()))
                self.tell("bits by time", k + 1, _CURVE_POINTS)
            return {"logit_p": grid.tolist(), "bits": bits}

        return self.notebook.part("bits-by-time", key, summary)

    def histogram(self, names: list[str]) -> dict[str, Any]:
        """How the bits of single data points spread."""
        rows = {name: numpy.load(self.notebook.folder / f"bits-{name}.npy")[:, 0] for name in names}
        edges = numpy.histogram_bin_edges(numpy.concatenate(list(rows.values())), bins=40)
        counts = {name: numpy.histogram(values, edges)[0].tolist() for name, values in rows.items()}
        return {"edges": edges.tolist(), "test": counts["test"], "train": counts.get("train")}


def stored(path: Path) -> NDArray[Any]:
    """Samples from the file that `write_samples` made."""
    with numpy.load(path, allow_pickle=False) as arrays:
        x: NDArray[Any] = arrays["x"]
    return x


def measure_bits(
    notebook: Notebook,
    name: str,
    key: dict[str, Any],
    number: int,
    batch: int,
    bits: Callable[[int, int], NDArray[Any]],
    tell: Tell,
    size: dict[str, int],
) -> dict[str, Any]:
    """Mean and standard error of the bits of `number` data points, some at a time; `bits` says them from one on."""

    def measure(start: int, stop: int) -> NDArray[Any]:
        begun = time.perf_counter()
        found = bits(start, stop)
        tell(f"bits/dim, {name}", stop, number)
        return numpy.stack([found, numpy.full(len(found), (time.perf_counter() - begun) / len(found))], 1)

    def summary() -> dict[str, Any]:
        rows = notebook.rows(f"bits-{name}", key, number, batch, measure)
        mean = BitsPerDim.mean_of(torch.from_numpy(rows[:, 0]))
        seconds = float(rows[:, 1].sum())
        return dict(finite({"mean": float(mean), "standard_error": mean.standard_error, **size, "seconds": seconds}))

    return notebook.part(f"bits-{name}", key, summary, needs=f"bits-{name}.npy")


def finite(value: Any) -> Any:
    """What JSON cannot say, an error of a single cell for one, is None."""
    if isinstance(value, dict):
        return {key: finite(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
