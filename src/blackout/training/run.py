"""`train`: a model under a complete configuration."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from blackout.data import SparseRows
from blackout.process import remaining_tilt
from blackout.process.data import check_data
from blackout.sampling.padding import sequence_lengths
from blackout.training.config import TrainConfig
from blackout.training.estimate import check_training_memory
from blackout.training.folder import check_same_process, check_same_run
from blackout.training.history import TrainingRun
from blackout.training.initial import Start
from blackout.training.loop import Diverged, Listener, Report, Trainer, default_accelerator
from blackout.training.tracking import tracked
from blackout.training.validation import Validation

if TYPE_CHECKING:
    from blackout.model import DiffusionModel


def train(
    model: "DiffusionModel",
    config: TrainConfig,
    x: Tensor | SparseRows,
    labels: Tensor | None = None,
    folder: Path | None = None,
    listener: Listener | None = None,
    validation: Validation | None = None,
) -> list[Report]:
    """Train a model in place; the averaged weights are kept, the best of them if there is a validation.

    A run that diverges leaves the weights as they were. A run in a folder resumes from its last checkpoint. The record
    of the model gets the run and the tilt of the data. Returns the reports of this piece of the run.
    """
    predictor, before_runs = model.predictor, model.record.runs
    if isinstance(x, SparseRows):
        points = x.totals()  # pure death: the total count is enough
    else:
        x = points = check_data(x, model.process, model.shape)
    tilt, lengths = remaining_tilt(model.process, points, model.times.t_end), sequence_lengths(model.process, points)
    model.record = replace(model.record, tilt=tilt, lengths=lengths, fitted=None)  # other weights need other times
    model.shape = model.shape or tuple(x.shape[1:])
    labels = labels if model.num_classes or predictor.conditions else None

    def describe(runs: tuple[TrainingRun, ...]) -> dict[str, Any]:
        model.record = replace(model.record, runs=runs)
        return model.config() if folder is not None or config.run.init else {}

    if folder is not None:
        check_same_run(config, folder)
    description, start = describe(before_runs), Start.find(config.run.init, folder, before_runs)
    if folder is not None:
        check_same_process(description["process"], folder)
    device = default_accelerator().device
    check_training_memory(predictor, model.shape, config, device)
    before = copy.deepcopy(predictor.state_dict())
    start.load(predictor, description)
    trainer = Trainer(config, predictor, model.times, folder, lambda run: describe((*start.runs, run)))
    trainer.validation, kept = validation, trainer.averaged.state_dict()
    predictor.train()
    try:
        with tracked(config, folder, listener) as listener:
            trainer.run(x, labels, listener)
    except Diverged:
        kept, validation = before, None
        describe(before_runs)
        raise
    finally:
        best = None if validation is None else validation.weights
        predictor.load_state_dict(kept if best is None else best)
        predictor.eval()
    return trainer.reports
