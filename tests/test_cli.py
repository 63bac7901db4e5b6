import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import typer

import blackout
import processes
from blackout.cli import main
from blackout.cli.options import device_by_name
from blackout.cli.progress import measuring_bar, resumable
from blackout.cli.tables import print_table
from blackout.data import DATASETS, Source, make_seven_segment
from blackout.recipes import RECIPES, recipe
from blackout.sampling import SAMPLERS
from blackout.times import TIME_RULES
from blackout.training.config import TrainConfig
from blackout.training.signals import Stopped

ROOT = Path(__file__).parent.parent
COMMANDS = [
    (),
    *((name,) for name in ("train", "sample", "times", "evaluate", "compare", "figures", "recipes", "data", "web")),
]


def blackout_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return processes.run(*processes.COMMAND, *arguments)


def status(arguments: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit status of a command in this very process, which has torch loaded already."""
    monkeypatch.setattr(sys, "argv", ["blackout", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


def test_version() -> None:
    result = blackout_command("--version")
    assert (result.returncode, result.stdout.strip()) == (0, f"blackout {blackout.__version__}")


def test_output_in_ascii_if_the_stream_has_nothing_else() -> None:
    program = "from blackout.cli import app, main; app.command('print')(lambda: print('Fréchet 3 ± 1 – ∞')); main()"
    command = [sys.executable, "-c", program, "print"]
    result = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (result.returncode, result.stdout, result.stderr) == (0, b"Frechet 3 +- 1 - ?\n", b"")


def test_help_of_every_command_imports_no_heavy_library() -> None:
    program = f"""
import sys
from blackout.cli import app
for command in {[*COMMANDS, ("train", "digits")]}:
    app([*command, "--help"], standalone_mode=False)
print(*sys.modules)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    heavy = {"torch", "numpy", "scipy", "accelerate", "safetensors", "matplotlib", "PIL", "tensorboard", "pooch"}
    assert not heavy & set(result.stdout.splitlines()[-1].split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_recipes_models_and_samplers(tmp_path: Path) -> None:
    """The script of `--show-completion`, in a shell; the words come without torch."""
    program = tmp_path / "blackout"
    code = "import sys; from blackout.cli import main; sys.modules['torch'] = None; main()"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{code}" "$@"\n')
    program.chmod(0o700)
    lines = [
        ["sample", "mn"],
        ["train", "dig"],
        ["sample", "x", "--sampler", "posterior"],
        ["train", "x", "--loss", "fi"],
    ]
    script = ['eval "$(_BLACKOUT_COMPLETE=source_bash blackout)"']
    for words in lines:
        script.append(f"COMP_WORDS=(blackout {' '.join(words)}); COMP_CWORD={len(words)}")
        script.append('_blackout_completion blackout; echo "${COMPREPLY[*]}"')
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    command = ["bash", "--norc", "-c", "\n".join(script)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split() == ["mnist-binary", "digits", "posterior", "finite_time"], done.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_fits_a_terminal(
    command: Sequence[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status([*command, "--help"], monkeypatch) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Usage: blackout")
    assert max(map(len, lines)) <= 80


def test_help_of_train_shows_every_field_with_the_default_of_the_recipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, config in ((["train"], TrainConfig()), (["train", "digits"], recipe("digits"))):
        assert status([*words, "--help"], monkeypatch) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert all(name in text.replace("- ", "-") for name in DATASETS)
        for name, (_, field) in TrainConfig.fields().items():
            if field.metadata.get("noted"):
                continue
            option = f"--{name.replace('_', '-')} "
            assert option in text
            after = text.partition(option)[2].partition(" --")[2 if field.type is bool else 0]
            after = after.replace("- ", "-")  # where the line is broken
            value = config[name]
            if field.type is bool:
                value = name.replace("_", "-") if value else "no-" + name.replace("_", "-")
            if value != "":
                assert f"[default: {value}]" in after, name


def test_every_option_of_sample_has_a_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(["sample", "-h"], monkeypatch) == 0
    text = " ".join(capsys.readouterr().out.split())
    defaults = {
        "num": "(64, or 8 of each class)",
        "steps": "(250, or the recipe's)",
        "sampler": "auto",
        "correctors": 0,
        "seed": 0,
        "batch-size": 64,
    }
    defaults |= {
        "out": "(samples.png; text: the terminal; other data: samples.npz; volumes: volumes.npz)",
        "trajectory": "(none)",
    }
    defaults |= {"device": "auto"}
    defaults |= {"label": "(none)", "guidance": "1.0", "known": "(none)", "mask": "(none)", "volume": "(none)"}
    defaults |= {"no-dropout": "(off, or the recipe's)"}
    defaults |= {
        "resample": "(7; masked diffusion: 0)",
        "times": "(fitted up to 64 steps, if the model has such times; else length below its number of times)",
    }
    for name, default in defaults.items():
        assert f"[default: {default}]" in text.partition(f" --{name} ")[2].partition(" --")[0]
    for name in (*SAMPLERS, *TIME_RULES):
        assert name in text.replace("- ", "-")


def test_recipes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["recipes"], monkeypatch) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(RECIPES)
    assert status(["recipes", "digits"], monkeypatch) == 0
    assert TrainConfig.from_dict(json.loads(capsys.readouterr().out)) == recipe("digits")


def test_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["data"], monkeypatch) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(DATASETS)
    assert status(["data", "seven-segment", "--to", str(tmp_path)], monkeypatch) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "seven-segment, train: 2,000 of 1x8x8, states 0 to 16, 10 classes: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9"


def test_new_data_set_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    DATASETS.add("mine", Source(read=make_seven_segment), "digits once more")
    try:
        assert status(["data"], monkeypatch) == 0
        assert "mine                  digits once more" in capsys.readouterr().out
        assert status(["data", "mine"], monkeypatch) == 0
        assert "mine, test: 500 of 1x8x8" in capsys.readouterr().out
        words = ["train", "digits", "--dataset", "mine", "--width", "8", "--batch-size", "2", "--steps", "1"]
        assert status([*words, "--out", str(tmp_path / "run")], monkeypatch) == 0
    finally:
        DATASETS.remove("mine")


@pytest.mark.parametrize(
    ("command", "expected", "reason"),
    [
        ("nonsense", 2, "No such command 'nonsense'"),
        ("sample", 2, "Missing argument 'RUN_OR_NAME'"),
        ("sample nowhere", 2, "nowhere is neither a folder nor a pretrained model"),
        ("sample nowhere --sampler magic", 2, "'--sampler': must be one of auto, bridge,"),
        ("sample nowhere --device magic", 2, "device must be"),
        ("sample nowhere --num many", 2, "'--num'"),
        ("sample nowhere --times magic", 2, "'--times': must be one of fisher,"),
        ("recipes nothing", 2, "recipe must be one of"),
        ("train nothing", 2, "'nothing' is neither a file or folder nor the name of a data set (`blackout data` lists"),
        ("sample seven-segment --steps 0", 2, "steps must be at least 1, got 0"),
        ("train nothing.json", 2, "nothing.json is not a configuration"),
        ("train " + "a" * 300, 2, "File name too long"),
        ("train digits --magic 1", 2, "--magic"),
        ("train digits --steps 0", 2, "steps must be at least 1, got 0"),
        ("train digits --steps some", 2, "'--steps'"),
        ("train digits --loss magic", 2, "loss must be one of"),
        ("train digits --head magic", 2, "head must be one of"),
        ("train digits --preset magic", 2, "preset must be one of"),
        ("train digits --ema 1", 2, "ema must be less than 1, got 1.0"),
        ("train digits --learning-rate nan", 2, "blackout: --learning-rate must be finite"),
        ("train digits --max-count 3", 2, "blackout: --max-count must be at least 16"),
        ("train digits --image-size 16", 2, "size is not an option"),
        ("train digits --data nowhere", 2, "--data: nowhere does not exist"),
        ("train cifar10", 2, "`blackout data cifar10` downloads it"),
        ("data magic", 2, "data set must be one of"),
        ("data celeba64", 2, "cannot be downloaded automatically"),
    ],
)
def test_bad_input_ends_with_one_line(
    command: str,
    expected: int,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert status(command.split(), monkeypatch) == expected
    error = capsys.readouterr().err
    assert reason in error
    assert error.startswith("blackout: ")
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("bad value"), 2),
        (FileNotFoundError(2, "No such file", "x"), 2),
        (OSError(28, "No space left on device", "x"), 1),
        (ConnectionError("cannot reach"), 1),
        (ModuleNotFoundError("no matplotlib"), 1),
        (RuntimeError("out of\nmemory"), 1),
        (KeyboardInterrupt(), 130),
    ],
    ids=lambda value: type(value).__name__,
)
def test_exit_status_of_failures(
    error: BaseException, expected: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(name: str) -> None:
        raise error

    monkeypatch.setattr("blackout.recipes.recipe", fail)
    assert status(["recipes", "digits"], monkeypatch) == expected
    assert capsys.readouterr().err.count("\n") <= 1


def test_process_ends_with_the_status_and_no_traceback() -> None:
    result = blackout_command("nonsense")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "blackout: No such command 'nonsense'.\n"


def test_table_drops_columns_that_do_not_fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    heads, rows = ["model", "steps", "recall", "kernel"], [["a" * 20, "10", "0.5", "0.1 ± 0.2"]]
    for width, dropped in ((80, []), (42, ["recall"]), (30, ["recall", "kernel"]), (10, ["recall", "kernel"])):
        monkeypatch.setenv("COLUMNS", str(width))
        assert print_table(heads, rows, ("recall", "images/s", "kernel")) == dropped
        first = capsys.readouterr().out.splitlines()[0]
        assert not set(dropped) & set(first.split())
    monkeypatch.setenv("COLUMNS", "80")
    assert print_table(heads, rows) == []


def test_without_a_terminal_a_line_is_written_after_three_seconds_and_every_half_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 1.0, 5.0, 34.0, 40.0])
    monkeypatch.setattr("blackout.cli.progress.time.monotonic", lambda: next(clock))
    with measuring_bar() as report:
        for k in range(4):
            report("bits/dim", k, 4)
    assert capsys.readouterr().err == (
        "bits/dim: 1/4, 4 s/item, 12 seconds left\nbits/dim: 3/4, 13 s/item, 13 seconds left\n"
    )


@pytest.mark.parametrize(("ended", "code"), [(KeyboardInterrupt(), 130), (Stopped(15), 143), (Stopped(2), 130)])
def test_interrupted_work_reports_that_it_resumes(
    ended: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as stopped, resumable(), measuring_bar():
        raise ended
    assert stopped.value.exit_code == code
    assert capsys.readouterr().err == "blackout: interrupted; the same command resumes\n"


def test_interrupt_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("blackout.recipes.recipe", interrupted)
    assert status(["recipes", "cifar10"], monkeypatch) == 130
    assert capsys.readouterr().err == "blackout: interrupted\n"


def test_interrupt_during_an_import_ends_with_one_line(tmp_path: Path) -> None:
    """As in the first seconds of any command, which import torch."""
    (tmp_path / "typer.py").write_text("import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(30)")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT / 'src'}"}
    command = [sys.executable, "-m", "blackout", "sample", "cifar10"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=20)
    assert (result.returncode, result.stderr) == (130, "blackout: interrupted\n")


@pytest.mark.parametrize("device", ["xpu", "mps", "meta", "cuda:99", "nowhere", "", "cpu,cuda"])
def test_devices_that_are_not_there_are_bad_input(device: str) -> None:
    with pytest.raises(ValueError, match=f"device.*{device}"):
        device_by_name(device)


def test_an_internal_error_is_one_line_unless_the_traceback_is_wanted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr("blackout.recipes.recipe", broken)
    assert status(["train", "digits"], monkeypatch) == 1
    assert capsys.readouterr().err.startswith("blackout: internal error, KeyError: 'x'; BLACKOUT_TRACEBACK=1")
    monkeypatch.setenv("BLACKOUT_TRACEBACK", "1")
    monkeypatch.setattr(sys, "argv", ["blackout", "train", "digits"])
    with pytest.raises(KeyError):
        main()
