"""Options of a command from the fields of a configuration."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from blackout.data import DATASETS
from blackout.training.config import TrainConfig

Command = Callable[..., None]


def with_config(config_type: Any) -> Callable[[Command], Command]:
    """Decorate `function(..., config)`: the command has an option for each field of a dataclass.

    The metadata of a field are its `help` and optionally `flag`, `choices` or `entries` (a registry, with the help of
    each), which are appended to the help, and `show_default`, which describes a default that is no plain value.
    """
    fields = {field.name: field for field in dataclasses.fields(config_type)}
    return lambda function: _with_options(function, "config", fields, lambda values: config_type(**values))


def with_overrides(exclude: Collection[str] = ()) -> Callable[[Command], Command]:
    """Decorate `function(..., overrides)`: the command has an option for each field of TrainConfig.

    `overrides` holds the options that are given. The command must be a `config_command`, which shows the defaults.
    """
    # Without a default, an option that is given can be distinguished from one that is not.
    fields: dict[str, Any] = {}
    for name, (_, field) in TrainConfig.fields().items():
        if name not in exclude and not field.metadata.get("noted"):
            kind: Any = field.type
            fields[name] = dataclasses.field(default=None, metadata={**field.metadata, "type": kind | None})

    def given(values: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if value is not None}

    return lambda function: _with_options(function, "overrides", fields, given)


def config_command(defaults: Callable[[list[str]], TrainConfig], from_data: Collection[str] = ()) -> type[TyperCommand]:
    """A command whose `--help` shows the values of a configuration as defaults.

    Parameters
    ----------
    defaults
        Returns the configuration for the words of the command line.
    from_data
        Fields whose defaults follow from the data.
    """

    class ConfigCommand(TyperCommand):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            ctx.meta["words"] = list(args)
            return super().parse_args(ctx, args)

        def format_help(self, ctx: Any, formatter: Any) -> None:
            config = defaults(ctx.meta["words"])
            params = [param for param in self.params if param.name in TrainConfig.fields()]
            try:
                for param in params:
                    param.default = "from the data" if param.name in from_data else config[str(param.name)]
                super().format_help(ctx, formatter)
            finally:
                for param in params:
                    param.default = None

    return ConfigCommand


def _with_options(
    function: Command, argument: str, fields: Mapping[str, Any], collect: Callable[[dict[str, Any]], Any]
) -> Command:
    @functools.wraps(function)
    def command(**values: Any) -> None:
        chosen = {name: values.pop(name) for name in fields}
        function(**values, **{argument: collect(chosen)})

    own = [p for p in inspect.signature(function).parameters.values() if p.name != argument]
    parameters = own + [_parameter(name, field) for name, field in fields.items()]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def _completion(words: tuple[str, ...]) -> Callable[[str], list[str]] | None:
    return (lambda incomplete: [word for word in words if word.startswith(incomplete)]) if words else None


def _parameter(name: str, field: Any) -> inspect.Parameter:
    about, kind, default = field.metadata, field.metadata.get("type", field.type), field.default
    flag, text = about.get("flag") or f"--{name.replace('_', '-')}", about["help"]
    choices = DATASETS if name == "dataset" else about.get("choices", ())
    if not all(choice in text for choice in choices):
        text = f"{text}: {', '.join(choices)}"
    if entries := about.get("entries"):
        text = f"{text}: {'; '.join(f'{entry} ({entries.help(entry)})' for entry in entries)}"
    if kind in (bool, bool | None):
        flag = f"{flag}/--no-{flag[2:]}"
    if kind == tuple[str, ...]:
        kind, default = list[str], list(default)
    words = tuple(choices) or tuple(about.get("entries") or ())
    option = typer.Option(
        flag, help=text, show_default=about.get("show_default", True), autocompletion=_completion(words)
    )
    annotation: Any = Annotated[kind, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
