"""Lists that are written when the site is built: the entries of a registry, and the modules of the package."""

import ast
import importlib
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

PACKAGE = Path(importlib.import_module("blackout").__file__ or "").parent


def entries(path: str) -> list[tuple[str, str]]:
    """Name and help line of each entry of a registry, such as blackout.sampling.SAMPLERS."""
    module, _, name = path.rpartition(".")
    parts = getattr(importlib.import_module(module), name)
    return [(entry, parts.help(entry)) for entry in parts]


def modules() -> list[tuple[str, str]]:
    """Path of each module in the package, and the first line of its docstring."""
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        line = (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n")[0]
        found.append((str(file.relative_to(PACKAGE)), line))
    return found


def _list(rows: list[tuple[str, str]]) -> nodes.bullet_list:
    result = nodes.bullet_list()
    for name, text in rows:
        result += nodes.list_item("", nodes.paragraph("", "", nodes.literal(text=name), nodes.Text(f": {text}")))
    return result


class RegistryList(SphinxDirective):
    """The entries of a registry: `{registry} blackout.sampling.SAMPLERS`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        return [_list(entries(self.arguments[0]))]


class ModuleList(SphinxDirective):
    """All modules of the package: `{modules}`."""

    def run(self) -> list[nodes.Node]:
        return [_list(modules())]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("registry", RegistryList)
    app.add_directive("modules", ModuleList)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
