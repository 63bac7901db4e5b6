"""CellConfig: the configuration of a model of cells."""

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blackout import validate
from blackout.training.config import TrainConfig, changed

OWN = ("labels", "layer", "library")


def default_train() -> TrainConfig:
    """The default network and optimiser: 4,000 steps, minutes on two CPU cores."""
    return TrainConfig(
        dataset="counts",
        max_count=0,
        head="gamma-poisson",
        loss="likelihood",
        time_law="logistic",
        time_loc=0.0,
        stratified=True,
        width=512,
        blocks=4,
        dropout=0.15,
        steps=4_000,
        batch_size=128,
        learning_rate=1e-3,
        beta2=0.99,
        warmup=100,
        decay="cosine",
        clip=1.0,
        ema=0.998,
        log_every=50,
        checkpoint_every=1000,
    )


@dataclass(frozen=True, kw_only=True)
class CellConfig:
    """What a model of cells is conditioned on, where its counts are, and how it is trained.

    Parameters
    ----------
    labels : sequence of str
        Columns of obs to condition on.
    layer : str
        Layer of AnnData that holds the raw counts; empty for X, "raw" for adata.raw.
    library : {"generated", "conditioned"}
        Whether the library size is generated with the cell or an input of the network.
    train : TrainConfig
        Network, optimiser and run; the process is pure death without a largest count.
    """

    labels: tuple[str, ...] = ()
    layer: str = ""
    library: str = "generated"
    train: TrainConfig = field(default_factory=default_train)

    def __post_init__(self) -> None:
        labels = () if self.labels is None else self.labels
        names = [labels] if isinstance(labels, str) or not isinstance(labels, Iterable) else list(labels)
        wrong = [name for name in names if not isinstance(name, str)]
        if wrong:
            raise ValueError(f"labels must name columns of obs, got {wrong[0]!r}")
        object.__setattr__(self, "labels", tuple(name for name in names if name))
        object.__setattr__(self, "layer", self.layer or "")
        validate.choice("library", self.library, ("generated", "conditioned"))
        if self.train.process != "pure-death" or self.train.max_count:
            got = f"process={self.train.process!r}, max_count={self.train.max_count}"
            raise ValueError(f"a model of cells needs process='pure-death' and max_count=0, got {got}")
        conditional = dataclasses.replace(self.train, class_conditional=bool(self.labels), library=self.library)
        object.__setattr__(self, "train", conditional)

    @property
    def conditioned(self) -> bool:
        """Whether the library size is an input of the network."""
        return self.library == "conditioned"

    @property
    def allow_unlabelled(self) -> bool:
        """Whether the model is trained on cells without labels too."""
        return self.train.label_dropout > 0

    def replace(self, **values: Any) -> "CellConfig":
        """A copy with other values, by the flat names of this class and of TrainConfig."""
        own = {name: values.pop(name) for name in OWN if name in values}
        return dataclasses.replace(self, **own, train=changed(self.train, values))

    def to_dict(self) -> dict[str, Any]:
        return {**{name: getattr(self, name) for name in OWN}, "train": dataclasses.asdict(self.train)}

    @staticmethod
    def from_dict(values: dict[str, Any], path: Path) -> "CellConfig":
        """The configuration of `to_dict`, read from that file; missing values are the defaults."""
        values = dict(values)
        train = TrainConfig.from_dict({**dataclasses.asdict(default_train()), **values.pop("train", {})}, path)
        unknown = sorted(set(values) - set(OWN))
        if unknown:
            raise ValueError(f"{path} has unknown fields: {', '.join(unknown)}")
        return CellConfig(**values, train=train)

    @staticmethod
    def read(path: Path) -> "CellConfig":
        """A configuration from a JSON file."""
        try:
            values = dict(json.loads(path.read_text()))
        except (OSError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a configuration: {error}") from None
        return CellConfig.from_dict(values, path)
