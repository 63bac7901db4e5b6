"""evaluate_cells: a model of cells, measured completely. Every finished part is kept: a killed measurement goes on."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from blackout.atomic import write_atomic
from blackout.cells.counts import Counts
from blackout.cells.metrics import MINIMUM
from blackout.cells.model import CountModel
from blackout.cells.report import curves, write_cells_page
from blackout.cells.stages import CellMeasurement, CellPlan
from blackout.evaluation.bits import Tell, finite
from blackout.evaluation.cache import Notebook
from blackout.evaluation.checks import check_folder, check_walk
from blackout.evaluation.evaluate import about_model
from blackout.evaluation.provenance import provenance
from blackout.io import checksum


def evaluate_cells(
    model: CountModel,
    out: str | Path,
    test: Counts,
    train: Counts | None = None,
    plan: CellPlan | None = None,
    *,
    source: str = "model",
    tell: Tell | None = None,
) -> dict[str, Any]:
    """Measure a model and write OUT/report.json and OUT/report.html; the same call again goes on after a kill.

    Samples are compared with `test`, the held-out cells; the floor is as many cells of `train`, compared likewise.
    """
    plan, out, tell = plan or CellPlan(), Path(out), tell or (lambda *_: None)
    test, train = model.ordered(test), None if train is None else model.ordered(train)
    measured = CellMeasurement(model, Notebook(out / "parts"), plan, test, train, tell)
    number = measured.number
    check_folder(out, checksum(model.model), test.checksum)
    if number:
        check_walk(model.model, plan)
    if number and len(test) < MINIMUM:
        few = f"the scores need at least {MINIMUM} held-out cells, got {len(test)}"
        raise ValueError(f"{few}: give more, or samples=0 for the likelihood alone")
    if plan.competitors and train is None:
        raise ValueError("competitors are fitted to the training cells, of which there are none: give those too")
    report: dict[str, Any] = {
        "format": 1,
        "kind": "cells",
        **provenance(model.model.device),
        "model": about_model(model.model, source) | {"labels": model.keys, "library": model.config.library},
        "data": {
            "name": test.name,
            "checksum": test.checksum,
            "genes": test.num_genes,
            "train": None if train is None else len(train),
            "test": len(test),
        },
        "plan": dataclasses.asdict(plan) | {"samples": number},
        "bits_per_dim": {
            "test": measured.bits("test", test),
            "train": None if train is None else measured.bits("train", train),
        },
        "sampling": None,
        "scores": {},
        "competitors": {},
        "curves": {},
    }
    if number:
        x, report["sampling"] = measured.draw(out / "samples.npz")
        report["scores"] = {"model": measured.scores("model", x), "floor": measured.floor()}
        report["curves"] = curves(test.x, x)
    if plan.competitors:
        report["competitors"] = measured.competitors()
    text = json.dumps(finite(report), indent=2, allow_nan=False)
    write_atomic(out / "report.json", text + "\n")
    report = json.loads(text)
    write_cells_page(out / "report.html", report)
    return report
