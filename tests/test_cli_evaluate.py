"""blackout evaluate and blackout compare, as a user calls them."""

import json
from pathlib import Path

import numpy
import pytest

from blackout.data import make_digits
from blackout.evaluation.all import shipped_specs
from test_cli import blackout_command, status
from test_samples import count_model, picture_model
from toy_features import use_toy_features

QUICK = ["--samples", "0", "--images", "16", "--times", "2", "--bound-images", "4", "--steps", "3"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A run of two steps on the digits, in the working directory."""
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
        "--steps",
        "2",
        "--log-every",
        "1",
    ]
    assert status([*words, "--out", "run"], monkeypatch) == 0
    capsys.readouterr()
    return tmp_path


def test_a_run_is_measured_on_its_own_data(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(["evaluate", "run", *QUICK], monkeypatch) == 0
    shown = capsys.readouterr().out
    assert "bits/dim, test" in shown
    assert "reports/run/report.html" in shown
    assert max(map(len, shown.splitlines())) <= 80
    report = json.loads(Path("reports/run/report.json").read_text())
    assert report["data"]["name"] == "digits"
    assert report["bits_per_dim"]["train"]["images"] == 16
    assert report["curves"]["training"]["step"] == [1, 2]
    assert report["command"].startswith("blackout evaluate run --samples 0")


def test_held_out_data_is_scored_beside_the_samples(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_toy_features(monkeypatch, run / "cache")
    words = ["--samples", "50", "--batch-size", "500"]
    assert status(["evaluate", "run", *QUICK, *words, "--out", "here"], monkeypatch) == 0
    shown = capsys.readouterr().out
    assert shown.count("held-out data:") == 4
    report = json.loads(Path("here/report.json").read_text())
    assert report["floor"]["num_samples"] == 50
    assert report["floor"]["frechet"] < report["quality"]["frechet"]
    assert "Of 50 held-out data points" in Path("here/report.html").read_text()


def test_held_out_data_of_ones_own(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numpy.save("mine.npy", make_digits().x[:20].numpy())
    assert status(["evaluate", "run", "--data", "mine.npy", *QUICK, "--out", "here"], monkeypatch) == 0
    report = json.loads(Path("here/report.json").read_text())
    assert report["data"]["test"] == 20
    assert report["bits_per_dim"]["train"] is None


def test_a_model_that_ships_is_measured_on_the_data_it_was_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With one image of each, which has no error: none is made up."""
    monkeypatch.chdir(tmp_path)
    words = ["--samples", "0", "--images", "1", "--times", "1", "--bound-images", "1", "--steps", "2", "--out", "here"]
    assert status(["evaluate", "seven-segment", *words], monkeypatch) == 0
    shown = capsys.readouterr().out
    assert "bits/dim, test" in shown
    assert "±" not in shown
    assert json.loads(Path("here/report.json").read_text())["data"]["name"] == "digits"


def test_training_data_of_ones_own_is_used(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numpy.save("mine.npy", make_digits().x[:20].numpy())
    assert status(["evaluate", "run", "--train-data", "mine.npy", *QUICK, "--out", "here"], monkeypatch) == 0
    assert json.loads(Path("here/report.json").read_text())["data"]["train"] == 20


def test_vectors_have_likelihoods_but_no_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = count_model()
    model.save("model")
    numpy.save("mine.npy", numpy.ones((8, *model.shape), dtype=int))
    words = ["evaluate", "model", "--data", "mine.npy", *QUICK, "--samples", "50", "--out", "here"]
    assert status(words, monkeypatch) == 0
    report = json.loads(Path("here/report.json").read_text())
    assert report["quality"] is None
    assert report["sampling"]["num"] == 50


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--samples", "7"], "samples must be 0, for none, or at least 50"),
        (["--data", "wide.npy"], "the test data must have shape (1, 8, 8)"),
        (["--data", "nowhere.npy"], "nowhere.npy"),
        (["--dataset", "imagenet"], "--dataset must be one of"),
        (["--dataset", "cifar10", "--data", "nowhere"], "blackout data cifar10"),
        (["--samples", "50", "--weights", "nowhere.pth"], "nowhere.pth: no such file"),
        (["--samples", "50", "--weights", "wide.npy"], "wide.npy: not a file of weights"),
        (["--features", "vgg"], "features must be one of"),
        (["--sampler", "walk"], "sampler must be one of"),
        (["--device", "abacus"], "abacus"),
        (["--steps", "1001"], "steps must be at most 1000"),
        (["--data", "empty", "--dataset", "mnist"], "empty holds neither the files of mnist"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_line(
    words: list[str], reason: str, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    numpy.save("wide.npy", numpy.zeros((4, 1, 9, 9), dtype=int))
    Path("empty").mkdir()
    assert status(["evaluate", "run", *QUICK, *words], monkeypatch) == 2
    captured = capsys.readouterr()
    assert reason in captured.err
    assert (captured.out, captured.err.count("\n")) == ("", 1)


def test_an_empty_folder_of_data_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    picture_model().save("model")
    Path("empty").mkdir()
    assert status(["evaluate", "model", "--data", "empty", *QUICK], monkeypatch) == 2
    assert "empty" in capsys.readouterr().err


def test_compare_in_a_real_process(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(
        'title = "Few"\ndataset = ""\n[train]\nrecipe = "digits"\nsteps = 2\nbatch_size = 4\nwidth = 8\nblocks = 1\n'
        '[sample]\nsampler = "bridge"\nsteps = [2, 3]\nnum = 50\n[measure]\nimages = 4\ntimes = 2\n'
    )
    numpy.save(tmp_path / "counts.npy", make_digits().x[:60, 0, :2, :2].reshape(60, 4).numpy())
    words = [
        "--data",
        str(tmp_path / "counts.npy"),
        "--out",
        str(tmp_path / "out"),
        "--set",
        "sample.correctors=[0, 1]",
    ]
    result = blackout_command("compare", str(tmp_path / "spec.toml"), *words)
    assert result.returncode == 0, result.stderr
    table = (tmp_path / "out" / "comparison.md").read_text()
    assert table.startswith("# Few\n")
    assert table.count("| digits |") == 4


def test_a_specification_that_is_none_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(["compare", "nowhere"], monkeypatch) == 2
    assert "paper-table-1" in capsys.readouterr().err


def test_help_names_every_specification_that_ships() -> None:
    shown = "".join(blackout_command("compare", "--help").stdout.split())  # lines break at hyphens too
    assert all(name in shown for name in shipped_specs())
