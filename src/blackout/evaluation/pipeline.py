"""evaluate: likelihood, sample quality and speed of one model."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy
from torch import Tensor

from blackout.data import Dataset
from blackout.evaluation.cache import Cache
from blackout.evaluation.checks import check, check_folder
from blackout.evaluation.config import MINIMUM, EvalConfig
from blackout.evaluation.features import optional
from blackout.evaluation.likelihood import Progress, bits_histogram
from blackout.evaluation.provenance import provenance
from blackout.evaluation.report import write_json, write_report
from blackout.evaluation.splits import subsample
from blackout.evaluation.stages import Evaluation, load_samples
from blackout.files import claim, read_lines
from blackout.io import checksum
from blackout.model import DiffusionModel
from blackout.process import remaining_tilt
from blackout.training.checkpoints import METRICS

FILES = ("report.json", "report.html", "samples.npz", "cache")
"""What an evaluation writes to its folder."""
_SHOWN = 100


def evaluate(
    model: DiffusionModel,
    out: str | Path,
    test: Dataset,
    train: Dataset | None = None,
    config: EvalConfig | None = None,
    *,
    source: str = "model",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Evaluate a model, write OUT/report.json and OUT/report.html, and return the content of the former.

    The same call resumes after an interruption.

    Parameters
    ----------
    out
        Folder of one model and one data set; finished stages are kept in OUT/cache.
    test, train
        Held-out data, and training data, which samples are compared with; default: `test`.
    source
        Name of the model in the report; a run folder adds its training curve.
    overwrite
        Whether files in `out` that no evaluation has written are replaced.
    progress
        Called with the name of the stage, how much of it is done, and of how much.
    """
    config, out, progress = config or EvalConfig(), Path(out), progress or (lambda *_: None)
    optional("jinja2", "evaluation")  # for the report; before hours of work
    check(model, config, test, train)
    check_folder(out, checksum(model), test.checksum)
    claim(out, FILES, overwrite)
    run = Evaluation(model, config, Cache(out / "cache"), out / "samples.npz", progress)
    report = write_json(out / "report.json", _report(run, test, train, source))
    samples = load_samples(run.samples)[:_SHOWN] if run.num_samples else numpy.empty((0,), numpy.uint8)
    data = subsample(test, _SHOWN, config.seed).cpu().numpy()
    copies = run.copied_pairs(report["copying"]["pairs"], train) if train and report["copying"] else samples[:0]
    write_report(out / "report.html", report, samples, data, model.max_state or test.max_state, copies)
    return report


def _report(run: Evaluation, test: Dataset, train: Dataset | None, source: str) -> dict[str, Any]:
    config, network = run.config, run.network()  # an error in loading the network should not come after hours of work
    has_steps = config.num_bound_data and run.has_bound and run.sampler != "exact"  # which takes no steps
    real = train if run.num_samples and len(test) >= MINIMUM else None
    bits = {"test": run.bits("test", test), "train": None if train is None else run.bits("train", train, test)}
    return {
        "format": 2,
        **provenance(run.model.device),
        "model": describe_model(run.model, source),
        "data": {
            "name": test.name,
            "checksum": test.checksum,
            "shape": list(test.x.shape[1:]),
            "train": None if train is None else len(train),
            "test": len(test),
        },
        "config": dataclasses.asdict(config) | {"num_steps": run.num_steps, "num_samples": run.num_samples},
        "ending": describe_ending(run.model, test.x),
        "bits_per_dim": bits,
        "sampler_bits_per_dim": run.sampler_bits(test) if has_steps else None,
        "sampling": run.sample() if run.num_samples else None,
        "quality": run.quality(train or test, network) if run.num_samples else None,
        "real_vs_real": None if real is None else run.real_vs_real(test, real, network),
        "copying": None if real is None or network is None else run.copying(test, real),
        "structure": run.structure(test, train) if config.structure else None,
        "references": run.references(test, train) if config.references and train is not None else None,
        "curves": {
            "bits_by_time": run.bits_by_time(test),
            "training": training_curve(Path(source)),
            "bits_histogram": bits_histogram(run.cache, [name for name, value in bits.items() if value is not None]),
        },
    }


def describe_model(model: DiffusionModel, source: str) -> dict[str, Any]:
    """Return source, checksum, size and parts of a model, and the training runs that made it, if they are known."""
    config = model.config()
    return {
        "source": source,
        "checksum": checksum(model),
        "parameters": sum(p.numel() for p in model.predictor.parameters()),
        "process": config["process"],
        "network": config["network"],
        "head": config["head"]["kind"],
        **({"runs": config["runs"]} if "runs" in config else {}),
    }


def describe_ending(model: DiffusionModel, x: Tensor) -> dict[str, Any]:
    """Return the last time, the tilt of data points x that remains there, and its prior term in bits/dim."""
    tilt = remaining_tilt(model.process, x, model.times.t_end)
    bits = None if tilt.nats is None else tilt.nats / (math.log(2) * math.prod(model.shape or x.shape[1:]))
    return tilt.config() | {"prior_bits_per_dim": bits, "summary": str(tilt)}


def training_curve(run: Path) -> dict[str, Any] | None:
    """Return bits per dimension of the training batches from a run folder; None for other sources."""
    if not (run / METRICS).exists():
        return None
    lines = read_lines(run / METRICS)
    return {name: [values[name] for values in lines] for name in ("step", "bits_per_dim")} if lines else None
