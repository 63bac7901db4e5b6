"""Errors are raised before any work, and damaged files are computed again."""

import json
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

from blackout.data import Dataset
from blackout.evaluation import EvalConfig, evaluate
from blackout.files import read_json
from test_evaluation import binomial_model, quick
from toy_features import use_toy_features

SAMPLED = quick(num_samples=50, num_steps=2, num_data=8, num_times=2, num_bound_data=2)


def fail(*_: Any) -> None:
    raise AssertionError("work began before the check")


def reproducible(report: dict[str, Any]) -> dict[str, Any]:
    """A report without dates and times."""
    kept = {name: value for name, value in report.items() if name not in ("date", "sampling")}
    return json.loads(json.dumps(kept), object_hook=lambda part: {k: v for k, v in part.items() if k != "seconds"})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"num_samples": 7}, "num_samples must be 0 or at least 50, for the metrics, got 7"),
        ({"num_reference": 7}, "num_reference must be 0 or at least 50"),
        ({"sampler": "magic"}, "sampler must be one of 'auto', 'bridge'.*got 'magic'"),
        ({"times": "beauty"}, "times must be one of '', 'fisher', .*, got 'beauty'"),
        ({"features": "vgg"}, "features must be one of"),
        ({"metrics": ["fid"]}, "metrics must be one of 'frechet', .*, got 'fid'"),
        ({"num_times": 0}, "num_times must be"),
        ({"num_steps": 0}, "num_steps must be"),
    ],
)
def test_bad_configurations(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        EvalConfig(**change)


@pytest.mark.parametrize(
    ("change", "number", "reason"),
    [
        ({"num_samples": 50}, 20, "num_samples must be 0 without at least 50 data points to compare with, got 20"),
        ({"sampler": "posterior"}, 64, "PosteriorBridge needs a head that gives a distribution"),
        ({"num_steps": 5000}, 64, "num_steps must be at most 100, the model's number of times, got 5000"),
        ({"structure": True}, 64, "structure needs samples, got num_samples=0"),
    ],
)
def test_configurations_that_do_not_fit_the_model(
    change: dict[str, Any], number: int, reason: str, tmp_path: Path
) -> None:
    model, data, _ = binomial_model(number)
    with pytest.raises(ValueError, match=reason):
        evaluate(model, tmp_path / "out", data, config=quick(**change), progress=fail)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        (torch.zeros(4, 1, 5, 5, dtype=torch.long), r"test data must have shape \(1, 4, 4\).*\(1, 5, 5\)"),
        (torch.full((4, 1, 4, 4), 9), "must not exceed 3, the model's largest state, got 9"),
    ],
)
def test_data_that_do_not_fit_the_model(x: Tensor, reason: str, tmp_path: Path) -> None:
    model, _, _ = binomial_model(1)
    with pytest.raises(ValueError, match=reason):
        evaluate(model, tmp_path, Dataset(x=x, name="other", max_state=9), config=quick(), progress=fail)


def test_a_report_of_another_model_or_data_is_not_overwritten(tmp_path: Path) -> None:
    model, data, _ = binomial_model(16)
    config = quick(num_data=4, num_times=1, num_bound_data=0)
    evaluate(model, tmp_path, data, config=config, source="one")
    before = (tmp_path / "report.json").read_text()
    other = Dataset(x=data.x[:8], name="others", max_state=3)
    with pytest.raises(ValueError, match=r"out must not hold the report of other data \(one on binomial\), got "):
        evaluate(model, tmp_path, other, config=config, progress=fail)
    with torch.no_grad():
        next(model.predictor.parameters()).add_(1)
    with pytest.raises(ValueError, match=r"out must not hold the report of another model \(one on binomial\)"):
        evaluate(model, tmp_path, data, config=config, progress=fail)
    assert (tmp_path / "report.json").read_text() == before
    damaged = before.replace('"name": "binomial"', '"name": "bin0mial"')
    for text in (damaged, "{", "[]"):
        (tmp_path / "report.json").write_text(text)
        with pytest.warns(UserWarning, match=r"report\.json .*; it is written again"):
            evaluate(model, tmp_path, data, config=config)
    assert read_json(tmp_path / "report.json")["data"]["name"] == "binomial"


class TestDamage:
    @pytest.fixture
    def first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        use_toy_features(monkeypatch, tmp_path / "cache")
        return self.evaluate(tmp_path)

    def evaluate(self, folder: Path) -> dict[str, Any]:
        model, data, _ = binomial_model(64)
        return reproducible(evaluate(model, folder / "out", data, config=SAMPLED))

    @pytest.mark.parametrize("file", ["samples.npz", "cache/bits-test.npy"])
    @pytest.mark.parametrize("how", ["empty", "short", "flipped", "one bit", "other"])
    def test_damaged_arrays_are_computed_again(
        self, file: str, how: str, first: dict[str, Any], tmp_path: Path
    ) -> None:
        path = tmp_path / "out" / file
        intact = path.read_bytes()
        flipped = bytes(b ^ (0x55 if k % 7 == 3 else 0) for k, b in enumerate(intact))
        bit = intact[:-30] + bytes([intact[-30] ^ 1]) + intact[-29:]
        damaged = {"empty": b"", "short": intact[:-9], "flipped": flipped, "one bit": bit, "other": b"{}"}
        path.write_bytes(damaged[how])
        assert self.evaluate(tmp_path) == first
        if file == "samples.npz":
            with numpy.load(path) as arrays:
                assert len(arrays["x"]) == 50
        else:
            assert numpy.load(path).shape == (8, 2)

    @pytest.mark.parametrize("value", [{}, [], None, {"mean": 1}, 3])
    def test_changed_results_are_computed_again(self, value: Any, first: dict[str, Any], tmp_path: Path) -> None:
        results = list((tmp_path / "out" / "cache").glob("*.json"))
        assert len(results) == 5
        for path in results:
            path.write_text(json.dumps({**json.loads(path.read_text()), "value": value}))
        assert self.evaluate(tmp_path) == first
