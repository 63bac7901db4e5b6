"""Tutorials are executed: their Python and shell blocks, in order, in one folder."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import processes
from blackout.data import DATASETS
from blackout.evaluation import METRICS
from blackout.network import HEADS, NETWORKS
from blackout.process import PROCESSES
from blackout.recipes import RECIPES
from blackout.sampling import SAMPLERS
from blackout.times import TIME_RULES
from blackout.training.config import LOSSES

ROOT = Path(__file__).parent.parent
PROGRAMS = {"blackout": ["-m", "blackout"], "torchrun": ["-m", "torch.distributed.run"], "python": []}
REGISTRIES = (DATASETS, HEADS, LOSSES, METRICS, NETWORKS, PROCESSES, RECIPES, SAMPLERS, TIME_RULES)


def blocks(page: str) -> list[tuple[str, str]]:
    """(language, code) of each block marked as Python or shell; other blocks are not executed."""
    return re.findall(r"^```(python|sh)\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.M | re.S)


def shell(code: str, bin_folder: Path) -> None:
    """Run a block in a shell that stops at the first failure; its programs are those of this environment."""
    path = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    environment["PYTHON_EXEC"] = str(bin_folder / "python")  # which torchrun starts
    command = ["bash", "-e", "-u", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "bin"
    folder.mkdir()
    with processes.programs(folder, PROGRAMS):
        yield folder


@pytest.fixture
def restored_registries() -> Iterator[None]:
    """Remove the entries that a test adds."""
    before = [list(registry) for registry in REGISTRIES]
    yield
    for registry, names in zip(REGISTRIES, before, strict=True):
        for name in [name for name in registry if name not in names]:
            registry.remove(name)


@pytest.mark.usefixtures("restored_registries")
@pytest.mark.parametrize("page", ["images.md", "sequences.md", "evaluation.md", "several-gpus.md", "extending.md"])
def test_the_tutorial_runs(page: str, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python block that begins with a file name is also saved under it, for the blocks after it."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "tutorial"}
    found = blocks(page)
    assert {language for language, _ in found} == {"python", "sh"}
    for number, (language, code) in enumerate(found, 1):
        if language == "sh":
            shell(code, programs)
            continue
        if file := re.match(r"# (\w+\.py)\n", code):
            (tmp_path / file[1]).write_text(code)
        exec(compile(code, f"{page}-{number}", "exec"), names)


def test_a_failing_shell_block_is_reported(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match="'nothing' is neither a file"):
        shell("blackout train nothing\ntrue", programs)
