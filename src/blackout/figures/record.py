"""Records of results: one table and its provenance per JSON file, validated field by field."""

import datetime
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

FORMAT = 1
MEASURED, PUBLISHED = "measured", "published"
COMMIT = "[0-9a-f]{7,40}"

_COMMON = ("format", "id", "group", "order", "title", "kind", "columns", "rows", "note")
_FIELDS = {MEASURED: (*_COMMON, "hardware", "command", "commit", "seed", "date"), PUBLISHED: (*_COMMON, "source")}
_MIN_POWER, _MAX_POWER = -12, 12  # powers of ten; numbers beyond them do not fit a table


@dataclass(frozen=True)
class Uncertain:
    """A number and its standard error."""

    value: Decimal
    error: Decimal


Cell = str | int | Decimal | Uncertain | None


@dataclass(frozen=True, kw_only=True)
class Record:
    """One table of results. Fields of the other kind of record are empty."""

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
    """Ends with + if files differed from the commit; empty if unknown."""
    seeds: tuple[int, ...] = ()
    """Empty if the results depend on no seed; several if the numbers are means over them."""
    date: str = ""
    source: str = ""


def read(folder: str | Path) -> list[Record]:
    """Read all records of a folder, sorted by (order, id).

    Raises
    ------
    ValueError
        If there is no record, a file is not a valid record (the message names it), or two have the same id.
    """
    files = sorted(Path(folder).glob("*.json"))
    if not files:
        raise ValueError(f"folder must hold records, but there is no .json file in {folder}")
    found: dict[str, tuple[Path, Record]] = {}
    for file in files:
        try:
            record = _record(
                json.loads(file.read_text(encoding="utf-8"), parse_float=Decimal, parse_constant=_not_finite)
            )
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
    for name, value in data.items():
        expected, valid = _EXPECTED.get(name, ("one line of text", _is_text))
        if not valid(value):
            raise ValueError(f"{name} must be {expected}, got {value!r}")
    command, seed, width = data.get("command", []), data.get("seed"), len(data["columns"])
    parsed = {
        "columns": tuple(data["columns"]),
        "rows": tuple(_row(row, number, width) for number, row in enumerate(data["rows"], 1)),
        "command": (command,) if isinstance(command, str) else tuple(command),
        "commit": data.get("commit") or "",
        "seeds": () if seed is None else tuple(seed) if isinstance(seed, list) else (seed,),
    }
    return Record(**{name: value for name, value in data.items() if name not in ("format", "seed")} | parsed)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable() and bool(value.strip())


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_text, value))


def _is_natural(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_naturals(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 1 and all(map(_is_natural, value))


def _is_date(value: Any) -> bool:
    try:
        return bool(value == datetime.date.fromisoformat(value).isoformat())
    except (TypeError, ValueError):
        return False


_EXPECTED: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "format": (str(FORMAT), lambda value: _is_natural(value) and value == FORMAT),
    "order": ("an integer, at least 0", _is_natural),
    "columns": ("a list of texts, and not empty", _is_texts),
    "rows": ("a list of rows, and not empty", lambda value: isinstance(value, list) and bool(value)),
    "note": ("one line of text", lambda value: value == "" or _is_text(value)),
    "command": ("a list of texts, and not empty", lambda value: _is_text(value) or _is_texts(value)),
    "commit": (
        "7 to 40 hexadecimal digits, perhaps a +, or null",
        lambda value: value is None or (_is_text(value) and bool(re.fullmatch(COMMIT + "[+]?", value))),
    ),
    "seed": (
        "an integer, at least 0, a list of them, or null",
        lambda value: value is None or _is_natural(value) or _is_naturals(value),
    ),
    "date": ("a day as YYYY-MM-DD", _is_date),
}


def _row(row: Any, number: int, width: int) -> tuple[Cell, ...]:
    if not isinstance(row, list) or len(row) != width:
        raise ValueError(f"row {number} must have {width} cells, one for each column, got {row!r}")
    return tuple(map(_cell, row))


def _cell(cell: Any) -> Cell:
    match cell:
        case None:
            return None
        case str() if cell.isprintable():
            return cell
        case int() | Decimal() if not isinstance(cell, bool):
            return _number(cell)
        case {"value": value, "error": error, **rest} if not rest and _number(error) >= 0:
            return Uncertain(Decimal(_number(value)), Decimal(error))
    raise ValueError(f"a cell must be text, a number, null or a value with its error, got {cell!r}")


def _number(value: Any) -> int | Decimal:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise ValueError(f"value and error must be numbers, got {value!r}")
    if value and not _MIN_POWER <= Decimal(value).adjusted() <= _MAX_POWER:
        raise ValueError(
            f"a number must be 0 or from 1e{_MIN_POWER} to 1e{_MAX_POWER} in size, got {Decimal(value):.3g}"
        )
    return value


def _not_finite(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a figure")
