"""The benchmarks run, at sizes that say nothing about speed."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.__main__ import app


def run(command: str) -> str:
    result = CliRunner().invoke(app, command.split(), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("kind", ["train", "sample"])
def test_network(kind: str) -> None:
    shown = run(f"{kind} --preset tiny --batch-size 1 --no-compile --repeats 1")
    assert "TFLOP/s; the matrix work runs at" in shown


def test_cells(tmp_path: Path) -> None:
    sizes = "--genes 20 --genes 60 --cells 30 --cells 90 --width 8 --batch-size 4"
    shown = run(f"cells {sizes} --repeats 1 --device cpu --out {tmp_path}/cells.json")
    assert "time of training ~ genes^" in shown
    rows = json.loads((tmp_path / "cells.json").read_text())
    assert rows.pop("device") == "cpu"
    measured = [row for name in rows for row in rows[name]]
    assert [(row["genes"], row["cells"]) for row in measured] == [(20, 30), (60, 30), (60, 30), (60, 90)]
    assert all(row["step_seconds"] > 0 for row in measured)


def test_disk(tmp_path: Path) -> None:
    from benchmarks.disk import measure, write_table

    write_table(tmp_path / "cells.zarr", 300, 20)
    rate = measure(tmp_path / "cells.zarr", 2)
    assert (rate.cells, rate.genes) == (300, 20)
    assert min(rate.open_seconds, rate.epoch_seconds, rate.step_seconds) > 0
    assert 0 < rate.start_mib <= rate.open_mib <= rate.epoch_mib <= rate.train_mib


def test_small() -> None:
    shown = run("small --steps 2 --num-data 2")
    assert "bounded-logit" in shown
    assert "10 binomial leaps" in shown


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("train --preset magic", "preset must be one of"),
        ("cells --genes 1", "genes must be at least 2, got 1"),
        ("cells --device magic", "device must be"),
        ("sample --batch-size 0", "batch_size must be at least 1"),
    ],
)
def test_errors(command: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        run(command)


@pytest.mark.slow
def test_forward_sampling_is_faster_than_a_gathered_table() -> None:
    from benchmarks import processes

    table, ours, general_table, general = processes.run()
    assert table.seconds > 5 * ours.seconds
    assert table.peak_mib > 10 * ours.peak_mib
    assert general_table.seconds > general.seconds
    assert general_table.peak_mib > 10 * general.peak_mib
