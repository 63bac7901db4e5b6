"""Every field of TrainConfig as an option of a command."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from blackout.recipes import RECIPES
from blackout.training.config import TrainConfig

FIELDS = {field.name: field for field in dataclasses.fields(TrainConfig) if "fixed" not in field.metadata}


def with_config(function: Callable[..., None]) -> Callable[..., None]:
    """`function(..., overrides)` as a command that takes each field as an option; `overrides` holds those given."""

    @functools.wraps(function)
    def command(**values: Any) -> None:
        given = {name: values.pop(name) for name in FIELDS}
        function(**values, overrides={name: value for name, value in given.items() if value is not None})

    own = [p for p in inspect.signature(function).parameters.values() if p.name != "overrides"]
    parameters = own + [_parameter(field) for field in FIELDS.values()]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


class ConfigCommand(TyperCommand):
    """`--help` shows the defaults of the recipe on the command line, or those of TrainConfig without one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta["recipe"] = next((RECIPES[word] for word in args if word in RECIPES), TrainConfig)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        config = ctx.meta["recipe"]()
        # Options have no default of their own, or one that was not given could not be told from one that was.
        fields = [param for param in self.params if param.name in FIELDS]
        try:
            for param in fields:
                param.default = getattr(config, str(param.name))
            super().format_help(ctx, formatter)
        finally:
            for param in fields:
                param.default = None


def _parameter(field: "dataclasses.Field[Any]") -> inspect.Parameter:
    name = f"--{field.name.replace('_', '-')}"
    flags = f"{name}/--no-{name[2:]}" if field.type is bool else name
    option = typer.Option(flags, help=field.metadata["help"], show_default=True)
    kind: Any = Annotated[field.type | None, option]  # type: ignore[operator]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
