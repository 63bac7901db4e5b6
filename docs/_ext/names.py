"""Links between pages and code: names in the text link to the reference, docstrings to the pages they name."""

import importlib
import inspect
import pkgutil
import re
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, NumpyDocstring
from sphinx.transforms import SphinxTransform

NAME = re.compile(r"(?:bo\.|blackout\.)?([A-Za-z_][\w.]*(?::[A-Za-z_][\w.]*)?)(?:\(.*\))?")
NUMPY_STYLE = Config(napoleon_google_docstring=False, napoleon_use_rtype=False, napoleon_use_ivar=True)
PAGE = re.compile(r"docs/([a-z-]+)\.md(?:#([a-z0-9-]+))?")


def find(text: str) -> str | None:
    """The full name of `PureDeath.sample`, `bo.load(...)` or `process:PureDeath`; None if it is not in this package.

    The result is the shortest name that can be imported, as in the reference; a method is listed under the class that
    defines it.
    """
    match = NAME.fullmatch(text)
    if match is None:
        return None
    room, _, path = match[1].rpartition(":")
    rooms, names = room.split(".") if room else [], path.split(".")
    while len(names) > 1 and _module([*rooms, names[0]]) is not None:
        rooms.append(names.pop(0))
    thing = _module(rooms)
    return None if thing is None else _defined(thing, names)


def _module(rooms: list[str]) -> Any:
    try:
        return importlib.import_module(".".join(["blackout", *rooms]))
    except ImportError:
        return None


def _defined(thing: Any, parts: list[str]) -> str | None:
    for k, part in enumerate(parts):
        if inspect.isclass(thing):
            owners = (c for c in thing.__mro__ if part in vars(c) or part in inspect.get_annotations(c))
            owner = next(owners, None)
            return None if owner is None or k < len(parts) - 1 else f"{_shortest(owner)}.{part}"
        if not hasattr(thing, part):
            return None
        thing = getattr(thing, part)
    return _shortest(thing) if inspect.isclass(thing) or inspect.isfunction(thing) else None


def _shortest(thing: Any) -> str:
    rooms = thing.__module__.split(".")
    for k in range(1, len(rooms) + 1):
        module = ".".join(rooms[:k])
        if getattr(importlib.import_module(module), thing.__name__, None) is thing:
            return f"{module}.{thing.__name__}"
    return f"{thing.__module__}.{thing.__qualname__}"


class LinkNames(SphinxTransform):
    """Turn inline code that names an object of the package into a link to the reference."""

    default_priority = 500

    def apply(self, **_: Any) -> None:
        if not self.env.docname or self.env.docname.startswith("api"):
            return
        for node in list(self.document.findall(nodes.literal)):
            inside = isinstance(node.parent, nodes.reference | nodes.title | pending_xref)
            if inside or (target := find(node.astext())) is None:
                continue
            link = pending_xref(
                "", node.deepcopy(), refdomain="py", reftype="obj", reftarget=target, refdoc=self.env.docname
            )
            node.replace_self(link)


def format_sections(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Turn numpy-style sections, such as Parameters, into fields.

    Not by the extension itself: in the docstring of an attribute, it takes "None: all of N" for a type and a text.
    """
    if what not in ("attribute", "data", "property"):
        lines[:] = NumpyDocstring(lines, NUMPY_STYLE, app, what, name, obj, options).lines()


def link_pages(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Turn `docs/mathematics.md#times` in a docstring into a link; a test checks that page and section exist."""
    for k, line in enumerate(lines):
        lines[k] = PAGE.sub(lambda m: f"`{m[0]} <{m[1]}.html{'#' + m[2] if m[2] else ''}>`__", line)


def import_exports() -> None:
    """Import the names that packages export lazily, so that autodoc lists them."""
    root = importlib.import_module("blackout")
    packages = [found.name for found in pkgutil.iter_modules(root.__path__, "blackout.") if found.ispkg]
    for package in map(importlib.import_module, ["blackout", *packages]):
        for name in getattr(package, "__all__", ()):
            setattr(package, name, getattr(package, name))


def setup(app: Sphinx) -> dict[str, bool]:
    import_exports()
    app.add_transform(LinkNames)
    app.connect("autodoc-process-docstring", format_sections)
    app.connect("autodoc-process-docstring", link_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
