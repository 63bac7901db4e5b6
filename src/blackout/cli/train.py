"""blackout train."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blackout.cli.completion import recipe_names
from blackout.cli.config_options import with_overrides
from blackout.data.suffixes import sequence_kind
from blackout.training.automatic import automatic, sequence_config
from blackout.training.config import TrainConfig

if TYPE_CHECKING:
    from blackout.data import Dataset
    from blackout.model import DiffusionModel

_ARRAYS = (".npy", ".npz")
_TRIAL = 4  # steps that --dry-run times


def default_config(words: list[str]) -> TrainConfig:
    """The recipe on a command line, or else the defaults of TrainConfig."""
    from blackout.recipes import RECIPES, recipe

    return next((recipe(word) for word in words if word in RECIPES), TrainConfig())


@with_overrides()
def train(
    source: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="your data: a folder of images, .npy or .npz, text, FASTA or FASTQ; a run folder, to resume it; a "
            "recipe (see `blackout recipes`) or data set by name; or a config.json",
            autocompletion=recipe_names,
        ),
    ],
    overrides: dict[str, Any],
    data: Annotated[
        str | None,
        typer.Option(
            help="of a recipe, config.json or run: folder of the data set's files; or your own .npy, .npz or folder",
            show_default="data, or that of the run",
        ),
    ] = None,
    out: Annotated[
        str | None, typer.Option(help="run folder; an existing run is resumed", show_default="runs/NAME")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="show settings, memory and time, and stop; nothing is written")
    ] = False,
) -> None:
    """Train a model. The same command resumes from the last checkpoint.

    `blackout train DATA` chooses settings for the data and the device, and shows them; options replace them. `blackout
    train RECIPE --help` shows the defaults of a recipe. Under torchrun, all processes train together.
    """
    from blackout.cli.progress import training
    from blackout.recipes import build_model
    from blackout.training.folder import check_run_folder, check_same_run
    from blackout.training.signals import Watchdog

    watchdog = Watchdog().start()
    config, run, place = _find(source, data, out)
    check_run_folder(run)
    if config is None:
        config, dataset = _automatic(source, data, overrides)
    else:
        config = config.replace(**overrides)
        check_same_run(config, run)
        dataset = open_data(config, place)
    check_useful(overrides, config, dataset)
    for note in dataset.notes:
        typer.echo(f"blackout: {note}", err=True)
    model = build_model(config, dataset)
    about = describe_data(dataset, model.num_classes)
    if dry_run:
        _try(config, dataset, model, about)
        return
    unit = "images" if dataset.x.dim() == 4 else "samples"
    with training(config, run, model, about, unit, watchdog=watchdog) as listener:
        model.train(config, dataset.x, dataset.labels, run, listener)
    watchdog.stop()


def _find(source: str, data: str | None, out: str | None) -> tuple[TrainConfig | None, Path, str]:
    """What the first word stands for: configuration, run folder and place of the data; None: settings by the data."""
    from blackout.data import DATASETS
    from blackout.recipes import RECIPES, read_config, recipe
    from blackout.validate import suggestion

    path = Path(source)
    run = Path(out or f"runs/{path.stem if path.is_file() else path.absolute().name}")
    if source not in RECIPES and (path / "config.json").exists():
        if out is not None and Path(out).absolute() != path.absolute():
            raise ValueError(f"--out cannot be given with a run: {source} resumes in its own folder, got {out}")
        return _resumed(path, data)
    if source in RECIPES or path.suffix.lower() == ".json":
        config, place = choose_data(recipe(source) if source in RECIPES else read_config(path), data)
        return config, run if out or not config.recipe else Path("runs", config.recipe), place
    if source not in DATASETS and not path.exists():
        names = "a data set (`blackout data` lists them) or a recipe (`blackout recipes`)"
        close = suggestion(source, (*DATASETS, *RECIPES))
        raise ValueError(f"{source!r} is neither a file or folder nor the name of {names}{close}")
    if source not in DATASETS and data is not None:
        raise ValueError(f"--data cannot be given here: {source} is the data, got {data}")
    if (run / "config.json").exists():  # with the settings that were chosen for these data
        return _resumed(run, data if source in DATASETS else source)
    return None, run, ""


def _resumed(run: Path, data: str | None) -> tuple[TrainConfig, Path, str]:
    """The run in a folder, with the data that it was trained on."""
    for file, command in {"cells.json": "cells train", "distill.json": "distill"}.items():
        if (run / file).exists():
            raise ValueError(f"{run} is a run of `blackout {command}`, which resumes it")
    config, place = choose_data(TrainConfig.read(run / "config.json"), data)
    return config, run, place


def choose_data(config: TrainConfig, data: str | None) -> tuple[TrainConfig, str]:
    """The configuration, which notes where its data are, and that place.

    A path that is the data itself replaces the data set of the configuration; without one, the data are those that the
    configuration notes, or else in the folder `data`.
    """
    from blackout.data import DATASETS

    name = config.data.dataset
    has_files = name in DATASETS and DATASETS[name].find is not None
    if data is None and config.data.path:
        places = [place for place in (config.data.path, config.data.given) if Path(place).exists()]
        if not places:
            raise ValueError(f"the data of the run, {config.data.path}, are not there; --data gives their new place")
        return config, places[0]
    if data is None:
        if not name:
            raise ValueError("--data is needed: the configuration names no data set")
        if has_files and not Path("data").exists():
            raise ValueError(f"no folder data here: {DATASETS[name].advice(name)}; or give --data")
        return _noted(config, "data") if has_files else config, "data"
    if not Path(data).exists():
        raise ValueError(f"--data: {data} does not exist")
    if not has_files or Path(data).suffix.lower() in _ARRAYS:
        config = config.replace(dataset="")
    return _noted(config, data), data


def _noted(config: TrainConfig, data: str) -> TrainConfig:
    return config.replace(given=data, path=str(Path(data).absolute()))


def open_data(config: TrainConfig, place: str) -> "Dataset":
    """The data set of a configuration, from the place of its files."""
    from blackout.data import open_dataset

    if config.data.split == "all" and config.data.dataset != "celeba64":
        raise ValueError(f"--split all is for celeba64 only, got the data set {config.data.dataset or place}")
    return open_dataset(config.data.dataset or place, config.data.split, folder=place, **config.data.reading())


def _automatic(source: str, data: str | None, overrides: Mapping[str, Any]) -> "tuple[TrainConfig, Dataset]":
    """Settings chosen for data and device, with the options that are given; and the data."""
    from blackout.data import DATASETS
    from blackout.training.loop import default_accelerator

    if overrides.get("dataset"):
        raise ValueError(f"--dataset cannot be given here: {source} is the data, got {overrides['dataset']}")
    device, known = default_accelerator().device.type, source in DATASETS
    base = sequence_config(device) if sequence_kind(source) else TrainConfig()
    noted, place = choose_data(base.replace(dataset=source if known else ""), data if known else source)
    dataset = open_data(noted.replace(**overrides), place)
    shape, classes, chosen = tuple(dataset.x.shape[1:]), dataset.num_classes or 0, noted
    if dataset.alphabet is None:
        chosen = automatic(shape, len(dataset), dataset.max_state, classes, device)
    facts = {name: noted[name] for name in ("dataset", "given", "path")}
    return chosen.replace(description=f"settings chosen for {dataset.name}", **facts, **overrides), dataset


def check_useful(overrides: Mapping[str, Any], config: TrainConfig, dataset: "Dataset") -> None:
    """Raise ValueError for an option that does nothing for the data and the other options."""
    images, grid = dataset.x.dim() == 4, config.optimiser.time_density == "grid"
    useless = {
        "flip": "" if images else "it flips images, and the data are none",
        "patch": "" if images else "it divides images, and the data are none",
        "sample_every": "" if images else "it writes grids of images, and the data are none",
        "label_dropout": "" if config.network.class_conditional else "it needs --class-conditional",
        "time_loc": "it needs --time-density logistic" if grid else "",
        "time_scale": "it needs --time-density logistic" if grid else "",
        "compile_mode": "" if config.run.compile else "it needs --compile",
        "warmup": "it must be less than --steps" if config.optimiser.warmup >= config.optimiser.steps else "",
    }
    for name, reason in useless.items():
        if reason and overrides.get(name, TrainConfig()[name]) != TrainConfig()[name]:
            option = f"--{name.replace('_', '-')}"
            raise ValueError(f"{option} {overrides[name]} does nothing here: {reason}")


def describe_data(dataset: "Dataset", used: int) -> str:
    """A line about the data, and one about its classes and whether the model is conditioned on them."""
    from blackout.labels import describe_classes

    number, shape = f"{len(dataset):,}", "x".join(map(str, dataset.x.shape[1:]))
    text = f"{dataset.name}: {number} of {shape}, states 0 to {dataset.max_state}"
    if not dataset.num_classes:
        return text
    note = "" if used else " (not used without --class-conditional)"
    return f"{text}\n{describe_classes(dataset.num_classes, dataset.class_names)}{note}"


def _try(config: TrainConfig, dataset: "Dataset", model: "DiffusionModel", about: str) -> None:
    """What a run would report at its start, and how long it would take, by a few steps that are not kept."""
    from blackout.cli.progress import describe_settings
    from blackout.progress import duration_text, rate_text
    from blackout.training.loop import Report

    for line in [about, *describe_settings(config, model)]:
        typer.echo(line)
    reports: list[Report] = []
    few = config.replace(steps=_TRIAL, log_every=1, checkpoint_every=_TRIAL, sample_every=0, warmup=0)
    model.train(few, dataset.x, dataset.labels, None, lambda report, _: reports.append(report))
    rate = reports[-1].images_per_second / config.optimiser.batch_size
    typer.echo(
        f"about {duration_text(config.optimiser.steps / rate)} in all, at {rate_text(rate)}; nothing was written"
    )
