"""Packages whose names are imported at first use, so that listing names and help does not import torch."""

import importlib
from collections.abc import Callable
from typing import Any


def exports(package: str, homes: dict[str, tuple[str, ...]]) -> tuple[Callable[[str], Any], list[str]]:
    """`__getattr__` and `__all__` of a package, from its modules and the names that each of them defines.

    A module that is listed with its own name is exported itself.
    """
    home = {name: module for module, names in homes.items() for name in names}

    def __getattr__(name: str) -> Any:  # noqa: N807 - PEP 562
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(home[name])
        return module if home[name] == f"{package}.{name}" else getattr(module, name)

    return __getattr__, sorted(home)
