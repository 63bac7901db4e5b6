"""Figures to files and into pages, with bytes that are always the same."""

import html
import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blackout import validate
from blackout.figures.style import need_matplotlib

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VECTORS = ("svg", "pdf")
_DOTS = 200  # an inch, of a PNG
# What would differ from day to day, or from version to version.
_NOTHING = {
    "svg": dict.fromkeys(("Creator", "Date", "Format", "Type")),
    "pdf": dict.fromkeys(("Creator", "Producer", "CreationDate")),
    "png": {"Software": None},
}


def inline_svg(draw: "Callable[[], Figure]", title: str) -> str:
    """The figure that `draw` makes, as an element of an HTML page, in its ink; the bytes are always the same.

    Ids follow from the title, so that those of two figures do not meet in one page.
    """
    file = io.StringIO()
    with _defaults({"svg.fonttype": "none", "svg.hashsalt": title}):
        draw().savefig(file, format="svg", transparent=True, metadata=_NOTHING["svg"])
    head, body = re.split(r"(?=<g )", file.getvalue(), maxsplit=1)
    size = "".join(re.findall(r'viewBox="[^"]*"', head))
    body = re.sub(r"<!--.*?-->\s*", "", body, flags=re.DOTALL)
    prefix = "".join(c if c.isalnum() else "-" for c in title)
    body = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", body).replace("#000000", "currentColor")
    return f'<svg {size} role="img" aria-label="{html.escape(title)}">\n{body.strip()}'


def save(draw: "Callable[[], Figure]", stem: str | Path, vector: str = "svg") -> list[Path]:
    """The figure that `draw` makes, as STEM.svg (or STEM.pdf) and as STEM.png. The bytes are always the same."""
    stem = Path(stem)
    files = [stem.with_name(f"{stem.name}.{kind}") for kind in (validate.choice("vector", vector, VECTORS), "png")]
    with _defaults({"svg.hashsalt": stem.name, "pdf.fonttype": 42}):
        figure = draw()
        for file in files:
            kind = file.suffix[1:]
            figure.savefig(file, format=kind, dpi=_DOTS, metadata=_NOTHING[kind])
    return files


@contextmanager
def _defaults(settings: Any) -> Iterator[None]:
    """matplotlib's own settings and these: a style of the user's would end up in the bytes."""
    need_matplotlib()
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(settings)
        yield
