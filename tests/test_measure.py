"""Whole measurements: known entropies, interrupted and resumed work, specifications."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from scipy import stats
from torch import Tensor

from blackout.data import Dataset, make_digits
from blackout.evaluation.all import Plan, compare, evaluate, read_spec, shipped_specs
from blackout.evaluation.bits import spread
from blackout.evaluation.cache import Notebook
from blackout.evaluation.compare import cell_names
from blackout.evaluation.comparison import row_of, table
from blackout.evaluation.stages import Measurement
from blackout.model import DiffusionModel
from blackout.network import BoundedLogitHead, NCSNpp, UNetConfig
from blackout.process import Absorbing, Chain, FiniteState, MarkovProcess, PureDeath, Uniform
from blackout.times import ObservationTimes

QUICK = {"samples": 0, "images": 64, "times": 8, "bound_images": 8, "steps": 20, "batch_size": 32}


def binomial_world(num: int = 256, seed: int = 0) -> tuple[DiffusionModel, Dataset, float]:
    """Independent Binomial(3, 0.3) pixels, the model that knows them, and their entropy in bits.

    Units that are lit independently are what the bounded logit says with F = 0, which a new network gives.
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


class Killed(Exception):
    pass


class TestEvaluate:
    def test_bits_per_dim_of_data_with_known_entropy_are_that_entropy(self, tmp_path: Path) -> None:
        """The bound is the cross-entropy here: of each data point exactly, so within what the drawn times add."""
        model, data, entropy = binomial_world(512)
        report = evaluate(model, tmp_path, data, plan=Plan(**{**QUICK, "images": 0, "times": 32, "bound_images": 0}))
        bits = report["bits_per_dim"]["test"]
        assert abs(bits["mean"] - entropy) < 4 * bits["standard_error"]  # fails once in 16,000 seeds
        assert bits["standard_error"] < 0.02

    def test_the_bits_by_time_add_up_to_the_bits(self, tmp_path: Path) -> None:
        model, data, entropy = binomial_world(64)
        curve = evaluate(model, tmp_path, data, plan=Plan(**QUICK))["curves"]["bits_by_time"]
        area = numpy.trapezoid(curve["bits"], curve["logit_p"])
        assert area == pytest.approx(entropy, rel=0.15)

    def test_the_bound_of_one_poisson_leap_is_the_cross_entropy_with_that_law(self, tmp_path: Path) -> None:
        """From black, one leap draws Poisson(0.9); what exceeds the largest count is that count."""
        model, data, _ = binomial_world(64)
        report = evaluate(
            model, tmp_path, data, plan=Plan(**{**QUICK, "bound_images": 64, "steps": 1, "sampler": "poisson"})
        )
        x, law = data.x.numpy(), stats.poisson(0.9)
        bits = -numpy.where(x == 3, law.logsf(2), law.logpmf(x)).mean() / math.log(2)
        bound = report["sampler_bits_per_dim"]
        assert (bound["sampler"], bound["steps"], bound["infinite"]) == ("poisson", 1, 0.0)
        assert bound["mean"] == pytest.approx(bits, abs=1e-5)

    def test_of_a_bridge_the_bound_is_that_of_the_binomial_leap(self, tmp_path: Path) -> None:
        """Which for independent units is exact in any number of steps."""
        model, data, entropy = binomial_world(64)
        change = {"bound_images": 64, "steps": 3, "sampler": "bridge"}
        bound = evaluate(model, tmp_path, data, plan=Plan(**{**QUICK, **change}))["sampler_bits_per_dim"]
        assert (bound["sampler"], bound["infinite"]) == ("binomial", 0.0)
        assert abs(bound["mean"] - entropy) < 4 * bound["standard_error"]

    @pytest.mark.parametrize(
        "process", [Uniform(4), Absorbing(5), FiniteState([[-1, 1, 0, 0], [0, -1, 1, 0], [0, 0, -1, 1], [1, 0, 0, -1]])]
    )
    def test_a_model_of_any_process_is_measured(self, process: MarkovProcess, tmp_path: Path) -> None:
        """Independent pixels, which a new network knows: both bounds are near the entropy."""
        _, data, entropy = binomial_world(64)
        model = DiffusionModel.for_data(data.x, process, width=8, blocks=1)
        report = evaluate(model, tmp_path, data, plan=Plan(**{**QUICK, "bound_images": 64, "steps": 3}))
        for bits in (report["bits_per_dim"]["test"], report["sampler_bits_per_dim"]):
            assert abs(bits["mean"] - entropy) < 5 * bits["standard_error"]
        assert report["sampler_bits_per_dim"]["sampler"] == "posterior"

    def test_samples_with_more_states_than_a_byte_holds_are_scored(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """256 levels and a mask: the file of samples holds uint16, which torch hardly computes with."""
        pytest.importorskip("efficientnet_lite_pytorch")
        monkeypatch.setenv("BLACKOUT_CACHE", str(tmp_path / "cache"))
        x = torch.randint(0, 256, (50, 1, 4, 4), generator=torch.Generator().manual_seed(0))
        data = Dataset(x=x, name="levels", max_state=255)
        model = DiffusionModel.for_data(x, Absorbing(257), width=8, blocks=1)
        plan = Plan(**{**QUICK, "samples": 50, "steps": 2})
        report = evaluate(model, tmp_path / "out", data, data, plan)
        with numpy.load(tmp_path / "out" / "samples.npz") as file:
            assert file["x"].dtype == numpy.uint16
        assert report["quality"]["num_samples"] == 50

    def test_what_was_finished_before_a_kill_is_not_measured_again(self, tmp_path: Path) -> None:
        model, data, _ = binomial_world(96)
        plan = Plan(**{**QUICK, "images": 96})
        seen: list[tuple[str, float]] = []

        def stop(name: str, done: float, total: float) -> None:
            seen.append((name, done))
            if seen[-1] == ("bits/dim, test", 64):
                raise Killed

        with pytest.raises(Killed):
            evaluate(model, tmp_path / "a", data, plan=plan, tell=stop)
        again: list[tuple[str, float]] = []
        resumed = evaluate(
            model, tmp_path / "a", data, plan=plan, tell=lambda name, done, _: again.append((name, done))
        )
        whole = evaluate(model, tmp_path / "b", data, plan=plan)
        # The second chunk was killed before it was written, the first is there.
        assert [done for name, done in again if name == "bits/dim, test"] == [64, 96]
        for report in (resumed, whole):
            report["bits_per_dim"]["test"].pop("seconds")
        assert resumed["bits_per_dim"] == whole["bits_per_dim"]
        assert resumed["curves"] == whole["curves"]

    def test_another_plan_is_measured_anew(self, tmp_path: Path) -> None:
        model, data, _ = binomial_world(64)
        first = evaluate(model, tmp_path, data, plan=Plan(**QUICK))
        second = evaluate(model, tmp_path, data, plan=Plan(**{**QUICK, "seed": 1}))
        assert first["bits_per_dim"]["test"]["mean"] != second["bits_per_dim"]["test"]["mean"]

    def test_samples_are_scored_with_the_real_feature_network(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pytest.importorskip("efficientnet_lite_pytorch")
        monkeypatch.setenv("BLACKOUT_CACHE", str(tmp_path / "cache"))
        model, data, _ = binomial_world(50)
        plan = Plan(**{**QUICK, "samples": 50, "steps": 10})
        report = evaluate(model, tmp_path / "out", data, data, plan)
        quality = report["quality"]
        assert quality["features"].startswith("efficientnet-lite0-")
        assert quality["rank_deficient"]
        assert 0 < quality["recall"] <= 1
        assert report["sampling"]["images_per_second"] > 0
        assert json.loads((tmp_path / "out" / "report.json").read_text()) == report
        assert "efficientnet-lite0-" in (tmp_path / "out" / "report.html").read_text()
        assert list((tmp_path / "cache" / "statistics").glob("*.safetensors"))

    def test_the_phases_of_label_images_are_compared(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("efficientnet_lite_pytorch")
        monkeypatch.setenv("BLACKOUT_CACHE", str(tmp_path / "cache"))
        model, data, _ = binomial_world(64)
        change = {"samples": 50, "steps": 10, "sampler": "binomial", "structure": True, "bound_images": 0}
        plan = Plan(**{**QUICK, **change})
        scores = evaluate(model, tmp_path / "out", data, None, plan)["structure"]
        assert set(scores) == {"phase_1", "phase_2", "phase_3"}
        test = scores["phase_1"]["test"]
        assert test["data_porosity"] == pytest.approx(float((data.x == 1).double().mean()))
        assert test["difference"]["porosity"] < 0.06  # four standard errors; the leaps are exact for such pixels
        with pytest.raises(ValueError, match="structure is for samples that are label images"):
            evaluate(model, tmp_path / "out", data, None, Plan(**{**QUICK, "structure": True}))

    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (torch.zeros(4, 1, 5, 5, dtype=torch.long), r"test data must have shape \(1, 4, 4\).*\(1, 5, 5\)"),
            (torch.full((4, 1, 4, 4), 9), "must not exceed 3, the model's largest count, got 9"),
        ],
    )
    def test_data_of_another_kind_is_refused(self, data: Tensor, reason: str, tmp_path: Path) -> None:
        model, _, _ = binomial_world(1)
        with pytest.raises(ValueError, match=reason):
            evaluate(model, tmp_path, Dataset(x=data, name="other", max_state=9), plan=Plan(**QUICK))

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"samples": 7}, "samples must be 0, for none, or at least 50"),
            ({"sampler": "walk"}, "sampler must be one of"),
            ({"features": "vgg"}, "features must be one of"),
            ({"times": 0}, "times must be"),
        ],
    )
    def test_bad_plans_are_refused(self, change: dict[str, Any], reason: str) -> None:
        with pytest.raises(ValueError, match=reason):
            Plan(**change)

    def test_a_chain_is_measured(self, tmp_path: Path) -> None:
        _, data, entropy = binomial_world(64)
        stay = 0.9 * torch.eye(4, dtype=torch.float64) + 0.025
        model = DiffusionModel.for_data(data.x, Chain(stay), width=8, blocks=1)
        report = evaluate(model, tmp_path, data, plan=Plan(**{**QUICK, "bound_images": 0}))
        bits = report["bits_per_dim"]["test"]
        assert abs(bits["mean"] - entropy) < 5 * bits["standard_error"]
        assert report["curves"]["bits_by_time"] is None

    def test_samples_that_are_gone_are_drawn_again(self, tmp_path: Path) -> None:
        model, _, _ = binomial_world(1)
        measured = Measurement(model, Notebook(tmp_path), Plan(samples=50, steps=2), lambda *_: None)
        first = measured.draw(tmp_path / "samples.npz")
        (tmp_path / "samples.npz").unlink()
        assert measured.draw(tmp_path / "samples.npz") == first
        assert (tmp_path / "samples.npz").exists()

    def test_structure_is_compared_with_training_data_once_there_is_some(self, tmp_path: Path) -> None:
        model, data, _ = binomial_world(64)
        measured = Measurement(model, Notebook(tmp_path), Plan(samples=50, steps=2), lambda *_: None)
        measured.draw(tmp_path / "samples.npz")
        alone = measured.structure(tmp_path / "samples.npz", data, None)
        both = measured.structure(tmp_path / "samples.npz", data, data)
        assert set(alone["phase_1"]) == {"test"}
        assert set(both["phase_1"]) == {"test", "train"}

    def test_the_floor_is_the_score_of_held_out_data(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Data against itself: nothing is nearer; against other data of the same law: a little off."""
        pytest.importorskip("efficientnet_lite_pytorch")
        monkeypatch.setenv("BLACKOUT_CACHE", str(tmp_path / "cache"))
        model, data, _ = binomial_world(128)
        halves = [dataclasses.replace(data, x=data.x[:64]), dataclasses.replace(data, x=data.x[64:])]
        measured = Measurement(model, Notebook(tmp_path), Plan(samples=64, steps=2), lambda *_: None)
        network = measured.network()
        same = measured.floor(halves[0], halves[0], network)["frechet"]
        other = measured.floor(halves[1], halves[0], network)["frechet"]
        assert abs(same) < 1e-3 * other


def test_a_data_point_of_infinitely_many_bits_is_left_out_of_the_spread(tmp_path: Path) -> None:
    for name, bits in (("test", [1.0, 2.0, math.inf, 3.0]), ("train", [math.inf])):
        numpy.save(tmp_path / f"bits-{name}.npy", numpy.array([bits, [0.1] * len(bits)]).T)
    found = spread(tmp_path, ["test", "train"])
    assert (found["edges"][0], found["edges"][-1]) == (1.0, 3.0)
    assert (sum(found["test"]), sum(found["train"])) == (3, 0)
    assert sum(spread(tmp_path, ["test"])["test"]) == 3


class TestNotebook:
    def test_a_part_is_measured_once_for_each_key(self, tmp_path: Path) -> None:
        calls: list[int] = []
        notebook = Notebook(tmp_path)
        for key in (1, 1, 2, 1):
            notebook.part("part", {"k": key}, lambda: {"call": calls.append(1) or len(calls)})
        assert len(calls) == 3

    def test_a_damaged_part_is_measured_again(self, tmp_path: Path) -> None:
        notebook = Notebook(tmp_path)
        notebook.part("part", {}, lambda: {"value": 1})
        (tmp_path / "part.json").write_text('{"key": {}, "val')
        assert notebook.part("part", {}, lambda: {"value": 2}) == {"value": 2}

    def test_rows_come_in_order_whatever_the_chunk(self, tmp_path: Path) -> None:
        for chunk in (1, 3, 10, 100):
            rows = Notebook(tmp_path / str(chunk)).rows("r", {}, 10, chunk, lambda a, b: numpy.arange(a, b))
            assert rows.tolist() == list(range(10))


class TestSpec:
    @pytest.mark.parametrize("name", shipped_specs())
    def test_what_ships_can_be_read(self, name: str) -> None:
        assert read_spec(name).plans

    def test_the_papers_table_has_both_losses_both_samplers_and_the_corrector_row(self) -> None:
        spec = read_spec("paper-table-1", overrides=["train.steps=50", "sample.num=100"])
        assert [t.config.loss for t in spec.trainings] == ["instantaneous", "finite_time"]
        assert {t.config.steps for t in spec.trainings} == {50}
        cells = {(p.sampler, p.steps, p.correctors, p.samples) for p in spec.plans}
        samplers = ("bridge-nearest", "poisson-instantaneous")
        assert cells == {(sampler, 1000, correctors, 100) for sampler in samplers for correctors in (0, 2)}

    def test_recipes_and_tables_of_samples_are_taken_one_after_the_other(self, tmp_path: Path) -> None:
        text = """
            [train]
            recipe = ["digits", "mnist-binary"]
            head = ["softplus", "bounded-logit"]
            [[sample]]
            sampler = ["bridge", "poisson"]
            steps = 10
            [[sample]]
            steps = [20, 30]
            correctors = 2
            """
        (tmp_path / "spec.toml").write_text(text)
        spec = read_spec(tmp_path / "spec.toml", overrides=["sample.num=70"])
        heads = ("softplus", "bounded-logit")
        assert [t.label for t in spec.trainings] == [f"{n}-{h}" for n in ("digits", "mnist-binary") for h in heads]
        cells = [(p.sampler, p.steps, p.correctors, p.samples) for p in spec.plans]
        first = [("bridge", 10, 0, 70), ("poisson", 10, 0, 70)]
        assert cells == [*first, ("bridge", 20, 2, 70), ("bridge", 30, 2, 70)]

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("", "nothing to compare"),
            ("[train]\nsteps = 3", "needs the name of a recipe"),
            ('[train]\nrecipe = "digits"\nstep = 3', "unknown fields: step"),
            ('[train]\nrecipe = "nothing"', "no recipe is called 'nothing'"),
            ('[[model]]\nname = "cifar10"', "has a source"),
            ('[[model]]\nsource = "a"\n[[model]]\nsource = "b/a"', "labels must differ"),
            ('[[model]]\nsource = "a"\n[sample]\nsamplers = ["bridge"]', "unknown fields: samplers"),
            ('[[model]]\nsource = "a"\n[sample]\nsampler = ["walk"]', "sampler must be one of"),
            ('[[model]]\nsource = "a"\n[sample]\nnum = 3', "at least 50"),
            ("model = 3", "model must be a list"),
            ("sample = 3", "sample must be a dict or a list"),
            ('sample = []\n[[model]]\nsource = "a"', r"several written \[\[sample\]\]"),
            ("[train]\nrecipe = []", "needs the name of a recipe"),
            ("models = 3", "'models' is not known"),
            ("title = ", "cannot be read"),
            ('title = ""\n[[model]]\nsource = "a"', "title must be one line of text, got ''"),
            ('dataset = "digitz"\n[[model]]\nsource = "a"', "dataset must be one of cifar10, .*, got 'digitz'"),
            ('[[model]]\nsource = "a"\n[sample]\nsteps = []', "steps must not be an empty list"),
            ('[train]\nrecipe = "digits"\nhead = []', "head must not be an empty list"),
            ('[[model]]\nsource = "a"\n[sample]\nsteps = [5, 5]', r"steps must not have the same value twice"),
            ('[[model]]\nsource = "a"\n[[sample]]\nsteps = [5, 6]\n[[sample]]\nsteps = 6', "6 steps.* twice"),
            ('[[model]]\nsource = "a"\n[sample]\nnum = 0', "num must be at least 50, for the scores, got 0"),
            ('[[model]]\nsource = "a"\nlabel = ".."', "a label must be text, and not only dots, got '..'"),
            ('[[model]]\nsource = "a"\nlabel = ""', "a label must be text"),
            ('[[model]]\nsource = "a"\nlabel = [1]', r"a label must be text, .*got \[1\]"),
            ("[[model]]\nsource = 3", "source of a .* must be a name or a folder, got 3"),
        ],
    )
    def test_bad_specifications_are_refused_with_the_file_and_the_reason(
        self, text: str, reason: str, tmp_path: Path
    ) -> None:
        (tmp_path / "spec.toml").write_text(text)
        with pytest.raises(ValueError, match=rf"spec\.toml.*{reason}"):
            read_spec(tmp_path / "spec.toml")

    def test_a_missing_file_names_those_that_ship(self) -> None:
        with pytest.raises(ValueError, match=r"neither a file nor a specification that ships.*paper-table-1"):
            read_spec("nowhere.toml")

    @pytest.mark.parametrize("override", ["train.steps", "=3", "a.b.c=1", "title.x=1"])
    def test_bad_overrides_are_refused(self, override: str) -> None:
        with pytest.raises(ValueError, match="overrid"):
            read_spec("digits", overrides=[override])


def test_samples_are_drawn_at_the_times_of_the_grid(tmp_path: Path) -> None:
    (model, _, _), rows = binomial_world(), []
    own, plans = model.times.values.clone(), [Plan(samples=50, steps=3, grid=grid) for grid in ("", "length")]
    for plan, cell in zip(plans, cell_names(plans), strict=True):
        measured = Measurement(model, Notebook(tmp_path / cell), plan, lambda *_: None)
        sampling = measured.draw(tmp_path / cell / "samples.npz")
        rows.append(row_of("a", {"mean": 1.0, "standard_error": 0.1}, sampling, {}))
        assert torch.equal(model.times.values, own)
        drawn = numpy.load(tmp_path / cell / "samples.npz")["x"]
        assert numpy.array_equal(drawn, plan.walked(model).sample(50, 3))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bridge-3-0", "bridge-3-0-length"]
    heads, cells = table(rows)
    assert [row[heads.index("times by")] for row in cells] == ["–", "length"]
    with pytest.raises(ValueError, match=r"grid must be one of '', 'fisher', .*, got 'beauty'"):
        Plan(grid="beauty")


def test_a_comparison_trains_samples_scores_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    monkeypatch.setenv("BLACKOUT_CACHE", str(tmp_path / "cache"))
    numpy.savez(tmp_path / "digits.npz", x=make_digits().x[:64].numpy())
    changes = [
        "dataset=''",
        "train.steps=2",
        "train.batch_size=4",
        "train.width=8",
        "sample.num=50",
        "measure.images=8",
    ]
    spec = read_spec("digits", str(tmp_path / "digits.npz"), [*changes, "sample.steps=[2, 3]", "sample.sampler=bridge"])
    lines: list[str] = []
    first = compare(spec, tmp_path / "out", torch.device("cpu"), say=lines.append)
    assert len(first["rows"]) == 4
    assert {row["model"] for row in first["rows"]} == {"digits-softplus", "digits-bounded-logit"}
    heads, cells = table(first["rows"])
    assert heads[:3] == ["model", "bits/dim", "sampler"]
    assert all(len(row) == len(heads) for row in cells)
    for name in ("comparison.json", "comparison.md", "comparison.png", "comparison.svg"):
        assert (tmp_path / "out" / name).stat().st_size > 0
    stamp = (tmp_path / "out/cells/digits-softplus/bridge-2-0/samples.npz").stat().st_mtime_ns
    again = compare(spec, tmp_path / "out", torch.device("cpu"))
    assert again["rows"] == first["rows"]
    assert (tmp_path / "out/cells/digits-softplus/bridge-2-0/samples.npz").stat().st_mtime_ns == stamp
    other = read_spec("digits", str(tmp_path / "digits.npz"), [*changes, "train.learning_rate=0.5"])
    with pytest.raises(ValueError, match=r"holds a run that differs in learning_rate"):
        compare(other, tmp_path / "out", torch.device("cpu"))
