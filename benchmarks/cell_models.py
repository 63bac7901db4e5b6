"""Quality of cell models on count tables: the default fit, baselines and real vs real, over several seeds."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy

from blackout.cells.config import CellEvalConfig
from blackout.cells.counts import Counts
from blackout.cells.evaluate import evaluate_cells
from blackout.cells.model import CountModel
from blackout.cells.read import read_counts

SCORES = ("c2st", "mmd", "library", "detected", "zeros", "mean", "variance", "correlation")
_HELD_OUT = 0.2
_COMPONENTS, _NEIGHBOURS, _PENALTY = 30, 30, 3000.0  # of imputation by neighbours and by ridge regression


def run(
    files: Sequence[str], out: Path, seeds: int, labels: Sequence[str] = (), **settings: Any
) -> Iterator[tuple[str, int, dict[str, dict[str, float]]]]:
    """File, seed and, for each model, its scores; finished evaluations in `out` are not repeated."""
    for file in files:
        cells = read_counts(file, empty="drop")
        for seed in range(seeds):
            train, test = cells.split(_HELD_OUT, seed)
            folder = out / f"{cells.name}-{seed}"
            model = CountModel(labels=labels, seed=seed, **settings)
            if (folder / "model").exists():
                model = CountModel.load(folder / "model")
            else:
                model.fit(train, empty="keep").save(folder / "model")
            config = dataclasses.replace(CellEvalConfig(), seed=seed, baselines=True)
            report = evaluate_cells(model, folder / "report", test, train, config)
            yield cells.name, seed, _rows(report) | _imputation(train, test, report["config"]["hidden"], seed)


def _rows(report: dict[str, Any]) -> dict[str, dict[str, float]]:
    parts = {"blackout": report["scores"]["model"], "real": report["scores"]["real_vs_real"]}
    parts |= {name: other["scores"] for name, other in report["baselines"].items()}
    bits = {"blackout": report["bits_per_dim"]["test"]}
    bits |= {name: other["bits_per_dim"] for name, other in report["baselines"].items()}
    rows = {name: {key: part[key] for key in SCORES} for name, part in parts.items() if part}
    for name, part in bits.items():
        rows[name]["bits_per_dim"] = part["mean"] if part else numpy.nan
    rows["blackout"] |= {f"imputed_{key}": value for key, value in report["imputation"]["model"].items()}
    rows["gene means"] = {f"imputed_{key}": value for key, value in report["imputation"]["gene_means"].items()}
    return rows


def _imputation(train: Counts, test: Counts, share: float, seed: int) -> dict[str, dict[str, float]]:
    """Pearson's correlation of log counts, hidden as in `imputation_scores`, by neighbours and by ridge regression."""
    from sklearn.decomposition import PCA
    from sklearn.linear_model import Ridge

    rng = numpy.random.default_rng(seed)
    x = test.take(numpy.sort(rng.permutation(len(test))[:500])).x.toarray()
    observed = rng.random(x.shape) >= share
    known = train.x.toarray().astype(float)
    mean = known.mean(0)
    total = ((x * observed).sum(1) / numpy.maximum((observed * mean).sum(1), 1e-12) * mean.sum())[:, None]
    scale, parts = numpy.median(known.sum(1)), known / known.sum(1, keepdims=True)
    filled = numpy.where(observed, x, total * mean / mean.sum())
    logs, given = numpy.log1p(scale * parts), numpy.log1p(scale * filled / numpy.maximum(total, 1))
    space = PCA(min(_COMPONENTS, *logs.shape), random_state=seed).fit(logs)
    here, there = space.transform(given), space.transform(logs)
    near = numpy.argsort(((here[:, None] - there[None]) ** 2).sum(-1), 1)[:, :_NEIGHBOURS]
    hidden = numpy.where(rng.random(logs.shape) < share, logs.mean(0), logs)
    ridge = Ridge(_PENALTY).fit(hidden, logs).predict(numpy.where(observed, given, logs.mean(0)))
    guesses = {"neighbours": total * parts[near].mean(1), "ridge": numpy.expm1(ridge).clip(0) / scale * total}
    truth = numpy.log1p(x[~observed])
    return {
        name: {"imputed_pearson": float(numpy.corrcoef(numpy.log1p(guess[~observed]), truth)[0, 1])}
        for name, guess in guesses.items()
    }
