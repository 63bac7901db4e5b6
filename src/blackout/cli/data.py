"""blackout data."""

from pathlib import Path
from typing import Annotated

import typer

from blackout.cli.completion import names_of
from blackout.data import DATASETS


def data(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help=", ".join(DATASETS), show_default="list all", autocompletion=names_of(DATASETS)
        ),
    ] = None,
    to: Annotated[Path, typer.Option(help="folder for the files")] = Path("data"),
) -> None:
    """Download a data set and check it by reading it once. Existing files are kept."""
    from blackout.cli.tables import print_entries

    if name is None:
        print_entries((name, DATASETS.help(name)) for name in DATASETS)
        return
    from blackout.cli.progress import download_bar
    from blackout.data import fetch, open_dataset
    from blackout.labels import describe_classes

    if not (DATASETS[name].by_hand and DATASETS[name].has_files(to)):
        with download_bar() as progress:
            files = fetch(name, to, progress)
        for file in files:
            typer.echo(f"{file}: {file.stat().st_size:,} bytes, checksum correct")
    for split in ("train", "test"):
        dataset = open_dataset(name, split, folder=to)
        shape = "x".join(map(str, dataset.x.shape[1:]))
        classes = f", {describe_classes(dataset.num_classes, dataset.class_names)}" if dataset.num_classes else ""
        typer.echo(f"{name}, {split}: {len(dataset):,} of {shape}, states 0 to {dataset.max_state}{classes}")
