import subprocess
import sys

import pytest

import blackout
from blackout.bench import processes


def blackout_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = "from blackout.cli import main; main()"
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=300)


def test_version() -> None:
    result = blackout_command("--version")
    assert (result.returncode, result.stdout.strip()) == (0, f"blackout {blackout.__version__}")


@pytest.mark.parametrize("arguments", [("--help",), ("bench", "--help"), ("bench", "processes", "--help")])
def test_help(arguments: tuple[str, ...]) -> None:
    result = blackout_command(*arguments)
    assert result.returncode == 0
    assert "Usage" in result.stdout


def test_an_unknown_command_is_bad_input() -> None:
    result = blackout_command("nonsense")
    assert result.returncode == 2
    assert "nonsense" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_forward_draws_beat_the_gathered_table() -> None:
    table, ours, general_table, general = processes.run()
    assert table.seconds > 5 * ours.seconds
    assert table.peak_mib > 10 * ours.peak_mib
    assert general_table.seconds > general.seconds
    assert general_table.peak_mib > 10 * general.peak_mib
