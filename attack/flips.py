"""One flipped bit in a file that the package wrote: it must be named, made good with a warning, or change nothing."""

import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch

import blackout as bo
from attack.kills import state
from blackout.data.arrays import load_arrays
from blackout.io import Shards, write_samples
from blackout.training.checkpoints import RunFolder
from blackout.training.config import TrainConfig

OUTCOMES = ("named", "recovered", "same", "unnamed", "silent")
_LOGS = (".jsonl", ".lock")  # nothing is computed from these
_SHARDS = [numpy.arange(number, number + 500) for number in range(3)]


def bit_flips(folder: Path, count: int, seed: int = 0) -> dict[str, dict[str, int]]:
    """Flip a random bit of a random file `count` times for each kind of folder, and count what reading it gives.

    "named" is a ValueError with the name of the file, "recovered" a warning with it and an earlier or repeated result,
    "same" the result of the undamaged files; "unnamed" is any other error, "silent" another result without a word.
    """
    draw, results = random.Random(seed), {}
    for kind, (write, read) in KINDS.items():
        good = Path(folder) / f"{kind}-good"
        write(good)
        expected = read(good)
        files = sorted(path for path in good.rglob("*") if path.is_file() and path.suffix not in _LOGS)
        results[kind] = dict.fromkeys(OUTCOMES, 0)
        for _ in range(count):
            damaged = Path(folder) / kind
            shutil.rmtree(damaged, ignore_errors=True)
            shutil.copytree(good, damaged)
            path = damaged / draw.choice(files).relative_to(good)
            _flip(path, draw)
            results[kind][_outcome(read, damaged, path, expected)] += 1
    return results


def _flip(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def _outcome(read: Callable[[Path], Any], folder: Path, path: Path, expected: Any) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = read(folder)
        except ValueError as error:
            return "named" if path.name in str(error) else "unnamed"
        except Exception:
            return "unnamed"
    if any(path.name in str(warning.message) for warning in caught):
        return "recovered"
    return "same" if found == expected else "silent"


def _vectors() -> tuple[bo.DiffusionModel, torch.Tensor]:
    x = torch.randint(0, 5, (16, 1, 4, 4), generator=torch.Generator().manual_seed(0))
    return bo.DiffusionModel.for_data(x, bo.PureDeath(4), bo.ObservationTimes.fisher(20), width=8, blocks=1), x


def _cells() -> bo.CountModel:
    counts = numpy.random.default_rng(0).poisson(2.0, (16, 30))
    return bo.CountModel(width=8, blocks=1, library="conditioned").fit(counts, steps=1)


def _train(folder: Path) -> None:
    model, x = _vectors()
    model.fit(x, steps=2, batch_size=4, checkpoint_every=1, out=folder)


def _read_run(folder: Path) -> Any:
    """All that a resumed run reads, and what `load` reads."""
    checkpoint = RunFolder(folder).last_good()
    assert checkpoint is not None
    groups = {group: _plain(checkpoint.tensors(group)) for group in ("weights", "averaged", "optimizer")}
    return groups, checkpoint.step, checkpoint.seconds, TrainConfig.read(folder / "config.json"), state(bo.load(folder))


def _plain(tensors: dict[str, torch.Tensor]) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in tensors.items()}


def _write_shards(folder: Path) -> None:
    with Shards(folder, {"seed": 0}, len(_SHARDS)) as shards:
        shards.fill(_SHARDS.__getitem__)


def _read_shards(folder: Path) -> list[bytes]:
    with Shards(folder, {"seed": 0}, len(_SHARDS)) as shards:
        shards.fill(_SHARDS.__getitem__)
        return [shards.read(number).tobytes() for number in range(len(_SHARDS))]


def _write_arrays(folder: Path) -> None:
    folder.mkdir(parents=True)
    write_samples(_vectors()[0], folder / "samples.npz", 16, num_steps=2)


def _read_arrays(folder: Path) -> dict[str, tuple[str, bytes]]:
    return {name: (str(x.dtype), x.tobytes()) for name, x in load_arrays(folder / "samples.npz").items()}


KINDS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
    "model": (lambda folder: _vectors()[0].save(folder), lambda folder: state(bo.load(folder))),
    "cells": (lambda folder: _cells().save(folder), lambda folder: state(bo.CountModel.load(folder))),
    "run": (_train, _read_run),
    "shards": (_write_shards, _read_shards),
    "samples": (_write_arrays, _read_arrays),
}
"""How each kind of folder is written and read."""
