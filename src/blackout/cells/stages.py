"""CellMeasurement: the parts of an evaluation of cells, each kept in a notebook under a key."""

import copy
import dataclasses
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from blackout import validate
from blackout.cells.baselines import (
    CellGenerator,
    GeneBootstrap,
    IndependentNegativeBinomials,
    NegativeBinomialsWithLibrary,
)
from blackout.cells.counts import Counts, stack
from blackout.cells.files import write_cells
from blackout.cells.metrics import MINIMUM, compare_cells
from blackout.cells.model import CountModel
from blackout.cells.read import read_counts, to_anndata
from blackout.cells.scvi import ScVI
from blackout.evaluation.bits import Tell, finite, measure_bits
from blackout.evaluation.cache import Notebook
from blackout.evaluation.splits import drawn
from blackout.io import SAMPLERS, checksum, sampler_for
from blackout.times import MEASURES

_CHUNK = 512  # cells that are drawn before they are kept

COMPETITORS: dict[str, Callable[[], CellGenerator]] = {
    "negative_binomials": IndependentNegativeBinomials,
    "negative_binomials_with_library": NegativeBinomialsWithLibrary,
    "gene_bootstrap": GeneBootstrap,
    "scvi": ScVI,
}


@dataclass(frozen=True, kw_only=True)
class CellPlan:
    """What is measured, and how closely."""

    samples: int | None = None
    """Cells for the scores; None: as many as are held out; 0: none."""
    steps: int = 100
    sampler: str = "poisson"
    correctors: int = 0
    grid: str = ""
    """The measure in whose equal steps the sampler's times lie; empty: the model's own times."""
    seed: int = 0
    cells: int = 0
    """Cells of each split whose likelihood is measured; 0: all of the held-out ones, and as many for training."""
    times: int = 16
    """Times at which each of them is looked at."""
    competitors: bool = False
    """Whether simple generators are fitted and measured too."""
    batch_size: int = 256

    def __post_init__(self) -> None:
        for name in ("cells", "correctors", "seed"):
            validate.integer(name, getattr(self, name), 0)
        for name in ("steps", "times", "batch_size"):
            validate.integer(name, getattr(self, name), 1)
        if self.samples is not None and validate.integer("samples", self.samples, 0) and self.samples < MINIMUM:
            raise ValueError(f"samples must be 0, for none, or at least {MINIMUM} for the scores, got {self.samples}")
        validate.choice("sampler", self.sampler, tuple(SAMPLERS))
        validate.choice("grid", self.grid, ("", *MEASURES))


class CellMeasurement:
    """One model of cells under one plan; what is kept of it is asked for by all that it depends on."""

    def __init__(
        self, model: CountModel, notebook: Notebook, plan: CellPlan, test: Counts, train: Counts | None, tell: Tell
    ) -> None:
        self.model, self.notebook, self.plan, self.tell = model, notebook, plan, tell
        self.walked = copy.copy(model).walk_by(plan.grid) if plan.grid else model
        self.test, self.train = test, train
        self.number = len(test) if plan.samples is None else plan.samples
        about = hashlib.sha256(json.dumps(model.describe()).encode()).hexdigest()
        self.key: dict[str, Any] = {"model": checksum(model.model), "about": about, "device": model.model.device.type}
        self.key["seed"] = plan.seed
        self.data = {"test": test.checksum, "train": None if train is None else train.checksum, "seed": plan.seed}

    def bits(self, name: str, cells: Counts) -> dict[str, Any]:
        """Bits per dimension of the exact continuous-time bound."""
        number = min(self.plan.cells or len(self.test), len(cells))
        # The first cells of a file may all be of one sample.
        chosen = cells if number == len(cells) else cells.take(drawn(len(cells), number, self.plan.seed))
        key = {**self.key, "data": chosen.checksum, "labels": _labels(chosen, self.model), "times": self.plan.times}

        def bits(start: int, stop: int) -> NDArray[Any]:
            part = chosen.take(slice(start, stop))
            return self.model.bits_of_each(part, self.plan.seed, num_times=self.plan.times, start_index=start).numpy()

        size = {"cells": number, "times": self.plan.times}
        return measure_bits(self.notebook, name, key, number, self.plan.batch_size, bits, self.tell, size)

    def draw(self, path: Path) -> tuple[Any, dict[str, Any]]:
        """Samples, a few at a time, and how fast they came; all of them in one file in the end."""
        plan, number, folder, parts = self.plan, self.number, self.notebook.folder, []
        method = sampler_for(self.walked.model, plan.sampler, plan.correctors)
        method.check(self.walked.model.process)
        key = {**self.key, **{name: getattr(plan, name) for name in ("sampler", "steps", "correctors")}}
        if by := self.walked.model.walks_by(plan.steps):
            key["grid"] = by
        for start in range(0, number, _CHUNK):
            size, file = min(_CHUNK, number - start), f"cells-{start:07d}.npz"

            def some(start: int = start, size: int = size, file: str = file) -> dict[str, Any]:
                begun = time.perf_counter()
                cells = self.walked.sample(
                    size, num_steps=plan.steps, sampler=method, seed=plan.seed, start_index=start,
                    batch_size=plan.batch_size,
                    callback=lambda done, _: self.tell(f"samples, {plan.steps} steps", start + done, number),
                )  # fmt: skip
                seconds = time.perf_counter() - begun
                write_cells(cells, folder / file)
                return {"seconds": seconds}

            key = {**key, "size": size}
            parts.append(self.notebook.part(file.removesuffix(".npz"), key, some, needs=file))
        files = [folder / f"cells-{start:07d}.npz" for start in range(0, number, _CHUNK)]
        cells = [read_counts(file, empty="keep") for file in files]
        self._gather(cells, path)
        seconds = sum(part["seconds"] for part in parts)
        about = {"sampler": plan.sampler, "steps": plan.steps, "corrector_steps": plan.correctors, "seed": plan.seed}
        about |= {"grid": plan.grid} if plan.grid else {}
        return stack([part.x for part in cells]), {
            **about,
            "num": number,
            "seconds": seconds,
            "cells_per_second": number / seconds,
        }

    def _gather(self, cells: list[Counts], path: Path) -> None:
        obs = {key: numpy.concatenate([part.obs[key] for part in cells]) for key in cells[0].obs}
        names = [name for part in cells for name in part.cells]
        write_cells(to_anndata(stack([part.x for part in cells]), self.model.genes, names, obs), path)

    def scores(self, name: str, x: Any) -> dict[str, Any]:
        """Cells beside the held-out ones; genes and components are chosen in training cells."""
        digest = hashlib.sha256(x.data.tobytes() + x.indices.tobytes() + x.indptr.tobytes()).hexdigest()
        key = {**self.data, "number": self.number, "cells": digest}

        def summary() -> dict[str, Any]:
            self.tell(f"scores, {name.replace('_', ' ')}", 0, 1)
            found = compare_cells(x, self.test.x, reference=self._reference(), seed=self.plan.seed)
            return dict(finite(dataclasses.asdict(found)))

        return self.notebook.part(f"scores-{name}", key, summary)

    def floor(self) -> dict[str, Any] | None:
        """As many training cells as are compared: what a perfect model would get. None without enough of them."""
        if self.train is None or len(self.train) < MINIMUM:
            return None
        return self.scores("floor", self.train.x[self._floor_rows()])

    def _floor_rows(self) -> NDArray[Any]:
        assert self.train is not None
        return drawn(len(self.train), min(self.number, len(self.test)), self.plan.seed)

    def _reference(self) -> Any:
        """Training cells, but for those of the floor if enough are left: their own components would favour them."""
        if self.train is None or len(self.train) < MINIMUM:
            return None
        rest = numpy.ones(len(self.train), bool)
        rest[self._floor_rows()] = False
        return self.train.x[rest] if rest.sum() >= max(MINIMUM, len(self.test)) else self.train.x

    def competitors(self) -> dict[str, Any]:
        """Simple generators, fitted to the training cells; scVI if its package is there."""
        assert self.train is not None
        train, number = self.train.x, self.number
        found = {}
        for name, build in COMPETITORS.items():
            if name == "scvi" and find_spec("scvi") is None:
                continue

            def summary(name: str = name, build: Callable[[], CellGenerator] = build) -> dict[str, Any]:
                self.tell(name.replace("_", " "), 0, 1)
                start = time.perf_counter()
                generator = build().fit(train)
                fitted = time.perf_counter()
                bits = generator.bits_per_dim(self.test.x)
                known = None if bits is None else {"mean": bits[0], "standard_error": bits[1], "cells": len(self.test)}
                begun = time.perf_counter()
                x = generator.sample(number, self.plan.seed) if number else None
                seconds = time.perf_counter() - begun
                about = {
                    "bits_per_dim": known,
                    "fit_seconds": fitted - start,
                    "seconds": seconds,
                    "cells_per_second": number / seconds if number else None,
                    "scores": None if x is None else self.scores(name, x),
                }
                return dict(finite(about))

            found[name] = self.notebook.part(name, {**self.data, "number": number}, summary)
        return found


def _labels(cells: Counts, model: CountModel) -> str:
    names = "\0".join(str(cells.obs[key].tolist()) for key in model.keys if key in cells.obs)
    return hashlib.sha256(names.encode()).hexdigest()
