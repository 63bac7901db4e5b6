"""Cell models on count tables that stay on the disk: time and memory as the number of cells grows."""

import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

from benchmarks.timing import resident

CELLS = (10_000, 100_000, 1_000_000)
_POOL = 2_000  # different cells; larger tables repeat them
_KEPT = 0.7  # of the entries of benchmarks.cells.synthetic, so that 94 % are zero
_ROWS = 20_000  # written at once


@dataclass(frozen=True)
class DiskRate:
    """Figures for one number of cells, in seconds of one core.

    `open_seconds` is the time in which the file is checked and copied, `epoch_seconds` that of reading all cells once
    in random batches, `step_seconds` that of a training step. `start_mib`, `open_mib`, `epoch_mib` and `train_mib` are
    the largest memory of the process before and after each of these: the first is that of the imported packages.
    """

    cells: int
    genes: int
    file_mib: float
    open_seconds: float
    epoch_seconds: float
    step_seconds: float
    start_mib: float
    open_mib: float
    epoch_mib: float
    train_mib: float


def write_table(path: Path, cells: int, genes: int, seed: int = 0) -> None:
    """A synthetic table as .h5ad or .zarr, in which about 94 % of the entries are zero, block by block."""
    import pandas
    from scipy import sparse

    from benchmarks.cells import synthetic
    from blackout.cells.files import write_blocks

    pool, rng = synthetic(min(cells, _POOL), genes, seed).x, numpy.random.default_rng(seed)
    pool.data = rng.binomial(pool.data, _KEPT)
    pool.eliminate_zeros()
    pool = sparse.csr_matrix(pool, dtype=numpy.float32)
    starts = range(0, cells, _ROWS)
    blocks = ({"X": pool[rng.integers(pool.shape[0], size=min(_ROWS, cells - start))]} for start in starts)
    obs = pandas.DataFrame(index=[f"cell_{k}" for k in range(cells)])
    write_blocks(path, obs, pandas.DataFrame(index=[f"gene_{k}" for k in range(genes)]), blocks)


def run(cells: Sequence[int], genes: int, kind: str, folder: Path, steps: int) -> Iterator[DiskRate]:
    """Measure each number of cells in a process of its own, on a file that is removed afterwards."""
    context = multiprocessing.get_context("spawn")
    for number in cells:
        with tempfile.TemporaryDirectory(dir=folder) as work, context.Pool(1) as writer, context.Pool(1) as reader:
            path = Path(work, f"cells.{kind}")
            writer.apply(write_table, (path, number, genes))
            yield reader.apply(measure, (path, steps))


def _clock() -> float:
    """Processor time of this process and of children that have ended: other programs do not count."""
    return time.process_time() + sum(os.times()[2:4])


def measure(path: Path, steps: int) -> DiskRate:
    """Time one file in this process, whose peak of memory is reported."""
    import torch

    from blackout.cells.config import CellConfig
    from blackout.cells.isolated import size_on_disk
    from blackout.cells.model import CountModel
    from blackout.cells.read import read_counts
    from blackout.data import SparseRows

    torch.set_num_threads(1)
    start, began = resident("VmHWM"), _clock()
    counts = read_counts(path, empty="keep", backed=True)
    opened, after_open = _clock() - began, resident("VmHWM")
    rows, config = SparseRows(counts.x), CellConfig()
    batch = config.train.optimiser.batch_size
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    began = _clock()
    for part in order.split(batch):
        rows[part]
    epoch, after_epoch = _clock() - began, resident("VmHWM")
    times: list[float] = []

    class Clock:
        def __call__(self, *_: Any) -> None:
            pass

        def stepped(self, *_: Any) -> None:
            times.append(_clock())

    model = CountModel.for_cells(counts, config.replace(steps=steps, validation=0.0))
    model.train(counts, listener=Clock())
    step = float(numpy.median(numpy.diff(times)))
    sizes: dict[str, Any] = {"cells": len(counts), "genes": counts.num_genes, "file_mib": size_on_disk(path) / 2**20}
    return DiskRate(
        **sizes, open_seconds=opened, epoch_seconds=epoch, step_seconds=step, start_mib=start, open_mib=after_open,
        epoch_mib=after_epoch, train_mib=resident("VmHWM"),
    )  # fmt: skip
