"""Configurations of a model of cells and of its evaluation. This module does not import torch."""

import dataclasses
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blackout import validate
from blackout.evaluation.config import MINIMUM, option
from blackout.files import read_text
from blackout.sampling import MAX_REPEATS, SAMPLERS
from blackout.times import TIME_RULES
from blackout.training.config import TrainConfig

OWN = ("labels", "batch_key", "continuous_covariate_keys", "layer", "library", "validation", "patience")
STEPS = 64
"""Default number of sampling steps, at fitted times: docs/samplers.md#fitted-times."""
FORMATS = ".h5ad, .zarr, 10x .h5, .mtx, .npz, .npy, .csv, .tsv, a 10x folder, or a folder of 10x .h5 files"
"""Files of cells; those of text may end in .gz."""
SIZED = ("width", "dropout", "steps", "warmup", "ema", "log_every")
"""Fields of TrainConfig that follow from the numbers of cells and genes, unless they are given."""
HEADS = ("gamma-poisson", "softplus")  # those for counts without a bound
_MEDIUM, _MEDIUM_STEPS = 3_000, 1_500  # a number of cells, and steps after which such a model is trained
_REPORTS = 25  # of a run, each with a validation


def default_train() -> TrainConfig:
    """The default network and optimiser; `CellConfig.for_size` fits the fields of `SIZED` to the data."""
    return TrainConfig().replace(
        max_count=0,
        blocks=4,
        head="gamma-poisson",
        loss="likelihood",
        time_density="logistic",
        time_loc=0.0,
        stratified=True,
        batch_size=128,
        learning_rate=3e-3,
        beta2=0.99,
        lr_schedule="cosine",
        grad_clip=1.0,
        checkpoint_every=1000,
        **sized(_MEDIUM, 2_000),
    )


def sized(cells: int, genes: int) -> dict[str, Any]:
    """Network and training for so many cells and genes: more cells allow a wider network and need more steps.

    Epochs become fewer, as the square root of the number of cells; where there are few, dropout replaces data.
    """
    steps = round(min(max(_MEDIUM_STEPS * math.sqrt(cells / _MEDIUM), 400), 20_000))
    return {
        "width": 128 if cells < 10_000 or genes < 500 else 256 if cells < 100_000 else 512,
        "dropout": 0.2 if cells < 2_000 else 0.1 if cells < 100_000 else 0.0,
        "steps": steps,
        "warmup": min(100, steps // 10),
        "ema": round(min(0.9995, max(0.99, 1 - 5 / steps)), 5),
        "log_every": steps // _REPORTS,
    }


@dataclass(frozen=True, kw_only=True)
class CellConfig:
    """What a model of cells is conditioned on, where its counts are, and how it is trained.

    Parameters
    ----------
    labels : sequence of str
        Columns of obs to condition on, categories; each has an embedding of its own.
    batch_key : str
        A further such column, of a nuisance; guidance does not act on it. Empty: none.
    continuous_covariate_keys : sequence of str
        Columns of obs with numbers to condition on, which may be missing.
    layer : str
        Layer of AnnData that holds the raw counts; empty for X, "raw" for adata.raw.
    library : {"generated", "conditioned"}
        Whether the library size is generated with the cell or an input of the network.
    validation : float
        Share of the training cells that are kept for validation; 0: none.
    patience : int
        Validations without improvement after which training ends; 0: it never ends early.
    train : TrainConfig
        Network, optimiser and run; the process is pure death without a largest count.
    given : sequence of str
        Fields of `train` that were set; others of `SIZED` follow from the data.
    """

    labels: tuple[str, ...] = ()
    batch_key: str = ""
    continuous_covariate_keys: tuple[str, ...] = ()
    layer: str = ""
    library: str = "generated"
    validation: float = 0.1
    patience: int = 5
    train: TrainConfig = field(default_factory=default_train)
    given: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("labels", "batch_key", "continuous_covariate_keys"):
            keys = _columns(name, getattr(self, name))
            if name == "batch_key" and len(keys) > 1:
                raise ValueError(f"batch_key must name one column of obs, got {self.batch_key!r}")
            object.__setattr__(self, name, "".join(keys) if name == "batch_key" else keys)
        twice = next((name for k, name in enumerate(self.columns) if name in self.columns[:k]), None)
        if twice is not None:
            raise ValueError(f"labels, batch_key and continuous_covariate_keys must differ, got {twice!r} twice")
        object.__setattr__(self, "layer", self.layer or "")
        validate.choice("library", self.library, ("generated", "conditioned"))
        validate.choice("head", self.train["head"], (*HEADS, "student"))
        validate.integer("patience", self.patience, 0)
        if validate.real("validation", self.validation, 0.0) > 0.5:
            raise ValueError(f"validation must be at most 0.5, a share of the cells, got {self.validation}")
        object.__setattr__(self, "given", tuple(self.given))
        for name, value in (("process", "pure-death"), ("max_count", 0), ("init", "")):
            if self.train[name] != value:
                raise ValueError(f"{name} must be {value!r} for a model of cells, got {self.train[name]!r}")
        object.__setattr__(self, "train", self.train.replace(class_conditional=bool(self.columns)))

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns of obs that the model is conditioned on."""
        return (*self.labels, *([self.batch_key] if self.batch_key else []), *self.continuous_covariate_keys)

    def reading(self, layer: str | None = None) -> dict[str, Any]:
        """Options of readers of counts: a given layer must be there, that of the training is read where it is."""
        return {"layer": layer or self.layer or None, "strict": bool(layer)}

    @property
    def conditioned(self) -> bool:
        """Whether the library size is an input of the network."""
        return self.library == "conditioned"

    @property
    def allow_unlabelled(self) -> bool:
        """Whether the model is trained on cells without labels too."""
        return self.train.network.label_dropout > 0

    def replace(self, **values: Any) -> "CellConfig":
        """A copy with other values, by the names of the fields of this class and of TrainConfig."""
        own = {name: values.pop(name) for name in OWN if name in values}
        given = tuple(sorted({*self.given, *values}))
        return dataclasses.replace(self, **own, train=self.train.replace(**values), given=given)

    def for_size(self, cells: int, genes: int) -> "CellConfig":
        """The configuration for so many cells and genes; fields that were given stay as they are."""
        chosen = sized(cells, genes)
        if "steps" in self.given:  # the others stay: a run may be resumed with more steps
            chosen["log_every"] = max(1, self.train["steps"] // _REPORTS)
        values = {name: value for name, value in chosen.items() if name not in self.given}
        return dataclasses.replace(self, train=self.train.replace(**values))

    def to_dict(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in (*OWN, "given")}
        return {**own, "train": self.train.to_dict()}

    @staticmethod
    def from_dict(values: dict[str, Any]) -> "CellConfig":
        """The configuration of `to_dict`; missing values are the defaults."""
        own = {name: value for name, value in values.items() if name != "train"}
        unknown = sorted(set(own) - {*OWN, "given"})
        if unknown:
            raise ValueError(f"unknown fields: {', '.join(unknown)}; there are {', '.join(OWN)} and train")
        # A file without `given` is written by hand: what it holds is given.
        own.setdefault("given", sorted(name for part in values.get("train", {}).values() for name in _names(part)))
        return CellConfig(**own, train=TrainConfig.from_dict(values.get("train", {}), default_train()))

    @staticmethod
    def read(path: Path) -> "CellConfig":
        """A configuration from a JSON file."""
        try:
            return CellConfig.from_dict(dict(json.loads(read_text(path))))
        except (OSError, RecursionError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a configuration: {error}") from None


def _columns(argument: str, given: Any) -> tuple[str, ...]:
    """Names of columns of obs from one name, several, or none."""
    given = () if given is None else given
    names = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong:
        raise ValueError(f"{argument} must name columns of obs, got {wrong[0]!r}")
    return tuple(name for name in names if name)


def _names(section: Any) -> list[str]:
    """Fields of a section of a configuration; a file may hold anything there, which is checked later."""
    return list(section) if isinstance(section, dict) else []


@dataclass(frozen=True, kw_only=True)
class CellEvalConfig:
    """What an evaluation of cells computes. The command line has an option for each field."""

    num_samples: int | None = option(
        None, "cells to sample for the scores (0: none)", flag="--samples", show_default="as many as held out"
    )
    num_steps: int | None = option(
        None, "sampling steps", flag="--steps", show_default=f"{STEPS}, or as many as the model has times"
    )
    sampler: str = option("auto", f"auto (tau-leaping, or a student's), {', '.join(SAMPLERS)}")
    corrector_steps: int = option(0, "corrector steps after each step", flag="--correctors")
    times: str = option("", f"time grid: {', '.join(TIME_RULES)}", show_default="fitted up to 64 steps, length above")
    seed: int = option(0, "random seed of samples, bounds and subsets")
    num_data: int = option(0, "cells per split for bits/dim (0: all held-out cells, and as many training cells)")
    num_times: int = option(16, "random times per cell for bits/dim")
    hidden: str = option(
        "0.1",
        "counts of held-out cells that are hidden and imputed, separated by commas: a share, or genes, "
        "a tenth of the genes (empty: none)",
    )
    draws: int = option(0, "imputed draws of hidden counts, for the coverage of their intervals (0: means alone)")
    types: str = option(
        "", "column of obs with cell types, for composition and fold changes", show_default="the first label"
    )
    baselines: bool = option(False, "evaluate baselines too, and scVI if it is installed")
    batch_size: int = option(256, "cells at a time")

    def __post_init__(self) -> None:
        for name in ("num_data", "seed", "draws"):
            validate.integer(name, getattr(self, name), 0)
        validate.integer("corrector_steps", self.corrector_steps, 0, MAX_REPEATS)
        for name in ("num_times", "batch_size", *(["num_steps"] if self.num_steps is not None else [])):
            validate.integer(name, getattr(self, name), 1)
        if self.num_samples is not None and 0 != validate.integer("num_samples", self.num_samples, 0) < MINIMUM:
            raise ValueError(f"num_samples must be 0 or at least {MINIMUM}, got {self.num_samples}")
        for part in self.hidden_parts:
            if part != "genes" and not _is_share(part):
                raise ValueError(f"hidden must be shares of the counts between 0 and 1, or 'genes', got {part!r}")
        validate.choice("sampler", self.sampler, ("auto", *SAMPLERS))
        validate.choice("times", self.times, ("", *TIME_RULES))

    @property
    def hidden_parts(self) -> list[str]:
        """What is hidden, one after the other."""
        return [part.strip() for part in str(self.hidden).split(",") if part.strip()]


def _is_share(text: str) -> bool:
    try:
        return 0 < float(text) <= 1
    except ValueError:
        return False
