"""Records: every figure with what it takes to get it again, and the page that shows them.

A record is one table in a JSON file. One that was measured names the command, the machine, the commit, the seed and the
date; one that was published names its source. `python -m blackout.measure.records results docs/results.md` writes the
page from the folder.
"""

import argparse
import datetime
import json
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from blackout.measure.notebook import write_whole

FORMAT = 1
MEASURED, PUBLISHED = "measured", "published"

_COMMON = ("format", "id", "group", "order", "title", "kind", "columns", "rows", "note")
_FIELDS = {MEASURED: (*_COMMON, "hardware", "command", "commit", "seed", "date"), PUBLISHED: (*_COMMON, "source")}
_DIGITS = 4  # significant digits of a measured number that has no error
_WIDTH = 120
_PREFACE = """\
# Results

Written by `python -m blackout.measure.records results docs/results.md` from the records in `results/`; a change belongs
there. Measured figures stand with one standard error (±), published ones as their source prints them.
"""


@dataclass(frozen=True)
class Uncertain:
    """A number and its error."""

    value: Decimal
    error: Decimal


Cell = str | int | Decimal | Uncertain | None


@dataclass(frozen=True, kw_only=True)
class Record:
    """One table. What belongs to the other kind of record is empty."""

    id: str
    group: str
    order: int
    title: str
    kind: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str
    hardware: str = ""
    command: tuple[str, ...] = ()
    commit: str = ""
    seed: int | None = None
    """None: the figure depends on no seed."""
    date: str = ""
    source: str = ""


def read(folder: str | Path) -> list[Record]:
    """All records of a folder, in the order of the page. A file that is not a record is refused by name."""
    files = sorted(Path(folder).glob("*.json"))
    if not files:
        raise ValueError(f"folder must hold records, but there is no .json file in {folder}")
    found: dict[str, tuple[Path, Record]] = {}
    for file in files:
        try:
            record = _record(json.loads(file.read_text(encoding="utf-8"), parse_float=Decimal, parse_constant=_refuse))
        except (OSError, ValueError) as error:
            raise ValueError(f"{file}: {error}") from None
        if record.id in found:
            raise ValueError(f"{file}: id {record.id!r} is that of {found[record.id][0]} too")
        found[record.id] = file, record
    return sorted((record for _, record in found.values()), key=lambda record: (record.order, record.id))


def render(records: Sequence[Record]) -> str:
    """The page: groups in the order of their first records, a table for each record."""
    groups: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: (record.order, record.id)):
        groups.setdefault(record.group, []).append(record)
    parts = [_PREFACE]
    for group, members in groups.items():
        parts += [f"## {group}\n", *(_table(record) for record in members)]
    return "\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m blackout.measure.records", description="Write the page of results."
    )
    parser.add_argument("folder", type=Path, help="folder of records")
    parser.add_argument("page", type=Path, help="markdown file to write")
    given = parser.parse_args(arguments)
    try:
        write_whole(given.page, render(read(given.folder)))
    except (OSError, ValueError) as error:
        parser.error(str(error))


def _record(data: Any) -> Record:
    if not isinstance(data, dict):
        raise ValueError(f"a record must be an object, got {type(data).__name__}")
    kind = data.get("kind")
    if kind not in _FIELDS:
        raise ValueError(f"kind must be one of {', '.join(_FIELDS)}, got {kind!r}")
    for what, names in (("missing", set(_FIELDS[kind]) - set(data)), ("unknown", set(data) - set(_FIELDS[kind]))):
        if names:
            raise ValueError(f"{what} fields for a {kind} record: {', '.join(sorted(names))}")
    if data["format"] != FORMAT:
        raise ValueError(f"format must be {FORMAT}, got {data['format']!r}")
    values: dict[str, Any] = {name: _text(data, name) for name in ("id", "group", "title", "kind")}
    values |= {"order": _whole(data, "order"), "note": _text(data, "note", empty=True)}
    values |= _provenance(data) if kind == MEASURED else {"source": _text(data, "source")}
    columns = _texts(data, "columns")
    return Record(**values, columns=columns, rows=_rows(data["rows"], len(columns)))


def _provenance(data: Mapping[str, Any]) -> dict[str, Any]:
    command = data["command"]
    commit, date = _text(data, "commit"), _text(data, "date")
    if not re.fullmatch("[0-9a-f]{7,40}", commit):
        raise ValueError(f"commit must be 7 to 40 hexadecimal digits, got {commit!r}")
    if not _is_date(date):
        raise ValueError(f"date must be a day as YYYY-MM-DD, got {date!r}")
    return {
        "hardware": _text(data, "hardware"),
        "command": (_text(data, "command"),) if isinstance(command, str) else _texts(data, "command"),
        "commit": commit,
        "seed": None if data["seed"] is None else _whole(data, "seed"),
        "date": date,
    }


def _is_date(text: str) -> bool:
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _rows(rows: Any, width: int) -> tuple[tuple[Cell, ...], ...]:
    if not isinstance(rows, list) or not rows:
        raise ValueError("rows must be a list of rows, and not empty")
    for number, row in enumerate(rows, 1):
        if not isinstance(row, list) or len(row) != width:
            raise ValueError(f"row {number} must have {width} cells, one for each column, got {row!r}")
    return tuple(tuple(_cell(cell) for cell in row) for row in rows)


def _cell(cell: Any) -> Cell:
    if isinstance(cell, dict) and set(cell) == {"value", "error"}:
        value, error = (_number(cell[name]) for name in ("value", "error"))
        if error >= 0:
            return Uncertain(value, error)
    if cell is None or isinstance(cell, Decimal) or (isinstance(cell, int) and not isinstance(cell, bool)):
        return cell
    if isinstance(cell, str) and cell.isprintable():
        return cell
    raise ValueError(f"a cell must be text, a number, null or a value with its error, got {cell!r}")


def _number(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise ValueError(f"value and error must be numbers, got {value!r}")
    return Decimal(value)


def _text(data: Mapping[str, Any], name: str, *, empty: bool = False) -> str:
    value = data[name]
    if not isinstance(value, str) or not value.isprintable() or not (value.strip() or empty):
        raise ValueError(f"{name} must be one line of text, got {value!r}")
    return value


def _texts(data: Mapping[str, Any], name: str) -> tuple[str, ...]:
    values = data[name]
    if not isinstance(values, list) or not values:
        raise ValueError(f"{name} must be a list of texts, and not empty, got {values!r}")
    return tuple(_text({name: value}, name) for value in values)


def _whole(data: Mapping[str, Any], name: str) -> int:
    value = data[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} must be an integer, at least 0, got {value!r}")
    return value


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a figure")


def _table(record: Record) -> str:
    words = [any(isinstance(row[k], str) for row in record.rows) for k in range(len(record.columns))]
    lines = [
        _line(record.columns),
        _line("---" if text else "---:" for text in words).replace(" ", ""),
        *(_line(_show(cell, rounded=record.kind == MEASURED) for cell in row) for row in record.rows),
    ]
    parts = [f"### {record.title}", "\n".join(lines), _origin(record)]
    if record.note:
        parts.append(textwrap.fill(record.note, _WIDTH, break_long_words=False, break_on_hyphens=False))
    return "\n\n".join(parts) + "\n"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _origin(record: Record) -> str:
    if record.kind == PUBLISHED:
        return f"Source: {record.source}"
    commands = ", ".join(f"`{command}`" for command in record.command)
    seed = "no seed" if record.seed is None else f"seed {record.seed}"
    return f"{commands}: {record.hardware}; commit `{record.commit}`, {seed}, {record.date}"


def _show(cell: Cell, *, rounded: bool) -> str:
    """A cell as text. Numbers from elsewhere are not rounded: they are not ours to change."""
    match cell:
        case None:
            return "–"
        case str():
            return cell
        case int():
            return f"{cell:,}"
        case Decimal():
            last = cell.adjusted() - _DIGITS + 1
            return _decimal(cell, last) if rounded and last > _last(cell) else f"{cell:,f}"
        case Uncertain(value, error):
            if not rounded:
                return f"{value:,f} ± {error:,f}"
            # Two digits of an error that begins with 1 or 2, else one; but none that was not given.
            last = max(_last(error), error.adjusted() - (error.as_tuple().digits[0] in (1, 2)))
            return f"{_decimal(value, last)} ± {_decimal(error, last)}"


def _last(number: Decimal) -> int:
    """The power of ten of the last digit given."""
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)  # neither infinity nor NaN gets past the reader
    return exponent


def _decimal(number: Decimal, last: int) -> str:
    return f"{number.quantize(Decimal(1).scaleb(last)):,f}"


if __name__ == "__main__":
    main()
