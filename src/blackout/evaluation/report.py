"""report.html: one self-contained page with the numbers of report.json."""

import base64
import io
import json
import math
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray

from blackout import figures, files, validate
from blackout.atomic import atomic
from blackout.evaluation import METRICS
from blackout.evaluation.cache import finite
from blackout.evaluation.features import optional
from blackout.io.images import as_bytes, as_image, image_grid

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.figure import Figure

Plot = tuple[str, str, "Callable[[], Figure]"]  # title, caption, and the function that draws it

_MAX_IMAGES = 100
_MAX_LISTED = 12  # numbers of a list that are shown one by one
_SETS = {"test": "held-out data", "train": "training data"}
_STRUCTURE = {
    "porosity": "share of the phase",
    "surface": "specific surface",
    "two_point_max": "two-point function, largest difference",
    "chords": "chord lengths, Kolmogorov–Smirnov distance",
}


def write_json(path: Path, report: dict[str, Any]) -> dict[str, Any]:
    """Write a report with its checksum, numbers that are not finite as null; return it as it can be read again."""
    files.write_json(path, finite(report))
    return files.read_json(path)


def write_report(
    path: Path,
    report: dict[str, Any],
    samples: NDArray[Any],
    data: NDArray[Any],
    max_state: int,
    copies: NDArray[Any] | None = None,
) -> None:
    """Write report.html, atomically; its bytes depend on the arguments alone.

    Parameters
    ----------
    report
        The content of report.json; sections that are missing or None are left out.
    samples, data
        Integers from 0 to `max_state`, which is white; shown if they are images (n, 1 or 3, height, width).
    copies
        Samples, and below each its nearest training image.
    """
    validate.integer("max_state", max_state, 1)
    images = [_image(name, x, max_state) for name, x in (("samples", samples), ("data points", data))]
    write_html(
        path,
        render(
            "report.html",
            report,
            max_state=max_state,
            images=[image for image in images if image],
            copies=None if copies is None else _image("copies", copies, max_state, len(copies) // 2),
            metrics=_metrics(report),
            structure=[_phase(name, sets) for name, sets in (report.get("structure") or {}).items() if sets],
            curves=draw(_curves(report.get("curves") or {})),
        ),
    )


def render(template: str, report: dict[str, Any], package: str = "blackout.evaluation", **context: Any) -> str:
    """Render a template of `package`/templates, which may extend or import those of this package."""
    return _environment(package).get_template(template).render(report=report, **context)


def write_html(path: Path, text: str) -> None:
    """Write a page, atomically."""
    try:
        with atomic(path) as partial:
            partial.write_bytes(text.encode("utf-8", "replace"))  # names of files may not be valid text
    except OSError as error:
        raise ValueError(f"{path}: cannot be written: {error}") from None


def draw(plots: Iterable[Plot]) -> list[dict[str, Any]] | None:
    """Draw plots as inline SVG for the macro `plots`; None if matplotlib is not installed."""
    from markupsafe import Markup

    try:
        return [
            {
                "title": title,
                "caption": caption,
                # CSS sets a lighter blue on dark screens.
                "svg": Markup(figures.inline_svg(figure, title).replace("#0072b2", "var(--blue)")),
            }
            for title, caption, figure in plots
        ]
    except ModuleNotFoundError:
        return None


def format_value(value: float | None, error: float | None = None) -> str:
    """Format a number with its error: one digit of the error, or two if the first is a 1."""
    if value is None or not math.isfinite(value):
        return "–"
    if not error or not math.isfinite(error) or error < 0:
        return f"{value:.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
    power = math.floor(math.log10(error))
    digits = max(0, (1 if error < 2 * 10.0**power else 0) - power)
    return f"{value:,.{digits}f} ± {error:,.{digits}f}"


def _quantity(part: Any, name: str, error: str = "") -> Any:
    """A field of a part of the report, with its error in small type; None if there is no such number."""
    from markupsafe import Markup

    value = part.get(name) if isinstance(part, dict) else None
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    number, sign, rest = format_value(value, part.get(error)).partition(" ± ")
    return Markup("{} <small>± {}</small>").format(number, rest) if sign else number


def _metrics(report: dict[str, Any]) -> list[dict[str, Any]]:
    """The metrics of the report, each with its value for samples and for held-out data."""
    scores, real = ((report.get(name) or {}).get("scores") for name in ("quality", "real_vs_real"))
    return [
        {
            "title": metric.title,
            "better": metric.better,
            "description": metric.description,
            "number": _values(scores, metric.values),
            "real": _values(real, metric.values),
        }
        for metric in (METRICS[name] for name in METRICS)
    ]


def _values(scores: Any, names: Iterable[str]) -> Any:
    from markupsafe import Markup

    values = [_quantity(scores, name, f"{name}_error") for name in names]
    return None if None in values else Markup(" <small>and</small> ").join(values)


def _image(name: str, x: NDArray[Any], max_state: int, columns: int | None = None) -> dict[str, Any] | None:
    if x.dtype.kind not in "iu":
        raise ValueError(f"{name} must hold integers, got dtype {x.dtype}")
    if x.ndim != 4 or x.shape[1] not in (1, 3) or not x.size:
        return None
    x, file = x[:_MAX_IMAGES], io.BytesIO()
    as_image(image_grid(as_bytes(numpy.clip(x, 0, max_state), max_state), columns)).save(file, format="png")
    source = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    return {"name": name, "number": len(x), "source": source}


def _phase(name: str, sets: dict[str, Any]) -> dict[str, Any]:
    """Table and plots of a phase of label images; differences of the halves of the data in parentheses."""
    phase, first = name.replace("_", " "), next(iter(sets.values()))
    rows = []
    for key, what in _STRUCTURE.items():
        own = [first.get(key), *(scores.get(f"data_{key}") for scores in sets.values())]
        differences = [f"{s['difference'][key]:.4f} ({s['real_vs_real'][key]:.4f})" for s in sets.values()]
        rows.append([what, *("–" if value is None else f"{value:.4f}" for value in own), *differences])
    heads = ["", "samples", *(_SETS[s] for s in sets)]
    heads += [f"difference from {_SETS[s]} (real vs real)" for s in sets]

    def plot(title: str, caption: str, key: str, xlabel: str, ylabel: str) -> Plot:
        lines = {"samples": first[key], **{_SETS[s]: scores[f"data_{key}"] for s, scores in sets.items()}}
        series = {label: ([float(k) for k in range(len(y))], list(y)) for label, y in lines.items()}
        return f"{title}, {phase}", caption, lambda: figures.curves(series, xlabel=xlabel, ylabel=ylabel)

    plots = [
        plot(
            "Two-point function", "Share of pairs of pixels at this distance in a row or column that are both in the "
            "phase.", "two_point", "distance in pixels", "S2",
        ),
        plot(
            "Chord lengths", "Share of runs of pixels in the phase that have this length.", "chord_probs",
            "length in pixels", "share of chords",
        ),
    ]  # fmt: skip
    return {"name": phase, "heads": heads, "rows": rows, "plots": draw(plots)}


def _curves(curves: dict[str, Any]) -> Iterable[Plot]:
    by_time, bits, training = (curves.get(name) or {} for name in ("bits_by_time", "bits_histogram", "training"))
    if (points := _points(by_time, "logit_p", "bits"))[0]:
        labels = ("logit p (left: nearly black, right: nearly data)", "bits/dim per unit of logit p")
        yield (
            "Bits per dimension by time",
            "p is the survival probability of a unit. The area under the curve is the bits per dimension.",
            lambda: figures.curves({"test": points}, xlabel=labels[0], ylabel=labels[1], fill=True),
        )
    if counts := {name: bits[name] for name in ("test", "train") if bits.get(name)}:
        # In percent, because the splits differ in size.
        shares = {name: [100 * n / max(1, sum(numbers)) for n in numbers] for name, numbers in counts.items()}
        yield (
            "Bits per dimension of data points",
            "Simple data points are on the left, detailed ones on the right. Memorised training data would be to the "
            "left of test data.",
            lambda: figures.histograms(bits["edges"], shares, xlabel="bits/dim", ylabel="share in each bin (%)"),
        )
    if (losses := _points(training, "step", "bits_per_dim"))[0]:
        yield (
            "Training",
            "Bits per dimension of the training batches.",
            lambda: figures.curves({"": losses}, xlabel="training step", ylabel="bits/dim", logx=min(losses[0]) > 0),
        )


def _points(part: dict[str, Any], x: str, y: str) -> tuple[list[float], list[float]]:
    """The finite points of a curve; a diverged training has others too."""
    pairs = zip(part.get(x) or (), part.get(y) or (), strict=True)
    kept = [pair for pair in pairs if all(isinstance(v, int | float) and math.isfinite(v) for v in pair)]
    return [pair[0] for pair in kept], [pair[1] for pair in kept]


def _fields(report: dict[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """All fields of a report in groups, nested names joined by dots."""
    groups = {"report": {name: value for name, value in report.items() if not isinstance(value, dict)}}
    groups |= {name: value for name, value in report.items() if isinstance(value, dict) and value}
    return [(name, list(_flat(group))) for name, group in groups.items()]


def _flat(group: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for name, value in group.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{name}.")
        elif name == "runs" and isinstance(value, list):
            yield from _flat({str(number): run for number, run in enumerate(value, 1)}, f"{prefix}{name}.")
        elif isinstance(value, list) and len(value) > _MAX_LISTED:
            yield prefix + name, f"{json.dumps(value[:3])[:-1]}, …], {len(value)} values"
        else:
            text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
            yield prefix + name, "–" if value is None else text


def _breakable(name: str) -> Any:
    from markupsafe import Markup, escape

    return Markup(re.sub("([._])", r"\1<wbr>", str(escape(name))))


def _count(value: Any) -> str:
    return f"{value:,.0f}" if isinstance(value, int | float) else "?"


def _large(value: Any) -> str:
    return f"{value / 1e6:.3g} million" if value >= 1e6 else f"{value:,}"


@cache
def _environment(package: str) -> "Environment":
    jinja2 = optional("jinja2", "evaluation")
    loaders = [jinja2.PackageLoader(name) for name in dict.fromkeys((package, "blackout.evaluation"))]
    environment: Environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders), autoescape=True, undefined=jinja2.ChainableUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {
        "breakable": _breakable,
        "count": _count,
        "fields": _fields,
        "large": _large,
        "quantity": _quantity,
        "uniform_bits": lambda max_state: f"{math.log2(max_state + 1):.3g}",
    }
    return environment
