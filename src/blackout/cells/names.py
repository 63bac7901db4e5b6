"""Names of cells and genes, short lists of them for messages, and the import of optional packages."""

import importlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy

from blackout import validate


def optional(module: str, purpose: str, extra: str = "counts") -> Any:
    """Import a module that an extra of this package installs; ValueError with the reason if that fails."""
    try:
        return importlib.import_module(module)
    except Exception as error:  # an import can fail with any exception
        package = module.partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and error.name in (package, module):
            raise ValueError(f"{purpose} needs {package}: pip install 'blackout-diffusion[{extra}]'") from None
        raise ValueError(f"{purpose} needs {module}, whose import fails: {validate.one_line(error)}") from None


def few(names: Sequence[str]) -> str:
    """The first three names, quoted, and the number of the others."""
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def repeated(names: Iterable[str]) -> list[str]:
    """Names that occur more than once."""
    return [name for name, number in Counter(names).items() if number > 1]


def texts(values: Any) -> tuple[str, ...]:
    """Names from any array of strings or bytes."""
    values = numpy.asarray(values).ravel().tolist()
    return tuple(value.decode() if isinstance(value, bytes) else str(value) for value in values)


def unique_names(names: Sequence[str]) -> tuple[str, ...]:
    """Unique names, made as anndata makes them: a repeated name becomes name-1, name-2, ..."""
    taken = set(names)
    if len(taken) == len(names):
        return tuple(names)
    number, out = Counter[str](), []
    for name in names:
        new = name
        if number[name]:
            while (new := f"{name}-{number[name]}") in taken:
                number[name] += 1
            taken.add(new)
        number[name] += 1
        out.append(new)
    return tuple(out)
