"""write_samples: from a model to files, in shards, so that a job survives a kill and several processes share it."""

import functools
import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from blackout import validate
from blackout.classes import check_label
from blackout.io import images
from blackout.io.shards import Shards
from blackout.model import DiffusionModel
from blackout.network.law import LawHead
from blackout.process.matrix import MatrixProcess
from blackout.sampling import BinomialBridge, Exact, PosteriorBridge, Sampler, TauLeaping, condition

Progress = Callable[[float, int], None]  # samples so far (a step counts as a part of a sample), and in total

SAMPLERS: dict[str, Callable[..., Sampler]] = {
    "bridge": BinomialBridge,
    "bridge-nearest": functools.partial(BinomialBridge, "nearest"),
    "poisson": TauLeaping,
    "poisson-instantaneous": functools.partial(TauLeaping, "instantaneous"),
    "binomial": functools.partial(TauLeaping, law="binomial"),
    "exact": Exact,
    "posterior": PosteriorBridge,
}
"""Samplers by the names they have on the command line; each takes `corrector_steps`."""


def sampler_for(model: DiffusionModel, name: str, corrector_steps: int = 0) -> Sampler:
    """A sampler by name; see `sampler_name`."""
    validate.choice("sampler", name, tuple(SAMPLERS))
    return SAMPLERS[sampler_name(model, name)](corrector_steps=corrector_steps)


def sampler_name(model: DiffusionModel, name: str) -> str:
    """What `bridge` means for a model: under other processes than pure death, whatever its head allows."""
    if name != "bridge":
        return name
    return {BinomialBridge: "bridge", TauLeaping: "poisson", PosteriorBridge: "posterior"}[
        type(model.default_sampler())
    ]


def check_sampler(model: DiffusionModel, name: str, corrector_steps: int = 0) -> None:
    """Refuse a sampler that cannot walk back the process of a model, or needs more than its head gives."""
    sampler_for(model, name, corrector_steps).check(model.process)
    if name == "posterior" and not isinstance(model.predictor.head, LawHead):
        raise ValueError("sampler 'posterior' needs a model whose head gives a law over X_0")


def check_steps(model: DiffusionModel, steps: int) -> None:
    """Reject more steps than a model has observation times."""
    if steps > len(model.times):
        raise ValueError(f"steps must be at most {len(model.times)}, the model's number of times, got {steps}")


def write_samples(
    model: DiffusionModel,
    out: str | Path,
    num: int = 64,
    *,
    num_steps: int | None = 250,
    sampler: Sampler | None = None,
    seed: int = 0,
    label: int | Tensor | None = None,
    guidance: float = 1.0,
    observed: Tensor | None = None,
    mask: Tensor | None = None,
    resample: int | None = None,
    volume: int | None = None,
    batch_size: int = 64,
    shard: int = 256,
    progress: Progress | None = None,
) -> Path:
    """Generate `num` samples and write them to files.

    The work is divided into shards, kept in `OUT.shards` until all are finished. The same call resumes a killed one;
    processes that make the same call at the same time share the shards. The samples depend on the seed alone, not on
    `batch_size` or `shard`.

    Parameters
    ----------
    model
        The model.
    out
        A grid of images (.png), arrays (.npz), or else a folder of images.
    num
        Number of samples.
    num_steps, sampler, seed, label, guidance, observed, mask, resample
        As in `DiffusionModel.sample`.
    volume
        Generate cubes of this side from a model of slices, one per shard; `batch_size` counts slices.
    batch_size
        Samples per pass of the network.
    shard
        Samples per shard.
    progress
        Called with the number of samples so far and in total.

    Returns
    -------
    Path
        `out`.
    """
    out, sampler = Path(out), sampler or sampler_for(model, "bridge")
    num, shard = validate.integer("num", num, 1), validate.integer("shard", shard, 1)
    steps = len(model.times) if num_steps is None else validate.integer("num_steps", num_steps, 1)
    if validate.integer("seed", seed, 0) >= 2**63:
        raise ValueError(f"seed must be less than 2^63, got {seed}")
    validate.integer("batch_size", batch_size, 1)
    label = check_label(label, guidance, num, model.num_classes)
    if model.shape is None:
        raise ValueError("the model has no shape of data yet: fit it, or construct it with `shape`")
    sampler.check(model.process)
    condition(sampler, model.process, (num, *model.shape), observed, mask, resample)
    job: dict[str, Any] = {
        "model": checksum(model),
        "seed": seed,
        "steps": min(steps, len(model.times)),
        "sampler": _describe(sampler),
        "label": _digest(label) if isinstance(label, Tensor) else label,
        "num": num,
        "shard": shard if volume is None else 1,
        "device": model.device.type,  # another kind of device rounds differently
        "times": model.walks_by(steps),
        "guidance": float(guidance),
    }
    common = {"num_steps": steps, "seed": seed, "batch_size": batch_size}
    if volume is not None:
        _check_volume(model, out, volume, sampler, {"label": label, "observed": observed})
        job["volume"] = volume
        work = _Work(model, functools.partial(model.sample_volume, size=volume, **common), progress)
    else:
        if observed is not None and mask is not None:
            job |= {"observed": _digest(observed, mask), "resample": resample}
        draw = functools.partial(model.sample, sampler=sampler, guidance=guidance, resample=resample, **common)
        work = _Work(
            model,
            draw,
            progress,
            {"label": (label, 0), "known": (observed, len(model.shape)), "mask": (mask, len(model.shape))},
        )
    images.check_output(out, model.shape, job)
    with Shards(out.with_name(f"{out.name}.shards"), job, count=-(-num // job["shard"])) as shards:
        if not images.is_finished(out, job):
            shards.fill(functools.partial(work, shards))
        shards.finish(lambda: _assemble(shards, out, model.max_state))
    if progress is not None:
        progress(num, num)
    return out


def _check_volume(model: DiffusionModel, out: Path, volume: int, sampler: Sampler, unused: dict[str, Any]) -> None:
    model.volume_sides(volume)
    for name, value in unused.items():
        if value is not None:
            raise ValueError(f"{name} cannot be used with volume")
    if type(sampler) is not PosteriorBridge or sampler.corrector_steps:
        raise ValueError(f"volume needs the sampler 'posterior' without correctors, got {_describe(sampler)}")
    if out.suffix != ".npz":
        raise ValueError(f"out must end in .npz for volumes, got {out}")


def checksum(model: DiffusionModel) -> str:
    """SHA-256 of everything in a model that determines the samples of a seed: weights, times, process, shape."""
    total = hashlib.sha256(_described(model).encode())
    for name, value in {**model.predictor.state_dict(), "times": model.times.values}.items():
        total.update(name.encode())
        total.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def _described(model: DiffusionModel) -> str:
    """All but the weights; of what cannot be saved, such as a schedule, as much as can be told."""
    try:
        return json.dumps(model.describe(), sort_keys=True)
    except ValueError:
        process, rates = model.process, []
        if process.schedule is not None:
            rates = process.schedule.rate(torch.linspace(0.01, 20, 64, dtype=torch.float64)).tolist()
        matrix = process.csr.data.tolist() if isinstance(process, MatrixProcess) else []
        return repr((model.shape, repr(model.predictor), repr(process), matrix, rates))


@dataclass
class _Work:
    """Computes shards and reports every step."""

    model: DiffusionModel
    sample: Callable[..., Tensor]
    progress: Progress | None
    each: dict[str, tuple[Any, int]] = field(default_factory=dict)
    """Options that may have a row per sample, with their number of dimensions without it."""
    _done: float = 0.0

    def __call__(self, shards: Shards, number: int) -> NDArray[Any]:
        num, size = shards.job["num"], shards.job["shard"]
        rows = [min(size, num - k * size) for k in range(shards.count)]
        self._done = num - sum(rows[k] for k in shards.pending())
        start = number * size
        own = {
            name: value[start : start + size]
            if isinstance(value, Tensor) and value.dim() > dims and len(value) == num
            else value
            for name, (value, dims) in self.each.items()
        }

        def report(step: int, steps: int, x: Tensor) -> None:
            self._done += len(x) / steps
            if self.progress is not None:
                self.progress(self._done, num)

        x = self.sample(rows[number], start_index=start, callback=report, **own)
        states = self.model.process.num_states  # a mask that is left over is a state, too
        return x.cpu().numpy().astype(numpy.int64 if states is None else numpy.min_scalar_type(states - 1))


def _assemble(shards: Shards, out: Path, max_state: int | None) -> None:
    """Write the output under another name, then rename it."""
    if images.is_finished(out, shards.job):  # by another process, or before this call
        return
    partial = shards.folder / "output.partial"
    if max_state is None and out.suffix != ".npz":
        max_state = max(int(shards.read(k).max()) for k in range(shards.count))
    parts = (shards.read(k) for k in range(shards.count))
    if out.suffix == ".npz":
        images.write_arrays(partial, numpy.concatenate(list(parts)), shards.job)
    elif out.suffix == ".png":
        images.write_grid(partial, numpy.concatenate(list(parts)), max_state or 1, shards.job)
    else:
        shutil.rmtree(partial, ignore_errors=True)
        images.write_folder(partial, parts, max_state or 1, shards.job)
    partial.replace(out)


def _digest(*tensors: Tensor) -> str:
    total = hashlib.sha256()
    for value in tensors:
        array = value.detach().cpu().numpy()
        total.update(repr((array.shape, array.dtype.str)).encode() + array.tobytes())
    return total.hexdigest()


def _describe(sampler: Sampler) -> str:
    options = ", ".join(f"{name}={value}" for name, value in vars(sampler).items() if not name.startswith("_"))
    return f"{type(sampler).__name__}({options})"
