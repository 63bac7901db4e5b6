"""Every field of TrainConfig as an option of a command."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from blackout.training.config import TrainConfig

_FIXED = ("recipe", "description")


def with_config(function: Callable[..., None]) -> Callable[..., None]:
    """`function(..., overrides)` as a command with every field as an option; `overrides` holds the given ones."""
    fields = _fields()

    @functools.wraps(function)
    def command(**values: Any) -> None:
        given = {name: values.pop(name) for name in fields}
        function(**values, overrides={name: value for name, value in given.items() if value is not None})

    own = [p for p in inspect.signature(function).parameters.values() if p.name != "overrides"]
    parameters = own + [_parameter(name, field) for name, field in fields.items()]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def config_command(defaults: Callable[[list[str]], TrainConfig]) -> type[TyperCommand]:
    """A command whose `--help` shows the values of a configuration as defaults.

    Parameters
    ----------
    defaults
        Returns the configuration for the words of the command line.
    """

    class ConfigCommand(TyperCommand):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            ctx.meta["words"] = list(args)
            return super().parse_args(ctx, args)

        def format_help(self, ctx: Any, formatter: Any) -> None:
            config = defaults(ctx.meta["words"])
            # The options themselves have no default, so that those given can be distinguished from the others.
            params = [param for param in self.params if param.name in _fields()]
            try:
                for param in params:
                    param.default = config[str(param.name)]
                super().format_help(ctx, formatter)
            finally:
                for param in params:
                    param.default = None

    return ConfigCommand


def _fields() -> dict[str, Any]:
    return {name: field for name, (_, field) in TrainConfig.fields().items() if name not in _FIXED}


def _parameter(name: str, field: Any) -> inspect.Parameter:
    flag = f"--{name.replace('_', '-')}"
    flags = f"{flag}/--no-{flag[2:]}" if field.type is bool else flag
    option = typer.Option(flags, help=field.metadata["help"], show_default=True)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[field.type | None, option]
    )
