"""The tool that attacks the package: it notices what it is for, and repeats itself."""

import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from attack import child, files
from attack.commands import LINES, _line, _options
from attack.findings import Failure, Tally, judge, shortened


def fail(message: str, status: int) -> None:
    print(message, file=sys.stderr)
    sys.exit(status)


def deaf() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    time.sleep(60)


ENDS = {
    "": lambda: None,
    "traceback": lambda: 1 // 0,
    "internal error": lambda: fail("blackout: internal error, TypeError: x", 1),
    "status 1 where 2 is due": lambda: fail("blackout: device must be cpu", 1),
    "status 2 without a reason": lambda: sys.exit(2),
    "ended by signal 11": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "memory that no check foresaw": lambda: fail("blackout: cannot allocate 8 TiB", 2),
    "hung": deaf,
}


@pytest.mark.parametrize("expected", ENDS)
def test_bad_ends_are_noticed(expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_PATIENCE", 0.2)
    found = judge(child.run(ENDS[expected], tmp_path, seconds=0.5 if expected == "hung" else 20))
    assert found.startswith(expected)
    assert bool(found) == bool(expected)


def test_a_slow_command_is_interrupted_and_a_killed_one_reported(tmp_path: Path) -> None:
    outcome = child.run(lambda: time.sleep(60), tmp_path, seconds=0.2)
    assert (outcome.slow, outcome.hung) == (True, False)
    assert child.run(lambda: time.sleep(60), tmp_path, kill_after=0.1).status == -signal.SIGKILL


def test_a_long_step_is_interrupted_a_second_time_if_it_offers_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "_PATIENCE", 0.5)

    def step() -> None:
        def first(*_: object) -> None:
            signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
            print("stopping after this step; Ctrl-C again stops at once", file=sys.stderr, flush=True)

        signal.signal(signal.SIGINT, first)
        while True:
            time.sleep(0.05)

    outcome = child.run(step, tmp_path, seconds=0.5)
    assert (outcome.hung, outcome.status, judge(outcome)) == (False, 130, "")


def test_children_allocate_and_connect_within_limits(tmp_path: Path) -> None:
    assert "MemoryError" in child.run(lambda: bytearray(1 << 40), tmp_path).err
    program = "import urllib.request; urllib.request.urlopen('http://192.0.2.1/')"
    assert "in an attack" in child.run(lambda: exec(program), tmp_path).err


def test_cases_depend_on_the_seed_alone() -> None:
    for name in ("sample", "cells train"):
        assert _options(name), "every command is there"
        lines = [_line(random.Random("a"), name, _options(name)) for _ in range(2)]
        assert lines[0] == lines[1]
        assert lines[0][: len(name.split())] == name.split()


def test_every_command_has_a_line() -> None:
    import typer

    from blackout.cli import app

    tree = typer.main.get_command(app).commands
    cells = {f"cells {name}" for name in tree.pop("cells").commands}
    assert set(LINES) == set(tree) | cells


@pytest.mark.parametrize("damage", sorted({*files._DAMAGES, *files._JSON_DAMAGES}, key=lambda f: f.__name__))
def test_damage_is_done_and_repeats_itself(damage: files.Reader, tmp_path: Path) -> None:
    found = []
    for name in ("a", "b"):
        file = tmp_path / name / "x.json"
        file.parent.mkdir()
        (file.parent / "other").write_text("other")
        file.write_text('{"a": [1, {"b": "text"}], "c": 0.5}' * (1 if "value" in damage.__name__ else 50))
        before = file.read_bytes()
        damage(random.Random(7), file)
        found.append(file.read_bytes() if file.is_file() else file.is_dir())
        assert found[-1] != before
    assert found[0] == found[1]


def test_failures_are_counted_by_cause_and_the_shortest_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally("commands")
    for number, again in ((3, "a long line"), (14, "a line"), (159, "a longer line")):
        tally.add(Failure(f"sample: num must be at most {number}", again))
    tally.add(None)
    assert (tally.cases, tally.failed, [f.again for f in tally.failures.values()]) == (4, 3, ["a line"])
    assert capsys.readouterr().out.count("num must be") == 1
    words = ["sample", "model", "--seed", "1", "--num", "0", "--list"]
    assert shortened(words, lambda fewer: "--num" in fewer and "0" in fewer, 1) == ["sample", "--num", "0"]
