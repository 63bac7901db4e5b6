"""blackout figures."""

from pathlib import Path
from typing import Annotated

import typer


def figures(
    out: Annotated[Path, typer.Option(help="folder for the figures", metavar="DIR")] = Path("figures"),
    only: Annotated[
        list[str] | None,
        typer.Option(help="draw this figure only; may be given again", metavar="NAME", show_default="all"),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="name the figures, and draw none")] = False,
    seed: Annotated[int, typer.Option(help="the figures depend on it alone")] = 0,
    num: Annotated[int, typer.Option(help="samples of each model that ships")] = 24,
    steps: Annotated[int, typer.Option(help="steps from black to the sample")] = 50,
    data: Annotated[
        Path | None,
        typer.Option(
            help="pictures to destroy: a folder with CIFAR-10's files or with pictures, .npy, .npz",
            show_default="samples of the model that ships",
        ),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(help="folder of recorded results", metavar="DIR", show_default="those that ship"),
    ] = None,
    vector: Annotated[str, typer.Option(help="svg or pdf, beside the PNG")] = "svg",
) -> None:
    """Draw the figures of the paper and the recorded results, from the weights that ship: minutes on a CPU.

    Writes NAME.svg, NAME.png and NAME.txt, the caption, for each, and captions.md.
    """
    from blackout.cli.progress import measuring_bar
    from blackout.figures.catalogue import FIGURES
    from blackout.figures.context import Studio
    from blackout.figures.write import write

    if listed:
        for name, drawing in FIGURES.items():
            typer.echo(f"{name:<25}{drawing.title}")
        return
    with measuring_bar() as tell:
        studio = Studio(seed=seed, num=num, steps=steps, data=data, results=results, tell=tell)
        files = write(out, only or (), studio, vector=vector, say=lambda line: typer.echo(line))
    typer.echo(f"captions: {files[-1]}")
