"""Equations as MathML, which browsers render natively: no scripts, fonts or images from other servers."""

import re

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.errors import SphinxError
from sphinx.writers.html5 import HTML5Translator

CORRECTIONS = (
    # A prime is a raised character already; as an exponent it would be too small and too far right.
    (r"<msup>(<mi>\w</mi>)<mi>&#x02032;</mi></msup>", r'\1<mo lspace="0" rspace="0">&#x2032;</mo>'),
    # The name of a function needs space on both sides.
    (r"<mi>log</mi>", r'<mo lspace="0.17em" rspace="0.17em">log</mo>'),
)


def mathml(node: nodes.Element, display: str) -> str:
    """The equation of a node. A LaTeX command that the converter does not know ends the build."""
    latex = node.astext()
    try:
        result = convert(latex, display=display)
    except Exception as error:  # the converter's exceptions have no common base class
        raise SphinxError(f"invalid equation: {latex!r} ({type(error).__name__} {error})") from error
    if "\\" in result or "&#x0005C;" in result:
        raise SphinxError(f"invalid equation, unknown command: {latex!r}")
    for pattern, better in CORRECTIONS:
        result = re.sub(pattern, better, result)
    return result


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(mathml(node, "inline"))
    raise nodes.SkipNode


def visit_block(self: HTML5Translator, node: nodes.math_block) -> None:
    self.body.append(self.starttag(node, "div", CLASS="equation") + mathml(node, "block") + "</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
