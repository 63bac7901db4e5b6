"""The site: it builds without a warning, names what there is, asks nobody for anything, and fits every screen."""

import importlib
import inspect
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from docutils import nodes
from sphinx.errors import SphinxError

import blackout as bo
from browser import ARGS, chromium_path
from test_cli import status

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "_ext"))

from commands import reference  # noqa: E402
from mathml import mathml  # noqa: E402
from names import PAGE, find  # noqa: E402

ROOMS = ("data", "evaluation", "figures", "measure", "network", "samples")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-n", "-d", str(folder / "trees")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, str(DOCS), str(folder / "html")], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "html"


@cache
def sections(page: str) -> dict[str, str]:
    """The text of each section, by the anchor that GitHub and Sphinx give it."""
    text = re.sub(r"^```.*?^```", "", (DOCS / f"{page}.md").read_text(), flags=re.M | re.S)
    parts = re.split(r"^##+ (.+)$", text, flags=re.M)
    return {anchor(title): body for title, body in zip(parts[1::2], parts[2::2], strict=True)}


def anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def pointers() -> list[tuple[str, str, str]]:
    """(file, page, anchor) of each mention of a page in the source."""
    files = sorted((ROOT / "src/blackout").rglob("*.py"))
    return [(file.name, *found) for file in files for found in PAGE.findall(file.read_text())]


def test_the_code_points_to_pages_and_sections_that_are_there() -> None:
    for file, page, section in pointers():
        assert (DOCS / f"{page}.md").exists(), f"{file}: docs/{page}.md"
        assert not section or section in sections(page), f"{file}: docs/{page}.md#{section}"


@pytest.mark.parametrize("section", sections("mathematics"))
def test_each_section_of_the_mathematics_leads_to_code_and_code_to_it(section: str) -> None:
    (paragraph,) = re.findall(r"^In code: (.+?)(?:\n\n|\Z)", sections("mathematics")[section], re.M | re.S)
    code = [name for name in re.findall(r"`([^`]+)`", paragraph) if name != "corrector_steps"]
    assert code
    for name in code:
        assert find(name) is not None, name
    assert ("mathematics", section) in {found[1:] for found in pointers()}, "no docstring points here"


def test_the_equations_lead_to_the_mathematics() -> None:
    found = re.findall(r"\]\(mathematics\.md#([\w-]+)\)", (DOCS / "equations.md").read_text())
    assert len(found) > 20
    assert set(found) <= set(sections("mathematics"))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("PureDeath", "blackout.PureDeath"),
        ("bo.PureDeath(max_count=255)", "blackout.PureDeath"),
        ("process:PureDeath.log_prob", "blackout.MarkovProcess.log_prob"),
        ("process:MarkovProcess.jumps", "blackout.MarkovProcess.jumps"),
        ("blackout.data.make_digits", "blackout.data.make_digits"),
        ("process.limit:forward_moments", "blackout.process.limit.forward_moments"),
        ("PureDeath.nothing", None),
        ("blackout.data", None),
        ("runs/mine", None),
        ("torch.Tensor", None),
        ("x", None),
    ],
)
def test_names_in_the_text_are_found(text: str, name: str | None) -> None:
    assert find(text) == name


def test_equations_are_drawn_or_refused() -> None:
    assert "<mfrac>" in mathml(nodes.math("", "", nodes.Text(r"\frac{o}{m'}")), "inline")
    with pytest.raises(SphinxError, match="a command is not known"):
        mathml(nodes.math("", "", nodes.Text(r"\unheard{o}")), "inline")


@pytest.mark.parametrize("command", ["train", "sample", "evaluate"])
def test_the_page_of_the_command_line_has_every_option(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status([*command.split(), "--help"], monkeypatch) == 0
    options = set(re.findall(r"^  (--[a-z][\w-]*)", capsys.readouterr().out, re.M)) - {"--help"}
    (section,) = re.findall(rf"^## blackout {command}\n(.*?)(?=^## |\Z)", reference(), re.M | re.S)
    assert options
    for option in options:
        assert f"`{option}" in section, option


def test_the_site_has_every_public_name_and_loads_nothing_from_elsewhere(site: Path) -> None:
    names = {f"blackout.{name}" for name in bo.__all__}
    for room in ROOMS:
        module = importlib.import_module(f"blackout.{room}")
        things = {name: getattr(module, name) for name in module.__all__}
        names |= {f"blackout.{room}.{n}" for n, thing in things.items() if inspect.isclass(thing) or callable(thing)}
    anchors = set(re.findall(r'id="(?:module-)?(blackout\.[\w.]+)"', (site / "api.html").read_text()))
    anchors |= set(re.findall(r'id="(?:module-)?(blackout\.[\w.]+)"', (site / "api-parts.html").read_text()))
    assert names <= anchors, sorted(names - anchors)

    mathematics = (site / "mathematics.html").read_text()
    assert 'href="api.html#blackout.MarkovProcess.reverse_rates"' in mathematics
    assert '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">' in mathematics
    assert 'href="mathematics.html#the-evidence-bound"' in (site / "api.html").read_text()
    for page in site.glob("*.html"):
        assert not re.findall(r"<(?:script|img|iframe|link)\b[^>]*(?:src|href)=\"(?:https?:)?//", page.read_text()), (
            page
        )


LOOK = """() => {
    const scrolls = e => e && e.tagName != 'ARTICLE' && (/auto|scroll/.test(getComputedStyle(e).overflowX)
        ? true : scrolls(e.parentElement));
    return {
        width: document.documentElement.scrollWidth,
        over: [...document.querySelectorAll('article *')]
            .filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !scrolls(e)).map(e => e.outerHTML),
        flat: [...document.querySelectorAll('.equation math')]
            .filter(m => m.getBoundingClientRect().height < 10).length,
        broken: [...document.images].filter(i => !i.naturalWidth).map(i => i.src),
        paper: getComputedStyle(document.body).backgroundColor,
    };
}"""


@pytest.mark.skipif(chromium_path() is None, reason="no Chromium: BLACKOUT_CHROMIUM names none and none is on the path")
def test_pages_fit_narrow_and_wide_screens_in_light_and_dark(site: Path) -> None:
    from playwright.sync_api import sync_playwright

    pages = sorted(page.name for page in site.glob("*.html") if page.stem not in ("genindex", "py-modindex", "search"))
    papers, asked = set(), []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium_path(), args=ARGS)
        for width, scheme in ((390, "light"), (1280, "dark")):
            view = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            view.on("request", lambda request: asked.append(request.url))
            for name in pages:
                view.goto((site / name).as_uri())
                seen = view.evaluate(LOOK)
                assert seen["width"] <= width, f"{name} is {seen['width']} wide on a screen of {width}"
                assert not seen["over"], f"{name}, {width}: cut off, and does not scroll: {seen['over'][0][:300]}"
                assert not seen["broken"], f"{name}: {seen['broken']}"
                assert seen["flat"] == 0, f"{name}: equations that are not drawn"
                papers.add((scheme, seen["paper"]))
        browser.close()
    assert len({paper for _, paper in papers}) == 2, papers
    assert not [url for url in asked if not url.startswith(("file:", "data:"))]
