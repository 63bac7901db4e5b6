"""blackout times."""

from pathlib import Path
from typing import Annotated

import typer

from blackout.cli.options import DataSet, Device, Model, device_by_name


def times(
    source: Model,
    data: Annotated[
        str | None,
        typer.Option(
            help="folder with the files of the data set; or data: .npy, .npz, a folder of images", show_default="data"
        ),
    ] = None,
    dataset: DataSet = "",
    num_data: Annotated[int, typer.Option(help="data points to fit to", min=1)] = 64,
    num_candidates: Annotated[int, typer.Option(help="network calls for each of them", min=2)] = 64,
    out: Annotated[
        Path | None, typer.Option(help="folder for a copy of the model", metavar="DIR", show_default="RUN itself")
    ] = None,
    seed: Annotated[int, typer.Option(help="the times depend on it and on the data alone")] = 0,
    device: Device = "auto",
) -> None:
    """Fit observation times to a model, for few sampling steps.

    `blackout sample RUN --steps 16` uses them. They are saved with the model, in model.json.
    """
    from blackout.cli.progress import measuring_bar
    from blackout.evaluation.splits import dataset_of, open_splits, subsample
    from blackout.io import load, pretrained, write_description

    if source in pretrained() and out is None:
        raise ValueError(f"out must be a folder for a copy of the pretrained model {source}, got none")
    model = load(source).to(device_by_name(device))
    own, reading = dataset_of(source, model)
    test, train = open_splits(dataset or own, data, **reading)
    x = subsample(train or test, num_data, seed)
    with measuring_bar() as progress:
        fitted = model.fit_times(
            x, seed, num_candidates=num_candidates, callback=lambda done, number: progress("times", done, number)
        )
    typer.echo(f"{fitted.save(out) if out is not None else write_description(fitted, Path(source))}")
