import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy
import pytest
import torch
from PIL import Image

import blackout as bo
import processes
from blackout.io import load
from blackout.training.checkpoints import RunFolder
from blackout.training.config import TrainConfig
from test_cli import status

TINY = ["--width", "8", "--blocks", "1", "--batch-size", "8", "--log-every", "2"]


def steps_of(run: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def checkpoints(run: Path) -> list[str]:
    return [path.name for path in RunFolder(run).checkpoints()]


def test_train_resume_and_reject(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = Path("runs/digits")
    assert status(["train", "digits", *TINY, "--steps", "4"], monkeypatch) == 0
    out = capsys.readouterr().out.splitlines()
    classes = "10 classes: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 (not used without --class-conditional)"
    assert out[0].startswith(f"seven-segment: 2000 of shape (1, 8, 8); {classes}; ")
    assert out[1] == "runs/digits: new run"
    assert out[2].startswith("step 2/4  loss ")
    assert "bits/dim" in out[2]
    assert (steps_of(run), checkpoints(run)) == ([2, 4], ["step-000000004"])

    assert status(["train", "digits", *TINY, "--steps", "6"], monkeypatch) == 0
    assert "resumes from step-000000004" in capsys.readouterr().out
    assert (steps_of(run), checkpoints(run)) == ([2, 4, 6], ["step-000000004", "step-000000006"])

    assert status(["train", "digits", *TINY, "--steps", "6"], monkeypatch) == 0
    assert steps_of(run) == [2, 4, 6]

    capsys.readouterr()
    assert status(["train", "digits", *TINY, "--steps", "8", "--flip", "--seed", "1"], monkeypatch) == 2
    error = capsys.readouterr().err
    assert "flip (False there, True here), seed (0 there, 1 here)" in error
    assert "steps" not in error
    assert TrainConfig.read(run / "config.json")["steps"] == 6


def test_run_in_use_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    held = RunFolder(tmp_path / "run")
    held.acquire()
    try:
        assert status(["train", "digits", *TINY, "--steps", "2", "--out", str(held.path)], monkeypatch) == 2
    finally:
        held.release()
    assert "in use by another process" in capsys.readouterr().err


def test_time_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "digits", *TINY, "--steps", "2", "--out", str(tmp_path / "run")]
    assert status([*words, "--max-minutes", "1e-9"], monkeypatch) == 0
    assert "time is up, the same command resumes from step-000000001;" in capsys.readouterr().out
    assert status(words, monkeypatch) == 0
    assert "finished step-000000002;" in capsys.readouterr().out


def test_grids_and_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    options = ["--steps", "3", "--sampling-steps", "3", "--sample-every", "2", "--tracker", "tensorboard"]
    words = ["train", "digits", *TINY, *options, "--class-conditional", "--out", str(run)]
    assert status(words, monkeypatch) == 0
    assert [path.name for path in (run / "samples").iterdir()] == ["step-000000002.png"]
    assert load(run).num_classes == 10
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard")).Reload()
    logged = {event.step: event.value for event in events.Scalars("bits_per_dim")}
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert logged == pytest.approx({line["step"]: line["bits_per_dim"] for line in lines})


@pytest.mark.parametrize("tracker", ["tensorboard", "wandb"])
def test_a_tracker_without_its_package(
    tracker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, tracker, None)
    words = ["train", "digits", *TINY, "--steps", "2", "--tracker", tracker, "--out", str(tmp_path / "run")]
    assert status(words, monkeypatch) == 2
    assert f"pip install 'blackout-diffusion[{tracker}]'" in capsys.readouterr().err


def test_tensorboard_needs_a_folder() -> None:
    x = torch.zeros(4, 3, dtype=torch.long)
    model = bo.DiffusionModel.for_data(x, bo.PureDeath(max_count=1), width=8, blocks=1)
    with pytest.raises(ValueError, match="tracker 'tensorboard' needs a run folder: give `out`"):
        model.fit(x, steps=1, tracker="tensorboard")


def test_weights_and_biases_offline(tmp_path: Path) -> None:
    """A resumed run continues under the same identifier; nothing is sent."""
    pytest.importorskip("wandb")
    run = tmp_path / "run"
    environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": str(tmp_path)}
    for steps in ("2", "4"):
        words = ["train", "digits", *TINY, "--log-every", "1", "--tracker", "wandb", "--steps", steps, "--out", run]
        done = processes.run(*processes.COMMAND, *words, env=environment)
        assert done.returncode == 0, done.stderr
    records = [path.name for path in (run / "wandb").glob("offline-run-*/*.wandb")]
    identifier = (run / "wandb-id.txt").read_text().strip()
    assert len(records) == 2
    assert set(records) == {f"run-{identifier}.wandb"}


def test_names_of_folders_are_the_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From a folder by class to samples of a class by name."""
    monkeypatch.chdir(tmp_path)
    for k, name in enumerate(("dog", "cat", "dog", "cat")):
        Path("mine", name).mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 60 * k).save(f"mine/{name}/{k}.png")
    words = ["train", "digits", *TINY, "--max-count", "255", "--batch-size", "2", "--steps", "2", "--data", "mine"]
    assert status([*words, "--class-conditional", "--out", "run"], monkeypatch) == 0
    assert capsys.readouterr().out.startswith("mine: 4 of shape (1, 8, 8); 2 classes: cat, dog; ")
    assert load(Path("run")).class_names == ("cat", "dog")
    assert json.loads(Path("run/model.json").read_text())["class_names"] == ["cat", "dog"]
    assert status(["sample", "run", "--steps", "2", "--num", "2", "--class", "dog"], monkeypatch) == 0


def test_data_and_configuration_from_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    numpy.savez(tmp_path / "counts.npz", x=numpy.random.default_rng(0).poisson(2.0, (50, 6)))
    TrainConfig().replace(max_count=0, head="gamma-poisson", width=8, blocks=1).write(tmp_path / "mine.json")
    words = ["train", str(tmp_path / "mine.json"), "--batch-size", "8", "--steps", "2", "--out", str(tmp_path / "run")]
    assert status(words, monkeypatch) == 2
    assert "--data is needed" in capsys.readouterr().err
    assert status([*words, "--data", str(tmp_path / "counts.npz")], monkeypatch) == 0
    assert load(tmp_path / "run").shape == (6,)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[1]", "is not a configuration"),
        ('{"optimiser": {"stepz": 1}}', "optimiser.stepz is not a field of a configuration; did you mean steps?"),
        ('{"optimiser": {"steps": "1"}}', "steps must be of type int, got '1'"),
        ('{"data": {"flip": 1}}', "flip must be of type bool, got 1"),
        ("{", "is not a configuration"),
    ],
)
def test_bad_configuration_is_rejected(
    text: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.json").write_text(text)
    assert status(["train", str(tmp_path / "mine.json")], monkeypatch) == 2
    assert reason in capsys.readouterr().err


def test_diverging_run_ends_with_status_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wild = ["--head", "softplus", "--learning-rate", "1e30", "--grad-clip", "0", "--warmup", "0", "--steps", "20"]
    assert status(["train", "digits", *TINY, *wild, "--out", str(tmp_path / "run")], monkeypatch) == 1
    error = capsys.readouterr().err
    assert error.startswith("blackout: the loss is ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_stops_a_run_with_a_checkpoint(number: signal.Signals, expected: int, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["train", "digits", *TINY, "--steps", "100000", "--out", str(run)]
    with processes.Process(*processes.COMMAND, *words) as process:
        deadline = time.monotonic() + 120
        while not (run / "metrics.jsonl").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(number)
        _, error = process.communicate(timeout=60)
    assert process.returncode == expected
    assert error.startswith("blackout: stopping after this step; Ctrl-C again stops at once")
    assert f"stopped by {number.name}" in error
    assert "Traceback" not in error
    assert len(checkpoints(run)) == 1


def test_second_interrupt_does_not_wait_for_the_step(tmp_path: Path) -> None:
    program = """
import signal, sys, time
from blackout.training.loop import Trainer
def step(self, x, labels):
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    time.sleep(600)
Trainer.update = step
from blackout.cli import main
main()
"""
    words = ["train", "digits", *TINY, "--out", str(tmp_path / "run")]
    done = processes.run("-c", program, *words, timeout=120)
    assert done.returncode == 130
    assert done.stderr.endswith("blackout: interrupted\n")
    assert "Traceback" not in done.stderr


def test_failed_compilation_names_the_option_that_avoids_it(tmp_path: Path) -> None:
    numpy.savez(tmp_path / "x.npz", x=numpy.zeros((9, 4), numpy.uint8))
    words = ["train", "digits", *TINY, "--compile", "--data", str(tmp_path / "x.npz"), "--out", str(tmp_path / "run")]
    program = "from blackout.cli import main; main()"
    paths = {"CXX": str(tmp_path / "no compiler"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        env={**os.environ, **paths},
        timeout=300,
    )
    assert done.returncode == 1
    assert "--no-compile skips it" in done.stdout
    assert done.stderr.startswith("blackout: the network cannot be compiled here; use compile=False: ")
    assert done.stderr.count("\n") == 1
