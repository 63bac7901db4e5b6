"""TrainConfig: one training run, completely. It is written to `config.json` in the run folder."""

import dataclasses
import difflib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blackout import validate
from blackout.atomic import write_atomic

# What may change when a run goes on: how long, how fast and how much is told of it, but not what is learned from what.
_FREE = (
    "description",
    "steps",
    "precision",
    "compile",
    "compile_mode",
    "log_every",
    "checkpoint_every",
    "sample_every",
    "tensorboard",
)


def _option(default: Any, text: str, **more: Any) -> Any:
    """A field with the line that `--help` shows for it."""
    return field(default=default, metadata={"help": text, **more})


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Everything that determines a run."""

    recipe: str = _option("", "name of the recipe", fixed=True)
    description: str = _option("", "what it is for", fixed=True)
    dataset: str = _option(
        "", "name of the data set: cifar10, mnist-binary, celeba64, bentheimer, digits, counts; or empty for a path"
    )
    image_size: int = _option(0, "pictures are resized to this many pixels; 0: as they are")
    max_count: int = _option(255, "largest count in the data; 0: none")
    labels: str = _option("", "counts: columns of obs to condition on, separated by commas")
    layer: str = _option("", "counts: layer of AnnData that holds raw counts; empty: X")
    library: str = _option("generated", "counts: the total of a cell is generated with it, or conditioned on")
    process: str = _option("pure-death", "pure-death, birth-death, absorbing, uniform, gaussian, halving")
    # times
    num_steps: int = _option(1000, "observation times of the grid")
    t_end: float = _option(15.0, "last observation time")
    time_law: str = _option("grid", "grid: k uniform on the grid; logistic: continuous, logit p ~ Logistic(loc, scale)")
    time_loc: float = _option(1.0, "loc of the logistic time law, in logit p")
    time_scale: float = _option(2.2, "scale of the logistic time law")
    stratified: bool = _option(False, "spread the times of a batch evenly")
    # network
    preset: str = _option("paper", "network: paper, small, tiny")
    width: int = _option(0, "channels of the first level; 0: the preset's")
    blocks: int = _option(0, "residual blocks a level; 0: the preset's")
    dropout: float = _option(-1.0, "dropout; negative: the preset's")
    class_conditional: bool = _option(False, "condition on class labels")
    label_dropout: float = _option(0.1, "share of the labels that are hidden, so that sampling without one works too")
    conditioning: str = _option("logit", "how time enters: logit (continuous) or index (the authors')")
    head: str = _option(
        "bounded-logit",
        "softplus (the paper's), bounded-logit, gamma-poisson; any process: categorical, levels, mixture, rates",
    )
    # objective and optimiser
    loss: str = _option("likelihood", "instantaneous, finite_time, likelihood")
    steps: int = _option(300_000, "optimiser steps")
    batch_size: int = _option(256, "images a step, over all processes")
    accumulate: int = _option(1, "micro-batches a step")
    learning_rate: float = _option(2e-4, "learning rate")
    beta2: float = _option(0.999, "Adam's second coefficient")
    warmup: int = _option(0, "steps of linear warm-up")
    decay: str = _option("none", "learning rate after warm-up: none, cosine")
    clip: float = _option(0.0, "largest norm of the gradient; 0: no clipping")
    ema: float = _option(0.9999, "decay of the averaged weights")
    flip: bool = _option(False, "random horizontal flips")
    seed: int = _option(0, "seed")
    # machine
    precision: str = _option("auto", "auto: bfloat16 on CUDA, float32 elsewhere; or float32, bfloat16")
    compile: bool = _option(False, "torch.compile the network")
    compile_mode: str = _option("default", "torch.compile's, on one device: default, reduce-overhead, max-autotune")
    # reports
    log_every: int = _option(50, "steps between lines of metrics.jsonl")
    checkpoint_every: int = _option(5000, "steps between checkpoints")
    sample_every: int = _option(0, "steps between grids of samples; 0: none")
    tensorboard: bool = _option(False, "write TensorBoard events too")

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "accumulate", "num_steps", "log_every", "checkpoint_every"):
            validate.integer(name, getattr(self, name), 1)
        for name in ("image_size", "max_count", "warmup", "seed", "sample_every", "width", "blocks"):
            validate.integer(name, getattr(self, name), 0)
        for name in ("learning_rate", "t_end", "time_scale"):
            validate.real(name, getattr(self, name), 0.0, strict=True)
        for name in ("clip", "ema"):
            validate.real(name, getattr(self, name), 0.0)
        if self.ema >= 1:
            raise ValueError(f"ema must be less than 1, got {self.ema}")
        if validate.real("label_dropout", self.label_dropout, 0.0) >= 1:
            raise ValueError(f"label_dropout must be less than 1, got {self.label_dropout}")
        validate.choice("time_law", self.time_law, ("grid", "logistic"))
        validate.choice("loss", self.loss, ("instantaneous", "finite_time", "likelihood"))
        validate.choice("decay", self.decay, ("none", "cosine"))
        validate.choice("library", self.library, ("generated", "conditioned"))
        validate.choice("compile_mode", self.compile_mode, ("default", "reduce-overhead", "max-autotune"))
        validate.choice("precision", self.precision, ("auto", "float32", "bfloat16"))
        if self.batch_size % self.accumulate:
            raise ValueError(f"batch_size={self.batch_size} must be a multiple of accumulate={self.accumulate}")
        if self.time_law == "logistic" and self.loss == "finite_time":
            raise ValueError("time_law='logistic' has no neighbouring times for loss='finite_time'")

    def write(self, path: Path) -> None:
        write_atomic(path, json.dumps(dataclasses.asdict(self), indent=2) + "\n")

    @staticmethod
    def read(path: Path) -> "TrainConfig":
        """The configuration in a file; unknown names are refused."""
        try:
            values = dict(json.loads(path.read_text()))
        except (OSError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a configuration: {error}") from None
        return TrainConfig.from_dict(values, path)

    @staticmethod
    def from_dict(values: dict[str, Any], path: Path) -> "TrainConfig":
        """The configuration of these values, which came from that file."""
        known: dict[str, Any] = {f.name: f.type for f in dataclasses.fields(TrainConfig)}
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise ValueError(f"{path} has unknown fields: {', '.join(unknown)}")
        for name, value in values.items():
            if type(value) is not known[name] and not (known[name] is float and type(value) is int):
                raise ValueError(f"{path}: {name} must be of type {known[name].__name__}, got {value!r}")
        return TrainConfig(**values)


def changed(config: TrainConfig, values: dict[str, Any]) -> TrainConfig:
    """The configuration with other values; a name that is no field is refused, with the one that may be meant."""
    names = [f.name for f in dataclasses.fields(TrainConfig)]
    for name in values:
        if name not in names:
            close = difflib.get_close_matches(name, names, 1)
            meant = f"; did you mean {close[0]}?" if close else ""
            raise TypeError(f"{name} is neither an argument nor a field of TrainConfig{meant}")
    return dataclasses.replace(config, **values)


def refuse_another(config: TrainConfig, run: Path) -> None:
    """A run folder belongs to one configuration, but for fields that may change on the way, and to no saved model."""
    if next(run.glob("model-*.safetensors"), None) is not None:
        raise ValueError(f"{run} holds a saved model, which is no run to go on with; choose another folder")
    if not (run / "config.json").exists():
        return
    there = TrainConfig.read(run / "config.json")
    names = [f.name for f in dataclasses.fields(TrainConfig) if f.name not in _FREE]
    changed = [
        f"{name} ({getattr(there, name)!r} there, {getattr(config, name)!r} here)"
        for name in names
        if getattr(there, name) != getattr(config, name)
    ]
    if changed:
        raise ValueError(f"{run} holds a run that differs in {', '.join(changed)}; choose another folder")
