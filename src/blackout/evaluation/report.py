"""report.html: an evaluation for a person to look at, as one file that loads nothing. Its numbers are report.json's."""

import base64
import io
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from blackout import figures, validate
from blackout.atomic import atomic
from blackout.evaluation.key_figures import cards, count_of, escape, name_of, notes, number_of, part_of
from blackout.evaluation.plots import plot
from blackout.evaluation.structure_report import structure
from blackout.io.images import as_bytes, as_picture, grid

_SHOWN = 100  # pictures in a grid
_LISTED = 12  # numbers of a list that a table shows one by one

_STYLE = """
:root{color-scheme:light dark;--ink:#1c2128;--soft:#59636e;--paper:#fff;--card:#f3f5f7;--line:#d4d9df;--blue:#0072b2;
--warn:#b34700}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ed;--soft:#a4adb8;--paper:#14171b;--card:#1e2228;--line:#383f48;
--blue:#56b4e9;--warn:#f0883e}}
*{box-sizing:border-box}
body{max-width:80rem;margin:0 auto;padding:1.5rem clamp(1rem,4vw,3rem) 3rem;background:var(--paper);color:var(--ink);
font:1rem/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;overflow-wrap:anywhere}
h1{font-size:clamp(1.7rem,5vw,2.5rem);line-height:1.15;margin:0}
h1 small{color:var(--soft);font-size:.6em;font-weight:400}
h2{font-size:1.25rem;margin:2.75rem 0 .75rem}
h3,.card h2{font-size:1rem;font-weight:600;margin:0}
p{margin:.5rem 0;max-width:46rem}
.soft,figcaption,dt,.card p,tbody th{color:var(--soft)}
.cards,.pair,.plots{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,18rem),1fr))}
.pair,.plots{gap:1.5rem 2rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,21rem),1fr))}
.cards{margin:1.75rem 0 1.25rem}
.card{background:var(--card);border-radius:.6rem;padding:1rem 1.15rem}
.card p{font-size:.875rem;margin:.35rem 0 0}
.card .number{font-size:2.1rem;font-weight:650;line-height:1.2;color:var(--ink);font-variant-numeric:tabular-nums}
.card small{font-size:inherit;white-space:nowrap}
.card .number small{font-size:.5em;font-weight:400;color:var(--soft)}
.card .better{color:var(--blue);font-weight:600}
.warn{border-left:.3rem solid var(--warn);padding:.1rem 0 .1rem .8rem}
.warn b{color:var(--warn)}
figure{margin:0;min-width:0}
figure img{display:block;width:100%;max-width:36rem;height:auto;image-rendering:pixelated;border-radius:.3rem}
figure svg{display:block;width:100%;max-width:36rem;height:auto;fill:currentColor;stroke-linejoin:round}
figure svg text{font-family:inherit!important}
figcaption{font-size:.875rem;margin-top:.5rem;max-width:36rem}
pre{background:var(--card);border-radius:.4rem;padding:.8rem 1rem;margin:.75rem 0;white-space:pre-wrap}
code,.code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.875rem}
pre code,.code{user-select:all}
dl{display:grid;gap:.5rem 2rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));margin:1rem 0}
dt{font-size:.875rem}
dd{margin:0}
.tables{columns:26rem;column-gap:2rem}
table{width:100%;border-collapse:collapse;break-inside:avoid;margin:0 0 1.5rem;font-size:.875rem}
caption{text-align:left;font-weight:600;padding:.3rem 0;border-bottom:2px solid var(--line)}
th,td{text-align:left;vertical-align:top;padding:.25rem .75rem .25rem 0;border-bottom:1px solid var(--line);
font-weight:400}
.tables th{width:42%}
.scores{overflow-x:auto}
.scores th,.scores td{white-space:nowrap;overflow-wrap:normal}
.scores td,.scores th[scope=col]{text-align:right}
.scores th[scope=col]:first-child{text-align:left}
"""


def write_page(path: Path, report: dict[str, Any], samples: NDArray[Any], data: NDArray[Any], largest: int) -> None:
    """Write the page of a report; the file is there whole or not at all, and its bytes follow from the arguments.

    `samples` and `data` are integers from 0 to `largest`, and shown if they are pictures (n, 1 or 3, height, width).
    What the report lacks is left out.
    """
    text = _page(report, samples, data, validate.integer("largest", largest, 1))
    try:
        with atomic(path) as partial:
            partial.write_bytes(text.encode("utf-8", "replace"))  # a file name may hold what is no text
    except OSError as error:
        raise ValueError(f"{path}: cannot be written: {error}") from None


def _page(report: dict[str, Any], samples: NDArray[Any], data: NDArray[Any], largest: int) -> str:
    model, about = report["model"], report["data"]
    source, name = escape(model["source"]), escape(about["name"])
    parts = (
        introduction(report),
        cards(report, largest),
        notes(part_of(report, "quality")),
        _pictures(report, samples, data, largest),
        structure(part_of(report, "structure")),
        _curves(part_of(report, "curves")),
        again(report),
        tables(report),
    )
    return document(f"{source} measured on {name}", f"{source} <small>measured on {name}</small>", "".join(parts))


def document(title: str, heading: str, body: str) -> str:
    """A whole page, of texts that are escaped already."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # The browser itself sees to it that nothing is loaded, whatever a report may contain.
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; style-src '
        "'unsafe-inline'\">\n"
        f'<link rel="icon" href="data:,">\n<title>{title}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{heading}</h1>\n{body}</main>\n</body>\n</html>\n"
    )


def introduction(report: dict[str, Any]) -> str:
    """What the model is, in a line."""
    model, weights = report["model"], number_of(report["model"], "weights") or 0
    facts = (
        part_of(model, "network").get("kind"),
        f"{weights / 1e6:.3g} million weights" if weights >= 1e6 else f"{weights:,.0f} weights" if weights else None,
        part_of(model, "process").get("kind"),
        model.get("head") and f"{model['head']} head",
        f"measured {str(report['date'])[:10]}",
    )
    return f'<p class="soft">{" · ".join(escape(fact) for fact in facts if fact)}</p>\n'


def _pictures(report: dict[str, Any], samples: NDArray[Any], data: NDArray[Any], largest: int) -> str:
    sampling = part_of(report, "sampling")
    how = f": seed {name_of(sampling, 'seed')}, {count_of(sampling, 'steps')} steps" if sampling else ""
    shown = ""
    for name, x, caption in (("samples", samples, f"samples{how}"), ("data", data, "images of the data")):
        if x.dtype.kind not in "iu":
            raise ValueError(f"{name} must hold integers, got dtype {x.dtype}")
        if x.ndim == 4 and x.shape[1] in (1, 3) and x.size:
            number, file = min(len(x), _SHOWN), io.BytesIO()
            as_picture(grid(as_bytes(numpy.clip(x[:number], 0, largest), largest))).save(file, format="png")
            source = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
            shown += (
                f'<figure><img src="{source}" alt="A grid of {number} {name}">\n'
                f"<figcaption>{number} {caption}</figcaption></figure>\n"
            )
    return f'<h2>Samples beside data</h2>\n<div class="pair">\n{shown}</div>\n' if shown else ""


def _curves(curves: dict[str, Any]) -> str:
    try:
        drawn = (
            _plot_of_times(part_of(curves, "bits_by_time"))
            + _plot_of_spread(part_of(curves, "bits_of_images"))
            + _plot_of_training(part_of(curves, "training"))
        )
    except ModuleNotFoundError:  # hours of measuring are not lost for want of matplotlib
        drawn = (
            "<p>Not drawn, for matplotlib is not there: <code>pip install 'blackout-diffusion[figures]'</code></p>\n"
        )
    return f'<h2>Curves</h2>\n<div class="plots">\n{drawn}</div>\n' if drawn else ""


def _plot_of_times(part: dict[str, Any]) -> str:
    points = _points(part, "logit_p", "bits")
    if not points[0]:
        return ""
    labels = ("logit p (left: nearly black, right: nearly data)", "bits/dim per unit of logit p")
    return plot(
        "Where the likelihood is won",
        "p is the probability that a unit is still there. The area under the curve is the bits per dimension.",
        lambda: figures.curves({"test": points}, xlabel=labels[0], ylabel=labels[1], fill=True),
    )


def _plot_of_spread(part: dict[str, Any]) -> str:
    counts = {name: part[name] for name in ("test", "train") if part.get(name)}
    if not counts:
        return ""
    # In percent, for there may be more data of one kind than of the other.
    shares = {name: [100 * n / max(1, sum(numbers)) for n in numbers] for name, numbers in counts.items()}
    return plot(
        "How the bits spread over data points",
        "What is simple lies left, what is busy right. Training data that is known by heart lies left of test data.",
        lambda: figures.histograms(part["edges"], shares, xlabel="bits/dim", ylabel="share in each bin (%)"),
    )


def _plot_of_training(part: dict[str, Any]) -> str:
    points = _points(part, "step", "bits_per_dim")
    if not points[0]:
        return ""
    return plot(
        "How it was learnt",
        "Bits per dimension of the batches of training, as they came.",
        lambda: figures.curves({"": points}, xlabel="training step", ylabel="bits/dim", logx=min(points[0]) > 0),
    )


def again(report: dict[str, Any]) -> str:
    """The command, the machine and the checksums."""
    machine, commit = part_of(report, "machine"), report.get("commit")
    facts = {
        "Device": machine.get("device"),
        "CPU cores": machine.get("cpus"),
        "Blackout": report.get("blackout") and f"{report['blackout']}{f', commit {commit}' if commit else ''}",
        "torch": machine.get("torch"),
        "SHA-256 of the model": report["model"].get("checksum"),
        "SHA-256 of the data": report["data"].get("checksum"),
    }
    items = "".join(
        f'<div><dt>{name}</dt><dd class="code">{escape(fact)}</dd></div>\n' for name, fact in facts.items() if fact
    )
    command = f"<pre><code>{escape(report['command'])}</code></pre>\n"
    return f"<h2>Get it again</h2>\n{command}" + (f"<dl>\n{items}</dl>\n" if items else "")


def tables(report: dict[str, Any]) -> str:
    """Every field under the name it has in report.json."""
    groups: dict[str, dict[str, Any]] = {"report": {}}
    for name, value in report.items():
        groups.update({name: value} if isinstance(value, dict) else {})
        groups["report"].update({} if isinstance(value, dict) else {name: value})
    tables = "".join(
        f"<table><caption>{escape(name)}</caption>\n<tbody>\n{_rows(group)}</tbody></table>\n"
        for name, group in groups.items()
        if group
    )
    return f'<h2>All fields</h2>\n<div class="tables">\n{tables}</div>\n'


def _rows(group: dict[str, Any], prefix: str = "") -> str:
    rows = ""
    for name, value in group.items():
        if isinstance(value, dict) and value:
            rows += _rows(value, f"{prefix}{name}.")
        else:
            label = re.sub("([._])", r"\1<wbr>", escape(prefix + name))  # where a narrow page may break it
            rows += f'<tr><th scope="row">{label}</th><td>{escape(_field(value))}</td></tr>\n'
    return rows


def _field(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, list) and len(value) > _LISTED:
        return f"{json.dumps(value[:3])[:-1]}, …], {len(value)} values"
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def _points(part: dict[str, Any], x: str, y: str) -> tuple[list[float], list[float]]:
    """The points of a curve that can be drawn: where training diverged there are none."""
    pairs = zip(part.get(x) or (), part.get(y) or (), strict=True)
    finite = [pair for pair in pairs if all(isinstance(v, int | float) and math.isfinite(v) for v in pair)]
    return [pair[0] for pair in finite], [pair[1] for pair in finite]
