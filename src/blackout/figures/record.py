"""Record: one table of results with what it takes to get it again, from a JSON file that is checked field by field."""

import datetime
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

FORMAT = 1
MEASURED, PUBLISHED = "measured", "published"

_COMMON = ("format", "id", "group", "order", "title", "kind", "columns", "rows", "note")
_FIELDS = {MEASURED: (*_COMMON, "hardware", "command", "commit", "seed", "date"), PUBLISHED: (*_COMMON, "source")}
COMMIT = "[0-9a-f]{7,40}"
_LARGEST, _SMALLEST = 12, -12  # powers of ten; beyond them a figure is no figure of a table


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
    """With a + if files differed from it; empty: not known."""
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
        except RecursionError:
            raise ValueError(f"{file}: nested too deeply for a record") from None
        except (OSError, ValueError) as error:
            raise ValueError(f"{file}: {error}") from None
        if record.id in found:
            raise ValueError(f"{file}: id {record.id!r} is that of {found[record.id][0]} too")
        found[record.id] = file, record
    return sorted((record for _, record in found.values()), key=lambda record: (record.order, record.id))


def _record(data: Any) -> Record:
    if not isinstance(data, dict):
        raise ValueError(f"a record must be an object, got {type(data).__name__}")
    kind = data.get("kind")
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise ValueError(f"kind must be one of {', '.join(_FIELDS)}, got {kind!r}")
    for what, names in (("missing", set(_FIELDS[kind]) - set(data)), ("unknown", set(data) - set(_FIELDS[kind]))):
        if names:
            raise ValueError(f"{what} fields for a {kind} record: {', '.join(sorted(names))}")
    if data["format"] != FORMAT or isinstance(data["format"], bool):
        raise ValueError(f"format must be {FORMAT}, got {data['format']!r}")
    values: dict[str, Any] = {name: _text(data, name) for name in ("id", "group", "title", "kind")}
    values |= {"order": _whole(data, "order"), "note": _text(data, "note", empty=True)}
    values |= _provenance(data) if kind == MEASURED else {"source": _text(data, "source")}
    columns = _texts(data, "columns")
    return Record(**values, columns=columns, rows=_rows(data["rows"], len(columns)))


def _provenance(data: Mapping[str, Any]) -> dict[str, Any]:
    command = data["command"]
    commit, date = None if data["commit"] is None else _text(data, "commit"), _text(data, "date")
    if commit is not None and not re.fullmatch(COMMIT + "[+]?", commit):  # + as `provenance.commit` writes it
        raise ValueError(f"commit must be 7 to 40 hexadecimal digits, perhaps a +, or null, got {commit!r}")
    if not _is_date(date):
        raise ValueError(f"date must be a day as YYYY-MM-DD, got {date!r}")
    return {
        "hardware": _text(data, "hardware"),
        "command": (_text(data, "command"),) if isinstance(command, str) else _texts(data, "command"),
        "commit": commit or "",
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
    if cell is None:
        return None
    if isinstance(cell, int | Decimal) and not isinstance(cell, bool):
        _number(cell)
        return cell
    if isinstance(cell, str) and cell.isprintable():
        return cell
    raise ValueError(f"a cell must be text, a number, null or a value with its error, got {cell!r}")


def _number(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise ValueError(f"value and error must be numbers, got {value!r}")
    number = Decimal(value)
    if number and not _SMALLEST <= number.adjusted() <= _LARGEST:
        raise ValueError(f"a number must be 0 or from 1e{_SMALLEST} to 1e{_LARGEST} in size, got {number:.3g}")
    return number


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
