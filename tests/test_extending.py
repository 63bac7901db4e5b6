"""One file and one line each: a process, sampler, head, network, data set and metric in every place that lists them.

`toys/midpoint.py` and `toys/poisson_head.py` were written from docs/extending.md alone. The web page and the code that
it exports are in test_web_registries.py.
"""

import json
import os
import sys
from pathlib import Path

import pytest

import blackout as bo
import processes

ROOT = Path(__file__).parent.parent
PROGRAM = "import toys; from blackout.cli import main; main()"


def run(*words: str, program: str = PROGRAM, cwd: Path | None = None) -> str:
    """The output of the command line, or of another program, in a process that has imported the toys."""
    path = os.pathsep.join([str(ROOT / "tests"), str(ROOT / "docs/_ext"), *sys.path])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, "COLUMNS": "200"}
    done = processes.run("-c", program, *words, cwd=cwd, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_lists_registered_things() -> None:
    train = run("train", "--help")
    assert all(name in train for name in ("clockwork", "poisson-mean", "pixelwise", "patches"))
    assert "midpoint" in run("sample", "--help")
    evaluate = " ".join(run("evaluate", "--help").split())
    assert "mean-gap (difference of mean states)" in evaluate
    assert "midpoint" in evaluate
    assert "constant patches of four levels" in run("data")


def test_lists_of_the_documentation_have_registered_things() -> None:
    program = (
        "import toys\nfrom registries import entries\n"
        "for path in ('process.PROCESSES', 'sampling.SAMPLERS', 'network.HEADS', 'network.NETWORKS', 'data.DATASETS',"
        " 'evaluation.METRICS'):\n    print(entries('blackout.' + path))"
    )
    listed = run(program=program)
    for text in (
        "a ring with resets",
        "midpoint",
        "poisson-mean",
        "each pixel on its own",
        "constant patches",
        "difference of mean states",
    ):
        assert text in listed


def test_a_model_of_registered_parts_is_trained_sampled_evaluated_and_loaded(tmp_path: Path) -> None:
    options = "--dataset patches --max-count 3 --process clockwork --head categorical --network pixelwise --steps 3"
    run("train", "digits", *options.split(), "--batch-size", "8", "--out", "run", cwd=tmp_path)
    run("sample", "run", *["--num", "4", "--steps", "5", "--sampler", "midpoint", "--out", "a.npz"], cwd=tmp_path)
    words = "--samples 60 --steps 3 --num-data 8 --num-times 2 --num-bound-data 0 --metrics mean-gap --out report"
    run("evaluate", "run", *words.split(), cwd=tmp_path)
    assert '"mean_gap"' in (tmp_path / "report/report.json").read_text()
    description = json.loads((tmp_path / "run/model.json").read_text())
    assert description["process"] == {"kind": "clockwork", "num_states": 4, "speed": 0.5}
    assert description["network"]["kind"] == "pixelwise"
    program = (
        "import sys, toys, numpy, blackout as bo\nmodel = bo.load('run')\n"
        "assert type(model.process) is toys.clockwork.Clockwork and model.process.speed == 0.5\n"
        "x = model.sample(4, num_steps=5, sampler='midpoint')\n"
        "assert (x.numpy() == numpy.load('a.npz')['x']).all()\n"
    )
    run(program=program, cwd=tmp_path)
    with pytest.raises(ValueError, match=r"process must be one of .*got 'clockwork'"):
        bo.load(tmp_path / "run")  # without the import


def test_a_registered_head_is_saved_and_loaded_with_its_statistics(tmp_path: Path) -> None:
    program = (
        "import toys, torch, blackout as bo\n"
        "x = torch.poisson(torch.full((300, 3), 4.0), generator=torch.Generator().manual_seed(0)).long()\n"
        "model = bo.DiffusionModel.for_data(x, bo.PureDeath(), head='poisson-mean', width=16, blocks=1)\n"
        "before = float(model.bits_per_dim(x[:100], num_times=8))\n"
        "model.fit(x, steps=3, batch_size=16).save('model')\n"
        "again = bo.load('model')\n"
        "assert type(again.predictor.head) is toys.poisson_head.ExpHead\n"
        "assert torch.equal(again.sample(4, num_steps=5), model.sample(4, num_steps=5))\n"
        "print(before)"
    )
    bits = float(run(program=program, cwd=tmp_path).splitlines()[-1])
    assert bits == pytest.approx(3.0, abs=0.35)  # a new network knows independent counts: entropy 3.0 bits


def test_the_error_of_midpoint_leaping_vanishes_as_steps_become_many(tmp_path: Path) -> None:
    program = (
        "import toys, torch, blackout as bo\n"
        "process, points = bo.BirthDeath(12, death=1.0, immigration=4.0), torch.tensor([[2], [9]])\n"
        "exact, times = bo.ExactPosterior(process, points), bo.ObservationTimes.for_process(process, 1000)\n"
        "for num_steps in (30, 100):\n"
        "    sampler = toys.midpoint.MidpointLeaping()\n"
        "    x = sampler.sample(exact, process, times.subset(num_steps), (20_000, 1), seed=0).flatten()\n"
        "    share = torch.bincount(x, minlength=12).double() / len(x)\n"
        "    print(0.5 * float((share - torch.eye(12)[[2, 9]].mean(0)).abs().sum()))"
    )
    few, many = (float(line) for line in run(program=program, cwd=tmp_path).split())
    assert few < 0.1  # total variation from the data
    assert many < 0.25 * few
