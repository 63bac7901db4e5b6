"""A figure within a page."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from blackout import figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot(title: str, caption: str, draw: "Callable[[], Figure]") -> str:
    """A figure with what it shows."""
    svg = figures.inline_svg(draw, title).replace("#0072b2", "var(--blue)")  # a lighter blue in the dark
    return f"<figure><h3>{title}</h3>\n{svg}\n<figcaption>{caption}</figcaption></figure>\n"
