"""Quality of cell models on count tables: the default fit, baselines and real vs real, over several seeds."""

import dataclasses
import statistics
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.imputers import IMPUTERS
from blackout.cells.config import CellEvalConfig
from blackout.cells.counts import Counts
from blackout.cells.evaluate import evaluate_cells
from blackout.cells.model import CountModel
from blackout.cells.read import read_counts
from blackout.cells.tasks import imputation_scores
from blackout.evaluation.cache import Cache

SCORES = (
    "c2st", "linear", "boosting", "copying", "mmd", "library", "detected", "zeros", "mean", "variance", "correlation",
)  # fmt: skip
TYPES = ("composition", "correlation", "rank_correlation", "top_genes", "slope")
_HELD_OUT = 0.2

Rows = dict[str, dict[str, float]]


def run(
    files: Sequence[str], out: Path, seeds: int, labels: Sequence[str] = (), types: str = "", hidden: str = "0.1",
    **settings: Any,
) -> Iterator[tuple[str, int, Rows]]:  # fmt: skip
    """File, seed and, for each generator and imputer, its scores; what is finished in `out` is not repeated.

    `types` names a column of cell types; of files without it, the first column of obs is taken.
    """
    for file in files:
        cells = read_counts(file, empty="drop")
        column = types if types in cells.covariates else next(iter(cells.covariates), "")
        for seed in range(seeds):
            train, test = cells.split(_HELD_OUT, seed)
            folder = out / f"{cells.name}-{seed}"
            model = CountModel(labels=labels, seed=seed, **settings)
            if (folder / "model").exists():
                model = CountModel.load(folder / "model")
            else:
                model.fit(train, empty="keep").save(folder / "model")
            config = dataclasses.replace(CellEvalConfig(), seed=seed, baselines=True, types=column, hidden=hidden)
            report = evaluate_cells(model, folder / "report", test, train, config)
            yield cells.name, seed, _rows(report) | _imputers(folder, train, test, config)


def _imputers(folder: Path, train: Counts, test: Counts, config: CellEvalConfig) -> Rows:
    """Scores of imputation by other methods; MAGIC if its package is installed."""
    cache, rows = Cache(folder / "imputers"), {}
    key = {"data": test.checksum, "train": train.checksum, "hidden": config.hidden_parts, "seed": config.seed}
    for name, imputer in IMPUTERS.items():
        if name != "magic" or find_spec("magic") is not None:

            def summary(imputer: Any = imputer) -> dict[str, Any]:
                return imputation_scores(imputer(train, config.seed), test, config.hidden_parts, config.seed) or {}

            rows[name] = _imputed(cache.get(name, key, summary))
    return rows


def _rows(report: dict[str, Any]) -> Rows:
    own = {"bits_per_dim": report["bits_per_dim"]["test"], "imputation": report["imputation"]["model"]}
    parts = {
        "blackout": {**own, "scores": report["scores"]["model"], "types": report["types"]["model"]},
        "real": {"scores": report["scores"]["real_vs_real"], "types": report["types"]["real_vs_real"]},
        **report["baselines"],
        "gene_means": {"imputation": report["imputation"]["gene_means"]},
    }
    rows: Rows = {}
    for name, part in parts.items():
        bits, scores, types = (part.get(key) or {} for key in ("bits_per_dim", "scores", "types"))
        rows[name] = {"bits_per_dim": bits["mean"]} if bits else {}
        rows[name] |= {key: scores[key] for key in SCORES if scores.get(key) is not None}
        rows[name] |= {f"types_{key}": types[key] for key in TYPES if types.get(key) is not None}
        rows[name] |= _imputed(part.get("imputation") or {})
    return rows


def _imputed(scores: dict[str, Any]) -> dict[str, float]:
    return {
        f"{what} {key}": value for what, part in scores.items() for key, value in part.items() if key != "num_cells"
    }


def mean_and_spread(values: Iterable[float]) -> str:
    """Mean and standard deviation over seeds."""
    found = list(values)
    if not found:
        return "–"
    mean = statistics.fmean(found)
    return f"{mean:.4f}" + (f" ± {statistics.stdev(found):.4f}" if len(found) > 1 else "")
