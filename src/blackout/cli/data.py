"""blackout data."""

from pathlib import Path
from typing import Annotated

import typer


def data(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="cifar10, mnist, mnist-binary, celeba64, bentheimer, digits")
    ],
    to: Annotated[Path, typer.Option(help="folder for the files")] = Path("data"),
) -> None:
    """Fetch a data set, and read it once to check it. Files that are there already are kept."""
    from blackout import validate
    from blackout.cli.progress import download_bar
    from blackout.data import NAMES, fetch, open_dataset
    from blackout.data.celeba import find_celeba
    from blackout.data.volumes import find_bentheimer

    validate.choice("name", name, NAMES)
    by_hand = {"celeba64": find_celeba, "bentheimer": find_bentheimer}  # which nobody but the user can fetch
    if name not in by_hand or by_hand[name](to) is None:
        with download_bar() as progress:
            files = fetch(name, to, progress)
        for file in files:
            typer.echo(f"{file}: {file.stat().st_size:,} bytes, checksum as published")
    for split in ("train", "test"):
        dataset = open_dataset(name, split, folder=to)
        shape = "x".join(map(str, dataset.x.shape[1:]))
        classes = f", {dataset.num_classes} classes" if dataset.num_classes else ""
        typer.echo(f"{name}, {split}: {len(dataset):,} of {shape}, counts 0 to {dataset.max_state}{classes}")
