"""Recorded results as pictures: steps against quality, heads against training time."""

import re
from decimal import Decimal

from blackout import figures
from blackout.gallery.studio import Plate, Studio
from blackout.measure.records import MEASURED, Cell, Record, Uncertain

Series = dict[str, tuple[list[float], list[float]]]

_DURATION = re.compile(r"\b(seconds|minutes|hours|time)\b|, s$|^training steps|^steps of training|^epochs", re.I)


def steps_cifar10(studio: Studio) -> Plate:
    return steps(studio.record("cifar10-samplers"))


def steps_digits(studio: Studio) -> Plate:
    return steps(studio.record("mnist-binary-samplers"))


def heads_cifar10(studio: Studio) -> Plate:
    return heads(studio.record("cifar10-heads"))


def steps(record: Record) -> Plate:
    """Fréchet distance against steps, a curve for each sampler; rows without steps are levels to compare with."""
    x, y = _column(record, "^steps$"), _column(record, "^Fréchet")
    series: Series = {}
    levels: dict[str, float] = {}
    for row in record.rows:
        name, height = _name(record, row), _number(row[y])
        if height is None:
            continue
        place = _number(row[x])
        if place is None:
            levels[name] = height
        else:
            _add(series, name, place, height)
    _refuse_empty(series, record)
    return Plate(
        lambda: figures.curves(
            series,
            xlabel="steps",
            ylabel=record.columns[y] + " distance" * (record.columns[y] == "Fréchet"),
            logx=True,
            logy=True,
            levels=levels,
        ),
        f"{record.title}: the fewer, the faster; the lower, the better. {_origin(record)}",
    )


def heads(record: Record) -> Plate:
    """Bits per dimension against training time, a curve for each head; of one budget alone, a ranking."""
    y = _column(record, "^bits/dim")
    durations = [k for k, name in enumerate(record.columns) if _DURATION.search(name) and k != y]
    rows = [row for row in record.rows if _number(row[y]) is not None]
    if durations:
        x = durations[0]
        series: Series = {}
        for row in rows:
            place, height = _number(row[x]), _number(row[y])
            if place is not None and height is not None:
                _add(series, _name(record, row), place, height)
        _refuse_empty(series, record)
        return Plate(
            lambda: figures.curves(series, xlabel=record.columns[x], ylabel=record.columns[y], logx=True),
            f"{record.title}: bits per dimension against training time, a curve for each head; the lower, the better. "
            f"{_origin(record)}",
        )
    values = {_name(record, row): (float(_number(row[y]) or 0), _error(row[y])) for row in rows}
    return Plate(
        lambda: figures.ranking(values, xlabel=f"{record.columns[y]}, after the same training"),
        f"{record.title}: bits per dimension of each head after the same training, with one standard error; the lower, "
        f"the better. {_origin(record)}",
    )


def _name(record: Record, row: tuple[Cell, ...]) -> str:
    """What a row is about: its words, and how many corrector steps it takes."""
    words = [cell for cell in row if isinstance(cell, str)]
    for column, cell in zip(record.columns, row, strict=True):
        if column.startswith("corrector") and _number(cell):
            words.append(f"{cell} correctors")
    return ", ".join(words).replace("`", "")


def _add(series: Series, name: str, x: float, y: float) -> None:
    xs, ys = series.get(name, ([], []))
    pairs = sorted([*zip(xs, ys, strict=True), (x, y)])
    series[name] = [a for a, _ in pairs], [b for _, b in pairs]


def _column(record: Record, pattern: str) -> int:
    for k, name in enumerate(record.columns):
        if re.search(pattern, name):
            return k
    raise ValueError(f"the record {record.id} has no column like {pattern!r}, but {', '.join(record.columns)}")


def _refuse_empty(series: Series, record: Record) -> None:
    if not series:
        raise ValueError(f"the record {record.id} has no row to draw")


def _number(cell: Cell) -> float | None:
    match cell:
        case Uncertain(value, _):
            return float(value)
        case int() | Decimal():
            return float(cell)
        case _:
            return None


def _error(cell: Cell) -> float | None:
    return float(cell.error) if isinstance(cell, Uncertain) else None


def _origin(record: Record) -> str:
    """Where the numbers are from, and what the record says about them."""
    if record.kind != MEASURED:
        return f"Source: {record.source}. {record.note}".strip()
    commands = ", ".join(f"`{command}`" for command in record.command)
    return f"{record.note} Measured by {commands}: {record.hardware}, commit `{record.commit}`, {record.date}.".strip()
