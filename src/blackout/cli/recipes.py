"""blackout recipes."""

from typing import Annotated

import typer

from blackout.cli.completion import recipe_names


def recipes(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="show the configuration of this one",
            show_default="list all",
            autocompletion=recipe_names,
        ),
    ] = None,
) -> None:
    """List the recipes, or show the configuration of one as JSON."""
    import json

    from blackout.cli.tables import print_entries
    from blackout.recipes import RECIPES, recipe

    if name is None:
        print_entries((name, RECIPES.help(name)) for name in RECIPES)
    else:
        typer.echo(json.dumps(recipe(name).to_dict(), indent=2))
