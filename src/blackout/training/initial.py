"""Where training starts: new weights, those of another model (`--init`), or the last checkpoint of the run."""

import json
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from blackout.network import NETWORKS, Predictor
from blackout.training.checkpoints import RunFolder
from blackout.training.history import TrainingRun, runs_in
from blackout.training.saved import SavedModel, find_folder
from blackout.training.weights import load_weights

_FREE = ("network.dropout",)  # has no weights


@dataclass(frozen=True)
class Start:
    """The runs that made the first weights of a run, oldest first, and the model that they are read from, if any."""

    runs: tuple[TrainingRun, ...]
    source: SavedModel | None = None

    @staticmethod
    def find(init: str, folder: Path | None, runs: tuple[TrainingRun, ...]) -> "Start":
        """Where a run starts whose model has weights of `runs` already. A run with checkpoints reads no other model."""
        if folder is not None and RunFolder(folder).checkpoints():
            described = (folder / "model.json").exists()
            before = runs_in(SavedModel.open(folder).config)[:-1] if described else ()  # the last is the run itself
            return Start(before)
        if not init:
            return Start(runs)
        source = open_init(init)
        return Start(runs_in(source.config), source)

    def load(self, predictor: Predictor, description: Mapping[str, Any]) -> None:
        """The weights of the source into a predictor; ValueError if its description differs in what they depend on."""
        if self.source is None:
            return
        wrong = list(_differences(_completed(self.source), json.loads(json.dumps(description))))
        if wrong:
            raise ValueError(f"init: {self.source.folder} differs from this run in {', '.join(wrong)}")
        weights, own = self.source.weights(), predictor.state_dict()
        zero = {name: torch.zeros_like(own[name]) for name in new_weights(self.source, predictor)}
        load_weights(predictor, {**weights, **zero}, self.source.folder)


def open_init(init: str) -> SavedModel:
    """The model that `init` names."""
    try:
        return SavedModel.open(find_folder(init))
    except ValueError as error:
        raise ValueError(f"init: {error}") from None


def new_weights(source: SavedModel, predictor: Predictor) -> tuple[str, ...]:
    """Names of the weights for classes that an unconditional source lacks. At zero, labels have no effect."""
    known = source.config.get("network", {}).get("num_classes", 0)
    return () if known else predictor.class_weights


def _completed(source: SavedModel) -> dict[str, Any]:
    """The description of a model, with the defaults of what its network's section does not name."""
    try:
        with torch.device("meta"):
            network = NETWORKS.to_config(NETWORKS.from_config(source.config["network"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"init: {source.folder} does not describe a network: {error}") from None
    return {**source.config, "network": json.loads(json.dumps(network))}


def _differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Iterator[str]:
    """What the weights depend on and is not the same in two descriptions, both values of each."""
    for section in ("process", "head", "network"):
        their, our = theirs.get(section, {}), ours[section]
        same_kind = their.get("kind") == our["kind"]
        for name in dict.fromkeys((*our, *their)) if same_kind else ["kind"]:
            pair, full = (their.get(name), our.get(name)), f"{section}.{name}"
            extended = full == "network.num_classes" and not pair[0]
            if pair[0] != pair[1] and full not in _FREE and not extended:
                yield _difference(full, *map(repr, pair))
    if theirs.get("time_input") != ours["time_input"]:
        yield _difference("time_input", repr(theirs.get("time_input")), repr(ours["time_input"]))
    elif ours["time_input"] == "index" and theirs["times"] != ours["times"]:
        yield _difference("times", *(f"{len(t)} up to t={t[-1]:.6g}" for t in (theirs["times"], ours["times"])))


def _difference(name: str, their: str, our: str) -> str:
    there, here = (textwrap.shorten(value, 60) for value in (their, our))
    return f"{name} ({there} there, {here} here)"
