"""Training of a model of cells with validation: which cells, their score, and the history of the run."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
from accelerate.utils import broadcast_object_list
from numpy.typing import NDArray
from torch import Tensor

from blackout.bits import mean_bits
from blackout.cells.config import CellConfig
from blackout.cells.counts import Counts
from blackout.cells.covariates import Covariates
from blackout.cells.folder import read_history
from blackout.cells.library import patterns
from blackout.cells.names import optional
from blackout.data import SparseRows
from blackout.evaluation.splits import random_subset
from blackout.io.models import write_description
from blackout.model import DiffusionModel
from blackout.network import Predictor
from blackout.progress import is_first
from blackout.training import run as training
from blackout.training.loop import Listener
from blackout.training.validation import Validation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS = ("step", "loss", "bits_per_dim", "validation", "learning_rate", "seconds")
_FEWEST, _MOST = 20, 256  # cells of a validation
_ENOUGH, _FITTED = 200, 64  # cells from which on observation times are fitted, and to how many
_TIMES, _BATCH = 4, 32  # of each cell, and cells at a time: a small part of the data is dense at any time


def train(
    model: DiffusionModel,
    config: CellConfig,
    covariates: Covariates,
    cells: Counts,
    validation: Counts | None,
    folder: Path | None,
    listener: Listener | None,
) -> list[dict[str, Any]]:
    """Train on cells, some of which are kept for validation unless there are others; returns the reports.

    Observation times for few steps are then fitted to the model and to some of the cells.
    """
    options, run = config.train, config.train.run
    if validation is None:
        chosen = choose_cells(covariates.read(cells).codes, config.validation, run.seed)
        if chosen.any():
            cells, validation = cells.take(~chosen), cells.take(chosen)

    def rows(part: Counts) -> tuple[SparseRows, Tensor | None]:
        return SparseRows(part.x), covariates.encode_cells(part)

    check = None
    if validation is not None:
        check = validation_of(model, *rows(validation), every=run.log_every, patience=config.patience)
    reports = training.train(model, options, *rows(cells), folder, listener, check)
    if len(cells) >= _ENOUGH:
        _fit_times(model, *rows(cells.take(random_subset(len(cells), _FITTED, run.seed))), run.seed)
        if folder is not None and is_first():
            write_description(model, folder)
    of_all_pieces = [] if folder is None else read_history(folder)
    return of_all_pieces or [vars(report) for report in reports]


def _fit_times(model: DiffusionModel, x: SparseRows, labels: Tensor | None, seed: int) -> None:
    """Fit observation times in the first of several processes, which sends them to the others."""
    found = [model.record.fitted]
    if is_first():
        found = [model.fit_times(x[:].long(), seed, label=labels).record.fitted]
    model.record = replace(model.record, fitted=broadcast_object_list(found)[0])


def choose_cells(codes: NDArray[Any], share: float, seed: int) -> NDArray[numpy.bool_]:
    """Which cells validate: a share of each combination of codes, (cells, columns), at random, at most 256.

    None if there would be fewer than 20. No value loses all of its cells: one of fewer than 1 / share cells keeps them.
    """
    rng, chosen = numpy.random.default_rng(seed), numpy.zeros(len(codes), bool)
    order = numpy.concatenate([rng.permutation(rows) for _, rows in patterns(codes)])
    turns = numpy.floor(share * numpy.arange(len(codes) + 1) + rng.random())
    chosen[order[numpy.diff(turns) > 0]] = True
    for column in codes.T:
        chosen &= share * numpy.bincount(column)[column] >= 1
    rows = rng.permutation(numpy.flatnonzero(chosen))
    chosen[rows[_MOST if len(rows) >= _FEWEST else 0 :]] = False
    return chosen


def validation_of(
    model: DiffusionModel, rows: SparseRows, labels: Tensor | None, *, every: int, patience: int
) -> Validation:
    """Bits per dimension of these cells, with the same times and noise at every validation."""

    def score(predictor: Predictor) -> float:
        inner = model.with_predictor(predictor)

        def each(part: slice) -> Tensor:
            label = None if labels is None else labels[part]
            return inner.bits_of_each(rows[part].long(), label=label, num_times=_TIMES, start_index=part.start)

        return float(mean_bits(each, len(rows), inner.bound_kind(), _BATCH))

    return Validation(score, every, patience)


def history_frame(rows: Sequence[dict[str, Any]]) -> Any:
    """Reports as a pandas DataFrame, one row for each."""
    frame = optional("pandas", "the history of a run").DataFrame(list(rows), columns=list(_COLUMNS))
    return frame.astype({"validation": float}).set_index("step")


def plot_history(rows: Sequence[dict[str, Any]]) -> "Figure":
    """Bits per dimension of the training batches and of the validation, against the step."""
    from blackout.figures.charts import curves

    frame = history_frame(rows)
    known = {"training": frame["bits_per_dim"].dropna(), "validation": frame["validation"].dropna()}
    series = {name: (values.index.tolist(), values.tolist()) for name, values in known.items() if len(values)}
    return curves(series, xlabel="step", ylabel="bits/dim", logx=True)
