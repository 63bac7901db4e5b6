"""The table of scores of an evaluation of cells, and report.html. Its numbers are those of report.json."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy

from blackout import figures
from blackout.evaluation.report import Plot, draw, render, write_html

_GENES, _BINS = 1000, 30
# Title of each baseline, and whether a terminal has room for it.
_BASELINES = {
    "negative_binomial": ("NB", True),
    "negative_binomial_library": ("NB+lib", True),
    "gene_bootstrap": ("genes", False),
    "copula": ("copula", True),
    "scvi_posterior": ("scVI", True),
    "scvi_prior": ("prior", True),
    "scvi_mixture": ("mixture", False),
}

# Field of CellScores: title, best value, digits.
_SCORES = {
    "mean": ("gene means", "0", 3),
    "variance": ("gene variances", "0", 3),
    "zeros": ("shares of zeros", "0", 3),
    "correlation": ("correlations", "0", 3),
    "correlation_agreement": ("  agreement", "1", 3),
    "library": ("library sizes", "0", 3),
    "detected": ("genes detected", "0", 3),
    "mmd": ("squared MMD", "0", 4),
    "mmd_error": ("  standard error", "", 4),
    "c2st": ("C2ST accuracy", "0.5", 3),
    "linear": ("linear AUC", "0.5", 3),
    "boosting": ("boosting AUC", "0.5", 3),
    "copying": ("copying", "0.5", 3),
    "empty": ("empty cells", "", 0),
}
_FOLD_CHANGES = {"correlation": ("fold changes", "1", 3), "top_genes": ("  top 20 genes", "1", 3)}
_TYPES = {
    "composition": ("types, frequency", "0", 3),
    "correlation": ("  fold changes", "1", 3),
    "top_genes": ("  top 20 genes", "1", 3),
}


def score_table(report: dict[str, Any], brief: bool = False) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of the scores; the model, real vs real and every baseline (if brief, some) are columns."""
    others = {name: part for name, part in report["baselines"].items() if _BASELINES[name][1] or not brief}
    rows: list[list[str]] = []

    def columns(of: str) -> list[dict[str, Any] | None]:
        """A kind of scores, by column."""
        own = [report[of].get(name) for name in ("model", "real_vs_real")]
        return [*own, *(other.get(of) for other in others.values())]

    def add(title: str, best: str, parts: list[dict[str, Any] | None], key: str, digits: int) -> None:
        rows.append([title, best, *(_number(part, key, digits) for part in parts)])

    held_out = [report["bits_per_dim"]["test"], None, *(other["bits_per_dim"] for other in others.values())]
    training = [report["bits_per_dim"]["train"], None, *[None] * len(others)]
    for title, best, parts in (("bits/dim, held out", "low", held_out), ("bits/dim, training", "", training)):
        if any(parts):
            add(title, best, parts, "mean", 4)
            add("  standard error", "", parts, "standard_error", 4)
    if report["sampling"] is not None:
        for key, (title, best, digits) in _SCORES.items():
            add(title, best, columns("scores"), key, digits)
        for of, scores in (("fold_changes", _FOLD_CHANGES), ("types", _TYPES)):
            if any(parts := columns(of)):
                for key, (title, best, digits) in scores.items():
                    add(title, best, parts, key, digits)
        speed = [report["sampling"], None, *others.values()]
        add("sampling, s", "", speed, "seconds", 2)
        add("cells/s", "high", speed, "samples_per_second", 0)
    for what, own in ((report["imputation"] or {}).get("model") or {}).items():
        means = [own, None, *((other["imputation"] or {}).get(what) for other in others.values())]
        title = "genes hidden" if what == "genes" else f"{100 * float(what):.3g} % hidden"
        add(f"{title}, Pearson", "1", means, "pearson", 3)
        add("  RMSE", "0", means, "rmse", 3)
        for level in (50, 90):
            if f"within_{level}" in own:
                add(f"  in {level} %", f"0.{level // 10}", means, f"within_{level}", 3)
    return ["", "best", "model", "real", *(_BASELINES[name][0] for name in others)], rows


def _number(part: dict[str, Any] | None, name: str, digits: int) -> str:
    """At most seven characters, so that the table fits a terminal of 80 columns."""
    value = None if part is None else part.get(name)
    if value is None:
        return "–"
    if abs(value) >= 1e4:
        return f"{value / 1e6:.0f} M" if abs(value) >= 1e6 else f"{value / 1e3:.0f} k"
    return f"{value:.{digits}f}"


def curves(data: Any, samples: Any) -> dict[str, Any]:
    """Means of up to a thousand genes that data and samples have, and histograms of the library sizes."""
    real, sampled = (numpy.asarray(x.mean(0)).ravel() for x in (data, samples))
    both = numpy.flatnonzero((real > 0) & (sampled > 0))
    both = both[numpy.argsort(real[both], kind="stable")]
    shown = both[numpy.linspace(0, len(both) - 1, min(_GENES, len(both))).astype(int)]
    totals = [numpy.asarray(x.sum(1)).ravel() for x in (data, samples)]
    edges = numpy.histogram_bin_edges(numpy.concatenate(totals).astype(float), _BINS)
    shares = [100 * numpy.histogram(total, edges)[0] / len(total) for total in totals]
    return {
        "gene_means": {"data": real[shown].tolist(), "samples": sampled[shown].tolist()},
        "library": {"edges": edges.tolist(), "data": shares[0].tolist(), "samples": shares[1].tolist()},
    }


def write_report(path: Path, report: dict[str, Any]) -> None:
    """Write report.html, a page that loads nothing else."""
    heads, rows = score_table(report)
    context = {"heads": heads, "rows": rows, "curves": draw(_plots(report["curves"]))}
    write_html(path, render("cells.html", report, "blackout.cells", **context))


def _plots(found: dict[str, Any]) -> Iterable[Plot]:
    means, library = found.get("gene_means", {}), found.get("library")
    if means.get("data"):
        yield (
            "Gene means",
            "Each point is a gene; the line marks equal means.",
            lambda: figures.scatter(means["data"], means["samples"], xlabel="held-out cells", ylabel="samples"),
        )
    if library:
        shares = {"held out": library["data"], "samples": library["samples"]}
        yield (
            "Library sizes",
            "Total counts of held-out and sampled cells.",
            lambda: figures.histograms(library["edges"], shares, xlabel="library size", ylabel="share in each bin (%)"),
        )
