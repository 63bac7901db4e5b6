"""The folder of a model of cells: its description as JSON beside the network. A run is tied to its cells."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy

from blackout import validate
from blackout.cells.config import OWN, CellConfig
from blackout.cells.counts import Counts
from blackout.cells.covariates import Covariates
from blackout.cells.held_out import HELD_OUT
from blackout.files import file_digest, read_json, read_lines, write_json
from blackout.io.models import CELLS, load_folder
from blackout.model import DiffusionModel
from blackout.training.checkpoints import METRICS
from blackout.training.config import TrainConfig
from blackout.training.folder import begin_folder
from blackout.training.saved import DESCRIPTION

FORMAT = 2


def describe(config: CellConfig, genes: tuple[str, ...], covariates: Covariates) -> dict[str, Any]:
    """All of a model of cells but its network, as plain JSON."""
    return {"format": FORMAT, "config": config.to_dict(), "genes": list(genes), "covariates": covariates.to_dict()}


def load(folder: Path) -> tuple[DiffusionModel, CellConfig, tuple[str, ...], Covariates, list[dict[str, Any]]]:
    """Network, configuration, genes, covariates and history of a saved model or of a run."""
    if not (folder / CELLS).exists() and not (folder / DESCRIPTION).exists():
        raise _no_cells(folder)
    model, description = load_folder(folder)
    saved = description.get("cells")
    config, genes, covariates = _read(folder, saved)
    if model.shape != (len(genes),):
        raise ValueError(f"{folder} names {len(genes)} genes for a network of shape {model.shape}")
    if model.predictor.conditions != covariates.conditions:
        theirs, ours = model.predictor.conditions, covariates.conditions
        raise ValueError(f"{folder} holds covariates of the form {ours} for a network with {theirs}")
    return model, config, genes, covariates, read_history(folder, saved)


def _no_cells(folder: Path) -> ValueError:
    reason = f"{CELLS} is missing" if folder.is_dir() else "there is no such folder"
    return ValueError(f"{folder} holds no model of cells: {reason}")


def _read(folder: Path, saved: Any) -> tuple[CellConfig, tuple[str, ...], Covariates]:
    """Configuration, genes and covariates of a folder; the training configuration of a run is that of config.json.

    `saved` is the field `cells` of model.json, for a saved model; None for a run, which has a file of its own.
    """
    path = folder / (CELLS if saved is None else DESCRIPTION)
    if not path.exists():
        raise _no_cells(folder)
    config, genes, covariates = _parse(_load(path) if saved is None else saved, path)
    if (folder / "config.json").exists():
        config = dataclasses.replace(config, train=TrainConfig.read(folder / "config.json"))
    return config, genes, covariates


def read_history(folder: Path, saved: Any = None) -> list[dict[str, Any]]:
    """The reports of the training: those of a saved model, or of a run in the folder."""
    if isinstance(saved, dict):
        rows = saved.get("history", [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            found = f"history must be a list of reports, got {validate.short(rows)}"
            raise ValueError(f"{folder / DESCRIPTION} does not describe a model of cells: {found}")
        return rows
    return read_lines(folder / METRICS) if (folder / METRICS).exists() else []


def _parse(values: Any, path: Path) -> tuple[CellConfig, tuple[str, ...], Covariates]:
    """The parts of a description; ValueError with the name of the field that is wrong."""
    field = "format"
    try:
        if values["format"] != FORMAT:
            raise ValueError(f"{values['format']!r}, expected {FORMAT}")
        field = "config"
        config = CellConfig.from_dict(values[field])
        field = "genes"
        genes = tuple(values[field])
        if not isinstance(values[field], list) or not all(isinstance(name, str) for name in genes):
            raise ValueError("expected a list of names")
        field = "covariates"
        return config, genes, Covariates.from_dict(config, values[field])
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__} {validate.one_line(error)}"
        raise ValueError(f"{path} does not describe a model of cells: {field}: {reason}") from None


def begin_run(folder: Path, description: dict[str, Any], cells: str) -> None:
    """Describe a new run on cells of that fingerprint; a run that has begun keeps its description."""
    if not (folder / "config.json").exists():
        begin_folder(folder)
        split = {"held_out": file_digest(folder / HELD_OUT)} if (folder / HELD_OUT).exists() else {}
        write_json(folder / CELLS, {**description, "cells": cells, **split})


def check_run(folder: Path, description: dict[str, Any], cells: str) -> None:
    """Raise ValueError if a run in the folder has other settings or cells."""
    if not (folder / "config.json").exists():
        return
    there, description = _load(folder / CELLS), json.loads(json.dumps(description))
    try:
        settings = [(name, there["config"][name], description["config"][name]) for name in OWN]
        same = {
            "genes": there["genes"] == description["genes"],
            "labels": all(
                there["covariates"][k] == description["covariates"][k] for k in ("labels", "batch", "numbers")
            ),
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
    """SHA-256 of the counts, the gene names and the covariates of cells."""
    rows = covariates.read(cells)
    codes, numbers = numpy.asarray(rows.codes, "<i8"), numpy.asarray(rows.numbers, "<f8")
    return hashlib.sha256(cells.checksum.encode() + codes.tobytes() + numbers.tobytes()).hexdigest()


def was_trained_on(folder: Path, cells: Counts, covariates: Covariates) -> bool:
    """Whether a run was trained on exactly these cells."""
    try:
        return (folder / CELLS).exists() and bool(_load(folder / CELLS).get("cells") == fingerprint(cells, covariates))
    except ValueError:  # other labels: other cells
        return False


def _load(path: Path) -> dict[str, Any]:
    return read_json(path, lambda values: _parse(values, path))
