"""report.html."""

import base64
import copy
import dataclasses
import io
import json
import math
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from PIL import Image

from blackout.evaluation import compare_structure
from blackout.evaluation.report import format_value, write_report

BITS = {"mean": 3.06304, "standard_error": 0.0068, "infinite": 0.0, "num_data": 10000, "seconds": 19.1}
REPORT: dict[str, Any] = {
    "format": 2,
    "blackout": "0.1.0",
    "commit": "abc1234",
    "date": "2026-11-15T08:00:00+00:00",
    "command": "blackout evaluate cifar10 --data data",
    "machine": {"device": "NVIDIA H200", "torch": "2.11.0", "cpus": 16},
    "model": {
        "source": "cifar10",
        "checksum": "3f" * 32,
        "parameters": 15600000,
        "process": {"kind": "pure-death", "max_count": 255},
        "network": {"kind": "NCSNpp", "width": 128, "multipliers": [1, 1, 1]},
        "head": "bounded-logit",
    },
    "data": {"name": "photos", "checksum": "a7" * 32, "shape": [3, 8, 8], "train": 50000, "test": 10000},
    "config": {"sampler": "bridge"},
    "ending": {
        "t_end": 15.0, "remaining": 0.11, "factors": [0.9, 1.1], "nats": 0.1, "prior_bits_per_dim": 0.00075,
        "summary": "11% of data points not in the terminal state",
    },
    "bits_per_dim": {"test": BITS, "train": {**BITS, "mean": 3.0721, "standard_error": 0.0163}},
    "sampler_bits_per_dim": {
        "mean": 3.41, "standard_error": 0.081, "infinite": 0.0, "num_data": 128, "sampler": "binomial",
        "replaces": "bridge", "num_steps": 250,
    },
    "quality": {
        "scores": {
            "frechet": 21.4567, "kernel": 0.01234, "kernel_error": 0.00041, "inception_score": 8.12,
            "inception_score_error": 0.11, "precision": 0.7123, "recall": 0.5531,
        },
        "num_samples": 1000, "num_reference": 50000, "features": "efficientnet-lite0-57934424",
        "rank_deficient": False, "reference": "train",
    },
    "real_vs_real": {
        "scores": {
            "frechet": 7.654, "kernel": 0.0002, "kernel_error": 0.0004, "inception_score": 9.12,
            "inception_score_error": 0.21, "precision": 0.8123, "recall": 0.8531,
        },
        "num_samples": 900,
    },
    "copying": {
        "distance": 21.57, "held_out_distance": 21.93, "nearer_to_training": 0.8347, "expected": 0.8333,
        "pairs": [[3, 40], [1, 7]],
    },
    "sampling": {
        "sampler": "bridge", "num_steps": 250, "corrector_steps": 0, "seed": 7, "num_samples": 10000, "seconds": 812.0,
        "samples_per_second": 12.3,
    },
    "curves": {
        "bits_by_time": {"logit_p": [-2.0, 0.0, 2.0], "bits": [0.1, 0.6, 0.2]},
        "training": {"step": [50, 100, 150], "bits_per_dim": [9.0, 5.0, 4.0]},
        "bits_histogram": {"edges": [1.0, 2.0, 3.0], "test": [4, 6], "train": [30, 10]},
    },
}  # fmt: skip
PLAIN = REPORT | {"curves": None}  # plots take most of the time
NEEDED = ("model", "data", "date", "command")
IMAGES = numpy.arange(5 * 3 * 8 * 8).reshape(5, 3, 8, 8) % 256


class Page(HTMLParser):
    """A strict parser: every tag is closed in its place, nothing is loaded, ids are unique."""

    EMPTY = ("meta", "link", "img", "wbr")
    PLACES = ("src", "href", "xlink:href", "srcset", "action", "data", "poster")

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.images: list[bytes] = []
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert self.open == []
        assert len(set(self.ids)) == len(self.ids)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self.EMPTY:
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on")
            if name in self.PLACES:
                assert value is not None
                assert value.startswith(("data:", "#"))
                if value.startswith("data:image/png;base64,"):
                    self.images.append(base64.b64decode(value.partition(",")[2]))
            if name == "id":
                self.ids.append(str(value))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert "svg" in self.open  # elements of HTML do not close themselves
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            assert not re.search(r"url\(|@import|http", data)
        else:
            self.words.append(data)


def written(
    path: Path, report: dict[str, Any], samples: Any = IMAGES, data: Any = IMAGES, max_state: int = 255
) -> Page:
    write_report(path, report, samples, data, max_state)
    return Page(path)


def test_the_report_is_complete(tmp_path: Path) -> None:
    page = written(tmp_path / "report.html", REPORT)
    for words in (
        "cifar10 evaluated on photos", "15.6 million parameters", "3.063 ± 0.007", "Training data: 3.072 ± 0.016",
        "needs 8 bits", "3.41 ± 0.08", "21.46", "0.0123 ± 0.0004", "0.7123 and 0.5531", "12.3", "Device: NVIDIA H200",
        "lower is better", "higher is better", "features of efficientnet-lite0-57934424",
        "5 samples, seed 7, 250 steps", "blackout evaluate cifar10 --data data", "0.1.0", "abc1234", "2.11.0",
        "3f" * 32, "a7" * 32, "1,000 samples are compared with 50,000 data points (train)",
        "8.12 ± 0.11", "Real vs real, 900 held-out data points: 7.654.", "data points: 9.1 ± 0.2",
        "data points: 0.0002 ± 0.0004", "data points: 0.8123 and 0.8531", "sampler bridge itself is infinite",
        "0.8347 = 0.8333 without copying", "samples 21.57, held-out images 21.93",
        "inception_ score 8.12", "network. multipliers [1, 1, 1]", "2026-11-15T08:00:00+00:00",
    ):  # fmt: skip
        assert words in page.text
    assert "Careful" not in page.text
    assert page.tags.count("svg") == 3
    assert page.tags.count("style") == page.tags.count("main") == page.tags.count("h1") == 1
    assert "script" not in page.tags
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_images_are_scaled_and_clipped(tmp_path: Path) -> None:
    data = numpy.zeros((300, 1, 8, 8), numpy.int64)
    data[:100] = 3
    page = written(tmp_path / "a.html", PLAIN, IMAGES, data, max_state=2)
    assert len(page.images) == 2
    samples, white = (numpy.asarray(Image.open(io.BytesIO(image))) for image in page.images)
    assert samples.shape[2] == 3
    assert white.shape[0] == white.shape[1] > 512
    assert set(numpy.unique(white)) == {96, 255}  # gaps, and states above the largest
    assert "100 data points" in page.text


def test_equal_input_gives_equal_bytes(tmp_path: Path) -> None:
    written(tmp_path / "a", REPORT)
    written(tmp_path / "b", json.loads(json.dumps(REPORT)))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_warning_of_too_few_samples(tmp_path: Path) -> None:
    report = PLAIN | {"quality": REPORT["quality"] | {"rank_deficient": True}}
    text = written(tmp_path / "a", report).text
    assert "Careful: 1,000 samples are fewer than the features" in text
    assert "only with those of as many samples" in text


def test_bounds_that_are_infinite_or_of_the_sampler_itself(tmp_path: Path) -> None:
    bound = REPORT["sampler_bits_per_dim"] | {"mean": None, "standard_error": None, "infinite": 0.125, "replaces": None}
    text = written(tmp_path / "a", PLAIN | {"sampler_bits_per_dim": bound}).text
    assert "∞" in text
    assert "cannot reach 12.5% of 128 data points" in text
    assert "itself is infinite" not in text


def test_page_states_the_end_and_a_prior_term_that_is_not_negligible(tmp_path: Path) -> None:
    text = written(tmp_path / "a", PLAIN).text
    assert "at t = 15: 11% of data points not in the terminal state." in text
    assert "needs 0.00075 bits/dim more" in text
    small = written(tmp_path / "b", PLAIN | {"ending": REPORT["ending"] | {"prior_bits_per_dim": 1e-6}}).text
    assert "of data points not in the terminal state" in small
    assert "prior term" not in small


@pytest.mark.parametrize("name", [name for name in REPORT if name not in NEEDED])
def test_any_section_may_be_null_or_missing(name: str, tmp_path: Path) -> None:
    written(tmp_path / "null", PLAIN | {name: None})
    page = written(tmp_path / "missing", {key: value for key, value in PLAIN.items() if key != name})
    assert "svg" not in page.tags
    assert ("Fréchet distance" in page.text) == (name != "quality")
    assert ("Bits per dimension, in steps" in page.text) == (name != "sampler_bits_per_dim")


def test_structure_of_label_images(tmp_path: Path) -> None:
    x = torch.from_numpy(numpy.random.default_rng(0).integers(0, 2, (40, 1, 12, 12)))
    sets = {"test": compare_structure(x[:20], x[20:], 1, 6), "train": compare_structure(x[:20], x, 1, 6)}
    scores = {name: dataclasses.asdict(found) for name, found in sets.items()}
    page = written(tmp_path / "a", PLAIN | {"structure": {"phase_1": scores}})
    assert "Structure" in page.text
    for found in sets.values():
        assert f"{found.data_porosity:.4f}" in page.text
        assert f"{found.difference.chords:.4f} ({found.real_vs_real.chords:.4f})" in page.text
    assert page.tags.count("svg") == 2
    assert "Two-point function, phase 1" in page.text


def test_a_minimal_report(tmp_path: Path) -> None:
    report = {name: REPORT[name] for name in NEEDED}
    report |= {"model": {"source": "runs/a"}, "data": {"name": "counts"}}
    counts = numpy.zeros((4, 5), numpy.int64)
    page = written(tmp_path / "a", report, counts[:0], counts, max_state=1)
    assert "runs/a evaluated on counts" in page.text
    assert not {"svg", "img", "section"} & set(page.tags)
    assert "?" not in page.text


def test_fields_may_be_null(tmp_path: Path) -> None:
    report = copy.deepcopy(REPORT)
    report["bits_per_dim"] = {"test": {**BITS, "standard_error": math.nan}, "train": None}
    report["sampling"] |= {"seconds": None, "samples_per_second": None}
    report["curves"]["training"]["bits_per_dim"][1] = None
    report["curves"]["bits_by_time"] = None
    del report["curves"]["bits_histogram"]["train"]
    page = written(tmp_path / "a", report, IMAGES[:0])
    assert page.tags.count("svg") == 2
    assert page.tags.count("img") == 1
    assert "Samples per second" not in page.text
    assert "Training data:" not in page.text


def test_text_is_escaped(tmp_path: Path) -> None:
    evil = "\"><script>alert('x')</script><!--&amp; \udcff"

    def poison(value: Any) -> Any:
        if isinstance(value, dict):
            return {**{key: poison(inner) for key, inner in value.items()}, evil: evil, "list": [evil]}
        return evil if isinstance(value, str) else value

    page = written(tmp_path / "a", poison(REPORT))
    assert "script" not in page.tags
    assert page.tags.count("svg") == 3
    assert "\"><script>alert('x')</script><!--&amp; ? evaluated on \"><script>" in page.text


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    page = written(tmp_path / "a", REPORT)
    assert "svg" not in page.tags
    assert "matplotlib is not installed" in page.text


def test_errors_leave_the_old_page(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    with pytest.raises(ValueError, match="samples must hold integers, got dtype float64"):
        write_report(path, PLAIN, IMAGES / 2, IMAGES, 255)
    with pytest.raises(ValueError, match="max_state must be at least 1, got 0"):
        write_report(path, PLAIN, IMAGES, IMAGES, 0)
    assert path.read_text() == "old"
    with pytest.raises(ValueError, match="cannot be written"):
        write_report(tmp_path / "nowhere" / "report.html", PLAIN, IMAGES, IMAGES, 255)
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (3.0721, 0.0163, "3.072 ± 0.016"),
        (3.0721, 0.0261, "3.07 ± 0.03"),
        (12345.6, None, "12,346"),
        (0.123456, math.nan, "0.1235"),
        (12345.0, 678.0, "12,345 ± 678"),
        (None, 0.1, "–"),
        (math.inf, None, "–"),
    ],
)
def test_numbers_have_the_digits_of_their_error(value: float | None, error: float | None, text: str) -> None:
    assert format_value(value, error) == text
