"""TrainConfig: everything that determines a training run. It is written to `config.json` in the run folder.

This module does not import torch, so that the command line shows its help quickly.
"""

import dataclasses
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from blackout import validate
from blackout.files import read_json, write_json
from blackout.network import HEADS, NETWORKS
from blackout.process import PROCESSES
from blackout.registry import Registry
from blackout.sampling import SAMPLERS

LOSSES = Registry("loss")
LOSSES.add("instantaneous", "blackout.loss:InstantaneousLoss", "the paper's Eq. (11): better images")
LOSSES.add("finite_time", "blackout.loss:FiniteTimeLoss", "the paper's Eq. (12), on a grid of times")
LOSSES.add("likelihood", "blackout.loss:LikelihoodLoss", "the evidence bound: better bits per dimension")

_LARGEST = {"width": 2**16, "blocks": 2**10, "patch": 2**8, "image_size": 2**16, "num_times": 10**6}
"""Of integers; 2^53 for others. What still fits here may not fit in memory, which is checked before training."""


def option(default: Any, text: str, choices: Registry | tuple[str, ...] = ()) -> Any:
    """A field with the line that `--help` shows for it; `choices` are appended to it and checked."""
    return field(default=default, metadata={"help": text, "choices": choices})


def noted(text: str) -> Any:
    """A field that is no option: a command notes it in config.json."""
    return field(default="", metadata={"help": text, "choices": (), "noted": True})


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which data, and how they are read."""

    dataset: str = option("", "name of a data set (see `blackout data`); empty: a path")
    image_size: int = option(0, "side that the central square of each image is resized to; 0: as they are")
    background: str = option("black", "colour behind transparent pixels: a name, such as white, or #rrggbb")
    max_count: int = option(255, "largest count in the data; 0: counts without a bound")
    split: str = option(
        "train", "training images: train; all (CelebA only): every split, as in the authors' code", ("train", "all")
    )
    flip: bool = option(False, "random horizontal flips")
    length: int = option(0, "labels of a sequence; 0: 256, of FASTA and FASTQ the longest, up to 512")
    alphabet: str = option("characters", "labels of text: characters, bytes, or a tokenizer's .json file")

    given: str = noted("the data of a run as they were given on the command line")
    path: str = noted("their absolute path")

    def reading(self) -> dict[str, Any]:
        """The options of the reader of images or sequences that are not its defaults."""
        options = {
            "size": self.image_size or None, "background": self.background, "length": self.length or None,
            "alphabet": self.alphabet,
        }  # fmt: skip
        return {name: value for name, value in options.items() if value not in (None, "black", "characters")}


@dataclass(frozen=True, kw_only=True)
class ProcessConfig:
    """The forward process and its observation times."""

    process: str = option("pure-death", "forward process: a name, or a .npz or .npy file with its matrix", PROCESSES)
    num_times: int = option(1000, "number of observation times")
    t_end: float = option(0.0, "last observation time, in relaxation times; 0: from the data, at least 15")

    @property
    def is_file(self) -> bool:
        """Whether `process` is the path of a matrix and not a name."""
        return Path(self.process).suffix.lower() in (".npz", ".npy")


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """The network, its head and its conditioning."""

    network: str = option(
        "auto", "network; auto: ncsnpp for images, mlp for vectors, transformer for sequences", NETWORKS
    )
    preset: str = option("paper", "size of the network", ("paper", "small", "tiny"))
    width: int = option(0, "channels of the first level of an image network, width of others; 0: the preset's")
    blocks: int = option(0, "residual blocks, of an image network in each level; 0: the preset's")
    patch: int = option(0, "side of the squares of pixels that are channels of one, for speed; 0: the preset's")
    dropout: float = option(-1.0, "dropout; negative: the preset's")
    head: str = option("bounded-logit", "parametrisation of the posterior; auto: by the process", HEADS)
    time_input: str = option("logit", "how time enters: logit (continuous) or index (the authors')", ("logit", "index"))
    class_conditional: bool = option(False, "condition on class labels")
    label_dropout: float = option(0.1, "share of labels dropped in training, for unconditional sampling and guidance")


@dataclass(frozen=True, kw_only=True)
class OptimiserConfig:
    """Loss, training times and optimiser."""

    loss: str = option("likelihood", "weight of the loss over time", LOSSES)
    loss_scale: float = option(1.0, "factor on the loss; with Adam it matters little, unless gradients are clipped")
    channels: str = option(
        "all", "channels of the reverse process in the loss: all, or one drawn for each data point (Algorithm 3)",
        ("all", "one"),
    )  # fmt: skip
    time_density: str = option(
        "grid", "training times: grid (uniform index), logistic (logit p ~ Logistic)", ("grid", "logistic")
    )
    time_loc: float = option(1.0, "location of the logistic density, in logit p")
    time_scale: float = option(2.2, "scale of the logistic density")
    stratified: bool = option(False, "stratify the times of a batch")
    steps: int = option(300_000, "optimiser steps")
    batch_size: int = option(256, "data points a step, over all processes")
    accumulate: int = option(1, "micro-batches a step")
    learning_rate: float = option(2e-4, "learning rate")
    beta2: float = option(0.999, "Adam's second coefficient")
    warmup: int = option(0, "steps of linear warm-up")
    lr_schedule: str = option("none", "learning rate after warm-up", ("none", "cosine"))
    grad_clip: float = option(0.0, "largest gradient norm; 0: no clipping")
    ema: float = option(0.9999, "decay of the exponential moving average of the weights")
    ema_first: bool = option(False, "average before the optimiser step, as in the authors' code; else after it")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Seed, machine and reports."""

    seed: int = option(0, "seed")
    init: str = option(
        "", "start from the weights of a pretrained model, a saved model or a run folder; empty: new weights"
    )
    precision: str = option("auto", "auto: bfloat16 on CUDA, float32 elsewhere", ("auto", "float32", "bfloat16"))
    compile: bool = option(False, "compile the network with torch.compile")
    compile_mode: str = option(
        "default", "mode of torch.compile on one device", ("default", "reduce-overhead", "max-autotune")
    )
    max_minutes: float = option(0.0, "save and end after so many minutes, to be resumed; 0: no limit")
    log_every: int = option(50, "steps between lines of metrics.jsonl")
    checkpoint_every: int = option(5000, "steps between checkpoints")
    part_mib: int = option(0, "largest file of a checkpoint, in MiB; 0: one file for each group of tensors")
    sample_every: int = option(0, "steps between grids of samples; 0: none")
    tracker: str = option(
        "none", "also report to a tracker: tensorboard (files in the run folder) or wandb (Weights & Biases)",
        ("none", "tensorboard", "wandb"),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """How the trained model is sampled unless a call names something else."""

    sampler: str = option("auto", "default sampler of the model; auto: by process and head", SAMPLERS)
    sampling_steps: int = option(250, "default number of sampling steps of the model")
    sampling_dropout: bool = option(False, "keep the network's dropout on while sampling, as in the authors' code")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Everything that determines a run, in sections. Field names are unique over all sections."""

    recipe: str = ""
    description: str = ""
    data: DataConfig = field(default_factory=DataConfig)
    process: ProcessConfig = field(default_factory=ProcessConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    run: RunConfig = field(default_factory=RunConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)

    def __post_init__(self) -> None:
        for name, (_, entry) in self.fields().items():
            choices = entry.metadata["choices"]
            if name == "process" and self.process.is_file:
                continue
            if choices and not (isinstance(self[name], str) and self[name] in ("", "auto")):
                validate.choice(name, self[name], tuple(choices))  # empty: an unregistered class, given in Python
        self._check_numbers()
        if self["background"] != "black":
            from blackout.data.decode import background_colour

            background_colour(self["background"])
        if not isinstance(self["init"], str):
            raise ValueError(f"init must be a name or a folder, as a string, got {self['init']!r}")
        batch, parts = self["batch_size"], self["accumulate"]
        if batch % parts:
            raise ValueError(f"batch_size={batch} must be a multiple of accumulate={parts}")
        if self["time_density"] == "logistic" and self["loss"] == "finite_time":
            raise ValueError("time_density='logistic' has no neighbouring times for loss='finite_time'")

    def _check_numbers(self) -> None:
        positive = ("steps", "batch_size", "accumulate", "num_times", "log_every", "checkpoint_every", "sampling_steps")
        for name, (_, entry) in self.fields().items():
            if entry.type is int:
                validate.integer(name, self[name], int(name in positive), _LARGEST.get(name, 2**53))
            elif entry.type is float:
                validate.real(name, self[name], -sys.float_info.max)
        for name in ("learning_rate", "loss_scale", "time_scale"):
            validate.real(name, self[name], 0.0, strict=True)
        for name in ("grad_clip", "t_end", "max_minutes"):
            validate.real(name, self[name], 0.0)
        for name in ("ema", "label_dropout", "beta2"):
            validate.real(name, self[name], 0.0)
        for name in ("ema", "label_dropout", "beta2", "dropout"):
            if self[name] >= 1:
                raise ValueError(f"{name} must be less than 1, got {self[name]}")
        width = self["width"]
        if width and (width < 4 or width % 2):  # half of the embedding of time are sines, half cosines
            raise ValueError(f"width must be even and at least 4, got {width}")

    @staticmethod
    def fields() -> "dict[str, tuple[str, dataclasses.Field[Any]]]":
        """The section and the field of every name."""
        return _FIELDS

    def __getitem__(self, name: str) -> Any:
        """The value of a field in whatever section."""
        return getattr(getattr(self, _FIELDS[name][0]), name)

    def replace(self, **values: Any) -> Self:
        """The configuration with other values, by field names; ValueError for a name that is no field."""
        sections: dict[str, Any] = {}
        for name, value in values.items():
            if getattr(value, "shape", None) == ():  # a number of numpy or torch
                value = value.item()
            if name in ("recipe", "description"):
                sections[name] = value
            else:
                sections.setdefault(check_field(name), {})[name] = value
        changed = {
            name: dataclasses.replace(getattr(self, name), **value) if isinstance(value, dict) else value
            for name, value in sections.items()
        }
        return dataclasses.replace(self, **changed)

    @staticmethod
    def for_fit(process: Any, head: Any, times: Any, num_classes: int, *, steps: int, **values: Any) -> "TrainConfig":
        """The defaults of `DiffusionModel.fit` for a model of these parts, with other values."""
        defaults = {
            "process": PROCESSES.find(process),
            "head": HEADS.find(head),
            "max_count": process.max_state or 0,
            "num_times": len(times),
            "t_end": times.t_end,
            "class_conditional": num_classes > 0,
            "time_density": "grid" if process.discrete_time else "logistic",
            "log_every": min(50, validate.integer("steps", steps, 1)),
            "learning_rate": 1e-3,
            "ema": 0.999,
            "stratified": True,
        }
        return TrainConfig().replace(**{**defaults, "steps": steps, **values})

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(values: dict[str, Any], base: "TrainConfig | None" = None) -> "TrainConfig":
        """The configuration of nested values; what is missing is taken from `base`, or from the defaults."""
        flat: dict[str, Any] = {}
        for section, entries in values.items():
            if section in ("recipe", "description"):
                flat[section] = _typed(section, entries, str)
                continue
            if section not in _SECTIONS or not isinstance(entries, dict):
                raise ValueError(f"{section} is not a section of a configuration: {', '.join(_SECTIONS)}")
            for name, value in entries.items():
                if name not in _FIELDS or _FIELDS[name][0] != section:
                    raise ValueError(
                        f"{section}.{name} is not a field of a configuration{validate.suggestion(name, _FIELDS)}"
                    )
                flat[name] = _typed(f"{section}.{name}", value, _FIELDS[name][1].type)
        return (base or TrainConfig()).replace(**flat)

    @staticmethod
    def read(path: Path, base: "Callable[[str], TrainConfig] | None" = None) -> "TrainConfig":
        """The configuration in a file; what is missing is taken from base(recipe), the recipe that the file names."""
        try:
            values = read_json(path, by_hand=True)
            name = values.get("recipe")
            return TrainConfig.from_dict(values, base(name) if base is not None and name else None)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a configuration: {str(error).removeprefix(f'{path} ')}") from None

    def write(self, path: Path) -> None:
        write_json(path, self.to_dict())


_SECTIONS: dict[str, type] = {
    "data": DataConfig,
    "process": ProcessConfig,
    "network": NetworkConfig,
    "optimiser": OptimiserConfig,
    "run": RunConfig,
    "sampling": SamplingConfig,
}
_FIELDS: "dict[str, tuple[str, dataclasses.Field[Any]]]" = {
    entry.name: (section, entry) for section, cls in _SECTIONS.items() for entry in dataclasses.fields(cls)
}


def check_field(name: str) -> str:
    """The section of a field; ValueError with a suggestion if there is no such field."""
    if name not in _FIELDS:
        raise ValueError(f"{name} is not a field of TrainConfig{validate.suggestion(name, _FIELDS)}")
    return _FIELDS[name][0]


def _typed(name: str, value: Any, kind: Any) -> Any:
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise ValueError(f"{name} must be of type {kind.__name__}, got {value!r}")
    return value
