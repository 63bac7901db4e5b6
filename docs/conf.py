"""Configuration of the site. `make docs` builds it offline; warnings are errors; pages load nothing from elsewhere."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import blackout

project = "Blackout"
author = "The Blackout developers"
copyright = author
version = release = blackout.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "mathml",
    "names",
    "commands",
    "registries",
]
exclude_patterns = ["pictures"]

myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
myst_dmath_double_inline = True

highlight_language = "none"  # of blocks without a language
default_role = "py:obj"  # a name in a docstring is a link where it can be one
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False  # an overridden method is documented once, where it is defined
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 120
add_module_names = False

nitpicky = True
suppress_warnings = ["ref.python"]  # inline code in a docstring, such as `mean`, may be the name of several methods
nitpick_ignore_regex = [
    ("py:obj", ".*"),  # `exact`, `--mask`: not every piece of inline code is a name
    ("py:.*", r"(?!blackout\b).*"),  # Python, torch, numpy: their references are not linked
]

html_theme = "furo"
html_title = "Blackout"
html_static_path = ["_static"]
html_css_files = ["blackout.css"]
html_math_renderer = "mathml"
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
