"""The folder of a model of cells: a JSON file beside the network. A run is tied to its cells."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy

from blackout.atomic import write_atomic
from blackout.cells.config import OWN, CellConfig
from blackout.cells.counts import Counts
from blackout.cells.covariates import Covariates
from blackout.io.models import CELLS
from blackout.training.config import TrainConfig, begin_folder

FORMAT = 1


def describe(config: CellConfig, genes: tuple[str, ...], covariates: Covariates) -> dict[str, Any]:
    """All of a model of cells but its network, as plain JSON."""
    return {"format": FORMAT, "config": config.to_dict(), "genes": list(genes), "covariates": covariates.to_dict()}


def read(folder: Path) -> tuple[CellConfig, tuple[str, ...], Covariates]:
    """Configuration, genes and covariates of a folder; the training configuration of a run is that of config.json."""
    path = folder / CELLS
    if not path.exists():
        raise ValueError(f"{folder} holds no model of cells: {CELLS} is missing")
    values = _load(path)
    try:
        config = CellConfig.from_dict(values["config"])
        if (folder / "config.json").exists():
            config = dataclasses.replace(config, train=TrainConfig.read(folder / "config.json"))
        return config, tuple(values["genes"]), Covariates.from_dict(config.labels, values["covariates"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} does not describe a model of cells: {error}") from None


def write(folder: Path, description: dict[str, Any]) -> None:
    write_atomic(folder / CELLS, json.dumps(description) + "\n")


def begin_run(folder: Path, description: dict[str, Any], cells: str) -> None:
    """Describe a new run on cells of that fingerprint; a run that has begun keeps its description."""
    if not (folder / "config.json").exists():
        begin_folder(folder)
        write(folder, {**description, "cells": cells})


def check_run(folder: Path, description: dict[str, Any], cells: str) -> None:
    """Raise ValueError if a run in the folder has other settings or cells."""
    if not (folder / "config.json").exists():
        return
    there, description = _load(folder / CELLS), json.loads(json.dumps(description))
    try:
        settings = [(name, there["config"][name], description["config"][name]) for name in OWN]
        same = {
            "genes": there["genes"] == description["genes"],
            "classes": there["covariates"]["classes"] == description["covariates"]["classes"],
            "cells": there["cells"] == cells,
        }
    except (KeyError, TypeError) as error:
        raise ValueError(f"{folder / CELLS} does not describe a run on cells: {error}") from None
    for name, theirs, ours in settings:
        if theirs != ours:
            raise ValueError(f"{folder} holds a run with {name}={theirs!r}, not {ours!r}; choose another folder")
    for name, equal in same.items():
        if not equal:
            raise ValueError(f"{folder} holds a run on other {name}; choose another folder, or the data of the run")


def fingerprint(cells: Counts, covariates: Covariates) -> str:
    """SHA-256 of the counts, the gene names and the classes of cells."""
    codes = numpy.asarray(covariates.codes(cells), "<i8")
    return hashlib.sha256(cells.checksum.encode() + codes.tobytes()).hexdigest()


def was_trained_on(folder: Path, cells: Counts, covariates: Covariates) -> bool:
    """Whether a run was trained on exactly these cells."""
    try:
        return bool(_load(folder / CELLS).get("cells") == fingerprint(cells, covariates))
    except ValueError:  # other labels: other cells
        return False


def _load(path: Path) -> dict[str, Any]:
    try:
        values = dict(json.loads(path.read_text()))
        if values["format"] != FORMAT:
            raise ValueError(f"format {values['format']}, expected {FORMAT}")
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} does not describe a model of cells: {error}") from None
    return values
