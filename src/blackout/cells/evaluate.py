"""Evaluation of a model of cells: likelihood, samples against held-out cells, baselines; resumable."""

import dataclasses
import hashlib
import json
import time
import warnings
from collections.abc import Callable
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy
import scipy.sparse
import torch
from numpy.typing import NDArray

from blackout.cells.baselines import BASELINES
from blackout.cells.classifiers import TypeClassifier
from blackout.cells.config import CellEvalConfig
from blackout.cells.counts import Counts
from blackout.cells.metrics import Space, check_counts, compare_cells
from blackout.cells.model import CountModel
from blackout.cells.names import optional
from blackout.cells.read import read_counts
from blackout.cells.report import curves, write_report
from blackout.cells.sampling import write_samples
from blackout.cells.tasks import coverage, fold_change_scores, gene_means, imputation_scores, model_means
from blackout.evaluation.cache import Cache
from blackout.evaluation.checks import check_folder, check_sampling, steps_of
from blackout.evaluation.config import MINIMUM
from blackout.evaluation.likelihood import Progress, bits_per_dim
from blackout.evaluation.pipeline import FILES, describe_ending, describe_model
from blackout.evaluation.provenance import provenance
from blackout.evaluation.report import write_json
from blackout.evaluation.speed import Speed
from blackout.evaluation.splits import random_subset
from blackout.files import claim
from blackout.io import checksum

_MOST = 10_000  # cells of each kind that are evaluated if they are on the disk


def evaluate_cells(
    model: CountModel,
    out: str | Path,
    test: Counts,
    train: Counts | None = None,
    config: CellEvalConfig | None = None,
    *,
    source: str = "model",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Evaluate a model and write OUT/report.json and OUT/report.html; the same call resumes a killed evaluation.

    Parameters
    ----------
    test, train
        Held-out cells, with which samples are compared, and training cells, for baselines and real vs real scores.
    source, overwrite
        Name of the model in the report, and whether files in `out` that no evaluation has written are replaced.
    progress
        Called with the name of a stage, the work done and the total.
    """
    config, out = config or CellEvalConfig(), Path(out)
    optional("jinja2", "the report", "evaluation")  # before hours of work
    test = _subset(test.align(model.genes), config.seed)
    train = None if train is None else _subset(train.align(model.genes), config.seed)
    check_folder(out, checksum(model.model), test.checksum)
    config = _complete(config, model, test, train)
    claim(out, FILES, overwrite)
    stages = _Stages(model, out, config, test, train, progress or (lambda *_: None))
    described = describe_model(model.model, source) | {"labels": model.config.labels, "library": model.config.library}
    sizes = {"genes": test.num_genes, "train": None if train is None else len(train), "test": len(test)}
    report: dict[str, Any] = {
        "format": 2,
        **provenance(model.model.device),
        "model": described,
        "data": {"name": test.name, "checksum": test.checksum, **sizes},
        "config": dataclasses.asdict(config),
        "ending": describe_ending(model.model, torch.from_numpy(test.library).unsqueeze(-1)),
        "bits_per_dim": {
            "test": stages.bits("test", test),
            "train": None if train is None else stages.bits("train", train),
        },
        "sampling": stages.sample() if config.num_samples else None,
        "imputation": stages.imputation(),
        **stages.samples_scores(),
        "baselines": stages.baselines() if config.baselines else {},
    }
    report = write_json(out / "report.json", report)
    write_report(out / "report.html", report)
    return report


def _complete(config: CellEvalConfig, model: CountModel, test: Counts, train: Counts | None) -> CellEvalConfig:
    """The configuration with the number of samples and of steps; ValueError if it asks for what there is not."""
    number = len(test) if config.num_samples is None else config.num_samples
    steps = steps_of(model.model, config.num_steps)
    if number:
        check_sampling(model.model, config.sampler, steps, config.corrector_steps, config.times)
    if number and len(test) < MINIMUM:
        needed = f"the scores need at least {MINIMUM} held-out cells, got {len(test)}"
        raise ValueError(f"{needed}; num_samples=0 (--samples 0) evaluates the likelihood alone")
    if config.baselines and train is None:
        raise ValueError("baselines need training cells, got none: train_data, or a run with held-out cells")
    sampler = model.model.default_sampler() if config.sampler == "auto" else config.sampler
    return dataclasses.replace(config, num_samples=number, num_steps=steps, sampler=sampler)


def _subset(cells: Counts, seed: int) -> Counts:
    """The cells themselves, or of cells on the disk a random subset, in memory."""
    if not cells.stored:
        return cells
    if len(cells) > _MOST:
        warnings.warn(f"{cells.name}: {_MOST:,} of {len(cells):,} cells on the disk are evaluated", stacklevel=3)
        cells = cells.take(random_subset(len(cells), _MOST, seed))
    return cells.in_memory()


class _Stages:
    """The stages of an evaluation; each result is cached under a key of all that it depends on."""

    def __init__(
        self,
        model: CountModel,
        out: Path,
        config: CellEvalConfig,
        test: Counts,
        train: Counts | None,
        progress: Progress,
    ) -> None:
        self.model, self.out, self.config, self.progress = model, out, config, progress
        self.cache, self.number = Cache(out / "cache"), config.num_samples or 0
        self.test, self.train = test, train
        about = hashlib.sha256(json.dumps(model.describe()).encode()).hexdigest()
        self.key: dict[str, Any] = {"model": checksum(model.model), "about": about, "seed": config.seed}
        self.key["device"] = model.model.device.type
        columns = (*model.config.columns, *([config.types] if config.types else []))
        parts = {"test": test, "train": train}
        self.data: dict[str, Any] = {name: part and part.checksum for name, part in parts.items()}
        self.data |= {f"{name} labels": part and _labels(part, columns) for name, part in parts.items()}
        self.data |= {"seed": config.seed, "number": self.number}

    def bits(self, name: str, cells: Counts) -> dict[str, Any] | None:
        """Bits per dimension of the continuous-time bound, or of the model's steps where that is infinite.

        None for a distilled model, which has no bound.
        """
        if not self.model.model.predictor.head.has_bound:
            return None
        config, number = self.config, min(self.config.num_data or len(self.test), len(cells))
        # A random subset: the first cells of a file may all be of one sample.
        chosen = cells if number == len(cells) else cells.take(random_subset(len(cells), number, config.seed))
        options = {"num_times": config.num_times, "bound": self.model.model.bound_kind()}
        key = {**self.key, "data": chosen.checksum, **options}
        key["labels"] = _labels(chosen, self.model.config.columns)

        def compute(start: int, stop: int) -> NDArray[Any]:
            part = chosen.take(slice(start, stop))
            return self.model.bits_of_each(part, config.seed, start_index=start, **options).numpy()

        bits = bits_per_dim(self.cache, name, key, number, config.batch_size, compute, self.progress)
        return bits | {"bound": options["bound"]}

    def sample(self) -> dict[str, Any]:
        """Write samples to OUT/samples.npz; returns how, and how fast."""
        config, number = self.config, self.number
        speed = Speed(partial(self.progress, f"samples, {config.num_steps} steps"))
        write_samples(
            self.model, self.out / "samples.npz", number, num_steps=config.num_steps, times=config.times or None,
            sampler=self.model.model.sampler(config.sampler, config.corrector_steps), seed=config.seed,
            batch_size=config.batch_size, overwrite=True, progress=speed,
        )  # fmt: skip
        how = {name: getattr(config, name) for name in ("sampler", "num_steps", "corrector_steps", "times", "seed")}
        key = {**self.key, **how, "number": number}
        return self.cache.get("sampling", key, lambda: {**how, "num_samples": number, **speed.of(number)})

    def samples_scores(self) -> dict[str, Any]:
        """Scores of the samples, and of as many training cells: those of a perfect model."""
        if not self.number:
            return {"scores": {}, "fold_changes": {}, "types": {}, "curves": {}}
        sampled = read_counts(self.out / "samples.npz", empty="keep")
        real = None if self.train is None or len(self.train) < MINIMUM else self.train.x[self._real_rows(self.train)]
        parts = {"model": sampled.x, "real_vs_real": real}
        return {
            "scores": {name: None if x is None else self.scores(name, x) for name, x in parts.items()},
            "fold_changes": {"model": self.fold_changes(sampled), "real_vs_real": self.fold_changes(self.train)},
            "types": {name: None if x is None else self.types(name, x) for name, x in parts.items()},
            "curves": curves(self.test.x, sampled.x),
        }

    def scores(self, name: str, x: Any) -> dict[str, Any]:
        """Scores of cells against the held-out ones; genes and components are chosen in training cells."""

        def compare() -> dict[str, Any]:
            return dataclasses.asdict(compare_cells(x, self.test.x, reference=self._reference(), seed=self.config.seed))

        return self._stage(f"scores-{name}", {**self.data, "cells": _digest(x)}, compare)

    def imputation(self) -> dict[str, Any] | None:
        """Scores of posterior means of hidden counts of held-out cells, of gene means, and of intervals of draws."""
        hidden, seed, draws = self.config.hidden_parts, self.config.seed, self.config.draws
        head = self.model.model.predictor.head
        if not hidden or not head.has_bound or not head.finite_bound:
            return None
        imputers = {"model": model_means(self.model, self.test, seed)}
        if self.train is not None:
            imputers["gene_means"] = gene_means(self.train)
        found: dict[str, Any] = {name: {} for name in imputers}
        for what in hidden:
            key = {**self.key, **self.data, "hidden": what}
            for name, impute in imputers.items():
                scores = partial(imputation_scores, impute, self.test, [what], seed)
                found[name] |= self._stage(f"imputation-{name}-{what}", key, scores)
            if draws:
                intervals = partial(coverage, self.model, self.test, what, draws, seed)
                found["model"][what] |= self._stage(f"imputed-draws-{what}", {**key, "draws": draws}, intervals)
        return found

    def _stage(
        self, name: str, key: dict[str, Any], compute: Callable[[], dict[str, Any] | None], file: str | None = None
    ) -> dict[str, Any]:
        """A cached stage, reported by its name while it runs."""

        def summary() -> dict[str, Any]:
            self.progress(name.replace("-", ", ").replace("_", " "), 0, 1)
            return compute() or {}

        return self.cache.get(name, key, summary, file=file)

    def types(self, name: str, x: Any) -> dict[str, Any] | None:
        """Composition and fold changes of predicted types of cells; None without a column of types."""
        if self._type_column is None:
            return None
        key = {**self.data, "cells": _digest(x), "column": self._type_column}
        return self.cache.get(f"types-{name}", key, lambda: self._classifier.scores(x, self.test.x))

    def fold_changes(self, cells: Counts | None) -> dict[str, Any] | None:
        """Differences between classes in these cells against those in held-out cells; None without labels in both."""
        labels = self.model.config.labels
        if cells is None or not labels or not all(part.is_labelled(labels).all() for part in (cells, self.test)):
            return None
        here, there = (list(zip(*map(part.column, labels), strict=True)) for part in (cells, self.test))
        return fold_change_scores(cells.x, here, self.test.x, there)

    def baselines(self) -> dict[str, Any]:
        """Baselines fitted to the training cells; scVI if its package is installed."""
        names = [name for name in BASELINES if name != "scvi" or find_spec("scvi") is not None]
        found: dict[str, Any] = {}
        for name in names:
            for variant, result in self._baseline(name).items():
                if self.number:
                    x = scipy.sparse.load_npz(self.cache.folder / f"samples-{variant}.npz")
                    result |= {"scores": self.scores(variant, x), "types": self.types(variant, x)}
                found[variant] = {"scores": None, "types": None, **result}
        return found

    def _baseline(self, name: str) -> dict[str, Any]:
        """Likelihood, speed and imputation of a baseline, by variant; its samples are stored."""
        config = self.config

        def fit() -> dict[str, Any]:
            assert self.train is not None
            start = time.perf_counter()
            baseline = BASELINES.make(name).fit(self.train.x)
            fitted = time.perf_counter()
            bits = baseline.bits_per_dim(self.test.x)
            imputed = imputation_scores(baseline.impute, self.test, config.hidden_parts, config.seed)
            found = {}
            for suffix, variant in baseline.variants().items():
                begun = time.perf_counter()
                if self.number:
                    x = variant.sample(self.number, config.seed)
                    scipy.sparse.save_npz(self.cache.folder / f"samples-{name}{suffix}.npz", x)
                seconds = time.perf_counter() - begun
                found[name + suffix] = {
                    "bits_per_dim": bits and {"mean": bits[0], "standard_error": bits[1], "num_data": len(self.test)},
                    "fit_seconds": fitted - start,
                    "seconds": seconds,
                    "samples_per_second": self.number / seconds if self.number else None,
                    "imputation": imputed,
                }
            return found

        suffix = next(iter(BASELINES.make(name).variants()))
        file = f"samples-{name}{suffix}.npz" if self.number else None
        return self._stage(name, {**self.data, "hidden": config.hidden_parts}, fit, file)

    @cached_property
    def _type_column(self) -> str | None:
        """The column of types, if training and held-out cells have it without gaps."""
        column = self.config.types or next(iter(self.model.config.labels), "")
        if not column or self.train is None or len(self.train) < MINIMUM:
            return None
        known = all(column in part.covariates and part.is_labelled([column]).all() for part in (self.train, self.test))
        if not known and self.config.types:
            raise ValueError(f"types must be a column that all cells have, got {column!r}")
        return column if known else None

    @cached_property
    def _classifier(self) -> TypeClassifier:
        """Trained on all training cells."""
        assert self.train is not None
        self.progress("types of cells", 0, 1)
        x = check_counts("train", self.train.x)
        space = Space(x, numpy.random.default_rng(self.config.seed))
        return TypeClassifier(space, x, self.train.obs[self._type_column])

    def _real_rows(self, train: Counts) -> NDArray[Any]:
        return random_subset(len(train), min(self.number, len(self.test)), self.config.seed)

    def _reference(self) -> Any:
        """Training cells without those of real vs real, whose components would favour them, if enough are left."""
        if self.train is None or len(self.train) < MINIMUM:
            return None
        rest = numpy.ones(len(self.train), bool)
        rest[self._real_rows(self.train)] = False
        return self.train.x[rest] if rest.sum() >= max(MINIMUM, len(self.test)) else self.train.x


def _labels(cells: Counts, columns: tuple[str, ...]) -> str:
    """A digest of those columns of obs that the cells have."""
    values = {column: cells.obs[column].tolist() for column in columns if column in cells.covariates}
    return hashlib.sha256(str(values).encode()).hexdigest()


def _digest(x: Any) -> str:
    return hashlib.sha256(x.data.tobytes() + x.indices.tobytes() + x.indptr.tobytes()).hexdigest()
