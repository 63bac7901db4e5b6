"""Records: every figure with what it takes to get it again, and the page that shows them.

A record is one table in a JSON file. One that was measured names the command, the machine, the commit, the seed and the
date; one that was published names its source. `python -m blackout.figures.records results docs/results.md` writes the
page from the folder.
"""

import argparse
import re
import textwrap
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path

from blackout.atomic import write_atomic
from blackout.figures.record import COMMIT, MEASURED, PUBLISHED, Cell, Record, Uncertain, read

_DIGITS = 4  # significant digits of a measured number that has no error
_WIDTH = 120
_PREFACE = """\
# Results

Written by `python -m blackout.figures.records results docs/results.md` from the records in `results/`; a change belongs
there. Measured figures stand with one standard error (±), published ones as their source prints them.
"""


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
        prog="python -m blackout.figures.records", description="Write the page of results."
    )
    parser.add_argument("folder", type=Path, help="folder of records")
    parser.add_argument("page", type=Path, help="markdown file to write")
    given = parser.parse_args(arguments)
    try:
        write_atomic(given.page, render(_citable(read(given.folder))))
    except (OSError, ValueError) as error:
        parser.error(str(error))


def _citable(records: Sequence[Record]) -> Sequence[Record]:
    """What is published can be got again: not from files that differ from their commit, or from an unknown one."""
    for record in records:
        if record.kind == MEASURED and not re.fullmatch(COMMIT, record.commit):
            commit = record.commit or "none"
            raise ValueError(f"{record.id}: commit must be that of a clean checkout, got {commit}: measure again there")
    return records


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
    return f"{commands}: {record.hardware}; commit `{record.commit or 'unknown'}`, {seed}, {record.date}"


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
