"""Charts of numbers, inline SVG, files."""

import math
import re
from pathlib import Path
from typing import Any

import numpy
import pytest

import blackout as bo
from blackout import figures

LABELS = {"xlabel": "steps", "ylabel": "distance"}


def test_curves_differ_in_colour_and_in_grey_print() -> None:
    series = {f"sampler {k}": ([1, 10, 100], [k + 1, k + 2, k + 3]) for k in range(9)}
    axis = figures.curves(series, **LABELS, title="all").axes[0]
    lines = axis.get_lines()
    assert [line.get_label() for line in lines] == list(series)
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(lines)
    assert len({(line.get_linestyle(), line.get_marker()) for line in lines}) == len(lines)
    assert (axis.get_xlabel(), axis.get_ylabel(), axis.get_title()) == ("steps", "distance", "all")
    assert numpy.array_equal(lines[2].get_ydata(), [3, 4, 5])


def test_short_curves_have_a_marker_at_every_point() -> None:
    few, many = (list(range(n)) for n in (24, 200))
    assert figures.curves({"a": (few, few)}, **LABELS).axes[0].get_lines()[0].get_markevery() == 1
    assert figures.curves({"a": (many, many)}, **LABELS).axes[0].get_lines()[0].get_marker() == ""


@pytest.mark.parametrize(
    ("values", "labels"), [([20, 50, 130], {"20", "50", "100"}), ([3, 60_000], {"10", "100", "1000", "10000"})]
)
def test_logarithmic_axes_have_plain_numbers(values: list[float], labels: set[str]) -> None:
    figure = figures.curves({"a": (values, values)}, xlabel="x", ylabel="y", logx=True, logy=True)
    figure.draw_without_rendering()
    axis = figure.axes[0]
    assert (axis.get_xscale(), axis.get_yscale()) == ("log", "log")
    for line in (axis.xaxis, axis.yaxis):
        assert labels <= {label.get_text() for label in line.get_ticklabels()}


@pytest.mark.parametrize(
    ("series", "message"),
    [
        ({}, "series must hold at least one curve"),
        ({"a": ([1, 2], [1])}, r"series\['a'\] must have as many x as y, at least one, got 2 and 1"),
        ({"a": ([], [])}, r"series\['a'\] must have as many x as y, at least one, got 0 and 0"),
        ({"a": ([1, 2],)}, r"series\['a'\] must be a pair"),
        ({"a": ([1], ["much"])}, r"y of series\['a'\] must be numbers"),
        ({"a": ([1], [[1]])}, r"y of series\['a'\] must be a sequence of numbers, got shape \(1, 1\)"),
        ({"a": ([1, 2], [1, None])}, r"y of series\['a'\] must be finite, .* got nan"),
        ({"a": ([0, 1], [1, 1])}, r"x of series\['a'\] must be finite, and positive on a logarithmic axis, got 0"),
    ],
)
def test_bad_curves_raise(series: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        figures.curves(series, xlabel="x", ylabel="y", logx=True, logy=True)


def test_histograms() -> None:
    axis = figures.histograms([0, 1, 3], {"test": [2, 5], "train": [4, 1]}, **LABELS).axes[0]
    outlines = [patch for patch in axis.patches if patch.get_label() in ("test", "train")]
    assert [list(patch.get_data().values) for patch in outlines] == [[2, 5], [4, 1]]
    assert len({patch.get_linestyle() for patch in outlines}) == 2
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["test", "train"]


@pytest.mark.parametrize(
    ("edges", "counts", "message"),
    [
        ([0], {"a": []}, "edges must be at least two increasing numbers"),
        ([0, 2, 1], {"a": [1, 1]}, "edges must be .* increasing numbers, got"),
        ([0, float("nan")], {"a": [1]}, "edges must be finite, got nan"),
        ([0, 1], {}, "counts must hold at least one histogram"),
        ([0, 1], {"a": [1, 2]}, r"counts\['a'\] must be 1 non-negative numbers"),
        ([0, 1], {"a": [-1]}, r"counts\['a'\] must be .* non-negative numbers"),
    ],
)
def test_bad_histograms_raise(edges: list[float], counts: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        figures.histograms(edges, counts, **LABELS)


def test_inline_svgs_share_a_page() -> None:
    import matplotlib

    def svg(title: str) -> str:
        return figures.inline_svg(lambda: figures.curves({"a": ([1, 2], [3, 4])}, **LABELS), title)

    one, other = svg("one"), svg('"other" <title>')
    ids = [set(re.findall(r'\bid="([^"]*)"', text)) for text in (one, other)]
    assert ids[0]
    assert not ids[0] & ids[1]
    for text, own in zip((one, other), ids, strict=True):
        assert set(re.findall(r'(?:href="#|url\(#)([^")]*)', text)) <= own
        assert text.startswith("<svg viewBox=")
        assert text.endswith("</svg>")
        assert "http" not in text
        assert "<style" not in text
    assert 'aria-label="&quot;other&quot; &lt;title&gt;"' in other
    assert "currentColor" in one
    with matplotlib.rc_context({"axes.facecolor": "black", "font.size": 20, "svg.hashsalt": None}):
        assert svg("one") == one
        assert matplotlib.rcParams["font.size"] == 20


def test_scatter() -> None:
    axis = figures.scatter([1, 10], [2, 40], xlabel="real", ylabel="generated").axes[0]
    diagonal, points = axis.get_lines()
    assert points.get_xydata().tolist() == [[1, 2], [10, 40]]
    assert diagonal.get_xydata().tolist() == [[1, 1], [40, 40]]
    assert (axis.get_xscale(), axis.get_yscale()) == ("log", "log")
    with pytest.raises(ValueError, match="y of points must be finite, and positive on a logarithmic axis, got 0"):
        figures.scatter([1], [0], **LABELS)


def test_error_bars_and_levels() -> None:
    axis = figures.error_bars({"a": (3.4, 0.1), "b": (5.5, None)}, xlabel="bits/dim").axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["a", "b"]
    assert [text.get_text() for text in axis.texts] == ["3.4", "5.5"]
    with pytest.raises(ValueError, match="values must hold at least one value"):
        figures.error_bars({}, xlabel="x")
    axis = figures.curves({"a": ([1, 2], [3, 4])}, **LABELS, levels={"held-out data": 2}).axes[0]
    assert set(axis.get_lines()[1].get_ydata()) == {2}
    assert axis.texts[0].get_text() == "held-out data"


def test_observation_times_on_two_axes() -> None:
    figure = figures.observation_times()
    assert [axis.get_yscale() for axis in figure.axes] == ["linear", "log"]
    for axis in figure.axes:
        curve, level = axis.get_lines()
        assert numpy.array_equal(curve.get_ydata(), bo.ObservationTimes.fisher().values)
        assert numpy.array_equal(curve.get_xdata(), numpy.arange(1, 1001))
        assert set(level.get_ydata()) == {math.log(2)}
        assert [text.get_text() for text in axis.texts] == [r"$t = \log 2$"]
    both = figures.observation_times({"a": bo.ObservationTimes.fisher(60), "b": bo.ObservationTimes.uniform(9)})
    assert [text.get_text() for text in both.axes[1].get_legend().get_texts()] == ["a", "b"]
    with pytest.raises(ValueError, match="times must hold at least one entry"):
        figures.observation_times({})


@pytest.mark.parametrize("vector", ["svg", "pdf"])
def test_files_are_reproducible(vector: str, tmp_path: Path) -> None:
    import matplotlib

    def draw() -> Any:
        return figures.observation_times(bo.ObservationTimes.fisher(3))

    files = [tmp_path / f"one.{vector}", tmp_path / "one.png"]
    assert figures.save(draw, tmp_path / "one", vector) == files
    before = [file.read_bytes() for file in files]
    with matplotlib.rc_context({"font.size": 20, "svg.hashsalt": None}):
        figures.save(draw, tmp_path / "one", vector)
    assert [file.read_bytes() for file in files] == before
    with pytest.raises(ValueError, match="vector must be one of 'svg', 'pdf', got 'eps'"):
        figures.save(draw, tmp_path / "one", "eps")


@pytest.mark.parametrize("number", [1, 2, 5])
def test_long_titles_labels_and_names_are_shown_whole(number: int) -> None:
    names = [f"bounded-logit, poisson-instantaneous, {k} correctors, length times" for k in range(number)]
    figure = figures.curves(
        {name: ([1.0, 2.0], [1.0, 2.0]) for name in names},
        xlabel="steps",
        ylabel="Fréchet distance (efficientnet-lite0-3b9e1f7a)",
        title="Heads and samplers on seven-segment digits, with correctors and other times",
    )
    figure.draw_without_rendering()
    (axis,) = figure.axes
    texts = [axis.title, axis.yaxis.label, *(text for legend in figure.legends for text in legend.get_texts())]
    assert len(texts) == 2 + (number if number > 1 else 0)
    for text in texts:
        box = text.get_window_extent()
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= figure.bbox.width, text
        assert box.y1 <= figure.bbox.height, text
    assert axis.bbox.width > figure.bbox.width / 2
