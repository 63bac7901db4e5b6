"""write_samples: from a model to files, in shards, so that a large job survives a kill and is shared by processes."""

import functools
import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from blackout import validate
from blackout.classes import check_label
from blackout.io import images as files
from blackout.io.shards import Shards
from blackout.model import DiffusionModel
from blackout.network.law import LawHead
from blackout.process.matrix import MatrixProcess
from blackout.sampling import BinomialBridge, Exact, PosteriorBridge, Sampler, TauLeaping, condition

Progress = Callable[[float, int], None]  # samples so far, in parts of a sample too, and in all

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
    """Refuse more steps than a model has times."""
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
    known: Tensor | None = None,
    mask: Tensor | None = None,
    resample: int | None = None,
    volume: int | None = None,
    batch_size: int = 64,
    shard: int = 256,
    progress: Progress | None = None,
) -> Path:
    """Draw `num` samples and write them: a grid (.png), arrays (.npz), else a folder of pictures.

    The work is done in shards of `shard` samples, kept in `OUT.shards` until all are there. The same call again goes
    on where a killed one stopped; several processes that make the same call at once share the shards. The samples
    depend on the seed alone. `label` and what follows it are those of `DiffusionModel.sample`; with `volume`, cubes of
    this side are drawn by `DiffusionModel.sample_volume`, one to a shard, and `batch_size` counts slices.
    """
    out, sampler = Path(out), sampler or sampler_for(model, "bridge")
    num, shard = validate.integer("num", num, 1), validate.integer("shard", shard, 1)
    steps = len(model.times) if num_steps is None else validate.integer("num_steps", num_steps, 1)
    if validate.integer("seed", seed, 0) >= 2**63:
        raise ValueError(f"seed must be less than 2^63, got {seed}")
    validate.integer("batch_size", batch_size, 1)
    label = check_label(label, guidance, num, model.num_classes)
    sampler.check(model.process)
    if model.shape is None:
        raise ValueError("the model does not know the shape of its data yet: fit it, or give `shape`")
    condition(sampler, model.process, (num, *model.shape), known, mask, resample)
    if volume is not None:
        given = {"label": label is not None, "known": known is not None}
        _check_volume(model, out, volume, sampler, [name for name, there in given.items() if there])
        shard = 1
    job = {
        "model": checksum(model),
        "seed": seed,
        "steps": min(steps, len(model.times)),
        "sampler": _describe(sampler),
        "label": _digest(label) if isinstance(label, Tensor) else label,
        "num": num,
        "shard": shard,
        "device": model.device.type,  # another kind of device rounds differently
    }
    if by := model.walks_by(steps):
        job["times"] = by
    if guidance != 1:
        job["guidance"] = float(guidance)
    if known is not None and mask is not None:
        job |= {"known": _digest(known, mask), "resample": resample}
    if volume is not None:
        job["volume"] = volume
    files.check(out, model.shape, job)
    work = out.with_name(f"{out.name}.shards")
    options: dict[str, Any] = {"num_steps": steps, "seed": seed, "batch_size": batch_size}
    draw: Callable[..., Tensor] = model.sample
    each: dict[str, Any] = {}
    if volume is None:
        options |= {"sampler": sampler, "guidance": guidance, "resample": resample}
        each = {"label": label, "known": known, "mask": mask}
    else:
        draw = functools.partial(model.sample_volume, size=volume)
    with Shards(work, job, count=-(-num // shard)) as shards:
        if not files.is_finished(out, job):
            shards.fill(_Draw(model=model, draw=draw, shards=shards, options=options, each=each, progress=progress))
        shards.finish(lambda: _assemble(shards, out, model.max_state))
    if progress is not None:
        progress(num, num)
    return out


def _check_volume(model: DiffusionModel, out: Path, volume: int, sampler: Sampler, given: list[str]) -> None:
    model.volume_sides(volume)
    if given:
        raise ValueError(f"{given[0]} is not for volumes, which are drawn freely")
    if type(sampler) is not PosteriorBridge or sampler.corrector_steps:
        raise ValueError(f"volumes are drawn by the sampler 'posterior', without correctors, got {_describe(sampler)}")
    if out.suffix != ".npz":
        raise ValueError(f"volumes are written as arrays, to a file .npz, got {out}")


def rows_of(value: Any, name: str, model: DiffusionModel, num: int, first: int, size: int) -> Any:
    """Of a label, or of what is known, the part for `size` of all `num` samples; all of it, where it is for all."""
    whole = 0 if name == "label" else len(model.shape or ())
    own = isinstance(value, Tensor) and value.dim() == whole + 1 and len(value) == num
    return value[first : first + size] if own else value


def checksum(model: DiffusionModel) -> str:
    """SHA-256 of all that determines the samples of a seed: weights, times, how time enters, shape, largest count."""
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


@dataclass(kw_only=True)
class _Draw:
    """One shard after another, telling of each step."""

    model: DiffusionModel
    draw: Callable[..., Tensor]
    shards: Shards
    options: dict[str, Any]
    each: dict[str, Any]
    """Options that may have a row for each sample."""
    progress: Progress | None
    _done: float = 0.0

    def __call__(self, number: int) -> NDArray[Any]:
        num, shard = self.shards.job["num"], self.shards.job["shard"]
        rows = [min(shard, num - k * shard) for k in range(self.shards.count)]
        self._done = num - sum(rows[k] for k in self.shards.pending())
        own = {
            name: rows_of(value, name, self.model, num, number * shard, rows[number])
            for name, value in self.each.items()
        }
        x = self.draw(rows[number], start_index=number * shard, callback=self._tell, **self.options, **own)
        states = self.model.process.num_states  # a mask that is left over is a state too
        return x.cpu().numpy().astype(numpy.int64 if states is None else numpy.min_scalar_type(states - 1))

    def _tell(self, step: int, steps: int, x: Tensor) -> None:
        self._done += len(x) / steps
        if self.progress is not None:
            self.progress(self._done, self.shards.job["num"])


def _assemble(shards: Shards, out: Path, largest: int | None) -> None:
    """The output, under another name until it is whole."""
    if files.is_finished(out, shards.job):  # finished by another process, or before this call
        return
    partial = shards.folder / "output.partial"
    if largest is None and out.suffix != ".npz":
        largest = max(int(shards.read(k).max()) for k in range(shards.count))
    parts = (shards.read(k) for k in range(shards.count))
    if out.suffix == ".npz":
        files.write_arrays(partial, numpy.concatenate(list(parts)), shards.job)
    elif out.suffix == ".png":
        files.write_grid(partial, numpy.concatenate(list(parts)), largest or 1, shards.job)
    else:
        shutil.rmtree(partial, ignore_errors=True)
        files.write_folder(partial, parts, largest or 1, shards.job)
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
