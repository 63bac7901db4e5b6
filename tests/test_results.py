"""Records of results, and the page that is written from them."""

import json
import re
import shlex
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import typer

from blackout.cli import app
from blackout.figures.record import Cell, Record, Uncertain, read
from blackout.recipes import RECIPES

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.__main__ import app as benchmarks  # noqa: E402
from results.render import main, render  # noqa: E402

RECORDS = read(ROOT / "results")
MEASURED_RECORDS = [record for record in RECORDS if record.kind == "measured"]
PUBLISHED_RECORDS = [record for record in RECORDS if record.kind == "published"]

MEASURED: dict[str, Any] = {
    "format": 1,
    "id": "one",
    "group": "A group",
    "order": 10,
    "title": "A title",
    "kind": "measured",
    "hardware": "an abacus",
    "command": "blackout recipes",
    "commit": "0123abc",
    "seed": 0,
    "date": "2026-11-15",
    "columns": ["what", "figure"],
    "rows": [["beads", 3]],
    "note": "",
}
COMMON = ("format", "id", "group", "order", "title", "columns", "rows", "note")
PUBLISHED = {name: MEASURED[name] for name in COMMON} | {"kind": "published", "source": "A. Author, A journal, 1999"}


def _write(folder: Path, *contents: dict[str, Any]) -> Path:
    for number, content in enumerate(contents):
        (folder / f"{number}.json").write_text(json.dumps(content))
    return folder


def _parse(command: str) -> dict[str, Any]:
    """Parse a command line of blackout or the benchmarks; raise for an unknown command or option."""
    program, *words = shlex.split(command)
    if program == "python":
        assert words[:2] == ["-m", "benchmarks"]
        words = words[2:]
    node: Any = typer.main.get_command(app if program == "blackout" else benchmarks)
    while hasattr(node, "commands"):
        node = node.commands[words.pop(0)]
    return dict(node.make_context("blackout", words).params)


def test_the_page_is_that_of_the_records() -> None:
    assert (ROOT / "docs/results.md").read_text(encoding="utf-8") == render(RECORDS)


def test_the_page_on_reliability_has_the_counts_of_the_record() -> None:
    (record,) = [record for record in RECORDS if record.id == "reliability"]
    table = [line for line in render([record]).splitlines() if line.startswith("|")]
    page = (ROOT / "docs/reliability.md").read_text(encoding="utf-8")
    assert "\n".join(table) in page


@pytest.mark.parametrize("record", MEASURED_RECORDS, ids=lambda record: record.id)
def test_commands_of_measured_records_exist(record: Record) -> None:
    assert re.fullmatch("[0-9a-f]{7,40}", record.commit)
    makefile = (ROOT / "Makefile").read_text()
    for command in record.command:
        program, first = shlex.split(command)[:2]
        if program == "make":
            assert re.search(rf"^{re.escape(first)}:", makefile, re.M), command
        elif program == "python" and first != "-m":
            assert (ROOT / first).is_relative_to(ROOT / "examples"), command
            assert (ROOT / first).exists(), command
        else:
            assert _parse(command).get("recipe", "cifar10") in RECIPES


@pytest.mark.parametrize(
    "command",
    [
        "blackout fly",
        "python -m benchmarks fly",
        "blackout train cifar10 --wings 2",
        "python -m benchmarks train --wings 2",
        "blackout train",
        "blackout",
    ],
)
def test_unknown_commands_and_options_are_detected(command: str) -> None:
    with pytest.raises((KeyError, IndexError, typer.BadParameter.__base__)):  # type: ignore[arg-type]
        _parse(command)


@pytest.mark.parametrize("record", PUBLISHED_RECORDS, ids=lambda record: record.id)
def test_published_records_name_their_source(record: Record) -> None:
    assert re.search(r"\b(19|20)\d\d\b.*(Table|Section|Appendi)", record.source)
    if "FID" in record.columns:
        assert "cannot be compared" in record.note


def test_numbers_are_read_exactly(tmp_path: Path) -> None:
    rows = '[["a", {"value": 4.40, "error": 0.02}], ["b", 7.50], ["c", null]]'
    text = json.dumps(MEASURED | {"rows": "ROWS"}).replace('"ROWS"', rows)
    (tmp_path / "one.json").write_text(text)
    (record,) = read(tmp_path)
    assert record.rows == (("a", Uncertain(Decimal("4.40"), Decimal("0.02"))), ("b", Decimal("7.50")), ("c", None))
    assert (record.command, record.seeds, record.source) == (("blackout recipes",), (0,), "")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ([], "must be an object"),
        (MEASURED | {"kind": "guessed"}, "kind must be one of measured, published, got 'guessed'"),
        (MEASURED | {"mood": "good"}, "unknown fields for a measured record: mood"),
        (MEASURED | {"source": "a book"}, "unknown fields for a measured record: source"),
        ({k: v for k, v in MEASURED.items() if k not in ("seed", "commit")}, "missing fields .*: commit, seed"),
        (PUBLISHED | {"commit": "0123abc"}, "unknown fields for a published record: commit"),
        ({k: v for k, v in PUBLISHED.items() if k != "source"}, "missing fields for a published record: source"),
        (MEASURED | {"format": 2}, "format must be 1, got 2"),
        (MEASURED | {"commit": "0123ab"}, "commit must be 7 to 40 hexadecimal digits, .* got '0123ab'"),
        (MEASURED | {"commit": "0123abc++"}, "commit must be"),
        (MEASURED | {"commit": ""}, "commit must be 7 to 40 hexadecimal digits"),
        (MEASURED | {"kind": []}, r"kind must be one of measured, published, got \[\]"),
        (MEASURED | {"format": True}, "format must be 1, got True"),
        (MEASURED | {"rows": [["beads", {"value": 1e30, "error": 0.001}]]}, "a number must be 0 or from 1e-12 to 1e12"),
        (MEASURED | {"rows": [["beads", 10**40]]}, "a number must be"),
        (MEASURED | {"date": "20261115"}, "date must be a day as YYYY-MM-DD, got '20261115'"),
        (MEASURED | {"date": "2026-13-01"}, "date must be"),
        (MEASURED | {"seed": -1}, "seed must be an integer, at least 0, a list of them, or null, got -1"),
        (MEASURED | {"seed": [0, -1]}, "seed must be an integer, at least 0, a list of them, or null, got .0, -1."),
        (MEASURED | {"order": True}, "order must be an integer"),
        (MEASURED | {"title": " "}, "title must be one line of text"),
        (MEASURED | {"note": "two\nlines"}, "note must be one line of text"),
        (MEASURED | {"command": []}, "command must be a list of texts, and not empty"),
        (MEASURED | {"columns": "what"}, "columns must be a list of texts"),
        (MEASURED | {"rows": []}, "rows must be a list of rows, and not empty"),
        (MEASURED | {"rows": [["beads", 3], ["beads"]]}, "row 2 must have 2 cells"),
        (MEASURED | {"rows": [["beads", {"value": 3}]]}, "a cell must be text, a number, null or a value with"),
        (MEASURED | {"rows": [["beads", {"value": 3, "error": -1}]]}, "a cell must be"),
        (MEASURED | {"rows": [["beads", {"value": "3", "error": 1}]]}, "value and error must be numbers, got '3'"),
        (MEASURED | {"rows": [["beads", True]]}, "a cell must be"),
        (MEASURED | {"rows": [["beads", float("nan")]]}, "NaN is not a figure"),
    ],
)
def test_errors_name_the_file_and_the_field(content: Any, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"0\.json: .*{reason}"):
        read(_write(tmp_path, content))


def test_damaged_files_empty_folders_and_equal_ids(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no \.json file"):
        read(tmp_path)
    with pytest.raises(ValueError, match=r"1\.json: id 'one' is that of .*0\.json too"):
        read(_write(tmp_path, MEASURED, PUBLISHED))
    (tmp_path / "0.json").write_text('{"format": 1,')
    with pytest.raises(ValueError, match=r"0\.json: "):
        read(tmp_path)


def test_deep_nesting(tmp_path: Path) -> None:
    (tmp_path / "0.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"0\.json: nested too deeply"):
        read(tmp_path)


@pytest.mark.parametrize("commit", ["0123abc+", None])
def test_records_of_unknown_commits_are_read_but_not_published(
    commit: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (record,) = read(_write(tmp_path, MEASURED | {"commit": commit}))
    assert record.commit == (commit or "")
    assert f"commit `{commit or 'unknown'}`" in render([record])
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path), str(tmp_path / "page.md")])
    assert "one: commit must be that of a clean checkout" in capsys.readouterr().err
    assert not (tmp_path / "page.md").exists()


@pytest.mark.parametrize(
    ("cell", "measured", "published"),
    [
        (Uncertain(Decimal("3.063"), Decimal("0.0068")), "3.063 ± 0.007", "3.063 ± 0.0068"),
        (Uncertain(Decimal("3.0721934"), Decimal("0.0160871")), "3.072 ± 0.016", "3.0721934 ± 0.0160871"),
        (Uncertain(Decimal("0.1023"), Decimal("0.0003")), "0.1023 ± 0.0003", "0.1023 ± 0.0003"),
        (Uncertain(Decimal("4.40"), Decimal("0.02")), "4.40 ± 0.02", "4.40 ± 0.02"),
        (Uncertain(Decimal("51.27"), Decimal("2.15")), "51.3 ± 2.2", "51.27 ± 2.15"),
        (Uncertain(Decimal("12345"), Decimal("678")), "12,300 ± 700", "12,345 ± 678"),
        (Decimal("57.2"), "57.2", "57.2"),
        (Decimal("57.2349871"), "57.23", "57.2349871"),
        (Decimal("0.00012345678"), "0.0001235", "0.00012345678"),
        (Decimal("123456.7"), "123,500", "123,456.7"),
        (Decimal("8.10"), "8.10", "8.10"),
        (62_693_251, "62,693,251", "62,693,251"),
        (None, "–", "–"),
        ("a|b", "a\\|b", "a\\|b"),
    ],
)
def test_digits_of_numbers(cell: Cell, measured: str, published: str) -> None:
    for kind, text in (("measured", measured), ("published", published)):
        record = Record(id="x", group="g", order=0, title="t", kind=kind, columns=("c",), rows=((cell,),), note="")
        assert f"\n| {text} |\n" in render([record])


def test_groups_are_in_the_order_of_their_first_records(tmp_path: Path) -> None:
    late, early = (
        MEASURED | {"id": "late", "order": 30, "seed": [0, 2]},
        PUBLISHED | {"id": "early", "order": 5, "title": "First"},
    )
    other = MEASURED | {"id": "other", "group": "Another group", "seed": None, "note": "Slowly.", "order": 7}
    page = render(read(_write(tmp_path, late, early, other)))
    assert re.findall("^#+ .*", page, re.M)[1:] == [
        "## A group",
        "### First",
        "### A title",
        "## Another group",
        "### A title",
    ]
    assert "| what | figure |\n|---|---:|\n| beads | 3 |\n\nSource: A. Author, A journal, 1999\n" in page
    assert "\n`blackout recipes`: an abacus; commit `0123abc`, seeds 0, 2, 2026-11-15\n" in page
    assert page.endswith("\n`blackout recipes`: an abacus; commit `0123abc`, no seed, 2026-11-15\n\nSlowly.\n")


def test_the_page_is_written_atomically(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, page = tmp_path / "records", tmp_path / "page.md"
    source.mkdir()
    main([str(_write(source, MEASURED)), str(page)])
    before = page.read_text(encoding="utf-8")
    assert before == render(read(source))

    _write(source, MEASURED | {"format": 2})
    with pytest.raises(SystemExit, match="2"):
        main([str(source), str(page)])
    assert "0.json: format must be 1, got 2" in capsys.readouterr().err

    _write(source, MEASURED | {"title": "Another title"})
    write: Callable[..., int] = Path.write_text

    def half(path: Path, text: str, **options: Any) -> int:
        write(path, text[: len(text) // 2], **options)
        raise OSError("no space left on the device")

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(SystemExit, match="2"):
        main([str(source), str(page)])
    assert page.read_text(encoding="utf-8") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.md", "records"]
