import json
import os
import shutil
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
    assert out[:2] == ["seven-segment: 2,000 of 1x8x8, states 0 to 16", classes]
    assert out[2].startswith("CPU, ")
    assert out[2].endswith("; a network of 45,825 weights")
    assert out[3] == "4 steps of 8, learning rate 0.002"
    assert out[4].startswith("memory: about ")
    assert out[5] == "runs/digits: new run"
    assert out[6].startswith("step 2/4  loss ")
    assert "  warming up  " in out[6]
    assert " bits/dim  " in out[-2]
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
    assert capsys.readouterr().out.startswith("mine: 4 of 1x8x8, states 0 to 255\n2 classes: cat, dog\n")
    assert load(Path("run")).class_names == ("cat", "dog")
    assert json.loads(Path("run/model.json").read_text())["class_names"] == ["cat", "dog"]
    assert status(["sample", "run", "--steps", "2", "--num", "2", "--class", "dog"], monkeypatch) == 0


def test_own_data_need_no_settings_and_a_run_resumes_by_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    x = numpy.random.default_rng(0).integers(0, 4, (40, 1, 8, 8))
    numpy.savez("mine.npz", x=x, labels=["cat", "dog"] * 20)
    assert status(["train", "mine.npz", "--dry-run", "--steps", "600"], monkeypatch) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[:2] == ["mine: 40 of 1x8x8, states 0 to 3", "2 classes: cat, dog"]
    assert out[3] == "600 steps of 16, learning rate 0.002"
    assert out[-1].startswith("about ")
    assert out[-1].endswith("nothing was written")
    assert status(["train", "mine.npz", "--dry-run", "--steps", "1"], monkeypatch) == 0
    assert capsys.readouterr().out.endswith("nothing was written\n")
    assert not Path("runs").exists()

    small = ["--width", "8", "--batch-size", "4"]
    assert status(["train", "mine.npz", *small, "--steps", "2"], monkeypatch) == 0
    config = TrainConfig.read(Path("runs/mine/config.json"))
    assert (config["given"], config["path"]) == ("mine.npz", str(tmp_path / "mine.npz"))
    assert (config["max_count"], config["class_conditional"], config["flip"]) == (3, True, False)
    assert status(["train", "mine.npz", *small, "--steps", "3"], monkeypatch) == 0  # the same command resumes
    monkeypatch.chdir(tmp_path / "runs")
    assert status(["train", "mine", "--steps", "4"], monkeypatch) == 0
    assert checkpoints(Path("mine")) == ["step-000000003", "step-000000004"]

    capsys.readouterr()
    Path("../mine.npz").rename("../moved.npz")
    assert status(["train", "mine", "--steps", "5"], monkeypatch) == 2
    assert "mine.npz, are not there; --data gives their new place" in capsys.readouterr().err
    assert status(["train", "mine", "--steps", "5", "--data", "../moved.npz"], monkeypatch) == 0
    assert TrainConfig.read(Path("mine/config.json"))["path"].endswith("moved.npz")
    assert status(["train", "mine", "--steps", "6", "--out", "other"], monkeypatch) == 2


def test_a_run_belongs_to_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    x = numpy.random.default_rng(0).integers(0, 4, (40, 6))
    small, labels = ["--width", "8", "--blocks", "1", "--batch-size", "4"], numpy.arange(40) % 2
    numpy.savez("x.npz", x=x, labels=labels)
    assert status(["train", "x.npz", *small, "--steps", "1"], monkeypatch) == 0
    before = {file: file.read_bytes() for file in Path("runs/x").glob("*.json")}
    for other in ({"x": x[:, :5]}, {"x": x[:39]}, {"x": x[::-1]}, {"x": x, "labels": 1 - labels}):
        numpy.savez("x.npz", **{"labels": labels[: len(other["x"])], **other})
        capsys.readouterr()
        assert status(["train", "x.npz", *small, "--steps", "2"], monkeypatch) == 2
        assert "runs/x holds a run on other data" in capsys.readouterr().err
        assert {file: file.read_bytes() for file in before} == before
    numpy.savez("x.npz", x=x.astype(numpy.uint8), labels=labels)  # the same numbers
    assert status(["train", "x.npz", *small, "--steps", "2"], monkeypatch) == 0


def test_other_files_are_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("mine")
    Path("folder").mkdir()
    Path("folder/metrics.jsonl").write_text("mine")
    assert status(["train", "digits", *TINY, "--steps", "1", "--out", "file"], monkeypatch) == 2
    assert "a run needs a folder, but file is a file" in capsys.readouterr().err
    assert status(["train", "digits", *TINY, "--steps", "1", "--out", "folder"], monkeypatch) == 2
    assert "folder holds no run, but other files, such as metrics.jsonl" in capsys.readouterr().err
    assert Path("folder/metrics.jsonl").read_text() == "mine"


def test_a_run_folder_deleted_during_the_run_is_an_error(tmp_path: Path) -> None:
    x = torch.randint(0, 4, (20, 6))
    model = bo.DiffusionModel.for_data(x, bo.PureDeath(max_count=3), width=8, blocks=1)

    def delete(report: object, trainer: object) -> None:
        shutil.rmtree(tmp_path / "run")

    with pytest.raises(OSError, match="run was deleted or moved during the run, at step 2"):
        model.fit(x, steps=2, batch_size=4, log_every=1, out=tmp_path / "run", listener=delete)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("digits --label-dropout 0.2", "--label-dropout 0.2 does nothing here: it needs --class-conditional"),
        ("digits --compile-mode max-autotune", "--compile-mode max-autotune does nothing here: it needs --compile"),
        ("digits --time-density grid --time-loc 2", "--time-loc 2.0 does nothing here"),
        ("x.npy --flip", "--flip True does nothing here: it flips images"),
        ("x.npy --data x.npy", "--data cannot be given here: x.npy is the data"),
        ("x.npy --dataset mnist", "--dataset cannot be given here"),
        ("x.npz", "'x.npz' is neither a file"),
        ("digit", "did you mean digits?"),
        ("digits --width 2", "width must be even and at least 4, got 2"),
        ("digits --width 7", "width must be even and at least 4"),
        (f"digits --width {10**40}", "width must be at most 65536"),
        ("digits --width 60000", "weights needs about"),
        (f"digits --steps {10**40}", "steps must be at most"),
        ("digits --time-loc nan", "--time-loc must be finite, got nan"),
        ("digits --dropout nan", "dropout must be finite, got nan"),
        ("digits --beta2 1", "beta2 must be less than 1, got 1.0"),
        ("digits --patch 3", "patch must divide the sides of the images, 8 and 8, got 3"),
        ("digits --batch-size 100000000", "training in batches of 100,000,000 data points of 1 x 8 x 8 needs about"),
        ("large.npy --batch-size 4096", "--image-size"),
    ],
)
def test_what_cannot_be_done_is_rejected_before_the_work(
    options: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    numpy.save("x.npy", numpy.zeros((9, 4), numpy.uint8))
    if "large" in options:
        numpy.save("large.npy", numpy.zeros((2, 3, 1024, 1024), numpy.uint8))
    assert status(["train", *options.split()], monkeypatch) == 2
    error = capsys.readouterr().err
    assert reason in error
    assert error.count("\n") == 1
    assert not Path("runs").exists()


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


def test_a_process_that_does_not_answer_a_signal_is_ended(tmp_path: Path) -> None:
    """As one whose main thread is in compiled code before the first step."""
    program = """
import signal, time
from blackout.training.signals import Watchdog
Watchdog().start()
signal.signal(signal.SIGINT, lambda *_: time.sleep(600))
signal.raise_signal(signal.SIGINT)
"""
    done = processes.run("-c", program, timeout=120)
    assert (done.returncode, done.stderr) == (130, "blackout: ended by SIGINT\n")


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
