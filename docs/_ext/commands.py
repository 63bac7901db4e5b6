"""The page of the command line, written from the commands: the text of `--help`, as a list that wraps."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sphinx.application import Sphinx
from typer.main import get_command

from blackout.cli import app as blackout


class Listing:
    """A help formatter that writes Markdown instead of columns."""

    width = 1000  # no line is wrapped

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        self.lines += ["```text", f"{prog} {args}".strip(), "```", ""]

    def write_paragraph(self) -> None:
        self.lines.append("")

    def write_text(self, text: str) -> None:
        self.lines += [text, ""]

    @contextmanager
    def indentation(self) -> Iterator[None]:
        yield

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        self.lines += [f"*{name}*", ""]
        yield

    def write_dl(self, rows: list[tuple[str, str]]) -> None:
        for name, text in rows:
            if "--help" in name:
                continue
            about = text.replace("*", r"\*").replace("_", r"\_").replace("[default: (", "[default: ").replace(")]", "]")
            self.lines += [f"`{name.strip()}`", f": {about or name}", ""]


def pages(command: Any, name: str, parent: Any = None) -> Iterator[str]:
    """One section for a command, then one for each of its subcommands."""
    context = command.make_context(name.split()[-1], [], parent, resilient_parsing=True)
    listing = Listing()
    command.format_help(context, listing)
    yield "\n".join([f"## {name}", "", *listing.lines])
    for inner, each in getattr(command, "commands", {}).items():
        yield from pages(each, f"{name} {inner}", context)


def reference() -> str:
    """The sections of all commands, as Markdown."""
    return "\n".join(pages(get_command(blackout), "blackout"))


def write(app: Sphinx, docname: str, source: list[str]) -> None:
    if docname == "cli":
        source[0] += "\n" + reference()


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
