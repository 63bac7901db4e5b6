"""The part of report.html on label images: a table and two plots for each phase. Its numbers are report.json's."""

from typing import Any

from blackout import figures
from blackout.evaluation.key_figures import escape
from blackout.evaluation.plots import plot

_SETS = {"test": "held-out data", "train": "training data"}
_ROWS = {
    "porosity": ("share of the phase", "porosity"),
    "surface": ("specific surface", "surface"),
    "two_point_largest": ("two-point function, largest difference", None),
    "chords": ("chord lengths, Kolmogorov–Smirnov distance", None),
}


def structure(phases: dict[str, Any]) -> str:
    """Nothing without phases."""
    shown = "".join(_table(name, sets) + _plots(name, sets) for name, sets in phases.items() if sets)
    return f"<h2>Structure</h2>\n{shown}" if shown else ""


def _table(name: str, sets: dict[str, Any]) -> str:
    """Samples and data side by side, then how far apart they are, and what noise alone gives in the data's halves."""
    heads = ["", "samples", *(_SETS[s] for s in sets)]
    heads += [f"samples from {_SETS[s]} (its halves)" for s in sets]
    rows = []
    for key, (what, field) in _ROWS.items():
        first = next(iter(sets.values()))
        own = [first[field], *(scores[f"data_{field}"] for scores in sets.values())] if field else [None] * len(heads)
        values = ["–" if value is None else f"{value:.4f}" for value in own[: 1 + len(sets)]]
        values += [f"{scores['difference'][key]:.4f} ({scores['floor'][key]:.4f})" for scores in sets.values()]
        rows.append([what, *values])
    head = "".join(f'<th scope="col">{cell}</th>' for cell in heads)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>{"".join(f"<td>{cell}</td>" for cell in row[1:])}</tr>\n' for row in rows
    )
    caption = f"<caption>{escape(name.replace('_', ' '))}</caption>"
    return (
        f'<div class="scores" tabindex="0"><table>{caption}\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>'
        "</table></div>\n"
    )


def _plots(name: str, sets: dict[str, Any]) -> str:
    phase, first = name.replace("_", " "), next(iter(sets.values()))
    if "two_point" not in first:  # of a report from before there were curves
        return ""
    lines = {
        key: {"samples": first[key], **{_SETS[s]: scores[f"data_{key}"] for s, scores in sets.items()}}
        for key in ("two_point", "chord_law")
    }
    curves = {
        key: {what: ([float(k) for k in range(len(y))], list(y)) for what, y in of.items()} for key, of in lines.items()
    }
    try:
        drawn = plot(
            f"Two-point function, {phase}",
            "How often two pixels so far apart in a row or a column are both in the phase.",
            lambda: figures.curves(curves["two_point"], xlabel="distance in pixels", ylabel="S2"),
        ) + plot(
            f"Chord lengths, {phase}",
            "How often a whole run of pixels in the phase has this length.",
            lambda: figures.curves(curves["chord_law"], xlabel="length in pixels", ylabel="share of chords"),
        )
    except ModuleNotFoundError:  # the table says it too
        return ""
    return f'<div class="plots">\n{drawn}</div>\n'
