"""Tables on a terminal, fitted to its width."""

from collections.abc import Iterable, Sequence

import typer
from rich.console import Console
from rich.table import Table


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]], optional: Sequence[str] = ()) -> list[str]:
    """Print a table. Columns in `optional` are dropped, in this order, until it fits; returns those dropped."""
    console, candidates = Console(), [name for name in optional if name in heads]
    unlimited = console.options.update(width=10_000)
    for number in range(len(candidates) + 1):
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))  # many columns of numbers need the room
        kept = [k for k, head in enumerate(heads) if head not in candidates[:number]]
        for place, k in enumerate(kept):
            table.add_column(heads[k], justify="left" if place == 0 else "right", no_wrap=True)
        for row in rows:
            table.add_row(*(row[k] for k in kept))
        if number == len(candidates) or console.measure(table, options=unlimited).maximum <= console.width:
            break
    console.print(table)
    return candidates[:number]


def print_entries(entries: Iterable[tuple[str, str]]) -> None:
    """Print names with their descriptions: wrapped on a terminal, one line each elsewhere."""
    console, table = Console(), Table.grid(padding=(0, 2))
    for name, text in entries:
        if console.is_terminal:
            table.add_row(name, text)
        else:
            typer.echo(f"{name:<22}{text}")
    if console.is_terminal:
        console.print(table)
