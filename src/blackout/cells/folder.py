"""counts.json: what a model of cells knows beside its network. A run writes it once, and belongs to its cells alone."""

import dataclasses
import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from blackout.atomic import write_atomic
from blackout.cells.counts import Counts
from blackout.io.models import CELLS
from blackout.network import MLPConfig
from blackout.recipes import recipe
from blackout.training.config import TrainConfig

FORMAT = 1


def read_description(folder: Path) -> dict[str, Any]:
    path = folder / CELLS
    try:
        values = dict(json.loads(path.read_text()))
        if values["format"] != FORMAT:
            raise ValueError(f"format {values['format']}, where this version reads {FORMAT}")
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} does not describe a model of counts: {error}") from None
    return values


def write_description(folder: Path, values: dict[str, Any]) -> None:
    write_atomic(folder / CELLS, json.dumps(values) + "\n")


def fingerprint(cells: Counts, codes: NDArray[Any]) -> str:
    """SHA-256 of the counts, the names of the genes and the classes: what a run is tied to."""
    return hashlib.sha256(cells.checksum.encode() + numpy.asarray(codes, "<i8").tobytes()).hexdigest()


def begin_run(folder: Path, own: dict[str, Any]) -> None:
    """Describe a new run; one that has begun keeps its description, and is refused to other cells than its own."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "config.json").exists():
        write_description(folder, own)
        return
    there = read_description(folder)
    for what in ("genes", "classes"):
        if there.get(what) != own[what]:
            raise ValueError(f"{folder} holds a run on other {what}; choose another folder")
    try:
        same = _same_cells(there, own)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{folder / CELLS} does not describe a model of counts: {error}") from None
    if not same:
        raise ValueError(f"{folder} holds a run on other cells; give it the cells it began with, or another folder")


def _same_cells(there: dict[str, Any], own: dict[str, Any]) -> bool:
    if "cells" in there:
        return bool(there["cells"] == own["cells"])
    # Runs of the first version keep no checksum, but the law of the totals and the share of each class.
    pairs = [(there["totals"][name], own["totals"][name]) for name in ("centre", "scale")]
    pairs += zip(there["share"], own["share"], strict=True)
    return all(math.isclose(a, b, rel_tol=1e-9) for a, b in pairs)


def saved_config(folder: Path, values: dict[str, Any], network: MLPConfig) -> TrainConfig:
    """What the model was trained under. A model that was saved by the first version tells its network alone."""
    if (folder / "config.json").exists():
        config = TrainConfig.read(folder / "config.json")
    elif "config" in values:
        config = TrainConfig.from_dict(values["config"], folder / CELLS)
    else:
        config = dataclasses.replace(
            recipe("counts"), width=network.width, blocks=network.blocks, dropout=network.dropout
        )
    labels = ",".join(values["labels"])
    return dataclasses.replace(
        config, labels=labels, class_conditional=bool(labels), library=values["library"], layer=values.get("layer", "")
    )
