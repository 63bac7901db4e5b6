"""compare: a grid of models, samplers, steps and correctors, measured cell by cell; a killed one goes on."""

import dataclasses
import itertools
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from blackout import figures
from blackout.data import Dataset, open_dataset
from blackout.evaluation import FeatureNetwork
from blackout.evaluation.distances import MINIMUM
from blackout.measure.evaluate import about_model, check_data, is_pictures
from blackout.measure.notebook import Notebook, write_whole
from blackout.measure.parts import Measurement, Tell
from blackout.measure.provenance import provenance
from blackout.measure.spec import Spec, Training
from blackout.shelf import from_config, load
from blackout.training.config import refuse_another

_COLUMNS = {
    "model": "model",
    "bits_per_dim": "bits/dim",
    "sampler": "sampler",
    "steps": "steps",
    "correctors": "correctors",
    "frechet": "Fréchet",
    "kernel": "kernel",
    "inception_score": "Inception score",
    "precision": "precision",
    "recall": "recall",
    "images_per_second": "images/s",
}


@dataclass(frozen=True)
class Entry:
    """A model of the comparison: where it is, and what it is called in the table."""

    label: str
    source: Path | str


def compare(
    spec: Spec,
    out: str | Path,
    device: torch.device,
    *,
    compiled: bool = False,
    tell: Tell | None = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Measure every cell of the grid; write OUT/comparison.json, .md, .png and .svg, and OUT/record.json.

    Models of `[train]` are trained first, each in a run folder under OUT/runs. The same call again goes on where a
    killed one stopped.
    """
    out, tell, say = Path(out), tell or (lambda *_: None), say or (lambda _: None)
    test = open_dataset(spec.source, "test" if spec.named else "train", folder=spec.folder, **spec.reading)
    train = open_dataset(spec.source, "train", folder=spec.folder, **spec.reading) if spec.named else None
    entries = [Entry(m.label, m.source) for m in spec.models]
    entries += [_trained(training, train or test, out / "runs", say) for training in spec.trainings]
    network: FeatureNetwork | None = None
    rows: list[dict[str, Any]] = []
    models = []
    for entry in entries:
        model = load(entry.source).to(device)
        if compiled:
            model.compile()
        for name, data in (("test", test), ("train", train)):
            if data is not None:
                check_data(model, data, name)
        folder = out / "cells" / entry.label
        models.append({"label": entry.label, **about_model(model, str(entry.source))})
        for plan in spec.plans:
            cell = f"{plan.sampler}-{plan.steps}-{plan.correctors}"
            measured = Measurement(model, Notebook(folder / cell), plan, tell)
            likelihood = Measurement(model, Notebook(folder), plan, tell).bits("test", test)
            sampling = measured.draw(folder / cell / "samples.npz")
            scores: dict[str, Any] = {}
            if is_pictures(model):
                network = network or measured.network()
                if train is not None and not rows and len(test) >= MINIMUM:  # first, what a perfect model would get
                    floor = Measurement(model, Notebook(out / "cells"), plan, tell).floor(test, train, network)
                    rows.append({"model": "held-out data", **_score_columns(floor), "num_samples": plan.samples})
                scores = measured.quality(folder / cell / "samples.npz", train or test, network)
            row = _row(entry, likelihood, sampling, scores)
            rows.append(row)
            say(f"{entry.label}, {cell}: " + ", ".join(f"{k} {_text(v)}" for k, v in row.items() if k in scores))
    result = {
        "format": 1,
        "title": spec.title,
        **provenance(device),
        "data": {"name": test.name, "checksum": test.checksum, "train": len(train or test), "test": len(test)},
        "features": None if network is None else network.name,
        "seed": spec.plans[0].seed,
        "models": models,
        "rows": rows,
    }
    _write(out, result)
    return result


def _trained(training: Training, data: Dataset, runs: Path, say: Callable[[str], None]) -> Entry:
    folder = runs / training.label
    refuse_another(training.config, folder)
    say(f"{training.label}: {training.config.steps} steps")
    model = from_config(training.config, data)

    def listen(report: Any, trainer: Any) -> None:
        say(f"{training.label}: step {report.step}, {report.bits_per_dim:.4f} bits/dim on the training batch")

    quiet = dataclasses.replace(training.config, log_every=max(training.config.log_every, training.config.steps // 20))
    model.train(quiet, data.x, data.labels, folder, listen)
    return Entry(training.label, folder)


def _row(entry: Entry, likelihood: dict[str, Any], sampling: dict[str, Any], scores: dict[str, Any]) -> dict[str, Any]:
    return {
        "model": entry.label,
        "bits_per_dim": {"value": likelihood["mean"], "error": likelihood["standard_error"]},
        "sampler": sampling["sampler"],
        "steps": sampling["steps"],
        "correctors": sampling["corrector_steps"],
        **_score_columns(scores),
        "images_per_second": sampling["images_per_second"],
        "num_samples": sampling["num"],
    }


def _score_columns(scores: dict[str, Any]) -> dict[str, Any]:
    return {
        "frechet": scores.get("frechet"),
        "kernel": {"value": scores["kernel"], "error": scores["kernel_error"]} if scores else None,
        "inception_score": {"value": scores["inception_score"], "error": scores["inception_error"]} if scores else None,
        "precision": scores.get("precision"),
        "recall": scores.get("recall"),
    }


def table(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Heads and cells as text; columns in which nothing stands, or the same everywhere they could differ, stay."""
    names = [name for name in _COLUMNS if any(row.get(name) is not None for row in rows)]
    return [_COLUMNS[name] for name in names], [[_text(row.get(name)) for name in names] for row in rows]


def _text(value: Any) -> str:
    if isinstance(value, dict):
        error = value["error"]
        if error is None or math.isnan(error):
            return f"{value['value']:.4g}"
        digits = max(0, 1 - math.floor(math.log10(error))) if error > 0 else 4
        return f"{value['value']:.{digits}f} ± {error:.{digits}f}"
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _write(out: Path, result: dict[str, Any]) -> None:
    heads, cells = table(result["rows"])
    lines = [f"# {result['title']}", "", "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(row) + " |" for row in cells]
    numbers = sorted({row["num_samples"] for row in result["rows"]})
    lines += [
        "",
        f"{result['data']['name']}, {', '.join(f'{n:,}' for n in numbers)} samples a row; features of "
        f"{result['features'] or 'no network'}. `{result['command']}`, {result['machine']['device']}, torch "
        f"{result['machine']['torch']}, commit {result['commit'] or 'unknown'}, {result['date'][:10]}.",
    ]
    write_whole(out / "comparison.md", "\n".join(lines) + "\n")
    write_whole(out / "comparison.json", json.dumps(result, indent=2) + "\n")
    write_whole(out / "record.json", json.dumps(_record(result), indent=2) + "\n")
    series = _series(result["rows"])
    if series:
        figure = figures.curves(
            series, xlabel="steps", ylabel=f"Fréchet distance ({result['features']})", logx=True, title=result["title"]
        )
        figure.savefig(out / "comparison.png", dpi=150)
        figure.savefig(out / "comparison.svg")


def _record(result: dict[str, Any]) -> dict[str, Any]:
    """The comparison as a record of results, but for what only a person can say: its place and its note."""
    names = [name for name in _COLUMNS if any(row.get(name) is not None for row in result["rows"])]
    features = "" if result["features"] is None else f" Scores in the features of {result['features']}."
    return {
        "format": 1,
        "id": re.sub(r"[^a-z0-9]+", "-", result["title"].lower()).strip("-"),
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
        "rows": [[row.get(name) for name in names] for row in result["rows"]],
        "note": f"{result['rows'][0]['num_samples']:,} samples a row.{features}",
    }


def _series(rows: list[dict[str, Any]]) -> dict[str, tuple[list[float], list[float]]]:
    """Fréchet distance against steps, a line for each model, sampler and number of correctors."""

    def kind(row: dict[str, Any]) -> tuple[str, str, int]:
        return row["model"], row["sampler"], row["correctors"]

    lines = {}
    sampled = sorted((row for row in rows if "sampler" in row), key=kind)
    for (model, sampler, correctors), group in itertools.groupby(sampled, key=kind):
        points = sorted((row["steps"], row["frechet"]) for row in group if row["frechet"] is not None)
        if points:
            name = f"{model}, {sampler}" + (f", {correctors} correctors" if correctors else "")
            lines[name] = ([float(steps) for steps, _ in points], [value for _, value in points])
    return lines
