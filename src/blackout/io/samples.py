"""write_samples: from a model to files, in shards, so that a job survives a kill and several processes share it."""

import functools
import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from blackout import validate
from blackout.conditioning import check_label
from blackout.io import images
from blackout.io.shards import Shards
from blackout.model import DiffusionModel
from blackout.process import MarkovProcess
from blackout.sampling import Sampler
from blackout.sampling.inpainting import inpainting
from blackout.times import ObservationTimes

Progress = Callable[[float, int], None]  # samples so far (a step counts as a part of a sample), and in total


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
    sampler: Sampler | str | None = None,
    seed: int = 0,
    times: ObservationTimes | str | None = None,
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
    """Generate `num` samples and write them to `out`, which is returned.

    The work is divided into shards, kept in `OUT.shards` until all are finished. The same call resumes a killed one;
    processes that make the same call at the same time share the shards. The samples depend on the seed alone, not on
    `batch_size` or `shard`.

    Parameters
    ----------
    out
        A grid of images (.png), arrays (.npz), or else a folder of images.
    num_steps, sampler, seed, times, label, guidance, observed, mask, resample
        As in `DiffusionModel.sample`.
    volume
        Generate cubes of this side from a model of slices, one per shard; `batch_size` counts slices.
    batch_size, shard
        Samples per pass of the network, and per shard.
    progress
        Called with the number of samples so far and in total.
    """
    out, sampler = Path(out), model.sampler(sampler)
    num, shard = validate.integer("num", num, 1), validate.integer("shard", shard, 1)
    grid, seed = model.sampling_times(num_steps, times), validate.integer("seed", seed, 0, 2**63 - 1)
    validate.integer("batch_size", batch_size, 1)
    label = check_label(label, guidance, num, model.num_classes)
    if model.shape is None:
        raise ValueError("the shape of the data is not known yet: call fit, or give `shape`")
    inpainting(sampler, model.process, (num, *model.shape), observed, mask, resample)
    job: dict[str, Any] = {
        "model": checksum(model),
        "seed": seed,
        "steps": len(grid),
        "times": model.sampling_rule(num_steps, times) or _digest({"times": grid.values}),
        "sampler": _describe(sampler),
        "label": _digest({"label": label}) if isinstance(label, Tensor) else label,
        "guidance": float(guidance),
        "num": num,
        "shard": shard if volume is None else 1,
        "device": model.device.type,  # another kind of device rounds differently
    }
    common: dict[str, Any] = {"num_steps": num_steps, "times": times, "seed": seed, "batch_size": batch_size}
    if volume is not None:
        work = _volume_work(model, out, volume, sampler, {"label": label, "observed": observed}, common)
        job["volume"] = volume
    else:
        if observed is not None and mask is not None:
            job |= {"observed": _digest({"observed": observed, "mask": mask}), "resample": resample}
        common |= {"sampler": sampler, "guidance": guidance, "resample": resample}
        dims = len(model.shape)
        each = {"label": (label, 0), "observed": (observed, dims), "mask": (mask, dims)}
        work = _Work(model, functools.partial(model.sample, **common), each)
    images.check_output(out, model.shape, job)
    with Shards(out.with_name(f"{out.name}.shards"), job, count=-(-num // job["shard"])) as shards:
        if not images.is_finished(out, job):
            shards.fill(lambda number: work(shards, number, progress))
        shards.finish(lambda: _assemble(shards, out, model.max_state))
    if progress is not None:
        progress(num, num)
    return out


def checksum(model: DiffusionModel) -> str:
    """SHA-256 of everything in a model that determines the samples of a seed: weights, times, process, shape."""
    try:
        description, values = json.dumps(model.config(), sort_keys=True), {}
    except ValueError:  # a class or a schedule that cannot be saved: its values represent it
        description, values = repr((model.shape, model.predictor, model.process)), _process_values(model.process)
    return _digest({**model.predictor.state_dict(), "times": model.times.values, **values}, description)


def _process_values(process: MarkovProcess) -> dict[str, Tensor]:
    values = {"rates": process.forward_rates(torch.arange(min(1024, process.num_states or 1024)))}
    if process.schedule is not None:
        values["schedule"] = process.schedule.rate(torch.linspace(0.01, 20, 64, dtype=torch.float64))
    return values


def _volume_work(
    model: DiffusionModel,
    out: Path,
    volume: int,
    sampler: Sampler,
    unused: dict[str, Any],
    options: dict[str, Any],
) -> "_Work":
    from blackout.volumes import sample_volume, volume_sides

    volume_sides(model, volume)
    for name, value in unused.items():
        if value is not None:
            raise ValueError(f"{name} cannot be used with volume")
    if _describe(sampler) != _describe(model.sampler("posterior")):
        raise ValueError(f"volume needs the sampler 'posterior' without correctors, got {_describe(sampler)}")
    if out.suffix != ".npz":
        raise ValueError(f"out must end in .npz for volumes, got {out}")
    return _Work(model, functools.partial(sample_volume, model, size=volume, **options), {})


@dataclass
class _Work:
    """Computes shards and reports every step."""

    model: DiffusionModel
    sample: Callable[..., Tensor]
    each: dict[str, tuple[Any, int]]
    """Options that may have a row per sample, with their number of dimensions without it."""

    def __call__(self, shards: Shards, number: int, progress: Progress | None) -> NDArray[Any]:
        num, size = shards.job["num"], shards.job["shard"]
        rows = [min(size, num - k * size) for k in range(shards.count)]
        start, done = number * size, float(num - sum(rows[k] for k in shards.pending()))
        own = {
            name: value[start : start + size]
            if isinstance(value, Tensor) and value.dim() > dims and len(value) == num
            else value
            for name, (value, dims) in self.each.items()
        }

        def report(step: int, steps: int, x: Tensor) -> None:
            nonlocal done
            done += len(x) / steps
            if progress is not None:
                progress(done, num)

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


def _digest(tensors: Mapping[str, Tensor], text: str = "") -> str:
    total = hashlib.sha256(text.encode())
    for name, value in tensors.items():
        array = value.detach().cpu().contiguous().numpy()
        total.update(repr((name, array.shape, array.dtype.str)).encode() + array.tobytes())
    return total.hexdigest()


def _describe(sampler: Sampler) -> str:
    options = ", ".join(f"{name}={value}" for name, value in vars(sampler).items() if not name.startswith("_"))
    return f"{type(sampler).__name__}({options})"
