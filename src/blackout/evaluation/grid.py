"""compare: evaluate a grid of models, samplers, numbers of steps and corrector steps."""

import dataclasses
from collections.abc import Callable, Sequence
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
    out, progress, log = Path(out), progress or (lambda *_: None), log or (lambda _: None)
    test, train = open_splits(spec.dataset, spec.data, **spec.reading)
    network = _prepare(spec, out / "runs", test, train, device)
    claim(out, FILES, overwrite)
    seeds, cells = spec.seeds or (None,), out / "cells"
    sources: dict[str, list[str | Path]] = {label: [source] * len(seeds) for label, source in spec.models.items()}
    for label in spec.trainings:
        sources[label] = [_train(*_training(spec, label, seed, out / "runs"), train or test, log) for seed in seeds]
    rows: list[dict[str, Any]] = []
    models: list[dict[str, Any]] = []
    for label, repeated in sources.items():
        repeats: list[list[dict[str, Any]]] = []
        loaded = None
        for seed, source in zip(seeds, repeated, strict=True):
            if source != loaded:
                model, loaded = load(source).to(device), source
                models.append({"label": label, **describe_model(model, str(source))})
                if compiled:
                    model.compile()
            if not rows and not repeats:
                run = Evaluation(model, spec.configs[0], Cache(cells), cells, progress)
                rows += _real_rows(run, test, train, network)
            configs = _possible(spec.configs, model)
            repeats.append(_rows(label, model, configs, seed, cells, (test, train), network, progress, log))
        rows += [mean_over_seeds(same) for same in zip(*repeats, strict=True)]
    result = {
        "format": 3,
        "title": spec.title,
        **provenance(device),
        "data": {"name": test.name, "checksum": test.checksum, "train": len(train or test), "test": len(test)},
        "features": None if network is None else network.name,
        "seeds": list(spec.seeds or (spec.configs[0].seed,)),
        "models": models,
        "rows": rows,
    }
    write(out, result)
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


def _real_rows(
    run: Evaluation, test: Dataset, train: Dataset | None, network: FeatureNetwork | None
) -> list[dict[str, Any]]:
    """A row for real data, if there are images enough in both splits."""
    if network is None or train is None or len(test) < MINIMUM:
        return []
    real = run.real_vs_real(test, train, network)
    return [{"model": "real vs real", **score_columns(real), "num_samples": real["num_samples"]}] if real else []


def _rows(
    label: str,
    model: DiffusionModel,
    configs: Sequence[EvalConfig],
    seed: int | None,
    folder: Path,
    data: tuple[Dataset, Dataset | None],
    network: FeatureNetwork | None,
    progress: Progress,
    log: Log,
) -> list[dict[str, Any]]:
    """Evaluate the cells of one model, with a seed that replaces those of the configurations."""
    (test, train), rows = data, []
    folder = folder / label if seed is None else folder / label / f"seed-{seed}"
    for config, name in zip(configs, cell_names(configs), strict=True):
        config = config if seed is None else dataclasses.replace(config, seed=seed)
        cell = folder / name
        run = Evaluation(model, config, Cache(cell), cell / "samples.npz", progress)
        bits = Evaluation(model, config, Cache(folder), run.samples, progress).bits("test", test)
        sampling = run.sample()
        quality = run.quality(train or test, network if is_image_model(model) else None)
        rows.append(row(label, bits, sampling, quality))
        scores = ", ".join(f"{k} {cell_text(v)}" for k, v in score_columns(quality).items())
        log(f"{label}, {name}{'' if seed is None else f', seed {seed}'}: {scores}")
    return rows


def _prepare(
    spec: Spec, runs: Path, test: Dataset, train: Dataset | None, device: torch.device
) -> FeatureNetwork | None:
    """Check all cells before hours of work; return the feature network, if needed."""

    def has_images(label: str, build: Callable[[], DiffusionModel]) -> bool:
        try:
            model = build()
            for config in _possible(spec.configs, model):
                check(model, config, test, train)
        except ValueError as error:
            raise ValueError(f"{label}: {error}") from None
        return is_image_model(model)

    found = [has_images(label, partial(load, source)) for label, source in spec.models.items()]
    for label, config in spec.trainings.items():
        for seed in spec.seeds or (None,):
            _, changed, folder = _training(spec, label, seed, runs)
            check_same_run(changed, folder)
        found.append(has_images(label, partial(build_model, config, train or test)))
    return feature_network(spec.configs[0].features, spec.configs[0].weights or None, device) if any(found) else None


def _training(spec: Spec, label: str, seed: int | None, runs: Path) -> tuple[str, TrainConfig, Path]:
    """The name, configuration and folder of a training with a seed that replaces that of the configuration."""
    config, name = spec.trainings[label], label if seed is None else f"{label}-seed-{seed}"
    return name, config if seed is None else config.replace(seed=seed), runs / name


def _train(name: str, config: TrainConfig, folder: Path, data: Dataset, log: Log) -> Path:
    log(f"{name}: {config['steps']} steps")

    def listen(report: Any, trainer: Any) -> None:
        log(f"{name}: step {report.step}, {report.bits_per_dim:.4f} bits/dim on the training batch")

    quiet = config.replace(log_every=max(config["log_every"], config["steps"] // 20))
    build_model(config, data).train(quiet, data.x, data.labels, folder, listen)
    return folder
