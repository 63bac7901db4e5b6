"""Kills during `save`: after each, the folder must hold the old model or the new one, complete."""

import json
import os
import random
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import torch

import blackout as bo

OUTCOMES = ("old", "new", "unreadable", "mixed")


class Pair(NamedTuple):
    """Two models that are saved to one folder in turn, and how a folder is read."""

    models: tuple[Any, Any]
    load: Callable[[Path], Any]


def save_kills(folder: Path, count: int, seed: int = 0) -> dict[str, int]:
    """Save a model over another one `count` times, each time killed at a random moment; count what is found then.

    Models of images and of cells take turns. "old" and "new" are the two models, "unreadable" is an error of `load`,
    "mixed" a model that is neither; "leftover" counts files that are still there after an undisturbed save.
    """
    draw, counts, pairs = random.Random(seed), dict.fromkeys((*OUTCOMES, "leftover"), 0), _pairs()
    places = [Path(folder) / str(number) for number in range(len(pairs))]
    durations = [_duration(pair, place) for pair, place in zip(pairs, places, strict=True)]
    for number in range(count):
        which = number % len(pairs)
        pair, place = pairs[which], places[which]
        before = _found(pair, place)
        _killed(pair.models[1 - before] if before >= 0 else pair.models[0], place, draw.uniform(0, durations[which]))
        after = _found(pair, place)
        counts[("mixed", "unreadable")[-1 - after] if after < 0 else "old" if after == before else "new"] += 1
        if after < 0:  # the next attack starts from a good folder
            pair.models[0].save(place)
    for pair, place in zip(pairs, places, strict=True):
        pair.models[0].save(place)
        listed = json.loads((place / "model.json").read_text()).get("weights", ())
        counts["leftover"] += len({path.name for path in place.iterdir()} - {"model.json", *listed})
    return counts


def _pairs() -> list[Pair]:
    torch.set_num_threads(1)  # a fork has no threads but its own
    images = torch.randint(0, 5, (8, 300), generator=torch.Generator().manual_seed(0))
    small, large = (bo.ObservationTimes.fisher(number) for number in (100, 200))
    vectors = [
        bo.DiffusionModel.for_data(images, bo.PureDeath(4), times, width=256, blocks=2, seed=number)
        for number, times in enumerate((small, large))
    ]
    counts = numpy.random.default_rng(0).poisson(2.0, (16, 300))
    kinds = [bo.CountModel(width=64 * (1 + number), blocks=1, seed=number) for number in range(2)]
    cells = [model.fit(counts[:, : 300 - number], steps=1) for number, model in enumerate(kinds)]
    return [Pair((vectors[0], vectors[1]), bo.load), Pair((cells[0], cells[1]), bo.CountModel.load)]


def _duration(pair: Pair, place: Path) -> float:
    """How long a save takes, a little longer than the mean of some."""
    begin = time.perf_counter()
    for number in range(6):
        pair.models[number % 2].save(place)
    return 1.2 * (time.perf_counter() - begin) / 6


def _killed(model: Any, place: Path, seconds: float) -> None:
    """Save in a fork, which is killed after so many seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads are forbidden above
        child = os.fork()
    if child == 0:
        try:
            model.save(place)
        finally:
            os._exit(0)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _found(pair: Pair, place: Path) -> int:
    """The number of the model in a folder; -1 for a mixture, -2 for an error."""
    try:
        found = pair.load(place)
    except (ValueError, OSError):
        return -2
    same = [state(found) == state(model) for model in pair.models]
    return same.index(True) if any(same) else -1


def state(model: Any) -> tuple[Any, ...]:
    """Everything that is saved, comparable."""
    inner = getattr(model, "model", model)
    weights = {name: value.numpy().tobytes() for name, value in inner.predictor.state_dict().items()}
    return json.dumps([inner.config(), model.describe() if inner is not model else None]), weights
