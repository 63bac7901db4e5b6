"""blackout train."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blackout.cli.completion import recipe_names
from blackout.cli.config_options import with_overrides
from blackout.data.suffixes import sequence_kind
from blackout.training.config import TrainConfig
from blackout.training.sequence_rules import sequence_config

if TYPE_CHECKING:
    from blackout.data import Dataset


def default_config(words: list[str]) -> TrainConfig:
    """The recipe on a command line, or else the defaults of TrainConfig."""
    from blackout.recipes import RECIPES, recipe

    return next((recipe(word) for word in words if word in RECIPES), TrainConfig())


@with_overrides()
def train(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="a recipe (see `blackout recipes`), a config.json, or sequences (.txt, FASTA, FASTQ)",
            autocompletion=recipe_names,
        ),
    ],
    overrides: dict[str, Any],
    data: Annotated[
        str | None,
        typer.Option(help="folder of the data set's files; or your own .npy, .npz or folder", show_default="data"),
    ] = None,
    out: Annotated[
        str | None, typer.Option(help="run folder; an existing run is resumed", show_default="runs/RECIPE")
    ] = None,
) -> None:
    """Train a model. The same command resumes from the last checkpoint.

    `blackout train RECIPE --help` shows the defaults of that recipe. Under torchrun, all processes train together.
    """
    from blackout.cli.progress import training
    from blackout.recipes import build_model
    from blackout.training.config import check_same_run

    if sequence_kind(recipe):
        data = recipe
    config, dataset_folder = choose_data(_read_config(recipe).replace(**overrides), data)
    run = Path(out or f"runs/{config.recipe or Path(recipe).stem}")
    check_same_run(config, run)
    dataset = open_data(config, dataset_folder)
    for note in dataset.notes:
        typer.echo(f"blackout: {note}", err=True)
    model = build_model(config, dataset)
    about = f"{dataset.name}: {len(dataset)} of shape {tuple(dataset.x.shape[1:])}"
    about += _classes(dataset, model.num_classes)
    with training(config, run, model, about, "images" if dataset.x.dim() == 4 else "samples") as listener:
        model.train(config, dataset.x, dataset.labels, run, listener)


def _classes(dataset: "Dataset", used: int) -> str:
    """The classes of a data set, and whether the model is conditioned on them."""
    from blackout.labels import describe_classes

    if not dataset.num_classes:
        return ""
    note = "" if used else " (not used without --class-conditional)"
    return f"; {describe_classes(dataset.num_classes, dataset.class_names)}{note}"


def _read_config(recipe: str) -> TrainConfig:
    from blackout import recipes

    if sequence_kind(recipe):  # text, DNA, proteins: settings by the device
        import torch

        return sequence_config("cuda" if torch.cuda.is_available() else "cpu").replace(description=f"text of {recipe}")
    if recipe not in recipes.RECIPES and Path(recipe).suffix == ".json":
        return recipes.read_config(Path(recipe))
    return recipes.recipe(recipe)


def choose_data(config: TrainConfig, data: str | None) -> tuple[TrainConfig, str]:
    """The configuration and the folder of its data set; a path that is the data itself replaces the data set."""
    from blackout.data import DATASETS

    name = config.data.dataset
    has_files = name in DATASETS and DATASETS[name].find is not None
    if data is None:
        if not name:
            raise ValueError("--data is needed: the configuration names no data set")
        if has_files and not Path("data").exists():
            raise ValueError(f"no folder data here: {DATASETS[name].advice(name)}; or give --data")
        return config, "data"
    if not Path(data).exists():
        raise ValueError(f"--data: {data} does not exist")
    if not has_files or Path(data).suffix in (".npy", ".npz"):
        return config.replace(dataset=""), data
    return config, data


def open_data(config: TrainConfig, folder: str) -> "Dataset":
    """The data set of a configuration, from a folder that has its files."""
    from blackout.data import open_dataset

    if config.data.split == "all" and config.data.dataset != "celeba64":
        raise ValueError(f"--split all is for celeba64 only, got the data set {config.data.dataset or folder}")
    return open_dataset(config.data.dataset or folder, config.data.split, folder=folder, **config.data.reading())
