"""Sampling of cells: in memory, and to a file in shards that a killed job resumes and several processes share."""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray
from torch import Tensor

from blackout import validate
from blackout.cells.config import STEPS
from blackout.cells.counts import integer_counts, stack
from blackout.cells.covariates import Covariates, Rows
from blackout.cells.names import optional
from blackout.cells.read import to_anndata
from blackout.cells.totals import GivenTotal
from blackout.memory import check_memory
from blackout.model import DiffusionModel
from blackout.sampling import Sampler
from blackout.sampling.choice import Times
from blackout.times import ObservationTimes

if TYPE_CHECKING:
    from blackout.cells.model import CountModel

_AT_ONCE = 16  # shards in memory while the file is assembled


@dataclass(frozen=True, kw_only=True)
class CellSamples:
    """Cells to be sampled: their labels and library sizes, and the sampler."""

    model: DiffusionModel
    genes: tuple[str, ...]
    covariates: Covariates
    rows: Rows
    library: NDArray[Any] | None
    guidance: float
    num_steps: int
    sampler: Sampler
    times: ObservationTimes
    seed: int
    start_index: int

    @staticmethod
    def of(
        model: "CountModel",
        num: int,
        *,
        label: Any = None,
        batch: Any = None,
        covariates: Any = None,
        guidance: float = 1.0,
        library: Any = None,
        num_steps: int = STEPS,
        sampler: Sampler | str | None = None,
        times: Times = None,
        seed: int = 0,
        start_index: int = 0,
    ) -> "CellSamples":
        """The cells that `CountModel.sample` with these arguments samples."""
        num, start_index = validate.integer("num", num, 0), validate.integer("start_index", start_index, 0)
        num_steps, seed = validate.integer("num_steps", num_steps, 1), validate.integer("seed", seed, 0)
        inner, known = model.model, model.covariates
        scale = known.check_guidance(guidance, model.config.allow_unlabelled)
        check_memory(f"num={num} after start_index={start_index}", 32 * (start_index + num), "sample fewer at once")
        uniform = numpy.random.default_rng(seed).random((start_index + num, 4))[start_index:]
        rows = known.sample(num, label, batch, covariates, uniform[:, :2])
        if not model.config.allow_unlabelled and (rows.codes < 0).any():
            raise ValueError("label and batch must be known for a model trained with label_dropout=0, got None")
        rows = known.without_labels(rows) if scale == 0 else rows
        return CellSamples(
            model=inner, genes=model.genes, covariates=known, rows=rows,
            library=known.sample_library(library, rows, uniform[:, 2:]), guidance=scale,
            num_steps=num_steps, sampler=inner.sampler("poisson" if sampler is None else sampler),
            times=inner.sampling_times(num_steps, times), seed=seed, start_index=start_index,
        )  # fmt: skip

    def draw(
        self, start: int, stop: int, batch_size: int, callback: Callable[[int, int, Tensor], None] | None = None
    ) -> Any:
        """Cells number `start` to `stop` - 1, an int64 csr matrix of shape (stop - start, genes)."""
        library = None if self.library is None else self.library[start:stop]
        sampler = self.sampler if library is None else GivenTotal(self.sampler, library)
        rows = self.rows.take(slice(start, stop))
        x = self.model.sample(
            stop - start, self.num_steps, sampler, self.seed, times=self.times, guidance=self.guidance or 1.0,
            label=self.covariates.encode(rows, library), start_index=self.start_index + start,
            batch_size=batch_size, callback=callback, progress=False,
        )  # fmt: skip
        return sparse_counts(x)

    def to_anndata(self, x: Any) -> Any:
        """The counts of all cells as AnnData."""
        obs, _ = self.frames()
        return to_anndata(x, self.genes, obs.index, obs)

    def frames(self) -> tuple[Any, Any]:
        """obs and var of all cells."""
        names = [f"cell_{self.start_index + k}" for k in range(len(self.rows))]
        var = optional("pandas", "writing AnnData").DataFrame(index=list(self.genes))
        return self.covariates.obs(self.rows, self.library).set_axis(names), var


def sparse_counts(x: Tensor) -> Any:
    """Sampled states as an int64 csr matrix: counts beyond int32 must not wrap before they are checked."""
    from scipy import sparse

    return sparse.csr_matrix(x.cpu().numpy())


def write_samples(
    model: "CountModel",
    out: str | Path,
    num: int,
    *,
    seed: int = 0,
    batch_size: int = 256,
    shard: int = 256,
    overwrite: bool = False,
    progress: Callable[[float, int], None] = lambda done, total: None,
    **options: Any,
) -> Path:
    """Sample cells and write them to a file: .h5ad or .zarr, some cells at a time, or .npz.

    The work is divided into shards, kept in `OUT.shards` until all are finished. The same call resumes a killed job;
    processes that make the same call share its shards. The samples are those of `CountModel.sample`.

    Parameters
    ----------
    shard
        Cells in each shard.
    overwrite
        Whether an existing file is replaced, except by a job that is finished already; else ValueError.
    progress
        Called with the number of cells sampled so far (a step counts as a part of a cell), and `num`.
    **options
        label, batch, covariates, guidance, library, num_steps, sampler and times, as in `CountModel.sample`.
    """
    from scipy import sparse

    from blackout.cells.files import STORES, check_output, is_finished, write_blocks, write_npz
    from blackout.io import Shards

    for name, value in (("num", num), ("batch_size", batch_size), ("shard", shard)):
        validate.integer(name, value, 1)
    out = Path(out)
    by_blocks = out.suffix.lower() in STORES
    # A name, a class and a library size of each cell, and at least one count in ten genes, twice, if all are held.
    held = 0.0 if by_blocks else 2.4 * len(model.genes)
    advice = "use a smaller num" if by_blocks else "use a smaller num, or a file that ends in .h5ad or .zarr"
    check_memory(f"num={num:,} cells", num * (200 + held), advice)
    samples = CellSamples.of(model, num, seed=seed, **options)
    job = _job(model, samples) | {"num": num, "shard": shard}
    out = check_output(out, job, overwrite)
    parts = [slice(k, min(k + shard, num)) for k in range(0, num, shard)]

    def draw(number: int) -> NDArray[Any]:
        part, done = parts[number], float(num - sum(parts[k].stop - parts[k].start for k in shards.pending()))

        def report(_: int, steps: int, x: Tensor) -> None:
            nonlocal done
            done += len(x) / steps
            progress(done, num)

        return _pack(samples.draw(part.start, part.stop, batch_size, report))

    def assemble() -> None:
        if is_finished(out, job):  # by another process
            return
        at_once = _AT_ONCE if by_blocks else len(parts)

        def blocks() -> Iterator[dict[str, Any]]:
            for first in range(0, len(parts), at_once):
                numbers = range(first, min(first + at_once, len(parts)))
                x = stack([_unpack(shards.read(k), parts[k], len(model.genes)) for k in numbers])
                checked = integer_counts(x, model.genes, parts[first].start)
                yield {"X": sparse.csr_matrix(checked, dtype=numpy.int32)}

        if by_blocks:
            write_blocks(out, *samples.frames(), blocks(), job)
        else:
            write_npz(samples.to_anndata(next(blocks())["X"]), out, job)

    with Shards(out.with_name(f"{out.name}.shards"), job, len(parts)) as shards:
        if not is_finished(out, job):
            shards.fill(draw)
        shards.finish(assemble)
    progress(num, num)
    return out


def _job(model: "CountModel", samples: CellSamples) -> dict[str, Any]:
    """All that determines the samples, as JSON."""
    from blackout.io import checksum

    digest = hashlib.sha256(json.dumps(model.describe(), sort_keys=True).encode())
    for array in (samples.rows.codes, samples.rows.numbers, samples.library, samples.times.values.numpy()):
        digest.update(b"" if array is None else numpy.asarray(array).tobytes())
    options = ", ".join(f"{k}={value}" for k, value in vars(samples.sampler).items() if not k.startswith("_"))
    return {
        "model": checksum(model.model),
        "cells": digest.hexdigest(),
        "seed": samples.seed,
        "steps": samples.num_steps,
        "sampler": f"{type(samples.sampler).__name__}({options})",
        "guidance": samples.guidance,
        "device": model.model.device.type,  # another type of device rounds differently
    }


def _pack(x: Any) -> NDArray[Any]:
    """Row, column and value of each entry, shape (3, entries): arrays are stored without pickle."""
    entries = x.tocoo()
    return numpy.stack([entries.row, entries.col, entries.data]).astype(numpy.int64)


def _unpack(entries: NDArray[Any], rows: slice, genes: int) -> Any:
    from scipy import sparse

    row, column, value = entries
    return sparse.csr_matrix((value, (row, column)), shape=(rows.stop - rows.start, genes))
