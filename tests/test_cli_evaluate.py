"""blackout evaluate and blackout compare."""

import json
from pathlib import Path

import numpy
import pytest

from blackout.data import make_seven_segment
from blackout.evaluation import METRICS, EvalConfig, builtin_specs
from blackout.model import DiffusionModel
from blackout.process import PureDeath
from test_cli import blackout_command, status
from test_evaluation import binomial_model
from toy_features import use_toy_features

QUICK = ["--samples=0", "--num-data=16", "--num-times=2", "--num-bound-data=4", "--steps=3"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A run of two steps on the digits, in the working directory."""
    monkeypatch.chdir(tmp_path)
    words = "train digits --width 8 --blocks 1 --batch-size 8 --steps 2 --log-every 1 --out run"
    assert status(words.split(), monkeypatch) == 0
    capsys.readouterr()
    return tmp_path


def test_a_run_is_evaluated_on_its_data_set(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(["evaluate", "run", *QUICK], monkeypatch) == 0
    shown = capsys.readouterr().out
    assert "bits/dim, test" in shown
    assert "reports/run/report.html" in shown
    assert max(map(len, shown.splitlines())) <= 80
    report = json.loads(Path("reports/run/report.json").read_text())
    assert report["data"]["name"] == "seven-segment"
    assert report["bits_per_dim"]["train"]["num_data"] == 16
    assert report["curves"]["training"]["step"] == [1, 2]
    assert report["command"].startswith("blackout evaluate run --samples=0")


def test_metrics_of_samples_and_of_held_out_data(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_toy_features(monkeypatch, run / "cache")
    words = ["--samples", "50", "--batch-size", "500"]
    assert status(["evaluate", "run", *QUICK, *words, "--out", "here"], monkeypatch) == 0
    shown = capsys.readouterr().out
    assert shown.count("real vs real:") == 4
    report = json.loads(Path("here/report.json").read_text())
    assert report["real_vs_real"]["num_samples"] == 50
    assert report["real_vs_real"]["scores"]["frechet"] < report["quality"]["scores"]["frechet"]
    assert "50 held-out data points" in Path("here/report.html").read_text()


def test_other_held_out_data(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    numpy.save("training.npy", make_seven_segment().x.numpy())
    assert status(["evaluate", "run", "--data", "training.npy", *QUICK, "--out", "there"], monkeypatch) == 0
    assert "--data holds the training data of the run, so that nothing is held out" in capsys.readouterr().err
    numpy.save("mine.npy", make_seven_segment().x[:20].numpy())
    assert status(["evaluate", "run", "--data", "mine.npy", *QUICK, "--out", "here"], monkeypatch) == 0
    assert "held out" not in capsys.readouterr().err
    report = json.loads(Path("here/report.json").read_text())
    assert report["data"]["test"] == 20
    assert report["bits_per_dim"]["train"] is None


def test_a_pretrained_model_is_evaluated_on_its_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A single data point has no standard error."""
    monkeypatch.chdir(tmp_path)
    words = ["--samples=0", "--num-data=1", "--num-times=1", "--num-bound-data=1", "--steps=2", "--out=here"]
    assert status(["evaluate", "seven-segment", *words], monkeypatch) == 0
    shown = capsys.readouterr().out
    assert "bits/dim, test" in shown
    assert "±" not in shown
    assert json.loads(Path("here/report.json").read_text())["data"]["name"] == "seven-segment"


def test_other_training_data(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numpy.save("mine.npy", make_seven_segment().x[:20].numpy())
    assert status(["evaluate", "run", "--train-data", "mine.npy", *QUICK, "--out", "here"], monkeypatch) == 0
    assert json.loads(Path("here/report.json").read_text())["data"]["train"] == 20


def test_vectors_have_no_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    x = numpy.arange(40).reshape(8, 5) % 4
    DiffusionModel.for_data(x, PureDeath(3), width=8, blocks=1).save("model")
    numpy.save("mine.npy", x)
    words = ["evaluate", "model", "--data", "mine.npy", *QUICK, "--samples", "50", "--out", "here"]
    assert status(words, monkeypatch) == 0
    report = json.loads(Path("here/report.json").read_text())
    assert report["quality"] is None
    assert report["sampling"]["num_samples"] == 50


def test_the_default_number_of_samples_follows_from_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [EvalConfig().samples_on(device) for device in ("cuda", "cpu", "mps")] == [10_000, 200, 200]
    assert [EvalConfig(num_samples=number).samples_on("cuda") for number in (0, 60)] == [0, 60]
    monkeypatch.chdir(tmp_path)
    x = numpy.arange(40).reshape(8, 5) % 4
    DiffusionModel.for_data(x, PureDeath(3), width=8, blocks=1).save("model")
    numpy.save("mine.npy", x)
    words = ["evaluate", "model", "--data", "mine.npy", *QUICK[1:], "--steps=2", "--out", "here", "--device=cpu"]
    assert status(words, monkeypatch) == 0
    assert "200 samples, the default on a CPU; --samples" in capsys.readouterr().err
    report = json.loads(Path("here/report.json").read_text())
    assert report["config"]["num_samples"] == report["sampling"]["num_samples"] == 200


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--samples", "7"], "blackout: --samples must be 0 or at least 50"),
        (["--data", "wide.npy"], "the test data must have shape (1, 8, 8)"),
        (["--data", "nowhere.npy"], "nowhere.npy"),
        (["--dataset", "imagenet"], "data set must be one of"),
        (["--dataset", "cifar10", "--data", "nowhere"], "blackout data cifar10"),
        (["--samples", "50", "--weights", "nowhere.pth"], "nowhere.pth: no such file"),
        (["--samples", "50", "--weights", "wide.npy"], "wide.npy: not a file of weights"),
        (["--features", "vgg"], "--features must be one of"),
        (["--sampler", "magic"], "sampler must be one of"),
        (["--times", "magic"], "times must be one of"),
        (["--metrics", "fid"], "metrics must be one of"),
        (["--device", "abacus"], "abacus"),
        (["--steps", "1001"], "--steps must be at most 1000"),
        (["--data", "empty", "--dataset", "mnist"], "data must hold the files of mnist"),
    ],
)
def test_errors_are_one_line(
    words: list[str], reason: str, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    numpy.save("wide.npy", numpy.zeros((4, 1, 9, 9), dtype=int))
    Path("empty").mkdir()
    assert status(["evaluate", "run", *QUICK, *words], monkeypatch) == 2
    captured = capsys.readouterr()
    assert reason in captured.err
    assert (captured.out, captured.err.count("\n")) == ("", 1)


def test_an_empty_folder_of_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    binomial_model(1)[0].save("model")
    Path("empty").mkdir()
    assert status(["evaluate", "model", "--data", "empty", *QUICK], monkeypatch) == 2
    assert "empty" in capsys.readouterr().err


def test_compare_in_a_real_process(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(
        'title = "Few"\ndataset = ""\n[train]\nrecipe = "digits"\nsteps = 2\nbatch_size = 4\nwidth = 8\nblocks = 1\n'
        '[sample]\nsampler = "bridge"\nnum_steps = [2, 3]\nnum_samples = 50\n[evaluate]\nnum_data = 4\nnum_times = 2\n'
    )
    numpy.save(tmp_path / "counts.npy", make_seven_segment().x[:60, 0, :2, :2].reshape(60, 4).numpy())
    words = ["--data", str(tmp_path / "counts.npy"), "--out", str(tmp_path / "out")]
    words += ["--set", "sample.corrector_steps=[0, 1]"]
    result = blackout_command("compare", str(tmp_path / "spec.toml"), *words)
    assert result.returncode == 0, result.stderr
    table = (tmp_path / "out" / "comparison.md").read_text()
    assert table.startswith("# Few\n")
    assert table.count("| digits |") == 4


def test_an_unknown_specification(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["compare", "nowhere"], monkeypatch) == 2
    assert "paper-table-1" in capsys.readouterr().err


def test_help_lists_specifications_metrics_and_defaults(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(["compare", "--help"], monkeypatch) == 0
    shown = "".join(capsys.readouterr().out.split())  # lines break at hyphens too
    assert all(name in shown for name in builtin_specs())
    assert status(["evaluate", "--help"], monkeypatch) == 0
    shown = "".join(capsys.readouterr().out.split())
    assert all(name in shown and METRICS.help(name).replace(" ", "") in shown for name in METRICS)
    assert "[default:(10000onCUDA,200onaCPU)]" in shown
    assert "[default:efficientnet-lite0]" in shown
