"""Training and sampling speed of cell models against the numbers of genes and cells."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from accelerate import Accelerator

from benchmarks.timing import resident, seconds
from blackout.cells.config import CellConfig
from blackout.cells.counts import Counts
from blackout.cells.model import CountModel
from blackout.cells.read import read_counts
from blackout.data import SparseRows
from blackout.sampling import TauLeaping
from blackout.training.loop import Trainer

GENES = (1_000, 2_000, 4_000, 8_000, 16_000, 30_000)
CELLS = (1_000, 10_000, 100_000)
STEPS = 100
_POOL = 500  # different cells; larger data sets repeat them
_TYPES = 5
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Rate:
    """Speed for one number of genes and cells.

    `step_seconds` is the time of a training step, `sample_seconds` that of a batch of samples in `STEPS` steps (NaN if
    only training is timed), `peak_mib` the memory on CUDA, or the growth of the resident memory (NaN if unknown).
    """

    genes: int
    cells: int
    batch_size: int
    compiled: bool
    step_seconds: float
    sample_seconds: float
    peak_mib: float

    @property
    def train_rate(self) -> float:
        return self.batch_size / self.step_seconds

    @property
    def sample_rate(self) -> float:
        return self.batch_size / self.sample_seconds


def synthetic(cells: int, genes: int, seed: int = 0) -> Counts:
    """Generate gamma–Poisson counts of a few cell types; as in real data, about 7 % of the entries are not zero."""
    from scipy import sparse

    rng = numpy.random.default_rng(seed)
    drawn = min(cells, _POOL)
    means = 0.105 * rng.gamma(0.3, 1 / 0.3, genes) * rng.lognormal(0, 0.5, (_TYPES, genes))
    rates = means[rng.integers(_TYPES, size=drawn)] * rng.lognormal(0, 0.3, (drawn, 1))
    pool = sparse.csr_array(rng.poisson(rates * rng.standard_exponential((drawn, genes))))
    x = sparse.vstack([pool] * -(-cells // drawn), format="csr")[:cells]
    return read_counts(x, name="synthetic", empty="keep")


def by_genes(
    genes: Sequence[int] = GENES, cells: int = CELLS[0], device: torch.device = _CPU, **options: Any
) -> Iterator[Rate]:
    """Time training and sampling for each number of genes; on CUDA without and with the compiler."""
    for number in genes:
        counts = synthetic(cells, number)
        for compiled in (False, True) if device.type == "cuda" else (False,):
            yield measure(counts, device, compiled=compiled, **options)


def by_cells(
    cells: Sequence[int] = CELLS, genes: int = 2_000, device: torch.device = _CPU, **options: Any
) -> Iterator[Rate]:
    """Time training for each number of cells in memory."""
    for number in cells:
        yield measure(synthetic(number, genes), device, sampling=False, **options)


def measure(
    counts: Counts,
    device: torch.device,
    *,
    compiled: bool = False,
    sampling: bool = True,
    repeats: int = 3,
    **settings: Any,
) -> Rate:
    """Time one size with the default configuration of cells; `settings` replace fields of it."""
    config = CellConfig().replace(compile=compiled, compile_mode="reduce-overhead", **settings)
    batch_size = config.train["batch_size"]
    if compiled:
        torch.compiler.reset()  # the compiler gives up after eight networks in one process
    before = _start_of_peak(device)
    model = CountModel.for_cells(counts, config)
    step = _training(model, SparseRows(counts.x).to(device), device, repeats)
    sample = math.nan
    if sampling:
        if compiled:
            model.model.compile()
        timed = STEPS if device.type == "cuda" else min(4, STEPS)  # a few steps over all times cost as much each
        leaps = TauLeaping()

        def draw() -> None:
            model.model.sample(batch_size, timed, leaps, batch_size=batch_size)

        sample = seconds(draw, 1 if device.type == "cpu" else repeats, warmup=int(device.type == "cuda")) / timed
        sample *= STEPS
    peak = _end_of_peak(device) - before  # without memory that was in use before
    return Rate(counts.num_genes, len(counts), batch_size, compiled, step, sample, peak)


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the slope of log seconds over log size: seconds ~ size^slope."""
    x, y = numpy.log(sizes), numpy.log(seconds)
    x = x - x.mean()
    return float((x * y).sum() / (x**2).sum()) if len(x) > 1 else math.nan


def _training(model: CountModel, x: SparseRows, device: torch.device, repeats: int) -> float:
    accelerator = Accelerator(cpu=device.type == "cpu")
    trainer = Trainer(model.config.train, model.model.predictor, model.model.times, accelerator=accelerator)
    trainer.worker.module.train()

    def work() -> None:
        trainer.update(x, None)
        trainer.step += 1

    taken = seconds(work, repeats, warmup=1 if device.type == "cpu" else 5)
    model.model.to(device).predictor.eval()
    return taken


def _start_of_peak(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        return 0.0
    try:
        Path("/proc/self/clear_refs").write_text("5")  # Linux: reset the peak
    except OSError:
        return math.nan
    return resident("VmRSS")


def _end_of_peak(device: torch.device) -> float:
    return torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else resident("VmHWM")
