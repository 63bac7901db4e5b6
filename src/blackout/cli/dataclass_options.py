"""Options of a command from the fields of a dataclass."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer


def with_config(config_type: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate `function(..., config)`, so that it takes an option for each field of `config_type` instead of `config`.

    Each field has metadata: help, flag (default: its name) and show_default, which may describe the default in words.
    """
    fields = dataclasses.fields(config_type)

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(**values: Any) -> None:
            chosen = {field.name: values.pop(field.name) for field in fields}
            function(**values, config=config_type(**chosen))

        own = [p for p in inspect.signature(function).parameters.values() if p.name != "config"]
        parameters = own + [_parameter(field) for field in fields]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorate


def _parameter(field: "dataclasses.Field[Any]") -> inspect.Parameter:
    flag, several = field.metadata["flag"] or f"--{field.name.replace('_', '-')}", field.type == tuple[str, ...]
    option = typer.Option(
        flag,
        help=field.metadata["help"],
        metavar="NAME" if several else None,
        show_default=field.metadata["show_default"] if field.type is not bool else False,
    )
    kind: Any = Annotated[list[str] if several else field.type, option]
    default: Any = field.default
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=list(default) if several else default, annotation=kind
    )
