"""The table of scores of an evaluation of cells, and report.html. Its numbers are those of report.json."""

from pathlib import Path
from typing import Any

import numpy

from blackout import figures
from blackout.atomic import write_atomic
from blackout.evaluation.key_figures import escape
from blackout.evaluation.plots import plot
from blackout.evaluation.report import again, document, introduction, tables

_GENES, _BINS = 1000, 30
_BASELINES = {
    "negative_binomial": "NB",
    "negative_binomial_library": "NB+library",
    "gene_bootstrap": "bootstrap",
    "scvi": "scVI",
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
    "empty": ("empty cells", "", 0),
}


def score_table(report: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of the scores; the model, real vs real and every baseline are columns."""
    others = report["baselines"]
    bits = [report["bits_per_dim"]["test"], None, *(other["bits_per_dim"] for other in others.values())]
    speed = [report["sampling"], None, *others.values()]
    scores = [report["scores"].get("model"), report["scores"].get("real_vs_real")]
    scores += [other["scores"] for other in others.values()]
    train = report["bits_per_dim"]["train"]
    rows = [["bits/dim, held out", "low", *(_number(b, "mean", 4) for b in bits)]]
    rows += [["  standard error", "", *(_number(b, "standard_error", 4) for b in bits)]]
    if train is not None:
        rows += [["bits/dim, training", "", _number(train, "mean", 4), *[""] * (len(bits) - 1)]]
        rows += [["  standard error", "", _number(train, "standard_error", 4), *[""] * (len(bits) - 1)]]
    if report["sampling"] is not None:
        for key, (title, best, digits) in _SCORES.items():
            rows += [[title, best, *(_number(score, key, digits) for score in scores)]]
        rows += [["sampling, s", "", *(_number(s, "seconds", 2) for s in speed)]]
        rows += [["cells/s", "high", *(_number(s, "cells_per_second", 0) for s in speed)]]
    return ["", "best", "model", "real", *(_BASELINES[name] for name in others)], rows


def _number(part: dict[str, Any] | None, name: str, digits: int) -> str:
    """At most seven characters, so that the table fits a terminal of 80 columns."""
    value = None if part is None else part.get(name)
    if value is None:
        return "–"
    for size, unit in ((1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e6 if unit == 'M' else 1e3):.0f} {unit}"
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
    source, name = escape(report["model"]["source"]), escape(report["data"]["name"])
    heads, rows = score_table(report)
    first = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    others = "".join(
        f'<tr><th scope="row">{escape(row[0].strip())}</th>{"".join(f"<td>{escape(v)}</td>" for v in row[1:])}</tr>\n'
        for row in rows
    )
    # It scrolls by itself on a narrow screen.
    table = f"<table><thead><tr>{first}</tr></thead>\n<tbody>\n{others}</tbody></table>"
    table = f"<div class='scores' tabindex='0'>{table}</div>\n"
    note = "<p>Real: training cells against held-out cells, the scores of a perfect model.</p>\n"
    body = introduction(report) + table + note + _plots(report["curves"]) + again(report)
    text = document(
        f"{source} measured on {name}", f"{source} <small>measured on {name}</small>", body + tables(report)
    )
    write_atomic(path, text)


def _plots(found: dict[str, Any]) -> str:
    if not found:
        return ""
    means, library = found["gene_means"], found["library"]
    try:
        drawn = plot(
            "Gene means",
            "Each point is a gene; the line marks equal means.",
            lambda: figures.points(means["data"], means["samples"], xlabel="held-out cells", ylabel="samples"),
        ) if means["data"] else ""  # fmt: skip
        drawn += plot(
            "Library sizes",
            "Total counts of held-out and sampled cells.",
            lambda: figures.histograms(
                library["edges"],
                {"held out": library["data"], "samples": library["samples"]},
                xlabel="library size",
                ylabel="share in each bin (%)",
            ),
        )
    except ModuleNotFoundError:  # without matplotlib the numbers are still written
        drawn = "<p>No figures: <code>pip install 'blackout-diffusion[figures]'</code> installs matplotlib.</p>\n"
    return f'<h2>Samples and data</h2>\n<div class="plots">\n{drawn}</div>\n'
