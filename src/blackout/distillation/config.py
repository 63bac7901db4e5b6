"""DistillConfig: what determines a distillation, beside the teacher and the data. Importing it needs no torch."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from blackout import validate
from blackout.files import read_json, write_json
from blackout.times import TIME_RULES
from blackout.training.config import TrainConfig, begin_folder

FILE = "distill.json"
"""A file beside config.json in the folder of a distillation."""

_OWN = ("num_steps", "times", "aux_updates", "aux_learning_rate", "survival_power")  # fields that TrainConfig lacks


def option(default: Any, text: str, **more: Any) -> Any:
    return field(default=default, metadata={"help": text, **more})


@dataclass(frozen=True, kw_only=True)
class DistillConfig:
    """Steps of the student, and how it is trained.

    Examples
    --------
    >>> DistillConfig(num_steps=4).train_config().sampling.sampling_steps
    4
    """

    num_steps: int = option(8, "sampling steps of the student", flag="--steps")
    times: str = option("", "time grid of the student; empty: as in sampling", entries=TIME_RULES)
    steps: int = option(8000, "updates of the student", flag="--updates")
    aux_updates: int = option(4, "updates of the auxiliary network for each of the student")
    survival_power: float = option(
        0.5, "weight of the gradient at a time u of a step: r to this power, r the probability that a unit is back at u"
    )
    batch_size: int = option(256, "data points an update, over all processes")
    learning_rate: float = option(2e-4, "learning rate of the student at its highest; it falls as a cosine")
    aux_learning_rate: float = option(4e-4, "learning rate of the auxiliary network")
    warmup: int = option(100, "updates of linear warm-up")
    grad_clip: float = option(1.0, "largest gradient norm; 0: no clipping")
    ema: float = option(0.999, "decay of the moving average of the student's weights")
    flip: bool = option(False, "random horizontal flips, even if the teacher was trained without them")
    label_dropout: float = option(0.1, "share of labels dropped, for unconditional samples of a conditional model")
    seed: int = option(0, "seed")
    precision: str = option("auto", "auto: bfloat16 on CUDA, float32 elsewhere; float32; bfloat16")
    compile: bool = option(False, "compile the networks with torch.compile")
    compile_mode: str = option("default", "mode of torch.compile: default, reduce-overhead, max-autotune")
    max_minutes: float = option(0.0, "save and end after so many minutes, to be resumed; 0: no limit")
    log_every: int = option(50, "updates between lines of metrics.jsonl")
    checkpoint_every: int = option(1000, "updates between checkpoints")
    sample_every: int = option(0, "updates between grids of samples; 0: none")

    def __post_init__(self) -> None:
        validate.integer("num_steps", self.num_steps, 1)
        validate.integer("aux_updates", self.aux_updates, 1)
        validate.real("aux_learning_rate", self.aux_learning_rate, 0.0, strict=True)
        validate.real("survival_power", self.survival_power, 0.0)
        if self.times:
            TIME_RULES.check(self.times)
        self.train_config()  # raises for the other fields

    def train_config(self, teacher: TrainConfig | None = None) -> TrainConfig:
        """The configuration of the training loop; data set, process and network are those of the teacher's."""
        own = asdict(self)
        for name in _OWN:
            own.pop(name)
        base = teacher or TrainConfig()
        own |= {"flip": self.flip or base.data.flip, "num_times": self.num_steps, "sampling_steps": self.num_steps}
        own |= {"head": "student", "time_density": "grid", "stratified": True, "beta2": 0.99, "lr_schedule": "cosine"}
        own |= {"accumulate": 1, "ema_first": False, "channels": "all", "time_input": "logit"}
        own |= {"sampler": "auto", "sampling_dropout": False}
        return base.replace(recipe="", description="a distilled model", **own)

    def check_same(self, folder: Path, teacher: str) -> None:
        """Raise ValueError if a folder holds the distillation of another teacher, or in another way."""
        if not (folder / FILE).exists():
            if (folder / "config.json").exists():
                raise ValueError(f"{folder} holds a run that is no distillation; choose another folder")
            return
        there, here = read_json(folder / FILE), self._stored(teacher)
        changed = [f"{name} ({there.get(name)!r} there, {value!r} here)" for name, value in here.items()
                   if there.get(name) != value]  # fmt: skip
        if changed:
            raise ValueError(
                f"{folder} holds a distillation that differs in {', '.join(changed)}; choose another folder"
            )

    def write(self, folder: Path, teacher: str) -> None:
        begin_folder(folder)
        write_json(folder / FILE, self._stored(teacher))

    def _stored(self, teacher: str) -> dict[str, Any]:
        """What config.json does not have."""
        return {"teacher": teacher, **{name: getattr(self, name) for name in _OWN}}
