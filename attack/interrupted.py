"""Kills of training, sampling and evaluation: the same command then ends with the result of an undisturbed one."""

import hashlib
import importlib.util
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attack import child
from attack.findings import Failure, Tally, judge, last_line, numbers
from attack.world import TRAIN, TRAIN_CELLS, World

_SAVES = 20  # kills in one call of `save_kills`


@dataclass(frozen=True)
class Job:
    """A command that resumes, and what it leaves."""

    words: list[str]
    result: Callable[[], Any]

    def run(self) -> None:
        """In a child: run the command, then print a digest of its result."""
        try:
            child.command(self.words)()
        except SystemExit as end:
            if end.code:
                raise
        print(hashlib.sha256(repr(self.result()).encode()).hexdigest())


def attack(world: World, tally: Tally, *, seed: int, minutes: float, cases: int | None, case: int | None) -> None:
    """Kill jobs at random moments, up to three times each, then let them end. A case is one kill."""
    has_saves = importlib.util.find_spec("attack.kills") is not None
    jobs, share = _jobs(), 0.85 if has_saves else 1.0
    child.learn((job.run for job in jobs.values()), world.copy())
    expected, seconds = {}, {}
    for name, job in jobs.items():
        outcome = child.run(job.run, world.copy(), seconds=120)
        if outcome.status:
            raise RuntimeError(f"{name}: {outcome.err}")
        expected[name], seconds[name] = last_line(outcome.out), outcome.seconds
    for number in numbers(case, share * minutes, cases):
        rng = random.Random(f"kills-{seed}-{number}")
        name = rng.choice(list(jobs))
        wrong, kills = _trial(world, jobs[name], rng, seconds[name], expected[name])
        tally.count(name, kills)
        tally.cases += kills - 1
        again = f"python -m attack kills --seed {seed} --case {number}"
        tally.add(Failure(f"{name}: {wrong}", again) if wrong else None)
        if cases is not None and tally.cases >= cases:
            break
    if has_saves and case is None:
        _saves(world, tally, seed, (1 - share) * minutes, cases)


def _trial(world: World, job: Job, rng: random.Random, seconds: float, expected: str) -> tuple[str, int]:
    """What is wrong after some kills, and their number."""
    folder, kills = world.copy(), 0
    for _ in range(rng.choice((1, 1, 2, 3))):
        outcome = child.run(child.command(job.words), folder, kill_after=rng.uniform(0, seconds))
        kills += 1
        if outcome.status >= 0:  # it had ended before
            if wrong := judge(outcome):
                return f"{wrong} (after {kills - 1} kills)", kills
            break
    outcome = child.run(job.run, folder, seconds=120)
    if outcome.status or outcome.slow:
        return f"{judge(outcome) or f'status {outcome.status}'} after a kill: {last_line(outcome.err)}", kills
    if last_line(outcome.out) != expected:
        return "another result than without kills", kills
    rest = [path.name for path in folder.rglob("*") if ".partial" in path.name or path.name.endswith(".shards")]
    rest = [name for name in rest if name != "part.npz.shards"]
    return f"left over: {', '.join(rest)}" if rest else "", kills


def _saves(world: World, tally: Tally, seed: int, minutes: float, cases: int | None) -> None:
    """Kills while a model is saved over another one."""
    from attack.kills import save_kills

    for number in numbers(None, minutes, None if cases is None else -(-cases // (4 * _SAVES))):
        folder = world.copy()

        def call(folder: Path = folder, number: int = number) -> None:
            print(json.dumps(save_kills(folder / "saved", _SAVES, seed=seed * 1_000_000 + number)))

        outcome = child.run(call, folder, seconds=300)
        again = f"python -c \"from attack.kills import save_kills; print(save_kills('saved', {_SAVES}, {seed}))\""
        if outcome.status:
            tally.add(Failure(f"save: {last_line(outcome.err)}", again))
            continue
        counts = json.loads(last_line(outcome.out))
        bad = {name: counts.get(name, 0) for name in ("unreadable", "mixed", "leftover") if counts.get(name)}
        tally.count("save", _SAVES)
        tally.cases += _SAVES - 1
        tally.add(Failure(f"save: {bad}", again) if bad else None)


def _jobs() -> dict[str, Job]:
    return {
        "train": Job([*TRAIN, "--steps", "6", "--out", "killed"], lambda: _model("killed")),
        "cells train": Job([*TRAIN_CELLS, "--steps", "6", "--checkpoint-every", "1", "--out", "killed"], _cell_model),
        "sample": Job(["sample", "model", "--num", "600", "--steps", "1", "--out", "killed.npz"], _samples),
        "cells sample": Job(["cells", "sample", "cells-model", "--num", "600", "--steps", "1", "--out", "killed.npz"],
                            _cell_samples),
        "evaluate": Job(["evaluate", "model", "--data", "images.npy", "--samples", "0", "--num-times", "1",
                         "--num-bound-data", "0", "--out", "killed"], _report),
    }  # fmt: skip


def _model(folder: str) -> str:
    from blackout.io import checksum, load

    return checksum(load(folder))


def _cell_model() -> str:
    import blackout as bo
    from blackout.io import checksum

    return checksum(bo.CountModel.load("killed").model)


def _samples() -> Any:
    import numpy

    return numpy.load("killed.npz")["x"].tobytes()


def _cell_samples() -> Any:
    from scipy import sparse

    return sparse.load_npz("killed.npz").toarray().tobytes()


def _report() -> Any:
    report = json.loads(Path("killed/report.json").read_text())
    bits = {name: value for name, value in report["bits_per_dim"]["test"].items() if name != "seconds"}
    return bits, report["ending"]
