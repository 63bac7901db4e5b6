"""blackout figures."""

from pathlib import Path
from typing import Annotated

import typer

from blackout.figures.catalogue import FIGURES


def figures(
    out: Annotated[Path, typer.Option(help="output folder", metavar="DIR")] = Path("figures"),
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"figure to draw, repeatable: {', '.join(FIGURES)}", metavar="NAME", show_default="all"),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="list the figures and exit")] = False,
    seed: Annotated[int, typer.Option(help="random seed")] = 0,
    num: Annotated[int, typer.Option(help="samples of each pretrained model")] = 24,
    steps: Annotated[int, typer.Option(help="sampling steps")] = 50,
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
) -> None:
    """Draw the figures of the paper and of recorded results from the pretrained models: minutes on a CPU.

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
        context = Context(seed=seed, num=num, steps=steps, data=data, results=results, progress=progress)
        files = write(out, only or (), context, vector=vector, report=lambda line: typer.echo(line))
    typer.echo(f"captions: {files[-1]}")
