"""compare: a grid of models, samplers, steps and correctors, measured cell by cell; a killed one goes on."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from blackout.data import Dataset
from blackout.evaluation import FeatureNetwork, feature_network
from blackout.evaluation.bits import Tell
from blackout.evaluation.cache import Notebook
from blackout.evaluation.checks import check, is_pictures
from blackout.evaluation.comparison import row_of, score_columns, text_of, write
from blackout.evaluation.config import Plan
from blackout.evaluation.distances import MINIMUM
from blackout.evaluation.evaluate import about_model
from blackout.evaluation.provenance import provenance
from blackout.evaluation.spec import Spec, Training
from blackout.evaluation.splits import open_splits
from blackout.evaluation.stages import Measurement
from blackout.io.models import from_config, load
from blackout.model import DiffusionModel
from blackout.training.config import refuse_another


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
    test, train = open_splits(spec.dataset, spec.data, **spec.reading)
    network, new = _check(spec, out / "runs", test, train, device)
    entries = [Entry(m.label, m.source) for m in spec.models]
    entries += [_trained(t, new.pop(t.label), train or test, out / "runs", say) for t in spec.trainings]
    rows: list[dict[str, Any]] = []
    models = []
    for entry in entries:
        model = load(entry.source).to(device)
        if compiled:
            model.compile()
        folder = out / "cells" / entry.label
        models.append({"label": entry.label, **about_model(model, str(entry.source))})
        for plan, cell in zip(spec.plans, cell_names(spec.plans), strict=True):
            measured = Measurement(model, Notebook(folder / cell), plan, tell)
            likelihood = Measurement(model, Notebook(folder), plan, tell).bits("test", test)
            sampling = measured.draw(folder / cell / "samples.npz")
            scores: dict[str, Any] = {}
            if network is not None and is_pictures(model):
                if train is not None and not rows and len(test) >= MINIMUM:  # first, what a perfect model would get
                    floor = Measurement(model, Notebook(out / "cells"), plan, tell).floor(test, train, network)
                    rows.append({"model": "held-out data", **score_columns(floor), "num_samples": floor["num_samples"]})
                scores = measured.quality(folder / cell / "samples.npz", train or test, network)
            row = row_of(entry.label, likelihood, sampling, scores)
            rows.append(row)
            say(f"{entry.label}, {cell}: " + ", ".join(f"{k} {text_of(v)}" for k, v in row.items() if k in scores))
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
    write(out, result)
    return result


def cell_names(plans: Sequence[Plan]) -> list[str]:
    """Folders of the cells of one model; they tell the number of samples only where nothing else tells two apart."""
    names = [f"{plan.sampler}-{plan.steps}-{plan.correctors}" + (plan.grid and f"-{plan.grid}") for plan in plans]
    return [
        f"{name}-{plan.samples}" if names.count(name) > 1 else name for name, plan in zip(names, plans, strict=True)
    ]


def _check(
    spec: Spec, runs: Path, test: Dataset, train: Dataset | None, device: torch.device
) -> tuple[FeatureNetwork | None, dict[str, DiffusionModel]]:
    """Refuse now whatever of the grid would fail after hours.

    The feature network, if there are pictures, and the models that are to be trained, by their labels.
    """

    def accepted(label: str, build: Callable[[], DiffusionModel]) -> DiffusionModel:
        try:
            model = build()
            for plan in spec.plans:
                check(model, plan, test, train)
        except ValueError as error:
            raise ValueError(f"{label}: {error}") from None
        return model

    pictures = [is_pictures(accepted(m.label, lambda m=m: load(m.source))) for m in spec.models]  # type: ignore[misc]
    new = {}
    for training in spec.trainings:
        refuse_another(training.config, runs / training.label)
        new[training.label] = accepted(training.label, lambda t=training: from_config(t.config, train or test))  # type: ignore[misc]
    plan = spec.plans[0]
    shown = any(pictures) or any(map(is_pictures, new.values()))
    return feature_network(plan.features, plan.weights or None, device) if shown else None, new


def _trained(training: Training, model: DiffusionModel, data: Dataset, runs: Path, say: Callable[[str], None]) -> Entry:
    folder = runs / training.label
    say(f"{training.label}: {training.config.steps} steps")

    def listen(report: Any, trainer: Any) -> None:
        say(f"{training.label}: step {report.step}, {report.bits_per_dim:.4f} bits/dim on the training batch")

    quiet = dataclasses.replace(training.config, log_every=max(training.config.log_every, training.config.steps // 20))
    model.train(quiet, data.x, data.labels, folder, listen)
    return Entry(training.label, folder)
