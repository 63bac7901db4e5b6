"""Every field of TrainConfig as an option of a command."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from blackout.data import DATASETS
from blackout.training.config import TrainConfig



def with_config(function: Callable[..., None]) -> Callable[..., None]:
    """`function(..., overrides)` as a command with every field as an option; `overrides` holds the given ones."""
    fields = {name: field for name, (_, field) in TrainConfig.fields().items()}

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
            params = [param for param in self.params if param.name in TrainConfig.fields()]
            try:
                for param in params:
                    param.default = config[str(param.name)]
                super().format_help(ctx, formatter)
            finally:
                for param in params:
                    param.default = None

    return ConfigCommand


def _parameter(name: str, field: Any) -> inspect.Parameter:
    flag, text = f"--{name.replace('_', '-')}", field.metadata["help"]
    flags = f"{flag}/--no-{flag[2:]}" if field.type is bool else flag
    choices = DATASETS if name == "dataset" else field.metadata["choices"]
    if not all(choice in text for choice in choices):
        text = f"{text}: {', '.join(choices)}"
    annotation: Any = Annotated[field.type | None, typer.Option(flags, help=text, show_default=True)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
