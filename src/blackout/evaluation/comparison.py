"""Output of a comparison: a table, a figure, JSON, and a record of results."""

import itertools
import json
import math
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from blackout import figures
from blackout.atomic import atomic, write_atomic
from blackout.evaluation import METRICS
from blackout.evaluation.report import format_value
from blackout.files import write_json

FILES = (*(f"comparison.{kind}" for kind in ("json", "md", "png", "svg")), "record.json", "cells", "runs")
"""What a comparison writes to its folder."""
INFINITE = "infinite"
"""Bits/dim of data that a model cannot generate."""


def columns() -> dict[str, str]:
    """Return the names of all columns and their headings."""
    return {
        "model": "model",
        "bits_per_dim": "bits/dim",
        "bound": "bound",
        "sampler": "sampler",
        "num_steps": "steps",
        "corrector_steps": "correctors",
        "times": "times",
        "dropout": "dropout",
        **{name: head for metric in METRICS for name, head in METRICS[metric].values.items()},
        "samples_per_second": "samples/s",
        "num_samples": "samples",
    }


def row(
    label: str, bits: dict[str, Any] | None, sampling: dict[str, Any], quality: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the row of one model with one way of sampling; `bits` is None for a model without a bound."""
    found = bits and {"value": bits["mean"], "error": bits["standard_error"]}
    return {
        "model": label,
        "bits_per_dim": INFINITE if bits and bits["infinite"] else found,
        "bound": bits and bits["bound"],
        "sampler": sampling["sampler"],
        "num_steps": sampling["num_steps"],
        "corrector_steps": sampling["corrector_steps"],
        "times": sampling["times"],
        "dropout": "on" if sampling["dropout"] else None,
        **score_columns(quality),
        "samples_per_second": sampling["samples_per_second"],
        "num_samples": sampling["num_samples"],
    }


def score_columns(quality: dict[str, Any] | None) -> dict[str, Any]:
    """Return the scores of a row; values with an error as {"value": ..., "error": ...}."""
    scores = quality["scores"] if quality else {}
    return {
        name: {"value": value, "error": scores[f"{name}_error"]} if f"{name}_error" in scores else value
        for name, value in scores.items()
        if not name.endswith("_error")
    }


def mean_over_seeds(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean of the scores of rows that differ in their seed, with the standard error over the seeds.

    Bits/dim are of the same data points for every seed: their error is not less than that over the data points.
    """
    if len(rows) == 1:
        return rows[0]
    mean = dict(rows[0])
    for name in _scores():
        cells = [row.get(name) for row in rows]
        if INFINITE in cells:
            mean[name] = INFINITE
            continue
        values = [_value(cell) for cell in cells if cell is not None]
        if len(values) == len(rows) and None not in values:
            error = statistics.stdev(values) / math.sqrt(len(values))
            if name == "bits_per_dim":
                error = max(error, statistics.fmean(row[name]["error"] or 0.0 for row in rows))
            mean[name] = {"value": statistics.fmean(values), "error": error}
        elif name in mean:
            mean[name] = None
    speeds = [row["samples_per_second"] for row in rows if row["samples_per_second"]]
    return mean | {"samples_per_second": statistics.fmean(speeds) if speeds else None}


def _scores() -> list[str]:
    return ["bits_per_dim", *(name for metric in METRICS for name in METRICS[metric].values)]


def _value(cell: Any) -> Any:
    """The number in a cell, without its error."""
    return cell["value"] if isinstance(cell, dict) else cell


def table(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return headings and cells as text."""
    names = _names(rows)
    return [columns()[name] for name in names], [[cell_text(row.get(name)) for name in names] for row in rows]


def cell_text(value: Any) -> str:
    if isinstance(value, dict):
        return format_value(value["value"], value["error"])
    return format_value(value) if value is None or isinstance(value, float) else str(value)


def write(out: Path, result: dict[str, Any]) -> None:
    """Write OUT/comparison.json, .md, .png and .svg, and OUT/record.json."""
    heads, cells = table(result["rows"])
    lines = [f"# {result['title']}", "", "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(row) + " |" for row in cells]
    lines += [
        "",
        f"{result['data']['name']}, {_num_samples(result['rows'])}; features of "
        f"{result['features'] or 'no network'}.{_seeds(result['seeds'])} `{result['command']}`, "
        f"{result['machine']['device']}, torch {result['machine']['torch']}, commit {result['commit'] or 'unknown'}, "
        f"{result['date'][:10]}.",
    ]
    write_atomic(out / "comparison.md", "\n".join(lines) + "\n")
    write_json(out / "comparison.json", result)
    write_atomic(out / "record.json", json.dumps(_record(result), indent=2) + "\n")
    series = _series(result["rows"])
    if series:
        ylabel = f"Fréchet distance ({result['features']})"
        figure = figures.curves(series, xlabel="steps", ylabel=ylabel, logx=True, title=result["title"])
        for kind in ("png", "svg"):
            with atomic(out / f"comparison.{kind}") as partial:
                figure.savefig(partial, dpi=150)


def _names(rows: list[dict[str, Any]]) -> list[str]:
    """Columns that are not empty. The number of samples and the bound are columns only if they vary."""
    names = [name for name in columns() if any(row.get(name) is not None for row in rows)]
    constant = [name for name in ("num_samples", "bound") if len({row.get(name) for row in rows}) == 1]
    return [name for name in names if name not in constant]


def _num_samples(rows: list[dict[str, Any]]) -> str:
    numbers = {row["num_samples"] for row in rows}
    return f"{numbers.pop():,} samples per row" if len(numbers) == 1 else "samples as in the table"


def _seeds(seeds: list[int]) -> str:
    if len(seeds) == 1:
        return " One seed: its spread over seeds is not known."
    return f" Means and standard errors over {len(seeds)} seeds."


def _record(result: dict[str, Any]) -> dict[str, Any]:
    """The comparison as a record of results, without its order on the page and its note."""
    names = _names(result["rows"])
    features = "" if result["features"] is None else f" Metrics in the features of {result['features']}."
    return {
        "format": 1,
        "id": re.sub(r"[^a-z0-9]+", "-", result["title"].lower()).strip("-") or "comparison",
        "group": result["data"]["name"],
        "order": 0,
        "title": result["title"],
        "kind": "measured",
        "hardware": f"{result['machine']['device']}, torch {result['machine']['torch']}",
        "command": result["command"],
        "commit": result["commit"],
        "seed": result["seeds"] if len(result["seeds"]) > 1 else result["seeds"][0],
        "date": result["date"][:10],
        "columns": [columns()[name] for name in names],
        "rows": [[_cell(row.get(name)) for name in names] for row in result["rows"]],
        "note": f"{_num_samples(result['rows']).capitalize()}.{features}{_seeds(result['seeds'])}",
    }


def _cell(value: Any) -> Any:
    """A cell of a record. A record has no error of None, as a single data point has."""
    return value["value"] if isinstance(value, dict) and None in value.values() else value


def _series(rows: list[dict[str, Any]]) -> dict[str, tuple[list[float], list[float]]]:
    """Fréchet distance against steps; one line per model, sampler, number of corrector steps, times and dropout."""

    def kind(row: dict[str, Any]) -> tuple[str, str, int, str, str]:
        return row["model"], row["sampler"], row["corrector_steps"], row["times"] or "", row["dropout"] or ""

    lines = {}
    sampled = sorted((row for row in rows if "sampler" in row), key=kind)
    for (model, sampler, corrector_steps, times, dropout), group in itertools.groupby(sampled, key=kind):
        points = sorted((row["num_steps"], _value(row["frechet"])) for row in group if row.get("frechet") is not None)
        if points:
            name = f"{model}, {sampler}" + (f", {corrector_steps} correctors" if corrector_steps else "")
            name += f", {times} times" * bool(times) + ", dropout" * bool(dropout)
            lines[name] = ([float(steps) for steps, _ in points], [value for _, value in points])
    return lines
