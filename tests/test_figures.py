import re
from typing import Any

import numpy
import pytest

from blackout import figures

LABELS = {"xlabel": "steps", "ylabel": "distance"}


def test_curves_differ_in_colour_and_also_in_grey() -> None:
    series = {f"sampler {k}": ([1, 10, 100], [k + 1, k + 2, k + 3]) for k in range(9)}
    axis = figures.curves(series, **LABELS, title="all").axes[0]
    lines = axis.get_lines()
    assert [line.get_label() for line in lines] == list(series)
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(lines)
    assert len({(line.get_linestyle(), line.get_marker()) for line in lines}) == len(lines)
    assert (axis.get_xlabel(), axis.get_ylabel(), axis.get_title()) == ("steps", "distance", "all")
    assert numpy.array_equal(lines[2].get_ydata(), [3, 4, 5])


def test_every_one_of_few_points_has_a_marker() -> None:
    few, many = (list(range(n)) for n in (24, 200))
    assert figures.curves({"a": (few, few)}, **LABELS).axes[0].get_lines()[0].get_markevery() == 1
    assert figures.curves({"a": (many, many)}, **LABELS).axes[0].get_lines()[0].get_marker() == ""


@pytest.mark.parametrize(
    ("values", "shown"), [([20, 50, 130], {"20", "50", "100"}), ([3, 60_000], {"10", "100", "1000", "10000"})]
)
def test_logarithmic_axes_have_plain_numbers(values: list[float], shown: set[str]) -> None:
    figure = figures.curves({"a": (values, values)}, xlabel="x", ylabel="y", logx=True, logy=True)
    figure.draw_without_rendering()
    axis = figure.axes[0]
    assert (axis.get_xscale(), axis.get_yscale()) == ("log", "log")
    for line in (axis.xaxis, axis.yaxis):
        assert shown <= {label.get_text() for label in line.get_ticklabels()}


@pytest.mark.parametrize(
    ("series", "said"),
    [
        ({}, "series must hold a curve"),
        ({"a": ([1, 2], [1])}, r"series\['a'\] must have as many x as y, and some, got 2 and 1"),
        ({"a": ([], [])}, r"series\['a'\] must have as many x as y, and some, got 0 and 0"),
        ({"a": ([1, 2],)}, r"series\['a'\] must be a pair"),
        ({"a": ([1], ["much"])}, r"y of series\['a'\] must be numbers"),
        ({"a": ([1], [[1]])}, r"y of series\['a'\] must be a sequence of numbers, got shape \(1, 1\)"),
        ({"a": ([1, 2], [1, None])}, r"y of series\['a'\] must be finite, .* got nan"),
        ({"a": ([0, 1], [1, 1])}, r"x of series\['a'\] must be finite, and positive on a logarithmic axis, got 0"),
    ],
)
def test_bad_curves_are_refused(series: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        figures.curves(series, xlabel="x", ylabel="y", logx=True, logy=True)


def test_histograms() -> None:
    axis = figures.histograms([0, 1, 3], {"test": [2, 5], "train": [4, 1]}, **LABELS).axes[0]
    outlines = [patch for patch in axis.patches if patch.get_label() in ("test", "train")]
    assert [list(patch.get_data().values) for patch in outlines] == [[2, 5], [4, 1]]
    assert len({patch.get_linestyle() for patch in outlines}) == 2
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["test", "train"]


@pytest.mark.parametrize(
    ("edges", "counts", "said"),
    [
        ([0], {"a": []}, "edges must be two numbers at least"),
        ([0, 2, 1], {"a": [1, 1]}, "edges must be .* increase"),
        ([0, float("nan")], {"a": [1]}, "edges must be finite, got nan"),
        ([0, 1], {}, "counts must hold a histogram"),
        ([0, 1], {"a": [1, 2]}, r"counts\['a'\] must be 1 numbers"),
        ([0, 1], {"a": [-1]}, r"counts\['a'\] must be .* none negative"),
    ],
)
def test_bad_histograms_are_refused(edges: list[float], counts: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        figures.histograms(edges, counts, **LABELS)


def test_an_inline_svg_fits_into_a_page_with_others() -> None:
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
