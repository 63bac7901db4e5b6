"""Write docs/results.md from the records in this folder: `python results/render.py`.

A record is one table in a JSON file. A measured one states the command, machine, commit, seed and date; a published one
its source.
"""

import argparse
import re
import textwrap
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path

from blackout.atomic import write_atomic
from blackout.figures.record import COMMIT, MEASURED, PUBLISHED, Cell, Record, Uncertain, read

ROOT = Path(__file__).parent.parent
_DIGITS = 4  # significant digits of a measured number without an error
_WIDTH = 120
_PREFACE = """\
# Results

Written by `make results` from the records in `results/`; edit those instead of this page. Measured numbers have one
standard error (±): over seeds where a table names several, else over data points or subsets of samples. A table of one
seed shows one training and one set of samples, and differences between its rows may be chance. Published numbers are
quoted as their source prints them.
"""


def render(records: Sequence[Record]) -> str:
    """Return the page: a section for each group, in the order of their first records, with a table for each record."""
    groups: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: (record.order, record.id)):
        groups.setdefault(record.group, []).append(record)
    parts = [_PREFACE]
    for group, members in groups.items():
        parts += [f"## {group}\n", *(_table(record) for record in members)]
    return "\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Write the page of results.")
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "results", help="folder of records")
    parser.add_argument("page", type=Path, nargs="?", default=ROOT / "docs" / "results.md", help="file to write")
    given = parser.parse_args(arguments)
    try:
        records = read(given.folder)
        _check_commits(records)
        write_atomic(given.page, render(records))
    except (OSError, ValueError) as error:
        parser.error(str(error))


def _check_commits(records: Iterable[Record]) -> None:
    """Raise ValueError for a record that cannot be reproduced, because its commit is unknown or files differed."""
    for record in records:
        if record.kind == MEASURED and not re.fullmatch(COMMIT, record.commit):
            commit = record.commit or "none"
            raise ValueError(f"{record.id}: commit must be that of a clean checkout, got {commit}: measure again there")


def _table(record: Record) -> str:
    is_text = [any(isinstance(row[k], str) for row in record.rows) for k in range(len(record.columns))]
    lines = [
        _line(record.columns),
        _line("---" if text else "---:" for text in is_text).replace(" ", ""),
        *(_line(_cell(cell, rounded=record.kind == MEASURED) for cell in row) for row in record.rows),
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
    seed = f"seed{'s' * (len(record.seeds) > 1)} {', '.join(map(str, record.seeds))}" if record.seeds else "no seed"
    return f"{commands}: {record.hardware}; commit `{record.commit or 'unknown'}`, {seed}, {record.date}"


def _cell(cell: Cell, *, rounded: bool) -> str:
    """A cell as text. Published numbers are not rounded."""
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
            # Two digits of an error that begins with 1 or 2, else one; never more digits than given.
            last = max(_last(error), error.adjusted() - (error.as_tuple().digits[0] in (1, 2)))
            return f"{_decimal(value, last)} ± {_decimal(error, last)}"


def _last(number: Decimal) -> int:
    """The power of ten of the last digit given."""
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)  # the reader rejects infinity and NaN
    return exponent


def _decimal(number: Decimal, last: int) -> str:
    return f"{number.quantize(Decimal(1).scaleb(last)):,f}"


if __name__ == "__main__":
    main()
