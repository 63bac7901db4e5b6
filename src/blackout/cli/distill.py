"""blackout distill."""

from pathlib import Path
from typing import Annotated

import typer

from blackout.cli.config_options import with_config
from blackout.cli.options import Model
from blackout.cli.train import choose_data, open_data
from blackout.distillation.config import DistillConfig
from blackout.training.config import TrainConfig


@with_config(DistillConfig)
def distill(
    source: Model,
    config: DistillConfig,
    data: Annotated[
        str | None,
        typer.Option(help="folder of the teacher's data set; or its .npy, .npz or folder", show_default="data"),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(help="run folder of the student; an existing one is resumed", show_default="runs/NAME-STEPS"),
    ] = None,
) -> None:
    """Train a student that samples in a few steps. The same command resumes from the last checkpoint.

    The teacher must be a model under pure death that predicts the mean of X_0, such as cifar10. Sample from the student
    with `blackout sample`; its number of steps and its times are saved with it.
    """
    from blackout.cli.progress import training
    from blackout.distillation.run import new_student, train_student
    from blackout.io import load

    teacher_config, folder = choose_data(_config_of(source), data)
    run = Path(out or f"runs/{Path(source).name}-{config.num_steps}")
    model = load(source)
    student = new_student(model, config)
    dataset = open_data(teacher_config, folder)
    about = f"{dataset.name}: {len(dataset)} of shape {tuple(dataset.x.shape[1:])}; student of {source}"
    settings = config.train_config(teacher_config)
    with training(settings, run, student, about, "images" if dataset.x.dim() == 4 else "samples") as listener:
        labels = dataset.labels if model.num_classes else None
        train_student(
            model, student, config, dataset.x, labels, config=teacher_config, name=source, folder=run, listener=listener
        )


def _config_of(source: str) -> TrainConfig:
    """The configuration of a run, or of the recipe of a pretrained model; otherwise the defaults with this data set."""
    from blackout.data import DATASETS
    from blackout.io import pretrained
    from blackout.recipes import RECIPES, recipe

    if source in pretrained():
        known = recipe(source) if source in RECIPES else TrainConfig()
        return known.replace(dataset=source if source in DATASETS else known.data.dataset)
    stored = Path(source) / "config.json"
    return TrainConfig.read(stored) if stored.exists() else TrainConfig()
