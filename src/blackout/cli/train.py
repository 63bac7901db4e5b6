"""blackout train."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blackout.cli.options import with_config
from blackout.cli.words import as_options
from blackout.training.config import TrainConfig, refuse_another

if TYPE_CHECKING:
    from blackout.data import Dataset

_ARRAYS = (".npy", ".npz")


@with_config
def train(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="a recipe (see `blackout recipes`), or a config.json")
    ],
    overrides: dict[str, Any],
    data: Annotated[
        str | None,
        typer.Option(
            help="folder of the data set's files, or a .npy, .npz or folder of your own; cells: .h5ad, 10x .h5, .mtx, "
            ".csv, ...",
            show_default="data",
        ),
    ] = None,
    out: Annotated[
        str | None, typer.Option(help="run folder; one that is there already goes on", show_default="runs/RECIPE")
    ] = None,
    empty: Annotated[
        str | None,
        typer.Option(
            help="cells: refuse or drop cells without a count and genes that no cell has", show_default="refuse"
        ),
    ] = None,
    held_out: Annotated[
        float | None,
        typer.Option(help="cells: share that is kept out of training, named in held-out.txt", show_default="0.0"),
    ] = None,
    transpose: Annotated[bool, typer.Option("--transpose", help="cells: rows of the table are genes")] = False,
) -> None:
    """Train a model. The same command again goes on from the last checkpoint.

    `blackout train RECIPE --help` shows the defaults of that recipe. Under torchrun, all processes train together.
    """
    from blackout.cli.progress import training
    from blackout.io.models import from_config

    with as_options():
        config = dataclasses.replace(_configuration(recipe), **overrides)
    if config.dataset == "counts":
        from blackout.cli.counts import train_cells

        run = Path(out or f"runs/{config.recipe or Path(recipe).stem}")
        train_cells(config, data, run, empty or "refuse", held_out or 0.0, transpose)
        return
    for name, value in (("--empty", empty), ("--held-out", held_out), ("--transpose", transpose or None)):
        if value is not None:
            raise ValueError(f"{name} is for cells, but the data set is {config.dataset or 'a path'}, got {value}")
    source, folder, config = _source(config, data)
    run = Path(out or f"runs/{config.recipe or Path(recipe).stem}")
    refuse_another(config, run)
    dataset = _open(source, folder, config)
    model = from_config(config, dataset)
    about = f"{dataset.name}: {len(dataset)} of shape {tuple(dataset.x.shape[1:])}"
    with training(config, run, model, about) as listener:
        model.train(config, dataset.x, dataset.labels, run, listener)


def _configuration(recipe: str) -> TrainConfig:
    from blackout import recipes

    if recipe not in recipes.RECIPES and Path(recipe).suffix == ".json":
        return TrainConfig.read(Path(recipe))
    return recipes.recipe(recipe)


def _source(config: TrainConfig, data: str | None) -> tuple[str, str, TrainConfig]:
    """The data set's name or path, the folder of its files, and the configuration that says which of the two."""
    from blackout.data import NAMES

    if data is None:
        if not config.dataset:
            raise ValueError("--data is needed: the configuration names no data set")
        if config.dataset in NAMES and config.dataset != "digits" and not Path("data").exists():
            raise ValueError(f"no folder data here: `blackout data {config.dataset}` fetches it; or give --data")
        return config.dataset, "data", config
    if not Path(data).exists():
        raise ValueError(f"--data: {data} does not exist")
    if config.dataset in ("", "digits") or Path(data).suffix in _ARRAYS:
        return data, "data", dataclasses.replace(config, dataset="")
    return config.dataset, data, config


def _open(source: str, folder: str, config: TrainConfig) -> "Dataset":
    from blackout.data import open_dataset

    options: dict[str, Any] = {"size": config.image_size} if config.image_size else {}
    return open_dataset(source, folder=folder, **options)
