"""Bits per dimension of data points: mean, histogram, and contribution of each time."""

import math
import time
from collections.abc import Callable
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from blackout.bits import BitsPerDim
from blackout.evaluation.cache import Cache
from blackout.files import read_array
from blackout.likelihood import divergence_at
from blackout.model import DiffusionModel
from blackout.random import Streams

Progress = Callable[[str, float, float], None]  # name of the stage, how much of it is done, of how much

_CURVE_POINTS = 48


def bits_per_dim(
    cache: Cache,
    name: str,
    key: dict[str, Any],
    number: int,
    batch_size: int,
    compute: Callable[[int, int], NDArray[Any]],
    progress: Progress,
) -> dict[str, Any]:
    """Compute, or take from the cache, bits per dimension of `number` data points, in batches.

    Parameters
    ----------
    cache
        Bits and seconds of each data point are stored there in bits-NAME.npy.
    name, key
        Name of the result, and all that it depends on; see `Cache.get`.
    compute
        `compute(start, stop)` returns the bits of data points start, ..., stop - 1, shape (stop - start,).

    Returns
    -------
    dict
        mean, standard_error (both None if the bits of any data point are infinite), infinite (the share of these),
        num_data, seconds.
    """

    def timed(start: int, stop: int) -> NDArray[Any]:
        begin = time.perf_counter()
        bits = compute(start, stop)
        progress(f"bits/dim, {name}", stop, number)
        return numpy.stack([bits, numpy.full(len(bits), (time.perf_counter() - begin) / len(bits))], 1)

    def summary() -> dict[str, Any]:
        bits, seconds = cache.rows(f"bits-{name}", key, number, batch_size, timed).T
        mean = BitsPerDim.mean_of(torch.from_numpy(bits.copy()))
        return {
            "mean": float(mean),
            "standard_error": mean.standard_error,
            "infinite": float(1 - numpy.isfinite(bits).mean()),
            "num_data": number,
            "seconds": float(seconds.sum()),
        }

    return cache.get(f"bits-{name}", key, summary, file=f"bits-{name}.npy")


def bits_by_time(model: DiffusionModel, x: Tensor, seed: int, progress: Progress) -> dict[str, Any]:
    """Compute bits per dimension per unit of logit p on an even grid; the area under this curve is bits/dim."""
    x = x.to(model.device)
    grid = torch.linspace(-12, 12, _CURVE_POINTS, dtype=torch.float64, device=model.device)
    denoise, source, bits = model.denoiser(), Streams(seed, len(x), device=model.device), []
    for k, logit_p in enumerate(grid):
        t, stretch = model.process.at_log_time((-logit_p).expand(len(x)))
        xt = model.process.sample(x, t, source)
        nats = divergence_at(denoise, model.process, x.long(), xt, t) * stretch
        bits.append(float(nats.mean()) / (math.log(2) * x[0].numel()))
        progress("bits by time", k + 1, _CURVE_POINTS)
    return {"logit_p": grid.tolist(), "bits": bits}


def bits_histogram(cache: Cache, names: list[str]) -> dict[str, Any] | None:
    """Return histograms, over common bins, of the finite bits that `bits_per_dim` stored under `names`, if any."""
    if not names:
        return None
    bits = {name: read_array(cache.folder / f"bits-{name}.npy")[:, 0] for name in names}
    bits = {name: values[numpy.isfinite(values)] for name, values in bits.items()}
    edges = numpy.histogram_bin_edges(numpy.concatenate(list(bits.values())), bins=40)
    counts = {name: numpy.histogram(values, edges)[0].tolist() for name, values in bits.items()}
    return {"edges": edges.tolist(), **counts}
