"""Tutorials are run as they stand: their Python and shell blocks, in order, in one folder."""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROGRAMS = {"blackout": "blackout", "torchrun": "torch.distributed.run"}


def blocks(page: str) -> list[tuple[str, str]]:
    """(language, code) of each block that is marked as Python or shell; others are for reading."""
    return re.findall(r"^```(python|sh)\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.M | re.S)


def shell(code: str, bin_folder: Path) -> None:
    """A block in a shell that stops at the first failure and finds our programs in this very environment."""
    path = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = ["bash", "-e", "-u", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, module in PROGRAMS.items():
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
        (folder / name).chmod(stat.S_IRWXU)
    return folder


@pytest.mark.parametrize("page", ["images.md", "evaluation.md", "several-gpus.md"])
def test_the_tutorial_runs(page: str, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    found = blocks(page)
    assert {language for language, _ in found} == {"python", "sh"}
    for number, (language, code) in enumerate(found, 1):
        if language == "sh":
            shell(code, programs)
        else:
            exec(compile(code, f"{page}-{number}", "exec"), names)


def test_a_shell_block_that_fails_is_seen(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match="no recipe is called 'nothing'"):
        shell("blackout train nothing\ntrue", programs)
