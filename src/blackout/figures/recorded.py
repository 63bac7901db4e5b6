"""Figures of recorded results: steps and sample quality, heads and training time."""

from decimal import Decimal

from blackout.figures.charts import curves
from blackout.figures.context import CaptionedFigure, Context
from blackout.figures.record import MEASURED, Cell, Record, Uncertain


def steps(context: Context, record: str) -> CaptionedFigure:
    """Fréchet distance against sampling steps, one curve per sampler; rows without steps are reference levels."""
    table = context.record(record)
    x, y = _column(table, "steps"), _column(table, "Fréchet")
    series = _series(table, x, y)
    levels = {
        _name(table, row): height
        for row in table.rows
        if _number(row[x]) is None and (height := _number(row[y])) is not None
    }
    ylabel = table.columns[y] + " distance" * (table.columns[y] == "Fréchet")
    return CaptionedFigure(
        lambda: curves(series, xlabel="steps", ylabel=ylabel, logx=True, logy=True, levels=levels),
        "Fréchet distance against the number of sampling steps, one curve per sampler; lower is better. "
        f"{f'Horizontal line: {level}. ' if (level := ', '.join(levels)) else ''}{_origin(table)}",
    )


def heads(context: Context, record: str) -> CaptionedFigure:
    """Bits per dimension against training time, one curve per head and loss."""
    table = context.record(record)
    x, y = _column(table, "training"), _column(table, "bits/dim")
    series = _series(table, x, y)
    return CaptionedFigure(
        lambda: curves(series, xlabel=table.columns[x], ylabel=table.columns[y], logx=True, logy=True),
        "Bits per dimension of training batches against training time, one curve per head and loss; lower is better. "
        "The continuous-time bound of softplus is infinite, its curves depend on the times of the batches. "
        f"{_origin(table)}",
    )


def _name(record: Record, row: tuple[Cell, ...]) -> str:
    """The name of a row: its text cells, and its number of corrector steps."""
    parts = [cell for cell in row if isinstance(cell, str)]
    for column, cell in zip(record.columns, row, strict=True):
        if column.startswith("corrector") and _number(cell):
            parts.append(f"{cell} correctors")
    return ", ".join(parts).replace("`", "")


def _series(record: Record, x: int, y: int) -> dict[str, tuple[list[float], list[float]]]:
    """Column y against column x, one curve per name; rows without both numbers are left out."""
    pairs: dict[str, list[tuple[float, float]]] = {}
    for row in record.rows:
        place, height = _number(row[x]), _number(row[y])
        if place is not None and height is not None:
            pairs.setdefault(_name(record, row), []).append((place, height))
    if not pairs:
        raise ValueError(f"record {record.id} has no row to draw")
    return {name: ([x for x, _ in sorted(some)], [y for _, y in sorted(some)]) for name, some in pairs.items()}


def _column(record: Record, prefix: str) -> int:
    for k, name in enumerate(record.columns):
        if name.startswith(prefix):
            return k
    columns = ", ".join(record.columns)
    raise ValueError(f"record {record.id} has no column that begins with {prefix!r}; its columns are {columns}")


def _number(cell: Cell) -> float | None:
    match cell:
        case Uncertain(value, _):
            return float(value)
        case int() | Decimal():
            return float(cell)
        case _:
            return None


def _origin(record: Record) -> str:
    """The id of a record and its provenance."""
    if record.kind != MEASURED:
        return f"Record `{record.id}`, from {record.source}."
    commands = ", ".join(f"`{command}`" for command in record.command)
    return f"Record `{record.id}`, measured by {commands}: {record.hardware}, commit `{record.commit}`, {record.date}."
