"""Figures as files and as inline SVG, byte for byte reproducible."""

import html
import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blackout import validate
from blackout.atomic import atomic
from blackout.figures.style import require_matplotlib

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VECTORS = ("svg", "pdf")
_DPI = 200  # of a PNG
# Metadata that depend on the day or on the version of matplotlib are left out.
_METADATA = {
    "svg": dict.fromkeys(("Creator", "Date", "Format", "Type")),
    "pdf": dict.fromkeys(("Creator", "Producer", "CreationDate")),
    "png": {"Software": None},
}


def inline_svg(draw: "Callable[[], Figure]", title: str) -> str:
    """The figure that `draw` returns as an SVG element for an HTML page, black replaced by the page's text colour.

    Ids are prefixed by the title, so that those of two figures in one page differ.
    """
    file = io.StringIO()
    with _default_style({"svg.fonttype": "none", "svg.hashsalt": title}):
        draw().savefig(file, format="svg", transparent=True, metadata=_METADATA["svg"])
    head, body = re.split(r"(?=<g )", file.getvalue(), maxsplit=1)
    size = "".join(re.findall(r'viewBox="[^"]*"', head))
    body = re.sub(r"<!--.*?-->\s*", "", body, flags=re.DOTALL)
    prefix = "".join(c if c.isalnum() else "-" for c in title)
    body = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", body).replace("#000000", "currentColor")
    return f'<svg {size} role="img" aria-label="{html.escape(title)}">\n{body.strip()}'


def save(draw: "Callable[[], Figure]", stem: str | Path, vector: str = "svg") -> list[Path]:
    """Write the figure that `draw` returns as STEM.svg (or STEM.pdf) and STEM.png, and return the two paths.

    `draw` is called with matplotlib's default style, so that the bytes do not depend on the user's.
    """
    stem = Path(stem)
    files = [stem.with_name(f"{stem.name}.{kind}") for kind in (validate.choice("vector", vector, VECTORS), "png")]
    with _default_style({"svg.hashsalt": stem.name, "pdf.fonttype": 42}):
        figure = draw()
        for file in files:
            kind = file.suffix[1:]
            with atomic(file) as partial:
                figure.savefig(partial, format=kind, dpi=_DPI, metadata=_METADATA[kind])
    return files


@contextmanager
def _default_style(settings: Any) -> Iterator[None]:
    """matplotlib's defaults with these settings."""
    require_matplotlib()
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(settings)
        yield
