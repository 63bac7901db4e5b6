"""Tables on a terminal, as wide as it is."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table


def show(heads: Sequence[str], rows: Sequence[Sequence[str]], spare: Sequence[str] = ()) -> list[str]:
    """Print a table; columns in `spare` are left out, the first ones first, until it fits. Returns those left out."""
    console, left_out = Console(), [name for name in spare if name in heads]
    fitting = next(k for k in range(len(left_out) + 1) if _fits(console, heads, rows, left_out[:k], len(left_out)))
    console.print(_table(heads, rows, left_out[:fitting]))
    return left_out[:fitting]


def _fits(
    console: Console, heads: Sequence[str], rows: Sequence[Sequence[str]], without: Sequence[str], most: int
) -> bool:
    endless = console.options.update(width=10_000)  # a measure never exceeds the width it is taken in
    wanted = console.measure(_table(heads, rows, without), options=endless).maximum
    return len(without) == most or wanted <= console.width


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], without: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))  # many columns of numbers need the room
    kept = [k for k, head in enumerate(heads) if head not in without]
    for place, k in enumerate(kept):
        table.add_column(heads[k], justify="left" if place == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(row[k] for k in kept))
    return table
