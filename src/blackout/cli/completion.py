"""What a shell completes: names of recipes, models and parts. It completes other words as files."""

from collections.abc import Callable
from pathlib import Path

from blackout.registry import Registry

Completion = Callable[[str], list[tuple[str, str]]]
"""The beginning of a word -> words, each with a line of help."""


def names_of(registry: Registry, *more: str) -> Completion:
    """Completion by the names of a registry, or one of `more`."""

    def complete(incomplete: str) -> list[tuple[str, str]]:
        entries = [*((name, "") for name in more), *((name, registry.help(name)) for name in registry)]
        return [entry for entry in entries if entry[0].startswith(incomplete)]

    return complete


def recipe_names(incomplete: str) -> list[tuple[str, str]]:
    """Completion of a recipe."""
    from blackout.recipes import RECIPES

    return names_of(RECIPES)(incomplete)


def model_names(incomplete: str) -> list[tuple[str, str]]:
    """Completion of a pretrained model; `blackout.pretrained` would import torch."""
    found = sorted(path.parent.name for path in Path(__file__).parents[1].glob("pretrained/*/model.json"))
    return [(name, "pretrained") for name in found if name.startswith(incomplete)]
