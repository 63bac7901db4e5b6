"""compare: evaluate a grid of models, samplers, numbers of steps and corrector steps."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from blackout.data import Dataset
from blackout.evaluation.cache import Cache
from blackout.evaluation.checks import check, is_image_model
from blackout.evaluation.comparison import FILES, cell_text, mean_over_seeds, row, score_columns, write
from blackout.evaluation.config import MINIMUM, EvalConfig
from blackout.evaluation.features import FeatureNetwork, feature_network
from blackout.evaluation.likelihood import Progress
from blackout.evaluation.pipeline import describe_model
from blackout.evaluation.provenance import provenance
from blackout.evaluation.spec import Spec
from blackout.evaluation.splits import open_splits
from blackout.evaluation.stages import Evaluation
from blackout.files import claim
from blackout.io import load
from blackout.model import DiffusionModel
from blackout.recipes import build_model
from blackout.training.config import TrainConfig
from blackout.training.folder import check_same_run

Log = Callable[[str], None]


def compare(
    spec: Spec,
    out: str | Path,
    device: torch.device,
    *,
    compiled: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    log: Log | None = None,
) -> dict[str, Any]:
    """Evaluate every cell of a grid; return the content of comparison.json. The same call resumes if interrupted.

    Parameters
    ----------
    spec
        What is compared; see `read_spec`.
    out
        Folder for comparison.json, .md, .png and .svg, and record.json. Models of [train] are trained in OUT/runs.
    compiled, overwrite
        Whether networks are compiled, and whether files in `out` that no comparison has written are replaced.
    progress, log
        Called with the progress of a stage, and with a line of text for each finished training or cell.
    """
    test, train = open_splits(spec.dataset, spec.data, **spec.reading)
    grid = _Grid(spec, Path(out), test, train, progress or (lambda *_: None), log or (lambda _: None))
    network = grid.prepare(device)
    claim(grid.out, FILES, overwrite)
    sources: dict[str, list[str | Path]] = {label: [source] * len(grid.seeds) for label, source in spec.models.items()}
    sources |= {label: [grid.train_model(label, seed) for seed in grid.seeds] for label in spec.trainings}
    rows: list[dict[str, Any]] = []
    models: list[dict[str, Any]] = []
    for label, repeated in sources.items():
        repeats: list[list[dict[str, Any]]] = []
        loaded = None
        for seed, source in zip(grid.seeds, repeated, strict=True):
            if source != loaded:
                model, loaded = load(source).to(device), source
                models.append({"label": label, **describe_model(model, str(source))})
                if compiled:
                    model.compile()
            if not rows and not repeats:
                rows += grid.real_rows(model, network)
            repeats.append(grid.rows(label, model, seed, network))
        rows += [mean_over_seeds(same) for same in zip(*repeats, strict=True)]
    result = {
        "format": 3,
        "title": spec.title,
        **provenance(device),
        "data": {"name": test.name, "checksum": test.checksum, "train": len(grid.reference), "test": len(test)},
        "features": None if network is None else network.name,
        "seeds": list(spec.seeds or (spec.configs[0].seed,)),
        "models": models,
        "rows": rows,
    }
    write(grid.out, result)
    return result


def cell_names(configs: Sequence[EvalConfig]) -> list[str]:
    """Return the folder names of the cells of a model, with the number of samples only where nothing else differs."""
    dropout = {None: "", True: "-dropout", False: "-no-dropout"}
    names = [
        f"{c.sampler}-{c.num_steps or 'default'}-{c.corrector_steps}" + (c.times and f"-{c.times}") + dropout[c.dropout]
        for c in configs
    ]
    numbers = [c.num_samples or "default" for c in configs]
    return [f"{n}-{number}" if names.count(n) > 1 else n for n, number in zip(names, numbers, strict=True)]


def _possible(configs: Sequence[EvalConfig], model: DiffusionModel) -> list[EvalConfig]:
    """All of the configurations; of a distilled model, those with the number of steps that it was trained for."""
    own = len(model.times)
    found = [c for c in configs if model.predictor.head.has_bound or c.num_steps in (None, own)]
    if not found:
        raise ValueError(f"num_steps must be {own} for this distilled model, got none such")
    return found


@dataclass(frozen=True)
class _Grid:
    """What the cells of a comparison have in common."""

    spec: Spec
    out: Path
    test: Dataset
    train: Dataset | None
    progress: Progress
    log: Log

    @property
    def reference(self) -> Dataset:
        """The data that models are trained on and samples are compared with."""
        return self.train or self.test

    @property
    def seeds(self) -> tuple[int | None, ...]:
        """The seeds that replace those of the configurations; None: no seed does."""
        return self.spec.seeds or (None,)

    def prepare(self, device: torch.device) -> FeatureNetwork | None:
        """Check all cells before hours of work; return the feature network, if needed."""

        def has_images(label: str, build: Callable[[], DiffusionModel]) -> bool:
            try:
                model = build()
                for config in _possible(self.spec.configs, model):
                    check(model, config, self.test, self.train)
            except ValueError as error:
                raise ValueError(f"{label}: {error}") from None
            return is_image_model(model)

        found = [has_images(label, partial(load, source)) for label, source in self.spec.models.items()]
        for label, config in self.spec.trainings.items():
            for seed in self.seeds:
                check_same_run(*self._training(label, seed))
            found.append(has_images(label, partial(build_model, config, self.reference)))
        first = self.spec.configs[0]
        return feature_network(first.features, first.weights or None, device) if any(found) else None

    def _training(self, label: str, seed: int | None) -> tuple[TrainConfig, Path]:
        """The configuration and the folder of a training."""
        config, runs = self.spec.trainings[label], self.out / "runs"
        return (config, runs / label) if seed is None else (config.replace(seed=seed), runs / f"{label}-seed-{seed}")

    def train_model(self, label: str, seed: int | None) -> Path:
        """Train a model; returns its run folder."""
        config, folder = self._training(label, seed)
        self.log(f"{folder.name}: {config['steps']} steps")

        def listen(report: Any, trainer: Any) -> None:
            self.log(f"{folder.name}: step {report.step}, {report.bits_per_dim:.4f} bits/dim on the training batch")

        quiet = config.replace(log_every=max(config["log_every"], config["steps"] // 20))
        build_model(config, self.reference).train(quiet, self.reference.x, self.reference.labels, folder, listen)
        return folder

    def real_rows(self, model: DiffusionModel, network: FeatureNetwork | None) -> list[dict[str, Any]]:
        """A row for real data, if there are images enough in both splits."""
        if network is None or self.train is None or len(self.test) < MINIMUM:
            return []
        cells = self.out / "cells"
        run = Evaluation(model, self.spec.configs[0], Cache(cells), cells, self.progress)
        real = run.real_vs_real(self.test, self.train, network)
        return [{"model": "real vs real", **score_columns(real), "num_samples": real["num_samples"]}] if real else []

    def rows(
        self, label: str, model: DiffusionModel, seed: int | None, network: FeatureNetwork | None
    ) -> list[dict[str, Any]]:
        """Evaluate the cells of one model."""
        folder, rows = self.out / "cells" / label / ("" if seed is None else f"seed-{seed}"), []
        configs = _possible(self.spec.configs, model)
        for config, name in zip(configs, cell_names(configs), strict=True):
            config = config if seed is None else dataclasses.replace(config, seed=seed)
            cell = folder / name
            run = Evaluation(model, config, Cache(cell), cell / "samples.npz", self.progress)
            bits = Evaluation(model, config, Cache(folder), run.samples, self.progress).bits("test", self.test)
            sampling = run.sample()
            quality = run.quality(self.reference, network if is_image_model(model) else None)
            rows.append(row(label, bits, sampling, quality))
            scores = ", ".join(f"{k} {cell_text(v)}" for k, v in score_columns(quality).items())
            self.log(f"{label}, {name}{'' if seed is None else f', seed {seed}'}: {scores}")
        return rows
