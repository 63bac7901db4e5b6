"""blackout recipes."""

from typing import Annotated

import typer


def recipes(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="show the configuration of this one", show_default="all")
    ] = None,
) -> None:
    """List the recipes, or show the whole configuration of one as JSON."""
    import dataclasses
    import json

    from rich.console import Console
    from rich.table import Table

    from blackout.recipes import RECIPES, recipe

    if name is not None:
        typer.echo(json.dumps(dataclasses.asdict(recipe(name)), indent=2))
        return
    table = Table.grid(padding=(0, 2))
    for known in RECIPES:
        table.add_row(known, recipe(known).description)
    console = Console()
    if console.is_terminal:
        console.print(table)
    else:  # a line each, for grep
        for known in RECIPES:
            typer.echo(f"{known:<22}{recipe(known).description}")
