"""evaluate: one model, measured completely. Every finished part is kept, so that a killed measurement goes on."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy

from blackout.atomic import write_atomic
from blackout.data import Dataset
from blackout.evaluation.bits import Tell, finite, spread
from blackout.evaluation.cache import Notebook
from blackout.evaluation.checks import check, check_folder, is_pictures
from blackout.evaluation.config import Plan
from blackout.evaluation.distances import MINIMUM
from blackout.evaluation.provenance import provenance
from blackout.evaluation.report import write_page
from blackout.evaluation.splits import some
from blackout.evaluation.stages import Measurement, stored
from blackout.io import checksum
from blackout.model import DiffusionModel


def evaluate(
    model: DiffusionModel,
    out: str | Path,
    test: Dataset,
    train: Dataset | None = None,
    plan: Plan | None = None,
    *,
    source: str = "model",
    tell: Tell | None = None,
) -> dict[str, Any]:
    """Measure a model and write OUT/report.json and OUT/report.html; the same call again goes on after a kill.

    `test` is held-out data; samples are compared with `train`, or with `test` if there is none.
    """
    plan, out, tell = plan or Plan(), Path(out), tell or (lambda *_: None)
    check(model, plan, test, train)
    check_folder(out, checksum(model), test.checksum)
    measured = Measurement(model, Notebook(out / "parts"), plan, tell)
    network = measured.network() if plan.samples and is_pictures(model) else None  # before hours of work, not after
    enough = len(test) >= MINIMUM  # held-out data for scores of their own: what a perfect model would get
    bits = {
        "test": measured.bits("test", test),
        "train": None if train is None else measured.bits("train", train, test),
    }
    report: dict[str, Any] = {
        "format": 1,
        **provenance(model.device),
        "model": about_model(model, source),
        "data": {
            "name": test.name,
            "checksum": test.checksum,
            "shape": list(test.x.shape[1:]),
            "train": None if train is None else len(train),
            "test": len(test),
        },
        "plan": dataclasses.asdict(plan),
        "bits_per_dim": bits,
        "sampler_bits_per_dim": measured.bound(test) if plan.bound_images and plan.sampler != "exact" else None,
        "sampling": measured.draw(out / "samples.npz") if plan.samples else None,
        "quality": None if network is None else measured.quality(out / "samples.npz", train or test, network),
        "floor": measured.floor(test, train, network) if network is not None and train is not None and enough else None,
        "structure": measured.structure(out / "samples.npz", test, train) if plan.structure else None,
        "curves": {
            "bits_by_time": measured.bits_by_time(test),
            "training": training_curve(Path(source)),
            "bits_of_images": spread(out / "parts", [name for name, value in bits.items() if value is not None]),
        },
    }
    text = json.dumps(finite(report), indent=2, allow_nan=False)
    write_atomic(out / "report.json", text + "\n")
    report = json.loads(text)
    samples = stored(out / "samples.npz")[:100] if plan.samples else numpy.empty((0, *test.x.shape[1:]), numpy.uint8)
    shown = some(test, 100, plan.seed).cpu().numpy()
    write_page(out / "report.html", report, samples, shown, model.max_state or test.max_state)
    return report


def about_model(model: DiffusionModel, source: str) -> dict[str, Any]:
    """What a reader wants to know of a model."""
    described = model.describe()
    return {
        "source": source,
        "checksum": checksum(model),
        "weights": sum(p.numel() for p in model.predictor.parameters()),
        "process": described["process"],
        "network": described["network"],
        "head": described["head"]["kind"],
    }


def training_curve(run: Path) -> dict[str, Any] | None:
    """Bits per dimension on the training batches, if the model came from a run folder."""
    try:
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        return {"step": [r["step"] for r in lines], "bits_per_dim": [r["bits_per_dim"] for r in lines]}
    except (OSError, ValueError, KeyError, TypeError):
        return None
