"""`distill`: a student of a trained model."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from blackout import validate
from blackout.data import SparseRows
from blackout.distillation.config import DistillConfig
from blackout.distillation.loop import Distiller, Teacher
from blackout.labels import check_training_labels
from blackout.model import DiffusionModel
from blackout.network import Predictor
from blackout.network.head import Observation
from blackout.network.student import student_parts
from blackout.process.data import check_data
from blackout.times import ObservationTimes
from blackout.training.config import TrainConfig
from blackout.training.estimate import check_training_memory
from blackout.training.folder import check_same_run
from blackout.training.history import TrainingRun
from blackout.training.loop import Listener, default_accelerator
from blackout.training.tracking import tracked
from blackout.training.worker import Worker


def distill(
    model: DiffusionModel,
    x: Any,
    labels: Any = None,
    *,
    num_steps: int = 8,
    steps: int = 1000,
    batch_size: int = 64,
    times: ObservationTimes | str | None = None,
    out: str | Path | None = None,
    listener: Callable[..., None] | None = None,
    **overrides: Any,
) -> DiffusionModel:
    """Train a student that samples in few steps, from a model under pure death that predicts the mean of X_0.

    Parameters
    ----------
    model
        The teacher, which stays as it is.
    x, labels
        The data that it was trained on, integers of shape (n, ...), and classes for a conditional model.
    num_steps, times
        Steps of the student, and where they are: `ObservationTimes`, a name of `TIME_RULES`, or None: `student_times`.
    steps, batch_size
        Updates of the student, and data points of each.
    out, listener
        A run folder, from which the same call resumes; a function of each `Report` and the running `Distiller`.
    **overrides
        Other fields of `DistillConfig`.

    Returns
    -------
    DiffusionModel
        The student with averaged weights. `student.sample(n)` draws `num_steps` steps at its own times.

    Examples
    --------
    >>> import blackout as bo
    >>> x = torch.randint(0, 5, (64, 3))
    >>> teacher = bo.DiffusionModel.for_data(x, bo.PureDeath(4), width=8, blocks=1).fit(x, steps=2)
    >>> bo.distill(teacher, x, num_steps=2, steps=2).sample(3).shape
    torch.Size([3, 3])
    """
    rule = times if isinstance(times, str) else ""
    own = {
        "log_every": min(50, validate.integer("steps", steps, 1)),
        "learning_rate": 1e-3,
        "aux_learning_rate": 3e-3,
        **overrides,
    }
    settings = DistillConfig(num_steps=num_steps, steps=steps, batch_size=batch_size, times=rule, **own)
    grid = times if isinstance(times, ObservationTimes) else None
    folder = None if out is None else validate.path("out", out)
    student = new_student(model, settings, grid)
    train_student(model, student, settings, x, labels, folder=folder, listener=listener)
    return student


def student_times(model: DiffusionModel, num_steps: int, rule: str = "") -> ObservationTimes:
    """The times of a student: those of a sample with one step more, without the first; not those fitted to the teacher.

    The first time of a model is close to zero, and a step from there changes nothing. Fitted times make up for errors
    of the teacher's steps that a student does not have.
    """
    grid = (model if rule else model.with_record(fitted=None)).sampling_times(num_steps + 1, rule or None)
    return ObservationTimes.from_values(grid.values[-num_steps:])


def new_student(
    model: DiffusionModel, settings: DistillConfig, times: ObservationTimes | None = None
) -> DiffusionModel:
    """A student with the weights of its teacher, and new ones for the noise."""
    teacher = model.predictor
    if teacher.time_input != "logit":
        raise ValueError(f"the teacher's network must take time as 'logit', got time_input={teacher.time_input!r}")
    if times is not None and len(times) != settings.num_steps:
        raise ValueError(f"times must be {settings.num_steps} times, as many as num_steps, got {len(times)}")
    network, head = student_parts(teacher, settings.seed)
    grid = student_times(model, settings.num_steps, settings.times) if times is None else times
    student = DiffusionModel(model.process, grid, network, head, "logit", model.shape)
    return student.with_record(tilt=model.record.tilt, class_names=model.class_names).with_sampling(num_steps=len(grid))


def train_student(
    model: DiffusionModel,
    student: DiffusionModel,
    settings: DistillConfig,
    x: Any,
    labels: Any = None,
    *,
    config: TrainConfig | None = None,
    name: str = "",
    folder: Path | None = None,
    listener: Listener | None = None,
) -> None:
    """Train a student in place; the averaged weights are kept, also after an interrupt.

    Parameters
    ----------
    config, name
        The teacher's configuration, for the data set in the run folder, and its name.
    """
    config = settings.train_config(config or TrainConfig().replace(max_count=model.max_state or 0))
    if not isinstance(x, SparseRows):
        x = check_data(x, model.process, model.shape)
        labels, _ = check_training_labels(labels, len(x), model.num_classes, None, model.class_names)
    labels = labels if model.num_classes or model.predictor.conditions else None
    accelerator = default_accelerator()
    check_training_memory(model.predictor, model.shape or tuple(x.shape[1:]), config, accelerator.device)
    if folder is not None:
        settings.check_same(folder, name)
        check_same_run(config, folder)
        settings.write(folder, name)

    def describe(run: TrainingRun) -> dict[str, Any]:
        student.record = replace(student.record, runs=(*model.record.runs, replace(run, init=name)))
        return {} if folder is None else student.config()

    auxiliary = _without_dropout(copy.deepcopy(model.predictor)).requires_grad_(True)
    teacher = _teacher(copy.deepcopy(model.predictor).to(accelerator.device), config)
    distiller = Distiller(
        settings, config, _without_dropout(student.predictor), auxiliary, teacher, student.times, folder, describe,
        accelerator,
    )  # fmt: skip
    student.predictor.train()
    try:
        with tracked(config, folder, listener) as listener:
            distiller.run(x, labels, listener)
    finally:
        student.predictor.load_state_dict(distiller.averaged.state_dict())
        student.predictor.eval()


def _teacher(predictor: Predictor, config: TrainConfig) -> Teacher:
    """The teacher's prediction, in the precision of the run."""
    module = Worker(predictor.requires_grad_(False), config.run.precision).module.eval()
    if config.run.compile:
        module.network.compile(mode=config.run.compile_mode)

    def predict(xu: Tensor, u: Tensor, label: Tensor | None) -> Tensor:
        observation = Observation(module.process, xu, u, label=label)
        return module.head.posterior(module(observation), observation).difference()

    return predict


def _without_dropout(predictor: Predictor) -> Predictor:
    """The predictor itself, its dropout switched off for good: the noise of a student is its input."""
    for module in predictor.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return predictor
