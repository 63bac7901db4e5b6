"""Evaluation of a model of cells: likelihood, samples against held-out cells, baselines; resumable."""

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from blackout import validate
from blackout.atomic import write_atomic
from blackout.cells.baselines import Baseline, GeneBootstrap
from blackout.cells.counts import Counts
from blackout.cells.metrics import MINIMUM, compare_cells
from blackout.cells.model import CountModel
from blackout.cells.negative_binomial import NegativeBinomial
from blackout.cells.read import read_counts
from blackout.cells.report import curves, write_report
from blackout.cells.sampling import write_samples
from blackout.cells.scvi import ScVI
from blackout.evaluation.bits import Tell, finite, measure_bits
from blackout.evaluation.cache import Notebook
from blackout.evaluation.checks import check_folder, check_walk
from blackout.evaluation.evaluate import about_model
from blackout.evaluation.provenance import provenance
from blackout.evaluation.splits import drawn
from blackout.io import SAMPLERS, checksum, sampler_for
from blackout.times import MEASURES

BASELINES: dict[str, Callable[[], Baseline]] = {
    "negative_binomial": NegativeBinomial,
    "negative_binomial_library": partial(NegativeBinomial, levels=64),
    "gene_bootstrap": GeneBootstrap,
    "scvi": ScVI,
}


@dataclass(frozen=True, kw_only=True)
class CellEvalConfig:
    """What of a model of cells is evaluated, and how precisely."""

    samples: int | None = None
    """Cells to sample for the scores; None: as many as are held out; 0: none."""
    steps: int = 100
    sampler: str = "poisson"
    correctors: int = 0
    times: str = ""
    """Rule of the sampling times; empty: that of the model."""
    seed: int = 0
    cells: int = 0
    """Cells of each split for bits/dim; 0: all held-out cells, and as many training cells."""
    num_times: int = 16
    """Times at which the bound of each cell is evaluated."""
    baselines: bool = False
    """Whether baselines are fitted and evaluated too."""
    batch_size: int = 256

    def __post_init__(self) -> None:
        for name in ("cells", "correctors", "seed"):
            validate.integer(name, getattr(self, name), 0)
        for name in ("steps", "num_times", "batch_size"):
            validate.integer(name, getattr(self, name), 1)
        if self.samples is not None and validate.integer("samples", self.samples, 0) and self.samples < MINIMUM:
            raise ValueError(f"samples must be 0 or at least {MINIMUM}, got {self.samples}")
        validate.choice("sampler", self.sampler, tuple(SAMPLERS))
        validate.choice("times", self.times, ("", *MEASURES))


def evaluate_cells(
    model: CountModel,
    out: str | Path,
    test: Counts,
    train: Counts | None = None,
    config: CellEvalConfig | None = None,
    *,
    source: str = "model",
    tell: Tell | None = None,
) -> dict[str, Any]:
    """Evaluate a model and write OUT/report.json and OUT/report.html; the same call resumes a killed evaluation.

    Parameters
    ----------
    model : CountModel
    out : path
        Folder of the report.
    test : Counts
        Held-out cells, with which samples are compared.
    train : Counts, optional
        Training cells: for their likelihood, baselines, and the scores of real vs real cells.
    config : CellEvalConfig, optional
    source : str
        Name of the model in the report.
    tell : callable, optional
        Progress: called with the name of a stage, the work done and the total.

    Returns
    -------
    dict
        The contents of report.json.
    """
    config, out = config or CellEvalConfig(), Path(out)
    test, train = test.align(model.genes), None if train is None else train.align(model.genes)
    number = len(test) if config.samples is None else config.samples
    check_folder(out, checksum(model.model), test.checksum)
    if number:
        check_walk(model.model, config)
    if number and len(test) < MINIMUM:
        needed = f"the scores need at least {MINIMUM} held-out cells, got {len(test)}"
        raise ValueError(f"{needed}; samples=0 (--samples 0) evaluates the likelihood alone")
    if config.baselines and train is None:
        raise ValueError("baselines need training cells, got none: train-data, or held-out cells of the run")
    config = dataclasses.replace(config, samples=number)
    stages = _Stages(model, out, config, test, train, tell or (lambda *_: None))
    report: dict[str, Any] = {
        "format": 1,
        "kind": "cells",
        **provenance(model.model.device),
        "model": about_model(model.model, source)
        | {"labels": list(model.config.labels), "library": model.config.library},
        "data": {
            "name": test.name,
            "checksum": test.checksum,
            "genes": test.num_genes,
            "train": None if train is None else len(train),
            "test": len(test),
        },
        "config": dataclasses.asdict(config),
        "bits_per_dim": {
            "test": stages.bits("test", test),
            "train": None if train is None else stages.bits("train", train),
        },
        "sampling": None,
        "scores": {},
        "baselines": {},
        "curves": {},
    }
    if number:
        x, report["sampling"] = stages.sample()
        report["scores"] = {"model": stages.scores("model", x), "real_vs_real": stages.real_vs_real()}
        report["curves"] = curves(test.x, x)
    if config.baselines:
        report["baselines"] = stages.baselines()
    text = json.dumps(finite(report), indent=2, allow_nan=False)
    write_atomic(out / "report.json", text + "\n")
    report = json.loads(text)
    write_report(out / "report.html", report)
    return report


class _Stages:
    """The stages of an evaluation; each result is cached under a key of all that it depends on."""

    def __init__(
        self, model: CountModel, out: Path, config: CellEvalConfig, test: Counts, train: Counts | None, tell: Tell
    ) -> None:
        self.model, self.out, self.config, self.tell = model, out, config, tell
        self.cache = Notebook(out / "parts")
        self.test, self.train = test, train
        self.number = config.samples or 0
        about = hashlib.sha256(json.dumps(model.describe()).encode()).hexdigest()
        self.key = {"model": checksum(model.model), "about": about, "device": model.model.device.type}
        self.data = {"test": test.checksum, "train": None if train is None else train.checksum, "seed": config.seed}

    def bits(self, name: str, cells: Counts) -> dict[str, Any]:
        """Bits per dimension of the exact continuous-time bound."""
        config, number = self.config, min(self.config.cells or len(self.test), len(cells))
        # A random subset: the first cells of a file may all be of one sample.
        chosen = cells if number == len(cells) else cells.take(drawn(len(cells), number, config.seed))
        labels = [chosen.obs[key].tolist() for key in self.model.config.labels if key in chosen.covariates]
        key = {**self.key, "seed": config.seed, "data": chosen.checksum, "num_times": config.num_times}
        key["labels"] = hashlib.sha256(str(labels).encode()).hexdigest()

        def bits(start: int, stop: int) -> NDArray[Any]:
            part = chosen.take(slice(start, stop))
            return self.model.bits_of_each(part, config.seed, num_times=config.num_times, start_index=start).numpy()

        size = {"cells": number, "times": config.num_times}
        return measure_bits(self.cache, name, key, number, config.batch_size, bits, self.tell, size)

    def sample(self) -> tuple[Any, dict[str, Any]]:
        """Samples, written to OUT/samples.npz, and the sampling speed."""
        config, path, number = self.config, self.out / "samples.npz", self.number
        how = {name: getattr(config, name) for name in ("sampler", "steps", "correctors", "times", "seed")}
        begun: list[tuple[float, float]] = []
        spent = [0.0, 0.0]

        def progress(done: float, total: int) -> None:
            now = time.perf_counter()
            begun[:] = begun or [(now, done)]  # the first step includes the warm-up
            spent[:] = done - begun[0][1], now - begun[0][0]
            self.tell(f"samples, {config.steps} steps", done, total)

        write_samples(
            self.model, path, number, num_steps=config.steps, times=config.times or None, seed=config.seed,
            sampler=sampler_for(self.model.model, config.sampler, config.correctors), batch_size=config.batch_size,
            overwrite=True, progress=progress,
        )  # fmt: skip

        def summary() -> dict[str, Any]:
            rate = spent[0] / spent[1] if spent[1] > 0 else None
            return {**how, "num": number, "seconds": number / rate if rate else None, "cells_per_second": rate}

        about = self.cache.part("sampling", {**self.key, **how, "number": number}, summary)
        return read_counts(path, empty="keep").x, about

    def scores(self, name: str, x: Any) -> dict[str, Any]:
        """Scores of cells against the held-out ones; genes and components are chosen in training cells."""
        digest = hashlib.sha256(x.data.tobytes() + x.indices.tobytes() + x.indptr.tobytes()).hexdigest()
        key = {**self.data, "number": self.number, "cells": digest}

        def summary() -> dict[str, Any]:
            self.tell(f"scores, {name.replace('_', ' ')}", 0, 1)
            found = compare_cells(x, self.test.x, reference=self._reference(), seed=self.config.seed)
            return dict(finite(dataclasses.asdict(found)))

        return self.cache.part(f"scores-{name}", key, summary)

    def real_vs_real(self) -> dict[str, Any] | None:
        """Scores of as many training cells: those of a perfect model. None without enough training cells."""
        if self.train is None or len(self.train) < MINIMUM:
            return None
        return self.scores("real_vs_real", self.train.x[self._real_rows(self.train)])

    def baselines(self) -> dict[str, Any]:
        """Baselines fitted to the training cells; scVI if its package is installed."""
        names = [name for name in BASELINES if name != "scvi" or find_spec("scvi") is not None]
        key = {**self.data, "number": self.number}
        return {name: self.cache.part(name, key, lambda name=name: self._baseline(name)) for name in names}  # type: ignore[misc]

    def _baseline(self, name: str) -> dict[str, Any]:
        assert self.train is not None
        self.tell(name.replace("_", " "), 0, 1)
        start = time.perf_counter()
        baseline = BASELINES[name]().fit(self.train.x)
        fitted = time.perf_counter()
        bits = baseline.bits_per_dim(self.test.x)
        begun = time.perf_counter()
        x = baseline.sample(self.number, self.config.seed) if self.number else None
        seconds = time.perf_counter() - begun
        about = {
            "bits_per_dim": bits and {"mean": bits[0], "standard_error": bits[1], "cells": len(self.test)},
            "fit_seconds": fitted - start,
            "seconds": seconds,
            "cells_per_second": self.number / seconds if self.number else None,
            "scores": None if x is None else self.scores(name, x),
        }
        return dict(finite(about))

    def _real_rows(self, train: Counts) -> NDArray[Any]:
        return drawn(len(train), min(self.number, len(self.test)), self.config.seed)

    def _reference(self) -> Any:
        """Training cells without those of real vs real, whose components would favour them, if enough are left."""
        if self.train is None or len(self.train) < MINIMUM:
            return None
        rest = numpy.ones(len(self.train), bool)
        rest[self._real_rows(self.train)] = False
        return self.train.x[rest] if rest.sum() >= max(MINIMUM, len(self.test)) else self.train.x
