"""Specifications and comparisons."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy
import pytest
import scipy.stats
import torch
from PIL import Image

from blackout.data import make_seven_segment
from blackout.evaluation import EvalConfig, builtin_specs, compare, read_spec
from blackout.evaluation.cache import Cache
from blackout.evaluation.comparison import mean_over_seeds, row, table
from blackout.evaluation.grid import cell_names
from blackout.evaluation.stages import Evaluation
from blackout.figures.record import read
from blackout.sampling import SAMPLERS
from blackout.training.config import TrainConfig
from test_evaluation import binomial_model
from test_evaluation_checks import fail
from toy_features import use_toy_features

CPU = torch.device("cpu")


class TestSpec:
    @pytest.mark.parametrize("name", builtin_specs())
    def test_builtin_specs_can_be_read(self, name: str) -> None:
        assert read_spec(name).configs

    def test_quality_of_images_against_steps_is_measured_with_three_seeds(self) -> None:
        spec = read_spec("pictures", overrides=["model=[{source='cifar10'}, {source='runs/new'}]"])
        assert spec.models == {"cifar10": "cifar10", "new": "runs/new"}
        assert spec.seeds == (0, 1, 2)
        assert [(c.num_steps, c.num_samples, c.metrics) for c in spec.configs] == [
            (steps, 10_000, ("frechet", "kernel")) for steps in (10, 25, 50, 100, 250, 1000)
        ]

    def test_lists_are_dimensions_and_tables_follow_each_other(self, tmp_path: Path) -> None:
        text = """
            [train]
            recipe = ["digits", "mnist-binary"]
            head = ["softplus", "bounded-logit"]
            [[sample]]
            sampler = ["bridge", "poisson"]
            num_steps = 10
            [[sample]]
            num_steps = [20, 30]
            corrector_steps = 2
            [evaluate]
            metrics = ["frechet", "kernel"]
            """
        (tmp_path / "spec.toml").write_text(text)
        spec = read_spec(tmp_path / "spec.toml", overrides=["sample.num_samples=70"])
        heads = ("softplus", "bounded-logit")
        assert list(spec.trainings) == [f"{n}-{h}" for n in ("digits", "mnist-binary") for h in heads]
        cells = [(c.sampler, c.num_steps, c.corrector_steps, c.num_samples) for c in spec.configs]
        first = [("bridge", 10, 0, 70), ("poisson", 10, 0, 70)]
        assert cells == [*first, ("auto", 20, 2, 70), ("auto", 30, 2, 70)]
        assert {c.metrics for c in spec.configs} == {("frechet", "kernel")}

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("", "nothing to compare"),
            ("[train]\nsteps = 3", r"this comparison trains no model: it has no \[train\] with a recipe"),
            ("[train]\nrecipe = []", "must be a name or a list of names"),
            ('[train]\nrecipe = "digits"\nstep = 3', "unknown fields: step"),
            ('[train]\nrecipe = "nothing"', "'nothing'"),
            ('[train]\nrecipe = ["cifar10-paper", "celeba64-paper"]', "image_size and split .* must be the same"),
            ('[[model]]\nname = "cifar10"', "must have a source"),
            ('[[model]]\nsource = "a"\n[[model]]\nsource = "b/a"', "labels must differ"),
            ('[[model]]\nsource = "a"\n[sample]\nsamplers = ["bridge"]', "unknown fields: samplers; choose from"),
            ('[[model]]\nsource = "a"\n[evaluate]\nimages = 3', r"\[evaluate\] has unknown fields: images"),
            ('[[model]]\nsource = "a"\n[sample]\nsampler = ["magic"]', "sampler must be one of"),
            ('[[model]]\nsource = "a"\n[sample]\nnum_samples = 3', "at least 50"),
            ("model = 3", "model must be a list"),
            ("sample = 3", "sample must be a dict or a list"),
            ('sample = []\n[[model]]\nsource = "a"', r"or several \[\[sample\]\]"),
            ("models = 3", "unknown fields: models"),
            ("title = ", "cannot be read"),
            ('title = ""\n[[model]]\nsource = "a"', "title must be one line of text, got ''"),
            ('dataset = "digitz"\n[[model]]\nsource = "a"', "data set must be one of cifar10, .*, got 'digitz'"),
            ('[[model]]\nsource = "a"\n[sample]\nnum_steps = []', "num_steps must not be an empty list"),
            ('[train]\nrecipe = "digits"\nhead = []', "head must not be an empty list"),
            ('[train]\nrecipe = "digits"\nhead = ["softplus", "hat"]', "head must be one of"),
            ('[[model]]\nsource = "a"\n[sample]\nnum_steps = [5, 5]', "num_steps must not have the same value twice"),
            ('[[model]]\nsource = "a"\n[[sample]]\nnum_steps = [5, 6]\n[[sample]]\nnum_steps = 6', "got twice"),
            ('[[model]]\nsource = "a"\n[sample]\nnum_samples = 0', "num_samples must be at least 50, .*got 0"),
            ('[[model]]\nsource = "a"\nlabel = ".."', "label must be text, and not only dots, got '..'"),
            ('[[model]]\nsource = "a"\nlabel = [1]', r"label must be text, .*got \[1\]"),
            ('seeds = []\n[[model]]\nsource = "a"', r"seeds must be different integers, at least one, got \[\]"),
            ('seeds = [1, 1]\n[[model]]\nsource = "a"', r"seeds must be different integers, .*got \[1, 1\]"),
            ('seeds = [-1]\n[[model]]\nsource = "a"', "seeds must be at least 0, got -1"),
            ('seeds = [0, 1]\n[train]\nrecipe = "digits"\nseed = 3', r"seed of \[train\] must not be given beside .*3"),
            ('seeds = [0]\n[[model]]\nsource = "a"\n[evaluate]\nseed = 3', r"seed of \[evaluate\] must not be given"),
            ("[[model]]\nsource = 3", "source of a .* must be a name or a folder, got 3"),
        ],
    )  # fmt: skip
    def test_errors_name_the_file_and_the_reason(self, text: str, reason: str, tmp_path: Path) -> None:
        (tmp_path / "spec.toml").write_text(text)
        with pytest.raises(ValueError, match=rf"spec\.toml.*{reason}"):
            read_spec(tmp_path / "spec.toml")

    def test_a_missing_file_names_the_builtin_specs(self) -> None:
        with pytest.raises(ValueError, match=r"spec must be a TOML file or one of .*paper-table-1.*got 'nowhere.toml'"):
            read_spec("nowhere.toml")

    @pytest.mark.parametrize("override", ["train.steps", "=3", "a.b.c=1", "title.x=1"])
    def test_bad_overrides(self, override: str) -> None:
        with pytest.raises(ValueError, match="overrides must"):
            read_spec("digits", overrides=[override])


def write_spec(folder: Path, text: str) -> Path:
    binomial_model(1)[0].save(folder / "model")
    numpy.save(folder / "mine.npy", binomial_model(80)[1].x.numpy())
    head = f'dataset = ""\ndata = "{folder}/mine.npy"\n'
    (folder / "spec.toml").write_text(head + text.replace("MODEL", f'[[model]]\nsource = "{folder}/model"'))
    return folder / "spec.toml"


SMALL = "MODEL\n[evaluate]\nnum_data = 8\nnum_times = 2\n"


class TestCompare:
    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ('MODEL\n[[model]]\nsource = "nowhere"\n[sample]\nnum_steps = 2', "^nowhere: nowhere "),
            ('MODEL\n[sample]\nsampler = ["bridge", "posterior"]\nnum_steps = 2', "model: PosteriorBridge needs"),
            ("MODEL\n[sample]\nnum_steps = [2, 5000]", "model: num_steps must be at most 100"),
            ("MODEL\n[sample]\nnum_steps = 2\nnum_samples = 50", "at least 50 data points to compare with, got 20"),
            (
                'MODEL\n[train]\nrecipe = "digits"\nmax_count = [16, 1]\n[sample]\nnum_steps = 2',
                "digits-1: max_count must be at least 3",
            ),
        ],
    )
    def test_all_cells_are_checked_first(self, text: str, reason: str, tmp_path: Path) -> None:
        spec = read_spec(write_spec(tmp_path, text))
        if "got 20" in reason:
            numpy.save(tmp_path / "mine.npy", binomial_model(20)[1].x.numpy())
        with pytest.raises(ValueError, match=reason):
            compare(spec, tmp_path / "out", CPU, progress=fail, log=fail)
        assert not (tmp_path / "out").exists()

    def test_training_sampling_and_metrics(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        use_toy_features(monkeypatch, tmp_path / "cache")
        numpy.savez(tmp_path / "digits.npz", x=make_seven_segment().x[:64].numpy())
        changes = ["dataset=''", "train.steps=2", "train.batch_size=4", "train.width=8", "train.blocks=1"]
        changes += ["sample.num_samples=50", "evaluate.num_data=8"]
        more = ["sample.num_steps=[2, 3]", "sample.sampler=bridge"]
        spec, lines = read_spec("digits", str(tmp_path / "digits.npz"), [*changes, *more]), []
        first = compare(spec, tmp_path / "out", CPU, log=lines.append)
        assert len(first["rows"]) == 4
        assert {row["model"] for row in first["rows"]} == {"digits-softplus", "digits-bounded-logit"}
        assert lines[-1].startswith("digits-bounded-logit, bridge-3-0: frechet ")
        heads, cells = table(first["rows"])
        assert heads[:4] == ["model", "bits/dim", "bound", "sampler"]
        assert {row[heads.index("bound")] for row in cells} == {"steps", "continuous"}  # of softplus, of the other
        assert all(len(row) == len(heads) for row in cells)
        for name in ("comparison.json", "comparison.md", "comparison.png", "comparison.svg"):
            assert (tmp_path / "out" / name).stat().st_size > 0
        samples = tmp_path / "out/cells/digits-softplus/bridge-2-0/samples.npz"
        stamp = samples.stat().st_mtime_ns
        assert compare(spec, tmp_path / "out", CPU)["rows"] == first["rows"]
        assert samples.stat().st_mtime_ns == stamp
        other = read_spec("digits", str(tmp_path / "digits.npz"), [*changes, "train.learning_rate=0.5"])
        with pytest.raises(ValueError, match="learning_rate"):
            compare(other, tmp_path / "out", CPU)

    def test_numbers_of_samples_have_their_own_folders_and_column(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        use_toy_features(monkeypatch, tmp_path / "cache")
        cells = ((2, 50), (2, 60), (3, 60))
        samples = "".join(f"[[sample]]\nnum_steps = {s}\nnum_samples = {n}\n" for s, n in cells)
        spec = read_spec(write_spec(tmp_path, SMALL + samples))
        assert cell_names(spec.configs) == ["auto-2-0-50", "auto-2-0-60", "auto-3-0"]
        compare(spec, tmp_path / "out", CPU)
        assert len(list((tmp_path / "out").rglob("samples.npz"))) == 3
        record = json.loads((tmp_path / "out" / "record.json").read_text())
        assert record["columns"][-1] == "samples"
        assert [row[-1] for row in record["rows"]] == [50, 60, 60]
        assert record["note"].startswith("Samples as in the table.")

    def test_rows_are_means_over_the_seeds(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        use_toy_features(monkeypatch, tmp_path / "cache")
        file, seeds = write_spec(tmp_path, SMALL + "[sample]\nnum_steps = [2, 3]\nnum_samples = 50"), [4, 5, 7]
        single = [
            compare(read_spec(file, overrides=[f"evaluate.seed={seed}"]), tmp_path / f"{seed}", CPU)["rows"]
            for seed in seeds
        ]
        lines: list[str] = []
        result = compare(read_spec(file, overrides=[f"seeds={seeds}"]), tmp_path / "all", CPU, log=lines.append)
        assert lines[-1].startswith("model, auto-3-0, seed 7: frechet ")
        assert (result["seeds"], len(result["models"]), len(result["rows"])) == (seeds, 1, 2)
        for k, mean in enumerate(result["rows"]):
            assert mean["num_steps"] == k + 2
            for name, number in (("frechet", lambda cell: cell), ("kernel", lambda cell: cell["value"])):
                values = numpy.array([number(rows[k][name]) for rows in single])
                assert mean[name]["value"] == pytest.approx(values.mean())
                assert mean[name]["error"] == pytest.approx(scipy.stats.sem(values))
                assert mean[name]["error"] > 0
            errors = [rows[k]["bits_per_dim"]["error"] for rows in single]
            assert mean["bits_per_dim"]["error"] >= numpy.mean(errors) > 0  # all seeds have the same data points
        record = json.loads((tmp_path / "all" / "record.json").read_text())
        assert record["seed"] == seeds
        assert record["note"].endswith("Means and standard errors over 3 seeds.")
        assert {"value", "error"} == set(record["rows"][0][record["columns"].index("Fréchet")])
        assert json.loads((tmp_path / "4" / "record.json").read_text())["note"].endswith(
            "One seed: its spread over seeds is not known."
        )

    def test_every_seed_is_a_training(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        use_toy_features(monkeypatch, tmp_path / "cache")
        numpy.savez(tmp_path / "digits.npz", x=make_seven_segment().x[:64].numpy())
        changes = ["dataset=''", "train.steps=1", "train.batch_size=4", "train.width=8", "train.blocks=1"]
        changes += ["train.head=softplus", "sample.num_samples=50", "sample.sampler=bridge", "sample.num_steps=2"]
        spec = read_spec("digits", str(tmp_path / "digits.npz"), [*changes, "evaluate.num_data=8", "seeds=[0, 3]"])
        result = compare(spec, tmp_path / "out", CPU)
        runs = sorted((tmp_path / "out/runs").iterdir())
        assert [run.name for run in runs] == ["digits-seed-0", "digits-seed-3"]
        assert [TrainConfig.read(run / "config.json")["seed"] for run in runs] == [0, 3]
        assert len({model["checksum"] for model in result["models"]}) == 2
        assert [row["model"] for row in result["rows"]] == ["digits"]
        assert compare(spec, tmp_path / "out", CPU)["rows"] == result["rows"]

    def test_the_first_row_is_real_vs_real(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        use_toy_features(monkeypatch, tmp_path / "cache")
        for split, number in (("train", 70), ("test", 52)):
            (tmp_path / "own" / split).mkdir(parents=True)
            for k, x in enumerate(make_seven_segment(split=split).x[:number, 0, :4, :4].clamp(max=3).numpy()):
                Image.fromarray(x.astype("uint8")).save(tmp_path / "own" / split / f"{k}.png")
        text = SMALL + "[sample]\nnum_steps = 2\nnum_samples = 60"
        result = compare(read_spec(write_spec(tmp_path, text), str(tmp_path / "own")), tmp_path / "out", CPU)
        assert [row["num_samples"] for row in result["rows"]] == [52, 60]
        assert result["rows"][0]["model"] == "real vs real"
        assert (result["data"]["train"], result["data"]["test"]) == (70, 52)

    def test_the_record_of_one_data_point_can_be_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        use_toy_features(monkeypatch, tmp_path / "cache")
        text = SMALL + "[sample]\nnum_steps = 2\nnum_samples = 50"
        spec = read_spec(write_spec(tmp_path, text), None, ["evaluate.num_data=1"])
        result = compare(spec, tmp_path / "out", CPU)
        assert result["rows"][0]["bits_per_dim"]["error"] is None
        (tmp_path / "records").mkdir()
        (tmp_path / "out" / "record.json").rename(tmp_path / "records" / "one.json")
        (record,) = read(tmp_path / "records")
        assert float(record.rows[0][1]) == pytest.approx(result["rows"][0]["bits_per_dim"]["value"])
        assert record.note.startswith("50 samples per row.")


@pytest.mark.parametrize(
    ("name", "labels", "samplers", "correctors", "num_samples"),
    [
        ("paper-table-1", ["cifar10-paper", "cifar10-paper-finite"], ["bridge-nearest", "poisson"], 0, 50_000),
        ("paper-correctors", ["cifar10-paper"], ["bridge-nearest", "poisson"], 2, 50_000),
        ("paper-mnist", ["mnist-binary-paper"], ["poisson"], 0, 60_000),
        ("paper-celeba", ["celeba64-paper"], ["poisson", "bridge-nearest"], 0, 50_000),
    ],
)
def test_settings_of_the_paper(
    name: str, labels: list[str], samplers: list[str], correctors: int, num_samples: int
) -> None:
    """The Poisson leaps of the authors' code have the mean y r, those of step="finite"."""
    spec = read_spec(name)
    assert [*spec.trainings, *spec.models] == labels
    cells = [(c.sampler, c.num_steps, c.corrector_steps, c.num_samples, c.times, c.dropout) for c in spec.configs]
    assert cells == [(sampler, 1000, correctors, num_samples, "", True) for sampler in samplers]
    assert {c["num_times"] for c in spec.trainings.values()} <= {1000}
    assert SAMPLERS.make("poisson").step_rule == "finite"
    assert SAMPLERS.make("bridge-nearest").rounding == "nearest"
    assert spec.reading == {"paper-mnist": {"size": 32}, "paper-celeba": {"train_split": "all"}}.get(name, {})


@pytest.mark.parametrize(
    ("name", "max_count", "shape"),
    [("paper-table-1", 255, (3, 32, 32)), ("paper-mnist", 1, (1, 32, 32)), ("paper-celeba", 255, (3, 64, 64))],
)
def test_the_papers_experiments_in_small(
    name: str, max_count: int, shape: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_toy_features(monkeypatch, tmp_path / "cache")
    x = torch.randint(0, max_count + 1, (50, *shape), generator=torch.Generator().manual_seed(0))
    numpy.save(tmp_path / "mine.npy", x.numpy())
    less = ["sample.num_steps=2", "sample.num_samples=50", "evaluate.num_data=2", "evaluate.num_times=1"]
    run = ["train.steps=1", "train.batch_size=2", "train.width=8", "train.blocks=1", "train.compile=false"]
    spec = read_spec(name, str(tmp_path / "mine.npy"), ["dataset=''", *less, *run])
    rows = compare(spec, tmp_path / "out", CPU)["rows"]
    assert [row["sampler"] for row in rows] == [c.sampler for c in spec.configs] * len(spec.trainings)
    assert all(row["frechet"] > 0 and row["dropout"] == "on" for row in rows)
    if name == "paper-table-1":
        source = f"model=[{{source='{tmp_path}/out/runs/cifar10-paper'}}]"
        spec = read_spec("paper-correctors", str(tmp_path / "mine.npy"), ["dataset=''", *less, source])
        rows = compare(spec, tmp_path / "correctors", CPU)["rows"]
        assert [(row["model"], row["corrector_steps"]) for row in rows] == [("cifar10-paper", 2)] * 2


def test_bits_that_are_infinite_for_a_seed_have_no_mean() -> None:
    scores = {"scores": {"frechet": 2.0}}
    sampling = {"sampler": "bridge", "num_steps": 3, "corrector_steps": 0, "times": None, "num_samples": 50}
    sampling |= {"dropout": False}
    rows = [
        row(
            "a",
            {"mean": bits, "standard_error": 0.5, "bound": "steps", "infinite": 0.25 if bits is None else 0.0},
            sampling | {"samples_per_second": speed},
            scores,
        )
        for bits, speed in ((1.0, 10.0), (None, None))
    ]
    mean = mean_over_seeds(rows)
    assert mean["bits_per_dim"] == "infinite"
    assert table([mean])[1][0][1] == "infinite"
    assert mean["frechet"] == {"value": 2.0, "error": 0.0}
    assert mean["samples_per_second"] == 10.0
    assert mean_over_seeds(rows[:1]) == rows[0]


def test_sampling_times_follow_the_rule(tmp_path: Path) -> None:
    model, _, _ = binomial_model()
    rows: list[dict[str, Any]] = []
    base = EvalConfig(num_samples=50, num_steps=3)
    configs = [base, dataclasses.replace(base, times="length"), dataclasses.replace(base, times="fisher")]
    for config, cell in zip(configs, cell_names(configs), strict=True):
        run = Evaluation(model, config, Cache(tmp_path / cell), tmp_path / cell / "samples.npz", lambda *_: None)
        bits = {"mean": 1.0, "standard_error": 0.1, "bound": "continuous", "infinite": 0.0}
        rows.append(row("a", bits, run.sample()))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["auto-3-0", "auto-3-0-fisher", "auto-3-0-length"]
    samples = [numpy.load(tmp_path / cell / "samples.npz")["x"] for cell in cell_names(configs)]
    assert numpy.array_equal(samples[0], samples[1])  # the default in few steps
    assert not numpy.array_equal(samples[0], samples[2])
    heads, cells = table(rows)
    assert "dropout" not in heads
    assert [row[heads.index("times")] for row in cells] == ["–", "length", "fisher"]
