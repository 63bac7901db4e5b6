"""What a comparison is written as: a table, a picture, JSON, and a record of results."""

import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

from blackout import figures
from blackout.atomic import write_atomic

_COLUMNS = {
    "model": "model",
    "bits_per_dim": "bits/dim",
    "sampler": "sampler",
    "steps": "steps",
    "correctors": "correctors",
    "grid": "times by",
    "frechet": "Fréchet",
    "kernel": "kernel",
    "inception_score": "Inception score",
    "precision": "precision",
    "recall": "recall",
    "images_per_second": "images/s",
    "num_samples": "samples",
}


def row_of(label: str, likelihood: dict[str, Any], sampling: dict[str, Any], scores: dict[str, Any]) -> dict[str, Any]:
    """One model, sampled in one way."""
    return {
        "model": label,
        "bits_per_dim": {"value": likelihood["mean"], "error": likelihood["standard_error"]},
        "sampler": sampling["sampler"],
        "steps": sampling["steps"],
        "correctors": sampling["corrector_steps"],
        "grid": sampling.get("grid"),
        **score_columns(scores),
        "images_per_second": sampling["images_per_second"],
        "num_samples": sampling["num"],
    }


def score_columns(scores: dict[str, Any]) -> dict[str, Any]:
    """The scores of a row, of samples or of held-out data."""
    return {
        "frechet": scores.get("frechet"),
        "kernel": {"value": scores["kernel"], "error": scores["kernel_error"]} if scores else None,
        "inception_score": {"value": scores["inception_score"], "error": scores["inception_error"]} if scores else None,
        "precision": scores.get("precision"),
        "recall": scores.get("recall"),
    }


def table(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Heads and cells as text."""
    names = _names(rows)
    return [_COLUMNS[name] for name in names], [[text_of(row.get(name)) for name in names] for row in rows]


def _names(rows: list[dict[str, Any]]) -> list[str]:
    """Columns in which something stands; numbers of samples stand in a column if they differ, and else below."""
    names = [name for name in _COLUMNS if any(row.get(name) is not None for row in rows)]
    return [name for name in names if name != "num_samples" or len({row["num_samples"] for row in rows}) > 1]


def _samples(rows: list[dict[str, Any]]) -> str:
    """How many there are in a row, if that can be said of all."""
    numbers = {row["num_samples"] for row in rows}
    return f"{numbers.pop():,} samples a row" if len(numbers) == 1 else "samples as in the table"


def text_of(value: Any) -> str:
    """A cell of the table."""
    if isinstance(value, dict) and value["value"] is not None:
        error = value["error"]
        if error is None or math.isnan(error):
            return f"{value['value']:.4g}"
        digits = max(0, 1 - math.floor(math.log10(error))) if error > 0 else 4
        return f"{value['value']:.{digits}f} ± {error:.{digits}f}"
    if value is None or isinstance(value, dict):
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def write(out: Path, result: dict[str, Any]) -> None:
    """Write OUT/comparison.json, .md, .png and .svg, and OUT/record.json."""
    heads, cells = table(result["rows"])
    lines = [f"# {result['title']}", "", "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(row) + " |" for row in cells]
    lines += [
        "",
        f"{result['data']['name']}, {_samples(result['rows'])}; features of "
        f"{result['features'] or 'no network'}. `{result['command']}`, {result['machine']['device']}, torch "
        f"{result['machine']['torch']}, commit {result['commit'] or 'unknown'}, {result['date'][:10]}.",
    ]
    write_atomic(out / "comparison.md", "\n".join(lines) + "\n")
    write_atomic(out / "comparison.json", json.dumps(result, indent=2) + "\n")
    write_atomic(out / "record.json", json.dumps(_record(result), indent=2) + "\n")
    series = _series(result["rows"])
    if series:
        figure = figures.curves(
            series, xlabel="steps", ylabel=f"Fréchet distance ({result['features']})", logx=True, title=result["title"]
        )
        figure.savefig(out / "comparison.png", dpi=150)
        figure.savefig(out / "comparison.svg")


def _record(result: dict[str, Any]) -> dict[str, Any]:
    """The comparison as a record of results, but for what only a person can say: its place and its note."""
    names = _names(result["rows"])
    features = "" if result["features"] is None else f" Scores in the features of {result['features']}."
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
        "seed": result["seed"],
        "date": result["date"][:10],
        "columns": [_COLUMNS[name] for name in names],
        "rows": [[_cell(row.get(name)) for name in names] for row in result["rows"]],
        "note": f"{_samples(result['rows']).capitalize()}.{features}",
    }


def _cell(value: Any) -> Any:
    """A figure as a record has it: with an error only if there is one, as there is none of a single data point."""
    return value["value"] if isinstance(value, dict) and None in value.values() else value


def _series(rows: list[dict[str, Any]]) -> dict[str, tuple[list[float], list[float]]]:
    """Fréchet distance against steps, a line for each model, sampler, number of correctors and grid of times."""

    def kind(row: dict[str, Any]) -> tuple[str, str, int, str]:
        return row["model"], row["sampler"], row["correctors"], row.get("grid") or ""

    lines = {}
    sampled = sorted((row for row in rows if "sampler" in row), key=kind)
    for (model, sampler, correctors, grid), group in itertools.groupby(sampled, key=kind):
        points = sorted((row["steps"], row["frechet"]) for row in group if row["frechet"] is not None)
        if points:
            name = f"{model}, {sampler}" + (f", {correctors} correctors" if correctors else "")
            name += f", times by {grid}" if grid else ""
            lines[name] = ([float(steps) for steps, _ in points], [value for _, value in points])
    return lines
