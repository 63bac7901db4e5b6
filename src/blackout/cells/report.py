"""report.html of cells: the table of scores, and two pictures. Its numbers are report.json's."""

from pathlib import Path
from typing import Any

import numpy

from blackout import figures
from blackout.atomic import write_atomic
from blackout.evaluation.key_figures import escape
from blackout.evaluation.plots import plot
from blackout.evaluation.report import again, document, introduction, tables

_GENES, _BINS = 1000, 30
_NAMES = {
    "negative_binomials": "NB",
    "negative_binomials_with_library": "NB+lib",
    "gene_bootstrap": "by gene",
    "scvi": "scVI",
}

# What a score is called, where it is at best, and to how many digits it is shown.
SCORES = {
    "mean": ("gene means", "0", 3),
    "variance": ("gene variances", "0", 3),
    "zeros": ("shares of zeros", "0", 3),
    "correlation": ("correlations", "0", 3),
    "correlation_agreement": ("  their agreement", "1", 3),
    "library": ("library sizes", "0", 3),
    "detected": ("genes detected", "0", 3),
    "kernel": ("kernel distance", "0", 4),
    "kernel_error": ("  standard error", "", 4),
    "neighbours": ("told apart", "0.5", 3),
    "empty": ("empty cells", "", 0),
}


def score_table(report: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows: the model, the floor and every competitor, a column each."""
    others = report["competitors"]
    bits = [report["bits_per_dim"]["test"], None, *(other["bits_per_dim"] for other in others.values())]
    seconds = [report["sampling"], None, *others.values()]
    scores = [report["scores"].get("model"), report["scores"].get("floor")]
    scores += [other["scores"] for other in others.values()]
    training = report["bits_per_dim"]["train"]
    rows = [["bits/dim, held out", "low", *(_number(b, "mean", 4) for b in bits)]]
    rows += [["  standard error", "", *(_number(b, "standard_error", 4) for b in bits)]]
    if training is not None:
        rows += [["bits/dim, training", "", _number(training, "mean", 4), *[""] * (len(bits) - 1)]]
        rows += [["  standard error", "", _number(training, "standard_error", 4), *[""] * (len(bits) - 1)]]
    if report["sampling"] is not None:
        rows += [
            [name, best, *(_number(s, key, digits) for s in scores)] for key, (name, best, digits) in SCORES.items()
        ]
        rows += [["seconds to draw", "", *(_number(s, "seconds", 2) for s in seconds)]]
        rows += [["cells/s", "high", *(_number(s, "cells_per_second", 0) for s in seconds)]]
    return ["", "best", "model", "floor", *(_NAMES[name] for name in others)], rows


def _number(part: dict[str, Any] | None, name: str, digits: int) -> str:
    """At most seven characters, so that six columns fit a terminal."""
    value = None if part is None else part.get(name)
    if value is None:
        return "–"
    for size, unit in ((1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e6 if unit == 'M' else 1e3):.0f} {unit}"
    return f"{value:.{digits}f}"


def curves(data: Any, samples: Any) -> dict[str, Any]:
    """Means of up to a thousand genes that both have, and the totals of cells, in both."""
    real, drawn = (numpy.asarray(x.mean(0)).ravel() for x in (data, samples))
    both = numpy.flatnonzero((real > 0) & (drawn > 0))
    both = both[numpy.argsort(real[both], kind="stable")]
    shown = both[numpy.linspace(0, len(both) - 1, min(_GENES, len(both))).astype(int)]
    totals = [numpy.asarray(x.sum(1)).ravel() for x in (data, samples)]
    edges = numpy.histogram_bin_edges(numpy.concatenate(totals).astype(float), _BINS)
    shares = [100 * numpy.histogram(total, edges)[0] / len(total) for total in totals]
    return {
        "gene_means": {"data": real[shown].tolist(), "samples": drawn[shown].tolist()},
        "library": {"edges": edges.tolist(), "data": shares[0].tolist(), "samples": shares[1].tolist()},
    }


def write_cells_page(path: Path, report: dict[str, Any]) -> None:
    """Write the page of a report; it loads nothing."""
    source, name = escape(report["model"]["source"]), escape(report["data"]["name"])
    heads, rows = score_table(report)
    first = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    others = "".join(
        f'<tr><th scope="row">{escape(row[0].strip())}</th>{"".join(f"<td>{escape(v)}</td>" for v in row[1:])}</tr>\n'
        for row in rows
    )
    # Of its own width: on a narrow screen it is moved, not squeezed.
    table = f"<table><thead><tr>{first}</tr></thead>\n<tbody>\n{others}</tbody></table>"
    table = f"<div class='scores' tabindex='0'>{table}</div>\n"
    note = "<p>The floor is real cells beside real cells: what a perfect model would get.</p>\n"
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
            "Each point is a gene; on the line, samples have as much of it as held-out cells.",
            lambda: figures.points(means["data"], means["samples"], xlabel="held-out cells", ylabel="samples"),
        ) if means["data"] else ""  # fmt: skip
        drawn += plot(
            "Library sizes",
            "Totals of cells, held out and sampled.",
            lambda: figures.histograms(
                library["edges"],
                {"held out": library["data"], "samples": library["samples"]},
                xlabel="counts of a cell",
                ylabel="share in each bin (%)",
            ),
        )
    except ModuleNotFoundError:  # hours of measuring are not lost for want of matplotlib
        drawn = (
            "<p>Not drawn, for matplotlib is not there: <code>pip install 'blackout-diffusion[figures]'</code></p>\n"
        )
    return f'<h2>Samples beside data</h2>\n<div class="plots">\n{drawn}</div>\n'
