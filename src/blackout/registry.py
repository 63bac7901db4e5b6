"""Registries of named things, each with one-line help, and lazy exports: listing names and help needs no torch."""

import ast
import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class _Entry:
    target: Any
    help: str
    defaults: dict[str, Any]


class Registry:
    """Entries in the order they were added; the command line, the page, saved models and the docs read them.

    An entry is a class or a function, or ``"module:name"``, which is imported at first use, so that listing names and
    help does not import torch.

    Parameters
    ----------
    noun
        What an entry is called in messages, such as ``"sampler"``.

    Examples
    --------
    >>> SHAPES = Registry("shape")
    >>> SHAPES.add("square", "fractions:Fraction", "a ratio with the same numerator and denominator")
    >>> SHAPES.make("square", 3, 4)
    Fraction(3, 4)
    """

    def __init__(self, noun: str) -> None:
        self.noun = noun
        self._entries: dict[str, _Entry] = {}

    def add(self, name: str, target: Any, help: str, **defaults: Any) -> None:
        """Add an entry; ``defaults`` are keyword arguments that ``make`` passes unless they are given."""
        if name in self._entries:
            raise ValueError(f"{self.noun} {name!r} is registered already")
        self._entries[name] = _Entry(target, help, defaults)

    def remove(self, name: str) -> None:
        """Remove an entry."""
        self._entries.pop(self.check(name))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, name: str) -> Any:
        target = self._entries[self.check(name)].target
        if not isinstance(target, str):
            return target
        module, _, attribute = target.partition(":")
        return getattr(importlib.import_module(module), attribute)

    def check(self, name: str) -> str:
        """The name itself; ValueError with the names there are, if it is not one of them."""
        if not isinstance(name, str) or name not in self._entries:
            raise ValueError(f"{self.noun} must be one of {', '.join(self)}, got {name!r}")
        return name

    def help(self, name: str) -> str:
        """One line that describes the entry."""
        return self._entries[self.check(name)].help

    def make(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call the entry."""
        return self[name](*args, **{**self._entries[name].defaults, **kwargs})

    def find(self, instance: object) -> str:
        """The name under which the class of an object is registered; empty if it is not."""
        return next((name for name in self if self[name] is type(instance)), "")

    def name_of(self, instance: object) -> str:
        """The same; ValueError if the class is not registered."""
        if name := self.find(instance):
            return name
        name, plural = type(instance).__name__, self.noun.upper() + ("ES" if self.noun.endswith("s") else "S")
        raise ValueError(
            f"{name} is not a registered {self.noun}: add it, such as {plural}.add('mine', {name}, 'what it is')"
        )

    def to_config(self, instance: Any) -> dict[str, Any]:
        """The name of an object's class and the arguments it was constructed with, as plain JSON."""
        return {"kind": self.name_of(instance), **instance.config()}

    def from_config(self, config: dict[str, Any]) -> Any:
        """The object that ``to_config`` described."""
        values = dict(config)
        kind = self[str(values.pop("kind", ""))]
        try:
            return kind.from_config(values)
        except TypeError as error:
            raise ValueError(f"{self.noun} {config['kind']!r}: {error}") from None


def exports(package: str) -> tuple[Callable[[str], Any], list[str]]:
    """`__getattr__` and `__all__` of a package: the imports of its block `if TYPE_CHECKING:`, made at first use."""
    spec = sys.modules[package].__spec__
    source = getattr(spec and spec.loader, "get_source", lambda _: "")(package) or ""
    blocks = [
        node for node in ast.parse(source).body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    ]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    home = {alias.name: node.module or package for node in imports for alias in node.names}

    def __getattr__(name: str) -> Any:  # noqa: N807 - PEP 562
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if home[name] == package:  # a module of the package
            return importlib.import_module(f"{package}.{name}")
        return getattr(importlib.import_module(home[name]), name)

    return __getattr__, sorted(home)
