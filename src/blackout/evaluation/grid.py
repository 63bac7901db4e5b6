"""compare: evaluate a grid of models, samplers, numbers of steps and corrector steps."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from blackout.data import Dataset
from blackout.evaluation.cache import Cache
from blackout.evaluation.checks import check, is_image_model
from blackout.evaluation.comparison import cell_text, row, score_columns, write
from blackout.evaluation.config import MINIMUM, EvalConfig
from blackout.evaluation.features import FeatureNetwork, feature_network
from blackout.evaluation.likelihood import Progress
from blackout.evaluation.pipeline import describe_model
from blackout.evaluation.provenance import provenance
from blackout.evaluation.spec import Spec
from blackout.evaluation.splits import open_splits
from blackout.evaluation.stages import Evaluation
from blackout.io import load
from blackout.model import DiffusionModel
from blackout.recipes import build_model
from blackout.training.config import TrainConfig, check_same_run

Log = Callable[[str], None]


def compare(
    spec: Spec,
    out: str | Path,
    device: torch.device,
    *,
    compiled: bool = False,
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
    compiled
        Whether networks are compiled.
    progress, log
        Called with the progress of a stage, and with a line of text for each finished training or cell.
    """
    out, progress, log = Path(out), progress or (lambda *_: None), log or (lambda _: None)
    test, train = open_splits(spec.dataset, spec.data, **spec.reading)
    network, new = _prepare(spec, out / "runs", test, train, device)
    sources: dict[str, str | Path] = dict(spec.models)
    for label, config in spec.trainings.items():
        sources[label] = _train(label, config, new.pop(label), train or test, out / "runs" / label, log)
    rows: list[dict[str, Any]] = []
    models: list[dict[str, Any]] = []
    for label, source in sources.items():
        model = load(source).to(device)
        if compiled:
            model.compile()
        if not models and network is not None and train is not None and len(test) >= MINIMUM:
            run = Evaluation(model, spec.configs[0], Cache(out / "cells"), out / "cells", progress)
            if real := run.real_vs_real(test, train, network):
                rows.append({"model": "real vs real", **score_columns(real), "num_samples": real["num_samples"]})
        models.append({"label": label, **describe_model(model, str(source))})
        rows += _rows(label, model, spec.configs, out / "cells", (test, train), network, progress, log)
    result = {
        "format": 2,
        "title": spec.title,
        **provenance(device),
        "data": {"name": test.name, "checksum": test.checksum, "train": len(train or test), "test": len(test)},
        "features": None if network is None else network.name,
        "seed": spec.configs[0].seed,
        "models": models,
        "rows": rows,
    }
    write(out, result)
    return result


def cell_names(configs: Sequence[EvalConfig]) -> list[str]:
    """Return the folder names of the cells of a model, with the number of samples only where nothing else differs."""
    names = [
        f"{c.sampler}-{c.num_steps or 'default'}-{c.corrector_steps}" + (c.times and f"-{c.times}") for c in configs
    ]
    return [f"{n}-{c.num_samples}" if names.count(n) > 1 else n for n, c in zip(names, configs, strict=True)]


def _rows(
    label: str,
    model: DiffusionModel,
    configs: Sequence[EvalConfig],
    folder: Path,
    data: tuple[Dataset, Dataset | None],
    network: FeatureNetwork | None,
    progress: Progress,
    log: Log,
) -> list[dict[str, Any]]:
    """Evaluate the cells of one model."""
    (test, train), rows = data, []
    for config, name in zip(configs, cell_names(configs), strict=True):
        cell = folder / label / name
        run = Evaluation(model, config, Cache(cell), cell / "samples.npz", progress)
        bits = Evaluation(model, config, Cache(folder / label), run.samples, progress).bits("test", test)
        sampling = run.sample()
        quality = run.quality(train or test, network if is_image_model(model) else None)
        rows.append(row(label, bits, sampling, quality))
        scores = ", ".join(f"{k} {cell_text(v)}" for k, v in score_columns(quality).items())
        log(f"{label}, {name}: {scores}")
    return rows


def _prepare(
    spec: Spec, runs: Path, test: Dataset, train: Dataset | None, device: torch.device
) -> tuple[FeatureNetwork | None, dict[str, DiffusionModel]]:
    """Check all cells before hours of work; return the feature network, if needed, and the untrained models."""

    def checked(label: str, build: Callable[[], DiffusionModel]) -> DiffusionModel:
        try:
            model = build()
            for config in spec.configs:
                check(model, config, test, train)
        except ValueError as error:
            raise ValueError(f"{label}: {error}") from None
        return model

    has_images = [is_image_model(checked(label, partial(load, source))) for label, source in spec.models.items()]
    new = {}
    for label, config in spec.trainings.items():
        check_same_run(config, runs / label)
        new[label] = checked(label, partial(build_model, config, train or test))
    if not any(has_images) and not any(map(is_image_model, new.values())):
        return None, new
    return feature_network(spec.configs[0].features, spec.configs[0].weights or None, device), new


def _train(label: str, config: TrainConfig, model: DiffusionModel, data: Dataset, folder: Path, log: Log) -> Path:
    log(f"{label}: {config['steps']} steps")

    def listen(report: Any, trainer: Any) -> None:
        log(f"{label}: step {report.step}, {report.bits_per_dim:.4f} bits/dim on the training batch")

    quiet = config.replace(log_every=max(config["log_every"], config["steps"] // 20))
    model.train(quiet, data.x, data.labels, folder, listen)
    return folder
