"""Runs that start from another model (`init`), the record of the runs, and checkpoints in parts."""

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import blackout as bo
from blackout import DiffusionModel, ObservationTimes, PureDeath, load
from blackout.files import file_digest, read_json, write_json
from blackout.io import checksum
from blackout.training import loop
from blackout.training.checkpoints import Checkpoint, RunFolder
from blackout.training.initial import Start
from blackout.training.loop import Diverged
from small_runs import IMAGES, pixels
from test_cli import status

TIMES = ObservationTimes.fisher(50)
OTHER = pixels(40, 1, 8, 8, q=0.6)
QUICK: dict[str, Any] = {"batch_size": 8, "log_every": 1}
GROUPS = ("weights", "averaged", "optimizer")


def new_model(x: Tensor = IMAGES, **changes: Any) -> DiffusionModel:
    options = {"process": PureDeath(1), "times": TIMES, "width": 8, "blocks": 1, "seed": 3, **changes}
    return DiffusionModel.for_data(x, **options)


def state(model: DiffusionModel) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.predictor.state_dict().items()}


def is_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def last(run: Path) -> Checkpoint:
    return Checkpoint(RunFolder(run).checkpoints()[-1])


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 20 steps."""
    run = tmp_path_factory.mktemp("source") / "run"
    new_model(seed=0).fit(IMAGES, steps=20, learning_rate=1e-2, out=run, **QUICK)
    return run


def test_a_run_starts_with_the_averaged_weights_and_the_statistics_of_its_source(source: Path, tmp_path: Path) -> None:
    wanted = load(source)
    saved = wanted.save(tmp_path / "saved")
    x = wanted.sample(16, num_steps=20)
    assert not torch.equal(new_model(OTHER).sample(16, num_steps=20), x)
    for init in (source, saved):
        model = new_model(OTHER, dropout=0.3)
        Start.find(str(init), None, ()).load(model.predictor, model.config())
        assert is_same(state(model), state(wanted))
        assert torch.equal(model.sample(16, num_steps=20), x)
        # The same through a run, which takes a step too small to change a weight.
        begun = new_model(OTHER).fit(OTHER, init=str(init), steps=1, learning_rate=1e-30, **QUICK)
        assert torch.equal(begun.sample(16, num_steps=20), x)


def test_the_moving_average_and_bfloat16_copy_start_from_the_source(source: Path, tmp_path: Path) -> None:
    kept = new_model().fit(
        IMAGES, init=str(source), steps=1, learning_rate=1e-30, precision="bfloat16", out=tmp_path, **QUICK
    )
    wanted = load(source)
    for group in ("weights", "averaged"):
        for name, value in state(wanted).items():
            torch.testing.assert_close(last(tmp_path).tensors(group)[name], value, rtol=0, atol=1e-20)
    assert kept.record.runs[-1].precision == "bfloat16"


def test_warm_up_and_cosine_follow_the_steps_of_the_new_run(source: Path) -> None:
    rates: list[float] = []
    new_model().fit(
        IMAGES, init=str(source), steps=4, warmup=2, lr_schedule="cosine", learning_rate=1e-3, **QUICK,
        listener=lambda report, _: rates.append(report.learning_rate),
    )  # fmt: skip
    assert rates == pytest.approx([5e-4, 1e-3, 1e-3, 5e-4])


def test_a_conditional_model_starts_with_the_answers_of_an_unconditional_one(source: Path) -> None:
    wanted, model = load(source), new_model(num_classes=3)
    Start.find(str(source), None, ()).load(model.predictor, model.config())
    xt, t = IMAGES, torch.tensor(0.7)
    answer = wanted.posterior(xt, t).difference()
    for label in (None, 0, 2):
        assert torch.equal(model.posterior(xt, t, label).difference(), answer)
    labels = torch.arange(len(IMAGES)) % 3
    model.fit(IMAGES, labels, init=str(source), steps=3, learning_rate=1e-2, **QUICK)
    assert not torch.equal(model.posterior(xt, t, 0).difference(), model.posterior(xt, t, 2).difference())


@pytest.mark.parametrize("name", bo.pretrained())
def test_a_run_starts_from_every_pretrained_model(name: str) -> None:
    wanted = load(name)
    model = DiffusionModel.from_config(wanted.config())
    Start.find(name, None, ()).load(model.predictor, model.config())
    assert is_same(state(model), state(wanted))


def test_a_conditional_model_starts_from_a_pretrained_one() -> None:
    wanted, x = load("mnist-binary"), pixels(4, 1, 28, 28)
    model = new_model(x, width=48, blocks=2, num_classes=10)
    Start.find("mnist-binary", None, ()).load(model.predictor, model.config())
    answer = wanted.posterior(x, torch.tensor(0.7)).difference()
    for label in (None, 7):
        assert torch.equal(model.posterior(x, torch.tensor(0.7), label).difference(), answer)


def test_a_source_without_a_network_is_rejected(tmp_path: Path) -> None:
    new_model().save(tmp_path)
    write_json(tmp_path / "model.json", {**read_json(tmp_path / "model.json"), "network": {"kind": "ncsnpp", "x": 1}})
    with pytest.raises(ValueError, match=r"init: .* does not describe a network: network 'ncsnpp'"):
        new_model().fit(IMAGES, init=str(tmp_path), steps=1, **QUICK)


def test_vectors_become_conditional_too(tmp_path: Path) -> None:
    x = torch.randint(0, 4, (32, 5), generator=torch.Generator().manual_seed(0))
    parts: dict[str, Any] = {"process": PureDeath(3), "width": 16}
    wanted = new_model(x, **parts).fit(x, steps=5, learning_rate=1e-2, **QUICK)
    wanted.save(tmp_path)
    model = new_model(x, **parts, num_classes=2)
    Start.find(str(tmp_path), None, ()).load(model.predictor, model.config())
    t = torch.tensor(0.7)
    assert torch.equal(model.posterior(x, t, 1).difference(), wanted.posterior(x, t).difference())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"head": "softplus"}, r"head.kind \('bounded-logit' there, 'softplus' here\)"),
        ({"width": 16}, r"network.width \(8 there, 16 here\)"),
        ({"process": PureDeath(3)}, r"process.max_count \(1 there, 3 here\)"),
        ({"process": bo.Uniform(num_states=2)}, r"process.kind \('pure-death' there, 'uniform' here\)"),
        ({"time_input": "index"}, r"time_input \('logit' there, 'index' here\)"),
    ],
)
def test_other_parts_are_rejected_with_both_values(source: Path, changes: dict[str, Any], reason: str) -> None:
    model = new_model(**changes)
    before = state(model)
    with pytest.raises(ValueError, match=f"init: {source} differs from this run in.* {reason}"):
        model.fit(IMAGES, init=str(source), steps=1, **QUICK)
    assert is_same(state(model), before)
    assert model.record.runs == ()


def test_times_matter_to_a_network_that_knows_their_index(tmp_path: Path) -> None:
    new_model(time_input="index").save(tmp_path)
    other = new_model(time_input="index", times=ObservationTimes.fisher(40, t_end=12.0))
    with pytest.raises(ValueError, match=r"times \(50 up to t=15 there, 40 up to t=12 here\)"):
        other.fit(IMAGES, init=str(tmp_path), steps=1, **QUICK)
    new_model(time_input="index").fit(IMAGES, init=str(tmp_path), steps=1, **QUICK)


def test_classes_cannot_be_changed_or_dropped(tmp_path: Path) -> None:
    new_model(num_classes=3).save(tmp_path)
    labels = torch.zeros(len(IMAGES), dtype=torch.long)
    for number in (0, 4):
        with pytest.raises(ValueError, match=rf"network.num_classes \(3 there, {number} here\)"):
            new_model(num_classes=number).fit(
                IMAGES, labels if number else None, init=str(tmp_path), steps=1, **QUICK
            )  # fmt: skip


def test_weights_that_are_missing_or_of_another_shape_are_named(tmp_path: Path) -> None:
    new_model().save(tmp_path)
    (path,) = tmp_path.glob("model-*.safetensors")
    weights = load_file(path)
    del weights["network.first.bias"]
    weights["network.last.bias"] = torch.zeros(7)
    save_file(weights, path)
    description = read_json(tmp_path / "model.json")
    write_json(tmp_path / "model.json", description | {"weights": {path.name: file_digest(path)}})
    with pytest.raises(ValueError, match=r"network.first.bias is missing; network.last.bias has shape"):
        new_model().fit(IMAGES, init=str(tmp_path), steps=1, **QUICK)


def test_a_source_that_is_none_is_rejected(tmp_path: Path) -> None:
    for init, reason in (("nowhere", "init: nowhere is neither a folder nor"), (tmp_path, "init must be a name")):
        with pytest.raises(ValueError, match=reason):
            new_model().fit(IMAGES, init=init, steps=1, **QUICK)
    with pytest.raises(ValueError, match=r"init: .* holds no model: .*model\.json is missing"):
        new_model().fit(IMAGES, init=str(tmp_path), steps=1, **QUICK)
    with pytest.raises(ValueError, match="init must be '' for a model of cells"):
        bo.CountModel(init="runs/cells")


def test_a_resumed_run_does_not_need_its_source_again(source: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(source, tmp_path / "moved"))
    for run, pieces in (("whole", [{}]), ("pieces", [{"max_minutes": 1e-9}, {"max_minutes": 1e-9}, {}])):
        for piece in pieces:
            if run == "pieces" and moved.exists() and (tmp_path / run).exists():
                shutil.rmtree(moved)
            new_model(OTHER).fit(OTHER, init=str(moved), steps=4, out=tmp_path / run, **QUICK, **piece)
    whole, pieces_of = last(tmp_path / "whole"), last(tmp_path / "pieces")
    for group in GROUPS:
        assert is_same(whole.tensors(group), pieces_of.tensors(group)), group
    runs = load(tmp_path / "pieces").record.runs
    assert [(run.steps, run.init) for run in runs] == [(20, ""), (4, str(moved))]
    with pytest.raises(ValueError, match=r"init \('.*moved' there, '' here\)"):
        new_model(OTHER).fit(OTHER, steps=5, out=tmp_path / "pieces", **QUICK)


def test_the_record_names_three_generations(source: Path, tmp_path: Path) -> None:
    second = new_model(OTHER).fit(OTHER, init=str(source), steps=3, seed=5, out=tmp_path / "second", **QUICK)
    second.save(tmp_path / "saved")
    third = new_model().fit(IMAGES, init=str(tmp_path / "saved"), steps=2, loss="instantaneous", **QUICK)
    runs = load(third.save(tmp_path / "third")).record.runs
    assert runs == third.record.runs
    assert runs[:2] == second.record.runs == load(tmp_path / "second").record.runs
    assert runs[:1] == load(source).record.runs
    assert [(run.steps, run.num_data, run.loss, run.seed, run.init) for run in runs] == [
        (20, 32, "likelihood", 0, ""),
        (3, 40, "likelihood", 5, str(source)),
        (2, 32, "instantaneous", 0, str(tmp_path / "saved")),
    ]
    assert all(run.seconds > 0 and run.device.startswith("CPU") and run.version == bo.__version__ for run in runs)
    assert checksum(third.with_record(runs=())) == checksum(third)
    assert [run.recipe for run in load("seven-segment").record.runs] == ["digits"]


def test_training_goes_on_from_the_weights_of_a_loaded_model(source: Path) -> None:
    model = load(source).fit(IMAGES, steps=2, **QUICK)
    assert [run.steps for run in model.record.runs] == [20, 2]
    before = state(model), model.record.runs
    with pytest.raises(Diverged):
        model.fit(IMAGES, init=str(source), steps=20, learning_rate=1e30, checkpoint_every=1, **QUICK)
    assert is_same(state(model), before[0])
    assert model.record.runs == before[1]


def test_the_seconds_of_all_pieces_are_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        clock = itertools.count(100.0)  # every look at the clock takes a second
        monkeypatch.setattr(loop.time, "perf_counter", lambda clock=clock: next(clock))
        new_model().fit(IMAGES, steps=3, max_minutes=1e-9, out=tmp_path, **QUICK)
    seconds = [json.loads(line)["seconds"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert seconds == [seconds[0], 2 * seconds[0], 3 * seconds[0]]
    (run,) = load(tmp_path).record.runs
    assert (run.steps, run.seconds) == (3, seconds[-1]) == (last(tmp_path).step, last(tmp_path).seconds)


WIDE: dict[str, Any] = {"process": PureDeath(3), "width": 512}
COUNTS = torch.randint(0, 4, (32, 40), generator=torch.Generator().manual_seed(0))


def wide(run: Path, **changes: Any) -> DiffusionModel:
    """A run with tensors of two mebibytes."""
    return new_model(COUNTS, **WIDE, dropout=0.1).fit(COUNTS, **{"steps": 2, "out": run, **QUICK, **changes})


def test_checkpoints_in_parts_are_moved_one_by_one_and_resume_bit_for_bit(tmp_path: Path) -> None:
    wide(tmp_path / "first", part_mib=1)
    checkpoint, target = last(tmp_path / "first").path, tmp_path / "second" / "checkpoints" / "step-000000002"
    files = sorted(path.name for path in checkpoint.iterdir())
    assert {f"weights-{k:05d}-of-00013.safetensors" for k in range(1, 14)} < set(files)
    assert max((checkpoint / name).stat().st_size for name in files) <= 2**20
    target.mkdir(parents=True)
    for name in ("config.json", "model.json"):
        shutil.move(tmp_path / "first" / name, tmp_path / "second" / name)
    for name in files:
        shutil.move(checkpoint / name, target / name)
    wide(tmp_path / "second", steps=4, part_mib=0)  # and in one file again
    wide(tmp_path / "whole", steps=4)
    moved, whole = last(tmp_path / "second"), last(tmp_path / "whole")
    assert sorted(path.name for path in moved.path.iterdir()) == sorted(path.name for path in whole.path.iterdir())
    for group in GROUPS:
        assert is_same(moved.tensors(group), whole.tensors(group)), group


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    model = wide(tmp_path, part_mib=1)
    assert is_same(state(load(tmp_path)), state(model))
    for group in ("averaged", "optimizer"):
        gone = sorted(last(tmp_path).path.glob(f"{group}-*.safetensors"))[1]
        assert gone.name.startswith(f"{group}-00002-of-")
        content = gone.read_bytes()
        gone.unlink()
        with pytest.raises(ValueError, match=f"{gone} is missing"):
            wide(tmp_path, steps=4)
        gone.write_bytes(content)
    stray = last(tmp_path).path / "weights-00001-of-00001.safetensors"
    stray.touch()  # not in the manifest
    assert last(tmp_path).step == 2
    wide(tmp_path, steps=4)


def test_fine_tuning_by_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [
        "train",
        "digits",
        "--width",
        "8",
        "--blocks",
        "1",
        "--batch-size",
        "8",
        "--log-every",
        "2",
        "--steps",
        "2",
    ]
    assert status([*words, "--out", "a"], monkeypatch) == 0
    capsys.readouterr()
    second = [*words, "--init", "a", "--class-conditional", "--out", "b"]
    assert status(second, monkeypatch) == 0
    shown = "b: new run from a; network.classes.weight new and zero: labels have no effect at first"
    assert shown in capsys.readouterr().out
    assert [(run.recipe, run.dataset, run.init) for run in load("b").record.runs] == [
        ("digits", "seven-segment", ""),
        ("digits", "seven-segment", "a"),
    ]
    shutil.rmtree("a")
    assert status([*second, "--steps", "3"], monkeypatch) == 0
    assert "b: resumes from step-000000002" in capsys.readouterr().out
    assert status([*words, "--init", "b", "--out", "c"], monkeypatch) == 2
    assert "network.num_classes (10 there, 0 here)" in capsys.readouterr().err
    quick = ["--samples=0", "--num-data=4", "--num-times=2", "--num-bound-data=2", "--steps=3"]
    assert status(["evaluate", "b", *quick], monkeypatch) == 0
    assert capsys.readouterr().out.count("training run") == 2
    assert "runs.<wbr>2.<wbr>init" in Path("reports/b/report.html").read_text()
