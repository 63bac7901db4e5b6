"""What is known about a model beside its parts: its defaults for sampling, and facts about its data."""

from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from blackout.data import Alphabet
from blackout.labels import describe_classes
from blackout.network import HEADS, NETWORKS, Predictor
from blackout.process import PROCESSES, Tilt
from blackout.sampling.choice import SamplingDefaults
from blackout.times import FittedTimes, ObservationTimes
from blackout.training.history import TrainingRun, runs_in

FORMAT = 2
"""Of a model's description."""


@dataclass(frozen=True, kw_only=True)
class ModelRecord:
    """Facts that are saved with a model, and that no computation of probabilities needs.

    Examples
    --------
    >>> record = ModelRecord(sampling=SamplingDefaults(num_steps=1000))
    >>> ModelRecord.from_config(record.config()) == record
    True
    """

    sampling: SamplingDefaults = field(default_factory=SamplingDefaults)
    """Default sampler, number of steps and dropout."""
    tilt: Tilt | None = None
    """What remains of the training data at the last time, if known."""
    runs: tuple[TrainingRun, ...] = ()
    """The training runs that made the weights, oldest first; none where they are not known."""
    class_names: tuple[str, ...] | None = None
    """Names of the classes, in the order of their numbers; None if there are none."""
    fitted: FittedTimes | None = None
    """Observation times fitted to the model, for the rule "fitted"."""
    alphabet: Alphabet | None = None
    """What the labels of sequences stand for; None if they stand for nothing else."""
    lengths: tuple[int, ...] = ()
    """How many sequences of each length, from zero on, the training data have; empty without padding."""
    background: str = "black"
    """Colour behind transparent pixels of the training images, and so of images to inpaint."""

    def config(self) -> dict[str, Any]:
        """The values as plain JSON."""
        return {
            "sampling": asdict(self.sampling),
            **({} if self.tilt is None else {"tilt": self.tilt.config()}),
            **({"runs": [asdict(run) for run in self.runs]} if self.runs else {}),
            **({} if self.class_names is None else {"class_names": list(self.class_names)}),
            **({} if self.fitted is None else {"fitted": self.fitted.config()}),
            **({} if self.alphabet is None else {"alphabet": self.alphabet.config()}),
            **({"lengths": list(self.lengths)} if self.lengths else {}),
            **({} if self.background == "black" else {"background": self.background}),
        }

    @staticmethod
    def from_config(config: dict[str, Any]) -> "ModelRecord":
        """The record in a model's description; what is missing there has its default."""
        return ModelRecord(
            sampling=SamplingDefaults(**config.get("sampling", {})),
            tilt=Tilt.from_config(config["tilt"]) if "tilt" in config else None,
            runs=runs_in(config),
            class_names=tuple(config["class_names"]) if "class_names" in config else None,
            fitted=FittedTimes.from_config(config["fitted"]) if "fitted" in config else None,
            alphabet=Alphabet(**config["alphabet"]) if "alphabet" in config else None,
            lengths=tuple(config.get("lengths", ())),
            background=str(config.get("background", "black")),
        )


def model_config(
    predictor: Predictor, record: ModelRecord, shape: tuple[int, ...] | None, times: Tensor
) -> dict[str, Any]:
    """Everything of a model but its weights, as plain JSON."""
    return {
        "format": FORMAT,
        "process": PROCESSES.to_config(predictor.process),
        "times": times.tolist(),
        "network": NETWORKS.to_config(predictor.network),
        "head": HEADS.to_config(predictor.head),
        "time_input": predictor.time_input,
        "shape": None if shape is None else list(shape),
        **record.config(),
    }


def model_parts(config: dict[str, Any], outline: bool) -> dict[str, Any]:
    """What `model_config` described, as arguments of a model; the network of an outline has no memory for weights."""
    if config["format"] != FORMAT:
        raise ValueError(f"format {config['format']}, where this version reads {FORMAT}")
    process, times = PROCESSES.from_config(config["process"]), ObservationTimes.from_values(config["times"])
    with torch.device("meta") if outline else nullcontext():
        network = NETWORKS.from_config(config["network"])
    head, same = HEADS.from_config(config["head"]), {name: config[name] for name in ("time_input", "shape")}
    return {"process": process, "times": times, "network": network, "head": head, **same}


def describe(predictor: Predictor, record: ModelRecord, shape: tuple[int, ...] | None, ending: str) -> str:
    """A model in a few lines: process, network, data and training so far."""
    weights, largest = sum(p.numel() for p in predictor.parameters()), predictor.process.max_state
    states = "states without a bound" if largest is None else f"states 0 to {largest}"
    classes = f"; {describe_classes(predictor.num_classes, record.class_names)}" if predictor.num_classes else ""
    network, head = type(predictor.network).__name__, HEADS.find(predictor.head) or type(predictor.head).__name__
    return "\n  ".join((
        f"process: {predictor.process!r}, {ending}",
        f"network: {network} with {weights:,} weights, head {head}, on {predictor.grid.device}",
        f"data: shape {shape or 'not known yet'}, {states}{classes}",
        *([f"trained: {run}" for run in record.runs] or ["training: none recorded"]),
    ))  # fmt: skip
