"""write_samples: from a model to files, in shards, so that a job survives a kill and several processes share it."""

import hashlib
import json
import math
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
from blackout.atomic import disk_errors, flush
from blackout.conditioning import check_label
from blackout.io import images
from blackout.io.shards import Shards, check_disk
from blackout.memory import check_memory
from blackout.model import DiffusionModel
from blackout.process import MarkovProcess
from blackout.progress import count_samples
from blackout.sampling import Sampler
from blackout.sampling.inpainting import inpainting
from blackout.times import ObservationTimes

Progress = Callable[[float, int], None]  # samples so far (a step counts as a part of a sample), and in total


def check_steps(model: DiffusionModel, steps: int | None, name: str = "steps") -> None:
    """Reject more steps than a model has observation times, and fewer than one; None: the default number."""
    if steps is not None and validate.integer(name, steps, 1) > len(model.times):
        raise ValueError(f"{name} must be at most {len(model.times)}, the model's number of times, got {steps}")


def write_samples(
    model: DiffusionModel,
    out: str | Path,
    num: int = 64,
    *,
    num_steps: int | str | None = "auto",
    sampler: Sampler | str | None = None,
    seed: int = 0,
    times: ObservationTimes | str | None = None,
    label: int | Tensor | None = None,
    guidance: float = 1.0,
    observed: Tensor | None = None,
    mask: Tensor | None = None,
    resample: int | None = None,
    volume: int | None = None,
    columns: int | None = None,
    batch_size: int = 64,
    shard: int = 256,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Generate `num` samples and write them to `out`, which is returned.

    The work is divided into shards, kept in `OUT.shards` until all are finished. The same call resumes a killed one;
    processes that make the same call at the same time share the shards. The samples depend on the seed alone, not on
    `batch_size` or `shard`, unless dropout is on.

    Parameters
    ----------
    out
        A grid of images (.png), arrays (.npz), or else a folder of images.
    num_steps, sampler, seed, times, label, guidance, observed, mask, resample
        As in `DiffusionModel.sample`.
    volume
        Generate cubes of this side from a model of slices, one per shard; `batch_size` counts slices.
    columns
        Images in a row of a grid; None: about as many as there are rows.
    batch_size, shard
        Samples per pass of the network, and per shard.
    overwrite
        Whether a file `out` that holds no samples is replaced.
    progress
        Called with the number of samples so far and in total.
    """
    out, default = Path(out), None if volume is None else "posterior"
    chosen = model.sampler(default if sampler in (None, "auto") else sampler, num_steps=num_steps)
    request = _Request(
        model, num, num_steps, chosen, seed, times, label, guidance, observed, mask, resample, volume,
        columns, batch_size, shard if volume is None else 1,
    )  # fmt: skip
    request.check(out)
    job = request.job()
    images.check_output(out, model.shape or (), job, overwrite)
    with Shards(out.with_name(f"{out.name}.shards"), job, count=-(-num // request.shard)) as shards:
        if not images.is_finished(out, job):
            shards.fill(lambda number: request.compute(shards, number, progress))
        shards.finish(lambda: _assemble(shards, out, model.max_state))
    if progress is not None:
        progress(num, num)
    return out


@dataclass
class _Request:
    """The arguments of `write_samples`."""

    model: DiffusionModel
    num: int
    num_steps: int | str | None
    sampler: Sampler
    seed: int
    times: ObservationTimes | str | None
    label: Any
    guidance: float
    observed: Tensor | None
    mask: Tensor | None
    resample: int | None
    volume: int | None
    columns: int | None
    batch_size: int
    shard: int

    def check(self, out: Path) -> None:
        """Raise ValueError before anything is written."""
        for name in ("num", "batch_size", "shard"):
            validate.integer(name, getattr(self, name), 1)
        if self.columns is not None:
            validate.integer("columns", self.columns, 1)
        validate.integer("seed", self.seed, 0, 2**63 - 1)
        model = self.model
        self.label = check_label(self.label, self.guidance, self.num, model.num_classes, model.class_names)
        if model.shape is None:
            raise ValueError("the shape of the data is not known yet: call fit, or give `shape`")
        inpainting(self.sampler, model.process, (self.num, *model.shape), self.observed, self.mask, self.resample)
        if self.volume is not None:
            self._check_volume(out)
        self._check_size(out)

    def _check_volume(self, out: Path) -> None:
        from blackout.volumes import volume_sides

        model = self.model
        volume_sides(model, self.volume)
        for name in ("label", "observed"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name} cannot be used with volume")
        if _describe(self.sampler) != _describe(model.sampler("posterior")):
            raise ValueError(f"volume needs the sampler 'posterior' without correctors, got {_describe(self.sampler)}")
        if out.suffix.lower() != ".npz":
            raise ValueError(f"out must end in .npz for volumes, got {out}")

    def _check_size(self, out: Path) -> None:
        """Raise ValueError if all samples do not fit on the disk, or, for one file, into memory."""
        sides = self.model.shape if self.volume is None else (self.volume,) * 3
        size = float(self.num) * math.prod(sides or ()) * self._dtype.itemsize
        what = f"num={self.num:,} samples"
        check_disk(what, size, out, "use a smaller num")
        if out.suffix.lower() in (".npz", ".png"):
            check_memory(what, 3 * size, "use a smaller num, or a folder as out")
        rows = min(self.batch_size, self.num)
        # A state, its random numbers and what the network is shown and returns, each in 8 bytes at most.
        step = 8.0 * rows * math.prod(self.model.shape or ()) * (8 + min(self.model.process.num_states or 1, 2048))
        check_memory(f"a batch of {rows:,} samples", step, "use a smaller batch_size", self.model.device)

    @property
    def _dtype(self) -> numpy.dtype[Any]:
        states = self.model.process.num_states  # a mask that is left over is a state, too
        return numpy.dtype(numpy.int64) if states is None else numpy.min_scalar_type(states - 1)

    def job(self) -> dict[str, Any]:
        """Everything that determines the samples, as plain JSON."""
        grid = self.model.sampling_times(self.num_steps, self.times)
        job = {
            "model": checksum(self.model),
            "seed": self.seed,
            "steps": len(grid),
            "times": self.model.sampling_rule(self.num_steps, self.times) or _digest({"times": grid.values}),
            "sampler": _describe(self.sampler),
            "label": _digest({"label": self.label}) if isinstance(self.label, Tensor) else self.label,
            "guidance": float(self.guidance),
            "num": self.num,
            "shard": self.shard,
            "device": self.model.device.type,  # another kind of device rounds differently
            "precision": str(self.model.predictor.dtype).removeprefix("torch."),
        }
        if self.observed is not None and self.mask is not None:
            job |= {"observed": _digest({"x": self.observed, "mask": self.mask}), "resample": self.resample}
        if self.model.record.sampling.dropout:
            job["dropout_batch_size"] = self.batch_size  # which decides the masks
        if self.columns is not None:
            job["columns"] = self.columns
        return job if self.volume is None else {**job, "volume": self.volume}

    def compute(self, shards: Shards, number: int, progress: Progress | None) -> NDArray[Any]:
        """The samples of one shard."""
        rows = [min(self.shard, self.num - k * self.shard) for k in range(shards.count)]
        done, start = float(self.num - sum(rows[k] for k in shards.pending())), number * self.shard
        report = count_samples((lambda done, num: None) if progress is None else progress, self.num, done)
        options: dict[str, Any] = {"num_steps": self.num_steps, "times": self.times, "seed": self.seed}
        options |= {"start_index": start, "batch_size": self.batch_size, "callback": report}
        if self.volume is not None:
            from blackout.volumes import sample_volume

            x = sample_volume(self.model, rows[number], size=self.volume, **options)
        else:
            dims = len(self.model.shape or ())
            own = {"label": (self.label, 0), "observed": (self.observed, dims), "mask": (self.mask, dims)}
            for name, (value, without) in own.items():  # may have a row per sample
                each = isinstance(value, Tensor) and value.dim() > without and len(value) == self.num
                options[name] = value[start : start + rows[number]] if each else value
            options |= {"sampler": self.sampler, "guidance": self.guidance, "resample": self.resample}
            x = self.model.sample(rows[number], **options)
        return x.cpu().numpy().astype(self._dtype)


def checksum(model: DiffusionModel) -> str:
    """SHA-256 of what a model is: weights, times, process, shape; not of its record."""
    facts = {name for name in model.record.config() if name != "fitted"}  # which no sample depends on
    try:
        described = {name: value for name, value in model.config().items() if name not in facts}
        description, values = json.dumps(described, sort_keys=True), {}
    except ValueError:  # a class or a schedule that cannot be saved: its values represent it
        description, values = repr((model.shape, model.predictor, model.process)), _process_values(model.process)
    return _digest({**model.predictor.state_dict(), "times": model.times.values, **values}, description)


def _process_values(process: MarkovProcess) -> dict[str, Tensor]:
    states = torch.arange(min(1024, process.num_states or 1024))
    times = [0.0] if process.discrete_time else torch.linspace(0.01, 20, 64, dtype=torch.float64).tolist()
    return {"rates": torch.stack([process.forward_rates(states, t) for t in times])}


def _assemble(shards: Shards, out: Path, max_state: int | None) -> None:
    """Write the output under another name, then rename it."""
    if images.is_finished(out, shards.job):  # by another process, or before this call
        return
    partial = shards.folder / "output.partial"
    if max_state is None and out.suffix.lower() != ".npz":
        max_state = max(int(shards.read(k).max()) for k in range(shards.count))
    parts = (shards.read(k) for k in range(shards.count))
    with disk_errors(out, f"the samples are kept in {shards.folder}: the same command resumes"):
        if out.suffix.lower() == ".npz":
            images.write_arrays(partial, numpy.concatenate(list(parts)), shards.job)
        elif out.suffix.lower() == ".png":
            images.write_grid(
                partial, numpy.concatenate(list(parts)), max_state or 1, shards.job, shards.job.get("columns")
            )
        else:
            shutil.rmtree(partial, ignore_errors=True)
            images.write_folder(partial, parts, max_state or 1, shards.job)
        flush(partial)
        partial.replace(out)
        flush(out.parent)


def _digest(tensors: Mapping[str, Tensor], text: str = "") -> str:
    total = hashlib.sha256(text.encode())
    for name, value in tensors.items():
        total.update(repr((name, tuple(value.shape), str(value.dtype))).encode())
        total.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def _describe(sampler: Sampler) -> str:
    options = ", ".join(f"{name}={value}" for name, value in vars(sampler).items() if not name.startswith("_"))
    return f"{type(sampler).__name__}({options})"
