"""Bits per dimension: of data points one by one, by the time at which they are paid, and how they spread."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from blackout.evaluation.cache import Notebook
from blackout.likelihood import BitsPerDim, rate_divergence
from blackout.model import DiffusionModel
from blackout.streams import Streams

Tell = Callable[[str, float, float], None]  # what is being measured, how much of it is done, of how much

_CURVE_POINTS = 48


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


def bits_by_time(model: DiffusionModel, x: Tensor, seed: int, tell: Tell) -> dict[str, Any]:
    """Bits per dimension for each unit of logit p, at even distances: the area under the curve is bits/dim."""
    x = x.to(model.device)
    grid = torch.linspace(-12, 12, _CURVE_POINTS, dtype=torch.float64, device=model.device)
    source, bits = Streams(seed, len(x), device=model.device), []
    for k, logit_p in enumerate(grid):
        t, stretch = model.process.at_log_time((-logit_p).expand(len(x)))
        xt = model.process.sample(x, t, source)
        nats = rate_divergence(model.denoise, model.process, x.long(), xt, t) * stretch
        bits.append(float(nats.mean()) / (math.log(2) * x[0].numel()))
        tell("bits by time", k + 1, _CURVE_POINTS)
    return {"logit_p": grid.tolist(), "bits": bits}


def spread(folder: Path, names: list[str]) -> dict[str, Any]:
    """How the bits of single data points spread, from the files that `measure_bits` left; infinite ones left out."""
    bits = {name: numpy.load(folder / f"bits-{name}.npy")[:, 0] for name in names}
    rows = {name: values[numpy.isfinite(values)] for name, values in bits.items()}
    edges = numpy.histogram_bin_edges(numpy.concatenate(list(rows.values())), bins=40)
    counts = {name: numpy.histogram(values, edges)[0].tolist() for name, values in rows.items()}
    return {"edges": edges.tolist(), "test": counts["test"], "train": counts.get("train")}


def finite(value: Any) -> Any:
    """What JSON cannot say, an error of a single cell for one, is None."""
    if isinstance(value, dict):
        return {key: finite(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
