"""Evaluations of models with known likelihood, the cache, and metrics."""

import dataclasses
import json
import math
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy
import pytest
import torch
from scipy import stats

from blackout.data import Dataset
from blackout.evaluation import METRICS, EvalConfig, Metric, SampleSet, evaluate
from blackout.evaluation.cache import Cache
from blackout.evaluation.likelihood import bits_histogram
from blackout.evaluation.splits import random_subset
from blackout.evaluation.stages import Evaluation
from blackout.files import read_json, write_array
from blackout.likelihood import InfiniteBoundWarning
from blackout.model import DiffusionModel
from blackout.network import BoundedLogitHead, NCSNpp, SoftplusHead, UNetConfig
from blackout.process import Absorbing, Chain, FiniteState, MarkovProcess, PureDeath, Uniform
from blackout.times import ObservationTimes
from toy_features import use_toy_features

QUICK = EvalConfig(num_samples=0, num_data=64, num_times=8, num_bound_data=8, num_steps=20, batch_size=32)


def binomial_model(num: int = 256, seed: int = 0) -> tuple[DiffusionModel, Dataset, float]:
    """Independent Binomial(3, 0.3) pixels, a model with their exact posterior, and their entropy in bits.

    The bounded-logit head with F = 0, as of a new network, is exact for independent units.
    """
    counts = numpy.random.default_rng(seed).binomial(3, 0.3, (num, 1, 4, 4))
    mean = torch.full((1, 1, 1), 0.9)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = NCSNpp(UNetConfig(channels=1, resolution=4, width=8, multipliers=(1,), blocks=1, attention=()))
    head = BoundedLogitHead(mean, torch.full((1, 1, 1), math.sqrt(0.63)), 3)
    model = DiffusionModel(PureDeath(3), ObservationTimes.fisher(100), network, head, shape=(1, 4, 4))
    data = Dataset(x=torch.from_numpy(counts), name="binomial", max_state=3)
    return model, data, float(stats.binom(3, 0.3).entropy()) / math.log(2)


def quick(**changes: Any) -> EvalConfig:
    return dataclasses.replace(QUICK, **changes)


def evaluation(model: DiffusionModel, folder: Path, progress: Any = None, **changes: Any) -> Evaluation:
    config = EvalConfig(**{"num_samples": 50, "num_steps": 2, **changes})
    return Evaluation(model, config, Cache(folder), folder / "samples.npz", progress or (lambda *_: None))


class Interrupted(Exception):
    pass


class TestLikelihood:
    def test_bits_per_dim_is_the_entropy(self, tmp_path: Path) -> None:
        """The bound is the cross-entropy of each data point, up to the noise of random times."""
        model, data, entropy = binomial_model(512)
        report = evaluate(model, tmp_path, data, config=quick(num_data=0, num_times=32, num_bound_data=0))
        bits = report["bits_per_dim"]["test"]
        assert abs(bits["mean"] - entropy) < 4 * bits["standard_error"]  # fails for one seed in 16,000
        assert bits["standard_error"] < 0.02

    def test_the_area_under_bits_by_time_is_bits_per_dim(self, tmp_path: Path) -> None:
        model, data, entropy = binomial_model(64)
        curve = evaluation(model, tmp_path).bits_by_time(data)
        assert curve is not None
        assert numpy.trapezoid(curve["bits"], curve["logit_p"]) == pytest.approx(entropy, rel=0.15)

    def test_the_bound_of_one_poisson_leap_is_its_cross_entropy(self, tmp_path: Path) -> None:
        """One leap from 0 is Poisson(0.9), and larger counts become the largest."""
        model, data, _ = binomial_model(64)
        bound = evaluation(model, tmp_path, num_steps=1, sampler="poisson").sampler_bits(data)
        x, distribution = data.x.numpy(), stats.poisson(0.9)
        bits = -numpy.where(x == 3, distribution.logsf(2), distribution.logpmf(x)).mean() / math.log(2)
        assert (bound["sampler"], bound["num_steps"], bound["infinite"]) == ("poisson", 1, 0.0)
        assert (bound["mean"], bound["replaces"]) == (pytest.approx(bits, abs=1e-5), None)

    def test_the_bound_of_binomial_leaps_replaces_that_of_a_bridge(self, tmp_path: Path) -> None:
        """It is exact for independent units in any number of steps."""
        model, data, entropy = binomial_model(64)
        bound = evaluation(model, tmp_path, num_steps=3).sampler_bits(data)
        assert (bound["sampler"], bound["replaces"], bound["infinite"]) == ("binomial", "bridge", 0.0)
        assert abs(bound["mean"] - entropy) < 4 * bound["standard_error"]

    @pytest.mark.parametrize(
        "process", [Uniform(4), Absorbing(5), FiniteState([[-1, 1, 0, 0], [0, -1, 1, 0], [0, 0, -1, 1], [1, 0, 0, -1]])]
    )
    def test_models_of_any_process(self, process: MarkovProcess, tmp_path: Path) -> None:
        """A new network is nearly exact for independent pixels, so both bounds are near the entropy."""
        _, data, entropy = binomial_model(64)
        model = DiffusionModel.for_data(data.x, process, width=8, blocks=1)
        report = evaluate(model, tmp_path, data, config=quick(num_bound_data=64, num_steps=3))
        for bits in (report["bits_per_dim"]["test"], report["sampler_bits_per_dim"]):
            assert abs(bits["mean"] - entropy) < 5 * bits["standard_error"]
        assert report["sampler_bits_per_dim"]["sampler"] == "multistep"

    def test_a_chain_has_no_bits_by_time(self, tmp_path: Path) -> None:
        _, data, entropy = binomial_model(64)
        stay = 0.9 * torch.eye(4, dtype=torch.float64) + 0.025
        model = DiffusionModel.for_data(data.x, Chain(stay), width=8, blocks=1)
        report = evaluate(model, tmp_path, data, config=quick(num_bound_data=0))
        bits = report["bits_per_dim"]["test"]
        assert abs(bits["mean"] - entropy) < 5 * bits["standard_error"]
        assert report["curves"]["bits_by_time"] is None

    def test_reports_of_softplus_name_the_bound_of_the_steps(self, tmp_path: Path) -> None:
        """Its continuous-time bound is infinite; a report has it only on request."""
        model, data, _ = binomial_model(64)
        head = SoftplusHead(torch.full((1, 1, 1), 0.9), torch.ones(1, 1, 1), 3)
        model = DiffusionModel(model.process, model.times, model.predictor.network, head, shape=(1, 4, 4))
        report = evaluate(model, tmp_path / "auto", data, config=quick())
        bits, bound = report["bits_per_dim"]["test"], report["sampler_bits_per_dim"]
        assert (bits["bound"], bits["infinite"], report["curves"]["bits_by_time"]) == ("steps", 0.0, None)
        assert (bound["sampler"], bound["replaces"], bound["infinite"]) == ("poisson", "bridge", 0.0)
        assert "all the model's times" in (tmp_path / "auto/report.html").read_text().replace("&#39;", "'")
        with pytest.warns(InfiniteBoundWarning):
            report = evaluate(model, tmp_path / "other", data, config=quick(bound="continuous", num_bound_data=0))
        bits = report["bits_per_dim"]["test"]
        assert (bits["bound"], bits["infinite"]) == ("continuous", 1.0)
        with pytest.raises(ValueError, match=r"bound must be one of .* got 'exact'"):
            evaluate(model, tmp_path / "bad", data, config=quick(bound="exact"))

    def test_the_exact_sampler_has_no_bound(self, tmp_path: Path) -> None:
        model, data, _ = binomial_model(8)
        report = evaluate(model, tmp_path, data, config=quick(num_data=4, sampler="exact"))
        assert report["sampler_bits_per_dim"] is None

    def test_the_curve_uses_at_most_num_data(self, tmp_path: Path) -> None:
        model, data, _ = binomial_model(64)
        evaluation(model, tmp_path, num_data=3).bits_by_time(data)
        assert json.loads((tmp_path / "bits-by-time.json").read_text())["key"]["number"] == 3

    def test_histograms_leave_out_infinite_bits(self, tmp_path: Path) -> None:
        for name, bits in (("test", [1.0, 2.0, math.inf, 3.0]), ("train", [math.inf])):
            write_array(tmp_path / f"bits-{name}.npy", numpy.array([bits, [0.1] * len(bits)]).T)
        found = bits_histogram(Cache(tmp_path), ["test", "train"])
        assert (found["edges"][0], found["edges"][-1]) == (1.0, 3.0)
        assert (sum(found["test"]), sum(found["train"])) == (3, 0)
        assert set(bits_histogram(Cache(tmp_path), ["test"])) == {"edges", "test"}


class TestResume:
    def test_finished_work_is_not_repeated(self, tmp_path: Path) -> None:
        model, data, _ = binomial_model(96)
        config, calls = quick(num_data=96), []

        def stop(name: str, done: float, total: float) -> None:
            if (name, done) == ("bits/dim, test", 64):
                raise Interrupted

        with pytest.raises(Interrupted):
            evaluate(model, tmp_path / "a", data, config=config, progress=stop)
        resumed = evaluate(
            model, tmp_path / "a", data, config=config, progress=lambda name, done, _: calls.append((name, done))
        )
        uninterrupted = evaluate(model, tmp_path / "b", data, config=config)
        # The second chunk was interrupted before it was written.
        assert [done for name, done in calls if name == "bits/dim, test"] == [64, 96]
        for report in (resumed, uninterrupted):
            report["bits_per_dim"]["test"].pop("seconds")
        assert resumed["bits_per_dim"] == uninterrupted["bits_per_dim"]
        assert resumed["curves"] == uninterrupted["curves"]
        other = evaluate(model, tmp_path / "a", data, config=quick(num_data=96, seed=1))
        assert other["bits_per_dim"]["test"]["mean"] != resumed["bits_per_dim"]["test"]["mean"]

    def test_an_interruption_loses_few_samples(self, tmp_path: Path) -> None:
        model, _, _ = binomial_model(1)

        def stop(name: str, done: float, total: float) -> None:
            if done > 40:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            evaluation(model, tmp_path, stop, num_samples=64).sample()
        calls: list[float] = []
        evaluation(model, tmp_path, lambda _, done, __: calls.append(done), num_samples=64).sample()
        assert min(calls) > 32

    def test_samples_do_not_depend_on_shards_and_missing_ones_are_sampled_again(self, tmp_path: Path) -> None:
        model, _, _ = binomial_model(1)
        run = evaluation(model, tmp_path, num_samples=64)
        first = run.sample()
        stamp = run.samples.stat().st_mtime_ns
        run.shard_size = 256
        run.sample()
        assert run.samples.stat().st_mtime_ns == stamp
        run.samples.unlink()
        assert run.sample() == first
        assert run.samples.exists()


class TestCache:
    def test_a_result_is_computed_once_for_each_key(self, tmp_path: Path) -> None:
        calls: list[int] = []
        cache = Cache(tmp_path)
        for key in (1, 1, 2, 1):
            cache.get("result", {"k": key}, lambda: {"call": calls.append(1) or len(calls)})
        assert len(calls) == 3

    def test_a_damaged_result_is_computed_again_and_infinity_is_null(self, tmp_path: Path) -> None:
        cache = Cache(tmp_path)
        assert cache.get("result", {}, lambda: {"value": [1.0, math.inf]}) == {"value": [1.0, None]}
        (tmp_path / "result.json").write_text('{"key": {}, "val')
        assert cache.get("result", {}, lambda: {"value": 2}) == {"value": 2}

    def test_rows_are_in_order_for_any_chunk_size(self, tmp_path: Path) -> None:
        for chunk in (1, 3, 10, 100):
            rows = Cache(tmp_path / str(chunk)).rows("r", {}, 10, chunk, lambda a, b: numpy.arange(a, b))
            assert rows.tolist() == list(range(10))


class TestQuality:
    def test_scores_with_the_default_feature_network(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """With 256 levels and a mask, samples are stored as uint16, for which torch has few operations."""
        pytest.importorskip("efficientnet_lite_pytorch")
        monkeypatch.setenv("BLACKOUT_CACHE", str(tmp_path / "cache"))
        x = torch.randint(0, 256, (50, 1, 4, 4), generator=torch.Generator().manual_seed(0))
        data = Dataset(x=x, name="levels", max_state=255)
        model = DiffusionModel.for_data(x, Absorbing(257), width=8, blocks=1)
        report = evaluate(model, tmp_path / "out", data, None, quick(num_samples=50, num_steps=2))
        with numpy.load(tmp_path / "out" / "samples.npz") as file:
            assert file["x"].dtype == numpy.uint16
        quality = report["quality"]
        assert quality["features"].startswith("efficientnet-lite0-")
        assert quality["rank_deficient"]
        assert quality["num_samples"] == 50
        assert 0 <= quality["scores"]["recall"] <= 1
        assert report["sampling"]["samples_per_second"] > 0
        assert read_json(tmp_path / "out" / "report.json") == report
        assert "efficientnet-lite0-" in (tmp_path / "out" / "report.html").read_text()
        assert list((tmp_path / "cache" / "statistics").glob("*.safetensors"))

    def test_real_vs_real_is_the_score_of_held_out_data(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Data against itself is at distance 0, against other data of the same distribution a little further."""
        network = use_toy_features(monkeypatch, tmp_path / "cache")
        model, data, _ = binomial_model(128)
        halves = [dataclasses.replace(data, x=data.x[:64]), dataclasses.replace(data, x=data.x[64:])]
        run = evaluation(model, tmp_path, num_samples=64)
        same, other = (run.real_vs_real(half, halves[0], network) for half in halves)
        assert same is not None
        assert other is not None
        assert same["scores"]["frechet"] < 1e-3 * other["scores"]["frechet"]

    def test_samples_are_shown_with_their_nearest_training_images(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        use_toy_features(monkeypatch, tmp_path / "cache")
        model, data, _ = binomial_model(200)
        train, test = (dataclasses.replace(data, x=data.x[part]) for part in (slice(120), slice(120, None)))
        config = quick(num_samples=50, num_steps=2, metrics=("frechet",), num_reference=100)
        report = evaluate(model, tmp_path / "out", test, train, config)
        with numpy.load(tmp_path / "out" / "samples.npz") as file:
            samples = torch.from_numpy(file["x"])
        first = report["copying"]
        assert first["expected"] == 100 / 180
        known = train.x[torch.from_numpy(random_subset(120, 100, 0))]
        for sample, image in first["pairs"]:
            squared = (known - samples[sample]).square().flatten(1).sum(1)
            assert squared[image] == squared.min()
        page = (tmp_path / "out" / "report.html").read_text()
        assert "The 10 samples that are nearest to training images" in page
        assert page.count("data:image/png") == 3
        assert evaluate(model, tmp_path / "alone", test, None, config)["copying"] is None

    def test_white_is_the_largest_state_of_the_model(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Samples may be brighter than data that do not reach the largest state."""
        network = use_toy_features(monkeypatch, tmp_path / "cache")
        model, data, _ = binomial_model(64)
        for max_state in (1, 255):
            dark = Dataset(x=data.x.clamp(max=1), name="dark", max_state=max_state)
            network.brightest = 0
            run = evaluation(model, tmp_path / str(max_state), sampler="binomial")
            run.sample()
            assert run.quality(dark, network) is not None
            assert network.brightest == 255

    def test_phases_of_label_images_are_compared(self, tmp_path: Path) -> None:
        model, data, _ = binomial_model(64)
        run = evaluation(model, tmp_path, num_steps=10, sampler="binomial")
        run.sample()
        alone = run.structure(data, None)
        assert set(alone) == {"phase_1", "phase_2", "phase_3"}
        scores = alone["phase_1"]["test"]
        assert scores["data_porosity"] == pytest.approx(float((data.x == 1).double().mean()))
        assert scores["difference"]["porosity"] < 0.06  # four standard errors; the leaps are exact for such pixels
        assert set(run.structure(data, data)["phase_1"]) == {"test", "train"}

    def test_a_new_metric_is_in_the_report(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        use_toy_features(monkeypatch, tmp_path / "cache")

        class Brightness(Metric):
            title, better, description = "Brightness ratio", "1 at best", "Mean of samples over mean of data."
            values: ClassVar = {"brightness": "brightness"}
            needs_features = False

            def __call__(self, samples: SampleSet, data: SampleSet) -> dict[str, float]:
                ratio = samples.x.double().mean() / data.x.double().mean()
                return {"brightness": float(ratio), "brightness_error": 0.25}

        METRICS.add("brightness", Brightness, "ratio of the means")
        try:
            model, data, _ = binomial_model(64)
            config = quick(num_samples=50, num_steps=5, num_data=4, metrics=("brightness", "frechet"))
            report = evaluate(model, tmp_path / "images", data, data, config)
            assert set(report["quality"]["scores"]) == {"brightness", "brightness_error", "frechet"}
            page = (tmp_path / "images" / "report.html").read_text()
            assert "Brightness ratio" in page
            assert f"{report['quality']['scores']['brightness']:.1f} <small>± 0.2" in page
            # Vectors have no features, but other metrics apply.
            vectors = Dataset(x=data.x.flatten(1), name="vectors", max_state=3)
            model = DiffusionModel.for_data(vectors.x, PureDeath(3), width=8, blocks=1)
            report = evaluate(model, tmp_path / "vectors", vectors, config=config)
            assert set(report["quality"]["scores"]) == {"brightness", "brightness_error"}
            assert report["quality"]["features"] is None
        finally:
            METRICS.remove("brightness")


def test_a_missing_jinja2_is_reported_before_the_first_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, data, _ = binomial_model()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ValueError, match=r"jinja2 is not installed: pip install 'blackout-diffusion\[evaluation"):
        evaluate(model, tmp_path / "out", data, None, QUICK)
    assert not (tmp_path / "out").exists()
