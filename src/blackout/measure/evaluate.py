"""evaluate: one model, measured completely. Every finished part is kept, so that a killed measurement goes on."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy

from blackout.data import Dataset
from blackout.measure.notebook import Notebook, write_whole
from blackout.measure.page import write_page
from blackout.measure.parts import Measurement, Tell, stored
from blackout.measure.plan import Plan
from blackout.measure.provenance import provenance
from blackout.model import DiffusionModel
from blackout.samples import checksum


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
    measured = Measurement(model, Notebook(out / "parts"), plan, tell)
    for name, data in (("test", test), ("train", train)):
        if data is not None:
            check_data(model, data, name)
    if plan.structure and not (plan.samples and is_pictures(model) and (model.shape or ())[0] == 1):
        raise ValueError(f"structure is for samples that are label images of one channel, got shape {model.shape}")
    network = measured.network() if plan.samples and is_pictures(model) else None  # before hours of work, not after
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
        "sampler_bits_per_dim": measured.bound(test) if plan.bound_images else None,
        "sampling": measured.draw(out / "samples.npz") if plan.samples else None,
        "quality": None if network is None else measured.quality(out / "samples.npz", train or test, network),
        "structure": measured.structure(out / "samples.npz", test, train) if plan.structure else None,
        "curves": {
            "bits_by_time": measured.bits_by_time(test),
            "training": training_curve(Path(source)),
            "bits_of_images": measured.histogram([name for name, value in bits.items() if value is not None]),
        },
    }
    text = json.dumps(report, indent=2)
    write_whole(out / "report.json", text + "\n")
    report = json.loads(text)
    samples = stored(out / "samples.npz")[:100] if plan.samples else numpy.empty((0, *test.x.shape[1:]), numpy.uint8)
    write_page(out / "report.html", report, samples, test.x[:100].cpu().numpy(), test.largest)
    return report


def check_data(model: DiffusionModel, data: Dataset, name: str) -> None:
    """Refuse data that the model was not made for."""
    if model.shape is not None and tuple(data.x.shape[1:]) != model.shape:
        raise ValueError(
            f"the {name} data must have shape {model.shape}, as the model's, got {tuple(data.x.shape[1:])}"
        )
    largest = model.largest
    if largest is not None and int(data.x.max()) > largest:
        raise ValueError(
            f"the {name} data must not exceed {largest}, the model's largest count, got {int(data.x.max())}"
        )


def is_pictures(model: DiffusionModel) -> bool:
    return model.shape is not None and len(model.shape) == 3 and model.shape[0] in (1, 3)


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
