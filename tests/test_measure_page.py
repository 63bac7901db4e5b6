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
from blackout.evaluation.report import write_page

BITS = {"mean": 3.06304, "standard_error": 0.0068, "images": 10000, "times": 16, "seconds": 19.1}
REPORT: dict[str, Any] = {
    "format": 1,
    "blackout": "0.1.0",
    "commit": "abc1234",
    "date": "2026-11-15T08:00:00+00:00",
    "command": "blackout evaluate cifar10 --data data",
    "machine": {"device": "NVIDIA H200", "torch": "2.11.0", "cpus": 16},
    "model": {
        "source": "cifar10",
        "checksum": "3f" * 32,
        "weights": 15600000,
        "process": {"kind": "PureDeath", "max_count": 255},
        "network": {"kind": "NCSNpp", "width": 128, "multipliers": [1, 1, 1]},
        "head": "bounded-logit",
    },
    "data": {"name": "pictures", "checksum": "a7" * 32, "shape": [3, 8, 8], "train": 50000, "test": 10000},
    "bits_per_dim": {"test": BITS, "train": {**BITS, "mean": 3.0721, "standard_error": 0.0163}},
    "sampler_bits_per_dim": {
        "mean": 3.41, "standard_error": 0.081, "infinite": 0.0, "images": 128, "sampler": "poisson", "steps": 250,
    },
    "quality": {
        "frechet": 21.4567, "kernel": 0.01234, "kernel_error": 0.00041, "inception_score": 8.12,
        "inception_error": 0.11, "precision": 0.7123, "recall": 0.5531, "num_samples": 1000, "num_reference": 50000,
        "features": "efficientnet-lite0-57934424", "rank_deficient": False, "reference": "train",
    },
    "floor": {
        "frechet": 7.654, "kernel": 0.0002, "kernel_error": 0.0004, "inception_score": 9.12, "inception_error": 0.21,
        "precision": 0.8123, "recall": 0.8531, "num_samples": 900,
    },
    "plan": {"sampler": "bridge"},
    "sampling": {
        "sampler": "bridge", "steps": 250, "corrector_steps": 0, "seed": 7, "num": 10000, "seconds": 812.0,
        "images_per_second": 12.3,
    },
    "curves": {
        "bits_by_time": {"logit_p": [-2.0, 0.0, 2.0], "bits": [0.1, 0.6, 0.2]},
        "training": {"step": [50, 100, 150], "bits_per_dim": [9.0, 5.0, 4.0]},
        "bits_of_images": {"edges": [1.0, 2.0, 3.0], "test": [4, 6], "train": [30, 10]},
    },
}  # fmt: skip
PLAIN = REPORT | {"curves": None}  # curves take most of the time
NEEDED = ("model", "data", "date", "command")
PICTURES = numpy.arange(5 * 3 * 8 * 8).reshape(5, 3, 8, 8) % 256


class Page(HTMLParser):
    """Reads strictly: every tag is closed in its place, nothing is loaded, no id comes twice."""

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
        assert "svg" in self.open  # HTML's own elements do not close themselves
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
    path: Path, report: dict[str, Any], samples: Any = PICTURES, data: Any = PICTURES, largest: int = 255
) -> Page:
    write_page(path, report, samples, data, largest)
    return Page(path)


def test_all_is_there(tmp_path: Path) -> None:
    page = written(tmp_path / "report.html", REPORT)
    for words in (
        "cifar10 measured on pictures", "15.6 million weights", "3.063 ± 0.007", "Training data: 3.072 ± 0.016",
        "it costs 8.", "3.41 ± 0.08", "21.46", "0.0123 ± 0.0004", "0.712 and 0.553", "12.3", "Device: NVIDIA H200",
        "lower is better", "higher is better", "features of efficientnet-lite0-57934424",
        "5 samples: seed 7, 250 steps", "blackout evaluate cifar10 --data data", "0.1.0, commit abc1234", "2.11.0",
        "3f" * 32, "a7" * 32,
        "8.12 ± 0.11", "Of 900 held-out data points: 7.654.", "Of 900 held-out data points: 9.1 ± 0.2",
        "held-out data points: 0.0002 ± 0.0004", "held-out data points: 0.812 and 0.853", "bridge itself is infinite",
        "inception_ score 8.12", "network. multipliers [1, 1, 1]", "2026-11-15T08:00:00+00:00",
    ):  # fmt: skip
        assert words in page.text
    assert "Careful" not in page.text
    assert page.tags.count("svg") == 3
    assert page.tags.count("style") == page.tags.count("main") == page.tags.count("h1") == 1
    assert "script" not in page.tags
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_pictures_are_those_handed_in(tmp_path: Path) -> None:
    data = numpy.zeros((300, 1, 8, 8), numpy.int64)
    data[:100] = 3
    page = written(tmp_path / "a.html", PLAIN, PICTURES, data, largest=2)
    assert len(page.images) == 2
    samples, black = (numpy.asarray(Image.open(io.BytesIO(image))) for image in page.images)
    assert samples.shape[2] == 3
    assert black.shape[0] == black.shape[1] > 512
    assert set(numpy.unique(black)) == {96, 255}  # the gaps, and what exceeds the largest count
    assert "100 images of the data" in page.text


def test_equal_input_gives_equal_bytes(tmp_path: Path) -> None:
    written(tmp_path / "a", REPORT)
    written(tmp_path / "b", json.loads(json.dumps(REPORT)))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_warning_of_too_few_samples(tmp_path: Path) -> None:
    report = PLAIN | {"quality": REPORT["quality"] | {"rank_deficient": True}}
    text = written(tmp_path / "a", report).text
    assert "Careful: 1,000 samples are fewer than the features" in text
    assert "only with others of as many samples" in text


def test_only_a_bridge_has_another_bound_in_its_place(tmp_path: Path) -> None:
    for sampler in ("poisson", "posterior", "exact"):
        assert "In its place" not in written(tmp_path / "a", PLAIN | {"plan": {"sampler": sampler}}).text
    model = REPORT["model"] | {"process": {"kind": "Uniform"}}  # for which a bridge is another sampler, with a bound
    assert "In its place" not in written(tmp_path / "a", PLAIN | {"model": model}).text


def test_an_infinite_bound(tmp_path: Path) -> None:
    bound = REPORT["sampler_bits_per_dim"] | {"mean": None, "standard_error": None, "infinite": 0.125}
    text = written(tmp_path / "a", PLAIN | {"sampler_bits_per_dim": bound}).text
    assert "∞" in text
    assert "cannot reach 12.5% of 128 data points" in text


@pytest.mark.parametrize("name", [name for name in REPORT if name not in NEEDED])
def test_any_part_may_be_null_or_missing(name: str, tmp_path: Path) -> None:
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
        assert f"{found.difference.chords:.4f} ({found.floor.chords:.4f})" in page.text
    assert page.tags.count("svg") == 2
    assert "Two-point function, phase 1" in page.text
    for found in scores.values():  # as reports were before
        del found["two_point"], found["chord_law"]
    assert "svg" not in written(tmp_path / "b", PLAIN | {"structure": {"phase_1": {"test": scores["test"]}}}).tags


def test_nothing_but_what_is_needed(tmp_path: Path) -> None:
    report = {name: REPORT[name] for name in NEEDED}
    report |= {"model": {"source": "runs/a"}, "data": {"name": "counts"}}
    counts = numpy.zeros((4, 5), numpy.int64)
    page = written(tmp_path / "a", report, counts[:0], counts, largest=1)
    assert "runs/a measured on counts" in page.text
    assert not {"svg", "img", "section"} & set(page.tags)
    assert "?" not in page.text


def test_parts_of_parts_may_be_null(tmp_path: Path) -> None:
    report = copy.deepcopy(REPORT)
    report["bits_per_dim"] = {"test": {**BITS, "standard_error": math.nan}, "train": None}
    report["sampling"] |= {"seconds": None, "images_per_second": None}
    report["curves"]["training"]["bits_per_dim"][1] = None
    report["curves"]["bits_by_time"] = None
    report["curves"]["bits_of_images"]["train"] = None
    page = written(tmp_path / "a", report, PICTURES[:0])
    assert page.tags.count("svg") == 2
    assert page.tags.count("img") == 1
    assert "Samples per second" not in page.text
    assert "Training data:" not in page.text


def test_what_the_report_says_is_text(tmp_path: Path) -> None:
    evil = "\"><script>alert('x')</script><!--&amp; \udcff"

    def poison(value: Any) -> Any:
        if isinstance(value, dict):
            return {**{key: poison(inner) for key, inner in value.items()}, evil: evil, "list": [evil]}
        return evil if isinstance(value, str) else value

    page = written(tmp_path / "a", poison(REPORT))
    assert "script" not in page.tags
    assert page.tags.count("svg") == 3
    assert "\"><script>alert('x')</script><!--&amp; ? measured on \"><script>" in page.text


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    page = written(tmp_path / "a", REPORT)
    assert "svg" not in page.tags
    assert "matplotlib is not there" in page.text


def test_refusals_leave_the_old_page_alone(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    with pytest.raises(ValueError, match="samples must hold integers, got dtype float64"):
        write_page(path, PLAIN, PICTURES / 2, PICTURES, 255)
    with pytest.raises(ValueError, match="largest must be at least 1, got 0"):
        write_page(path, PLAIN, PICTURES, PICTURES, 0)
    assert path.read_text() == "old"
    with pytest.raises(ValueError, match="cannot be written"):
        write_page(tmp_path / "nowhere" / "report.html", PLAIN, PICTURES, PICTURES, 255)
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
