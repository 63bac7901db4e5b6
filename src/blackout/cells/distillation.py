"""Distillation of a model of cells: a student that samples cells in a few steps."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blackout import validate
from blackout.distillation.config import DistillConfig

if TYPE_CHECKING:
    from blackout.cells.counts import Counts
    from blackout.cells.model import CountModel

_HELP = {field.name: field.metadata for field in fields(DistillConfig)}


def _default(name: str, value: Any) -> Any:
    return field(default=value, metadata=_HELP[name])


@dataclass(frozen=True, kw_only=True)
class CellDistillConfig(DistillConfig):
    """Defaults for models of cells: a minute or two on a CPU.

    Examples
    --------
    >>> CellDistillConfig().num_steps
    8
    """

    steps: int = _default("steps", 500)
    batch_size: int = _default("batch_size", 128)
    learning_rate: float = _default("learning_rate", 5e-4)
    aux_learning_rate: float = _default("aux_learning_rate", 1e-3)
    ema: float = _default("ema", 0.99)
    log_every: int = _default("log_every", 20)
    checkpoint_every: int = _default("checkpoint_every", 100)


def distill_cells(
    model: "CountModel",
    source: Any,
    *,
    num_steps: int = 8,
    out: str | Path | None = None,
    listener: Callable[..., None] | None = None,
    **settings: Any,
) -> "CountModel":
    """Train a student that samples cells in few steps; it has no likelihood and imputes nothing.

    Parameters
    ----------
    model : CountModel
        The teacher, which stays as it is.
    source
        The cells that it was trained on, in any form that `CountModel.fit` takes.
    num_steps
        Steps of the student.
    out, listener
        A run folder, from which the same call resumes; a function of each `Report` and the running `Distiller`.
    **settings
        Other options of `blackout cells distill`: steps=500 (updates), batch_size=128, ...

    Examples
    --------
    >>> import numpy, blackout as bo
    >>> counts = numpy.random.default_rng(0).poisson(2.0, (64, 12))
    >>> teacher = bo.CountModel(width=16, blocks=1).fit(counts, steps=2)
    >>> distill_cells(teacher, counts, num_steps=2, steps=2).sample(3).shape
    (3, 12)
    """
    config = CellDistillConfig(**settings, num_steps=num_steps)
    student, folder = new_student(model, config), None if out is None else validate.path("out", out)
    train_student(model, student, config, model.aligned(source), folder=folder, listener=listener)
    return student


def new_student(model: "CountModel", config: DistillConfig) -> "CountModel":
    """An untrained student of a model of cells, with its genes, labels and library sizes."""
    from blackout.distillation import run

    return model.with_network(run.new_student(model.model, config))


def train_student(
    model: "CountModel",
    student: "CountModel",
    config: DistillConfig,
    cells: "Counts",
    *,
    name: str = "",
    folder: Path | None = None,
    held_out: "Counts | None" = None,
    listener: Callable[..., None] | None = None,
) -> None:
    """Train a student in place on cells with the genes of the model.

    `name` is that of the teacher, for the record; `held_out` are cells that the run folder names as held out.
    """
    from blackout.cells import folder as folders
    from blackout.cells.held_out import write_names
    from blackout.data import SparseRows
    from blackout.distillation import run

    if not model.config.allow_unlabelled:
        config = replace(config, label_dropout=0.0)  # the teacher knows no cells without labels
    if folder is not None:
        about, cells_of = student.describe(), folders.fingerprint(cells, model.covariates)
        config.check_same(folder, name)
        folders.check_run(folder, about, cells_of)
        write_names(folder, held_out)
        folders.begin_run(folder, about, cells_of)
    run.train_student(
        model.model, student.model, config, SparseRows(cells.x), model.covariates.encode_cells(cells),
        config=config.train_config(model.config.train), name=name, folder=folder, listener=listener,
    )  # fmt: skip
