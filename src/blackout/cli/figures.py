"""blackout figures."""

from pathlib import Path
from typing import Annotated

import typer

from blackout.cli.options import Device, Overwrite, device_by_name
from blackout.figures.catalogue import FIGURES


def figures(
    out: Annotated[Path, typer.Option(help="output folder", metavar="DIR")] = Path("figures"),
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"figure to draw, repeatable: {', '.join(FIGURES)}", metavar="NAME", show_default="all"),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="list the figures and exit")] = False,
    seed: Annotated[int, typer.Option(help="random seed")] = 0,
    num: Annotated[
        int | None, typer.Option(help="samples", show_default="24; of runs 400 or 144, as the paper")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="sampling steps", show_default="50; of runs all times")] = None,
    runs: Annotated[
        Path, typer.Option(help="folder of the runs of the paper's recipes, for the grids of the paper", metavar="DIR")
    ] = Path("runs"),
    device: Device = "auto",
    data: Annotated[
        Path | None,
        typer.Option(
            help="images for the forward process: a folder of CIFAR-10 files or images, .npy, .npz",
            show_default="samples of cifar10",
        ),
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="folder of records", metavar="DIR", show_default="those of the package")
    ] = None,
    vector: Annotated[str, typer.Option(help="vector format written beside the PNG: svg or pdf")] = "svg",
    overwrite: Overwrite = False,
) -> None:
    """Draw the figures of the paper and of recorded results.

    The pretrained models are sampled for them, in minutes on a CPU. The paper's grids of samples are drawn if --runs
    holds the trained runs; --device is theirs.
    Writes NAME.svg, NAME.png and NAME.txt (the caption) for each figure, and captions.md.
    """
    from blackout.cli.progress import measuring_bar
    from blackout.figures.context import Context
    from blackout.figures.write import write

    if listed:
        for name in FIGURES:
            typer.echo(f"{name:<25}{FIGURES.help(name)}")
        return
    with measuring_bar() as progress:
        context = Context(
            seed=seed, num=num, steps=steps, data=data, runs=runs, device=str(device_by_name(device)), results=results,
            progress=progress,
        )  # fmt: skip
        files = write(out, only or (), context, vector=vector, overwrite=overwrite, report=typer.echo)
    typer.echo(f"captions: {files[-1]}")
