"""Sampling of cells: in memory, and to a file in shards that a killed job resumes and several processes share."""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from blackout import validate
from blackout.cells.counts import integer_counts
from blackout.cells.covariates import Rows
from blackout.cells.files import STORES, check_output, is_finished, write_blocks, write_npz
from blackout.cells.names import optional
from blackout.cells.read import to_anndata
from blackout.cells.totals import GivenTotal
from blackout.io import Shards, checksum
from blackout.memory import check_memory

if TYPE_CHECKING:
    from blackout.cells.model import CountModel

_AT_ONCE = 16  # shards in memory while the file is assembled


@dataclass
class CellSamples:
    """Cells to be sampled: the arguments of `CountModel.sample`, checked, and what each cell is conditioned on."""

    model: "CountModel"
    num: int
    _: KW_ONLY
    label: Any = None
    batch: Any = None
    covariates: Any = None
    guidance: float = 1.0
    library: Any = None
    """None, or after the checks the library size of each cell."""
    num_steps: Any = "auto"
    sampler: Any = None
    times: Any = None
    seed: int = 0
    start_index: int = 0
    rows: Rows = field(init=False)

    def __post_init__(self) -> None:
        for name in ("num", "start_index", "seed"):
            setattr(self, name, validate.integer(name, getattr(self, name), 0))
        inner, known, unlabelled = self.model.model, self.model.covariates, self.model.config.allow_unlabelled
        self.guidance = known.check_guidance(self.guidance, unlabelled)
        end = self.start_index + self.num
        check_memory(f"num={self.num} after start_index={self.start_index}", 32 * end, "sample fewer at once")
        uniform = numpy.random.default_rng(self.seed).random((end, 4))[self.start_index :]
        self.rows = known.sample(self.num, self.label, self.batch, self.covariates, uniform[:, :2])
        if not unlabelled and (self.rows.codes < 0).any():
            raise ValueError("label and batch must be known for a model trained with label_dropout=0, got None")
        if self.guidance == 0:
            self.rows = known.without_labels(self.rows)
        self.library = known.sample_library(self.library, self.rows, uniform[:, 2:])
        self.sampler = inner.sampler(self.sampler)
        self.times = inner.sampling_times(self.num_steps, self.times)
        self.num_steps = len(self.times)

    def draw(
        self, start: int, stop: int, batch_size: int, callback: Callable[[int, int, Tensor], None] | None = None
    ) -> Any:
        """Cells number `start` to `stop` - 1, an int64 csr matrix of shape (stop - start, genes)."""
        library = None if self.library is None else self.library[start:stop]
        sampler = self.sampler if library is None else GivenTotal(self.sampler, library)
        rows = self.rows.take(slice(start, stop))
        x = self.model.model.sample(
            stop - start, self.num_steps, sampler, self.seed, times=self.times, guidance=self.guidance or 1.0,
            label=self.model.covariates.encode(rows, library), start_index=self.start_index + start,
            batch_size=batch_size, callback=callback, progress=False,
        )  # fmt: skip
        return sparse_counts(x)

    def draw_all(self, batch_size: int, callback: Callable[[int, int], None] | None = None) -> Any:
        """All cells, a batch at a time; `callback` is called with the number of cells so far and in all."""
        parts = []
        for start in range(0, max(1, self.num), validate.integer("batch_size", batch_size, 1)):
            stop = min(start + batch_size, self.num)
            parts.append(self.draw(start, stop, batch_size))
            if callback is not None:
                callback(stop, self.num)
        return sparse.vstack(parts, format="csr")

    def to_anndata(self, x: Any) -> Any:
        """The counts of all cells as AnnData."""
        obs, var = self.frames()
        return to_anndata(x, var.index, obs.index, obs)

    def frames(self) -> tuple[Any, Any]:
        """obs and var of all cells."""
        names = [f"cell_{self.start_index + k}" for k in range(self.num)]
        var = optional("pandas", "writing AnnData").DataFrame(index=list(self.model.genes))
        return self.model.covariates.obs(self.rows, self.library).set_axis(names), var

    def job(self, shard: int) -> dict[str, Any]:
        """All that determines the samples, and the cells of a shard, as JSON."""
        digest = hashlib.sha256(json.dumps(self.model.describe(), sort_keys=True).encode())
        for array in (self.rows.codes, self.rows.numbers, self.library, self.times.values.numpy()):
            digest.update(b"" if array is None else numpy.asarray(array).tobytes())
        options = ", ".join(f"{k}={value}" for k, value in vars(self.sampler).items() if not k.startswith("_"))
        return {
            "model": checksum(self.model.model),
            "cells": digest.hexdigest(),
            "seed": self.seed,
            "steps": self.num_steps,
            "sampler": f"{type(self.sampler).__name__}({options})",
            "guidance": self.guidance,
            "device": self.model.model.device.type,  # another type of device rounds differently
            "num": self.num,
            "shard": shard,
        }


def sparse_counts(x: Tensor) -> Any:
    """Sampled states as an int64 csr matrix: counts beyond int32 must not wrap before they are checked."""
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
    for name, value in (("num", num), ("batch_size", batch_size), ("shard", shard)):
        validate.integer(name, value, 1)
    out = Path(out)
    size, advice = 200.0 * num, "use a smaller num"  # a name, a class and a library size of each cell
    if not _by_blocks(out):  # all counts are held, twice: at least one in ten genes
        size, advice = size + 2.4 * num * len(model.genes), f"{advice}, or a file that ends in .h5ad or .zarr"
    check_memory(f"num={num:,} cells", size, advice)
    samples = CellSamples(model, num, seed=seed, **options)
    job = samples.job(shard)
    check_output(out, job, overwrite)
    parts = [slice(k, min(k + shard, num)) for k in range(0, num, shard)]

    def draw(number: int) -> NDArray[Any]:
        part, done = parts[number], float(num - sum(parts[k].stop - parts[k].start for k in shards.pending()))

        def report(_: int, steps: int, x: Tensor) -> None:
            nonlocal done
            done += len(x) / steps
            progress(done, num)

        return _pack(samples.draw(part.start, part.stop, batch_size, report))

    with Shards(out.with_name(f"{out.name}.shards"), job, len(parts)) as shards:
        if not is_finished(out, job):
            shards.fill(draw)
        shards.finish(lambda: _assemble(samples, parts, shards, out, job))
    progress(num, num)
    return out


def _assemble(samples: CellSamples, parts: list[slice], shards: Shards, out: Path, job: dict[str, Any]) -> None:
    """Write the file of all shards, unless another process has."""
    if is_finished(out, job):
        return
    genes, at_once = samples.model.genes, _AT_ONCE if _by_blocks(out) else len(parts)

    def blocks() -> Iterator[dict[str, Any]]:
        for first in range(0, len(parts), at_once):
            numbers = range(first, min(first + at_once, len(parts)))
            x = sparse.vstack([_unpack(shards.read(k), parts[k], len(genes)) for k in numbers], format="csr")
            checked = integer_counts(x, genes, parts[first].start)
            yield {"X": sparse.csr_matrix(checked, dtype=numpy.int32)}

    if _by_blocks(out):
        write_blocks(out, *samples.frames(), blocks(), job)
    else:
        write_npz(samples.to_anndata(next(blocks())["X"]), out, job)


def _by_blocks(out: Path) -> bool:
    """Whether a file is written some cells at a time."""
    return out.suffix.lower() in STORES


def _pack(x: Any) -> NDArray[Any]:
    """Row, column and value of each entry, shape (3, entries): arrays are stored without pickle."""
    entries = x.tocoo()
    return numpy.stack([entries.row, entries.col, entries.data]).astype(numpy.int64)


def _unpack(entries: NDArray[Any], rows: slice, genes: int) -> Any:
    row, column, value = entries
    return sparse.csr_matrix((value, (row, column)), shape=(rows.stop - rows.start, genes))
