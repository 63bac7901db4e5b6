"""The site: it builds without warnings, names what exists, loads nothing from other servers, and fits every screen."""

import ast
import importlib
import inspect
import os
import re
import shlex
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from docutils import nodes
from sphinx.errors import SphinxError

import blackout as bo
import processes
from blackout.cli import app
from blackout.evaluation import builtin_specs
from blackout.recipes import RECIPES, recipe
from blackout.sampling import SAMPLERS, TauLeaping
from blackout.training.config import TrainConfig
from browser import ARGS, chromium_path
from test_cli import status

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PACKAGE = ROOT / "src/blackout"
sys.path.insert(0, str(DOCS / "_ext"))

from commands import reference  # noqa: E402
from mathml import mathml  # noqa: E402
from names import PAGE, find  # noqa: E402
from registries import entries, modules  # noqa: E402

ROOMS = (
    "cells",
    "data",
    "evaluation",
    "figures",
    "io",
    "network",
    "posterior",
    "process",
    "reactions",
    "sampling",
    "times",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as by `make docs`."""
    folder = tmp_path_factory.mktemp("site")
    command = ["-m", "sphinx", "-q", "-W", "--keep-going", "-n", "-d", folder / "trees"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = processes.run(*command, DOCS, folder / "html", env=environment)
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


def test_links_in_docstrings_lead_to_existing_sections() -> None:
    for file, page, section in pointers():
        assert (DOCS / f"{page}.md").exists(), f"{file}: docs/{page}.md"
        assert not section or section in sections(page), f"{file}: docs/{page}.md#{section}"


@pytest.mark.parametrize("section", sections("mathematics"))
def test_mathematics_and_code_link_to_each_other(section: str) -> None:
    (paragraph,) = re.findall(r"^In code: (.+?)(?:\n\n|\Z)", sections("mathematics")[section], re.M | re.S)
    code = [name for name in re.findall(r"`([^`]+)`", paragraph) if name != "corrector_steps"]
    assert code
    for name in code:
        assert find(name) is not None, name
    assert ("mathematics", section) in {found[1:] for found in pointers()}, "no docstring links to this section"


def test_equations_link_to_the_mathematics() -> None:
    found = re.findall(r"\]\(mathematics\.md#([\w-]+)\)", (DOCS / "equations.md").read_text())
    assert len(found) > 20
    assert set(found) <= set(sections("mathematics"))


PAPER = (DOCS / "paper.md").read_text()
FIELD = re.compile(r"`(?:([\w-]+-paper[\w-]*): )?(\w+)=([^`]+)`")


def test_the_papers_recipes_have_the_fields_on_the_page() -> None:
    every = [name for name in RECIPES if "-paper" in name]
    rows = [line.rsplit("|", 2)[1] for line in PAPER.splitlines() if line.startswith("| ")]
    fields = [found for row in rows for found in FIELD.findall(row)]
    assert len(fields) > 40
    for name, field, value in fields:
        for one in [name] if name else every:
            assert recipe(one)[field] == ast.literal_eval(value), (one, field)
    # What the recipes change of the defaults is on the page, but for how they run and are named.
    changed = {field for name in every for field in TrainConfig.fields() if recipe(name)[field] != TrainConfig()[field]}
    assert changed - {"compile", "compile_mode", "dataset"} <= {field for _, field, _ in fields}


def test_commands_on_the_page_of_the_paper_exist() -> None:
    lines = [line for line in PAPER.splitlines() if line.startswith("blackout ")]
    lines += [line for line in re.findall(r"`(blackout [^`]+)`", PAPER) if line != "blackout train"]
    assert len(lines) > 10
    for line in lines:
        words = shlex.split(line)[1:]
        command: Any = typer.main.get_command(app)
        command.commands[words[0]].make_context("blackout", words[1:])
        if words[0] == "compare":
            assert words[1] in builtin_specs()
        if words[0] == "train":
            assert words[1] in RECIPES


@pytest.mark.parametrize("file", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_the_repository_lead_to_existing_files(file: str) -> None:
    text = re.sub(r"^```.*?^```", "", (ROOT / file).read_text(), flags=re.M | re.S)
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (ROOT / link).exists(), link


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_files_of_the_repository_named_on_a_page_exist(page: Path) -> None:
    for name in re.findall(r"\b(?:tests|examples|benchmarks|results)/\w+\.\w+", page.read_text()):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("PureDeath", "blackout.PureDeath"),
        ("bo.PureDeath(max_count=255)", "blackout.PureDeath"),
        ("process:PureDeath.log_prob", "blackout.MarkovProcess.log_prob"),
        ("process:MarkovProcess.jumps", "blackout.MarkovProcess.jumps"),
        ("blackout.data.make_seven_segment", "blackout.data.make_seven_segment"),
        ("process.limit:forward_moments", "blackout.process.limit.forward_moments"),
        ("PureDeath.nothing", None),
        ("blackout.data", None),
        ("runs/mine", None),
        ("torch.Tensor", None),
        ("x", None),
    ],
)
def test_names_in_the_text_are_resolved(text: str, name: str | None) -> None:
    assert find(text) == name


def test_equations_are_rendered_or_rejected() -> None:
    assert "<mfrac>" in mathml(nodes.math("", "", nodes.Text(r"\frac{o}{m'}")), "inline")
    with pytest.raises(SphinxError, match="unknown command"):
        mathml(nodes.math("", "", nodes.Text(r"\unheard{o}")), "inline")


@pytest.mark.parametrize("command", ["train", "sample", "evaluate", "cells train", "cells impute"])
def test_command_line_page_has_every_option(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status([*command.split(), "--help"], monkeypatch) == 0
    options = set(re.findall(r"^  (--[a-z][\w-]*)", capsys.readouterr().out, re.M)) - {"--help"}
    (section,) = re.findall(rf"^## blackout {command}\n(.*?)(?=^## |\Z)", reference(), re.M | re.S)
    assert options
    for option in options:
        assert f"`{option}" in section, option


def registries() -> list[str]:
    """The path of every registry in the source, such as blackout.sampling.SAMPLERS."""
    found = []
    for file in PACKAGE.rglob("*.py"):
        parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found += [f"{module}.{name}" for name in re.findall(r"^([A-Z_]+)\b[^=\n]*= Registry\(", file.read_text(), re.M)]
    return sorted(found)


def listed() -> set[str]:
    """The registries that pages list."""
    return {
        path for page in DOCS.glob("*.md") for path in re.findall(r"^```\{registry\} (\S+)$", page.read_text(), re.M)
    }


def test_every_registry_is_listed_on_a_page() -> None:
    assert len(registries()) >= 9
    homes = {id(_by_path(path)): path for path in registries()}
    assert {homes[id(_by_path(path))] for path in listed()} == set(registries())


def _by_path(path: str) -> object:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def test_a_new_entry_of_a_registry_appears_in_the_lists() -> None:
    SAMPLERS.add("toy", TauLeaping, "a sampler of this test")
    try:
        assert ("toy", "a sampler of this test") in entries("blackout.sampling.SAMPLERS")
    finally:
        SAMPLERS.remove("toy")
    assert "toy" not in dict(entries("blackout.sampling.SAMPLERS"))


def test_the_site_lists_registries_and_modules(site: Path) -> None:
    text = {page.stem: re.sub(r"<[^>]+>", "", page.read_text()) for page in site.glob("*.html")}
    for name, line in entries("blackout.sampling.SAMPLERS"):
        assert f"{name}: {line}".replace("'", "’") in text["extending"].replace("'", "’").replace("&#39;", "’")
    for name, _ in modules():
        assert f"{name}: " in text["architecture"], name


def test_the_architecture_names_every_room() -> None:
    page = (DOCS / "architecture.md").read_text()
    tree = page.partition("src/blackout/\n")[2].partition("\nbenchmarks/")[0]
    placed = set(re.findall(r"^  (\S+)", tree, re.M)) | set(re.findall(r"; (\S+\.py)", tree))
    files = {file.relative_to(PACKAGE) for file in PACKAGE.rglob("*") if file.suffix in (".py", ".safetensors")}
    assert placed == {f"{file.parts[0]}/" if len(file.parts) > 1 else file.name for file in files}
    for name in re.findall(r"^(\w+)/ ", page, re.M):
        assert (ROOT / name).is_dir(), name


def test_the_architecture_has_the_import_order_of_the_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    section = (DOCS / "architecture.md").read_text().partition("## Import order\n\n```\n")[2].partition("\n```")[0]
    assert section.splitlines() == [layer.replace("blackout.", "") for layer in layers]


def test_the_site_has_every_public_name_and_loads_nothing_from_other_servers(site: Path) -> None:
    text = (site / "api.html").read_text() + (site / "api-parts.html").read_text()
    anchors = set(re.findall(r'id="(?:module-)?(blackout\.[\w.]+)"', text))
    assert {f"blackout.{name}" for name in bo.__all__} <= anchors
    for room in ROOMS:
        module = importlib.import_module(f"blackout.{room}")
        things = {name: getattr(module, name) for name in module.__all__}
        public = {name for name, thing in things.items() if inspect.isclass(thing) or inspect.isfunction(thing)}
        missing = {name for name in public if not {f"blackout.{room}.{name}", f"blackout.{name}"} & anchors}
        assert not missing, (room, sorted(missing))

    mathematics = (site / "mathematics.html").read_text()
    assert 'href="api.html#blackout.MarkovProcess.reverse_rates"' in mathematics
    assert '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">' in mathematics
    assert 'href="mathematics.html#the-evidence-bound"' in (site / "api.html").read_text()
    for page in site.glob("*.html"):
        assert not re.findall(r"<(?:script|img|iframe|link)\b[^>]*(?:src|href)=\"(?:https?:)?//", page.read_text()), (
            page
        )


MEASURE = """() => {
    const scrolls = e => e && e.tagName != 'ARTICLE' && (/auto|scroll/.test(getComputedStyle(e).overflowX)
        ? true : scrolls(e.parentElement));
    return {
        width: document.documentElement.scrollWidth,
        over: [...document.querySelectorAll('article *')]
            .filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !scrolls(e)).map(e => e.outerHTML),
        flat: [...document.querySelectorAll('.equation math')]
            .filter(m => m.getBoundingClientRect().height < 10).length,
        broken: [...document.images].filter(i => !i.naturalWidth).map(i => i.src),
        background: getComputedStyle(document.body).backgroundColor,
    };
}"""


@pytest.mark.skipif(chromium_path() is None, reason="no Chromium: BLACKOUT_CHROMIUM names none and none is on the path")
def test_pages_fit_narrow_and_wide_screens_in_light_and_dark(site: Path) -> None:
    from playwright.sync_api import sync_playwright

    pages = sorted(page.name for page in site.glob("*.html") if page.stem not in ("genindex", "py-modindex", "search"))
    backgrounds, requested = set(), []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium_path(), args=ARGS)
        for width, scheme in ((390, "light"), (1280, "dark")):
            view = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            view.on("request", lambda request: requested.append(request.url))
            for name in pages:
                view.goto((site / name).as_uri())
                seen = view.evaluate(MEASURE)
                assert seen["width"] <= width, f"{name} is {seen['width']} wide on a screen of {width}"
                assert not seen["over"], f"{name}, {width}: cut off without a scroll bar: {seen['over'][0][:300]}"
                assert not seen["broken"], f"{name}: {seen['broken']}"
                assert seen["flat"] == 0, f"{name}: equations that are not rendered"
                backgrounds.add((scheme, seen["background"]))
        browser.close()
    assert len({colour for _, colour in backgrounds}) == 2, backgrounds
    assert not [url for url in requested if not url.startswith(("file:", "data:"))]
