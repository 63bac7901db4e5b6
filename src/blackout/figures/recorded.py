"""Recorded results as pictures: steps against quality, heads against training time."""

import re
from collections.abc import Mapping
from decimal import Decimal

from blackout import figures
from blackout.figures.context import Plate, Studio
from blackout.figures.record import MEASURED, Cell, Record, Uncertain

Series = dict[str, tuple[list[float], list[float]]]

_TRAINED = re.compile("training|seconds|minutes|hours|epochs|, s$")


def steps_cifar10(studio: Studio) -> Plate:
    return steps(studio.record("cifar10-samplers"))


def steps_digits(studio: Studio) -> Plate:
    return steps(studio.record("mnist-binary-samplers"))


def heads_cifar10(studio: Studio) -> Plate:
    return heads(studio.record("cifar10-heads-training"))


def steps(record: Record) -> Plate:
    """Fréchet distance against steps, a curve for each sampler; rows without steps are levels to compare with."""
    x, y = _column(record, "steps"), _column(record, "Fréchet")
    series = _series(record, x, y)
    levels = {
        _name(record, row): height
        for row in record.rows
        if _number(row[x]) is None and (height := _number(row[y])) is not None
    }
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
    """Bits per dimension against training time, a curve for each head; a ranking, where all had the same time."""
    y = _column(record, "bits/dim")
    x = _duration(record)
    series = {} if x is None else _series(record, x, y)
    if x is not None and len({place for places, _ in series.values() for place in places}) > 1:
        label = record.columns[x]
        return Plate(
            lambda: figures.curves(series, xlabel=label, ylabel=record.columns[y], logx=True, logy=True),
            f"{record.title}: bits per dimension against training time, a curve for each head; the lower, the better. "
            f"{_origin(record)}",
        )
    values = {_name(record, row): (v, _error(row[y])) for row in record.rows if (v := _number(row[y])) is not None}
    _refuse_empty(values, record)
    return Plate(
        lambda: figures.ranking(values, xlabel=f"{record.columns[y]}, after the same training"),
        f"{record.title}: bits per dimension of each head after the same training, with one standard error; the lower, "
        f"the better. {_origin(record)}",
    )


def _duration(record: Record) -> int | None:
    """The column that says how long was trained: a time, or steps that are not those of a sampler."""
    for k, name in enumerate(record.columns):
        trained = _TRAINED.search(name) or (name == "steps" and "sampler" not in record.columns)
        if trained and not name.startswith("bits") and any(_number(row[k]) is not None for row in record.rows):
            return k
    return None


def _name(record: Record, row: tuple[Cell, ...]) -> str:
    """What a row is about: its words, and how many corrector steps it takes."""
    words = [cell for cell in row if isinstance(cell, str)]
    for column, cell in zip(record.columns, row, strict=True):
        if column.startswith("corrector") and _number(cell):
            words.append(f"{cell} correctors")
    return ", ".join(words).replace("`", "")


def _series(record: Record, x: int, y: int) -> Series:
    """Column y against column x, a curve for each name."""
    pairs: dict[str, list[tuple[float, float]]] = {}
    for row in record.rows:
        place, height = _number(row[x]), _number(row[y])
        if place is not None and height is not None:
            pairs.setdefault(_name(record, row), []).append((place, height))
    return {name: ([x for x, _ in sorted(some)], [y for _, y in sorted(some)]) for name, some in pairs.items()}


def _column(record: Record, beginning: str) -> int:
    for k, name in enumerate(record.columns):
        if name.startswith(beginning):
            return k
    columns = ", ".join(record.columns)
    raise ValueError(f"the record {record.id} has no column that begins with {beginning!r}, but {columns}")


def _refuse_empty(drawn: Mapping[str, object], record: Record) -> None:
    if not drawn:
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
