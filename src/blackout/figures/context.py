"""Context: what the figures of one call share, so that each pretrained model is sampled once."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from blackout import validate
from blackout.data import open_dataset
from blackout.data.cifar import find_cifar10
from blackout.figures.record import Record, read
from blackout.io.models import load
from blackout.times import ObservationTimes
from blackout.training.checkpoints import Checkpoint, RunFolder
from blackout.training.config import TrainConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PACKAGE = Path(__file__).parent.parent
_NUM, _STEPS = 24, 50  # of a pretrained model


@dataclass(frozen=True)
class CaptionedFigure:
    """A figure to be drawn, and its caption."""

    draw: "Callable[[], Figure]"
    caption: str


@dataclass(frozen=True)
class Sampled:
    """Sampling trajectories of a pretrained model, shape (T + 1, num, channels, height, width)."""

    trajectory: Tensor
    times: ObservationTimes
    sampler: str
    max_state: int

    @property
    def samples(self) -> Tensor:
        return self.trajectory[-1]


@dataclass(frozen=True)
class Grid:
    """Samples of a trained run, shape (num, channels, height, width), and what they depend on."""

    samples: Tensor
    num_steps: int
    sampler: str
    dropout: bool
    max_state: int
    training: str


class MissingRunError(ValueError):
    """A figure needs a trained run that is not there."""


@dataclass(kw_only=True)
class Context:
    """Settings of the figures of one call, and the samples they share."""

    seed: int = 0
    num: int | None = None  # samples; None: 24 of each pretrained model, or as many as the paper shows of a run
    steps: int | None = None  # sampling steps; None: 50 of each pretrained model, all times of a run
    data: Path | None = None  # file or folder of images for the forward process; None: samples of cifar10
    runs: Path = Path("runs")  # folder of runs, each named by its recipe
    device: str = "cpu"  # of the runs
    results: Path | None = None  # folder of records; None: those of the package
    progress: Callable[[str, int, int], None] = field(default=lambda name, done, total: None, repr=False)
    _sampled: dict[str, Sampled] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        validate.integer("seed", self.seed, 0)
        for name in ("num", "steps"):
            if getattr(self, name) is not None:
                validate.integer(name, getattr(self, name), 1)
        for name, path in (("data", self.data), ("results", self.results)):
            if path is not None and not Path(path).exists():
                raise ValueError(f"{name} must exist, but {path} does not")
        if self.results is not None:
            read(self.results)  # invalid records fail before minutes of sampling

    def sampled(self, name: str) -> Sampled:
        """The first `num` samples of a pretrained model, computed once."""
        if name not in self._sampled:
            model, num, steps = load(name), self.num or _NUM, self.steps or _STEPS
            trajectory = model.sample(
                num, steps, seed=self.seed, trajectory=True, batch_size=num,
                callback=lambda k, total, _: self.progress(f"samples of {name}", k, total),
            )  # fmt: skip
            max_state, sampler = int(model.max_state or trajectory.max()), model.default_sampler(steps)
            self._sampled[name] = Sampled(trajectory, model.sampling_times(steps), sampler, max_state)
        return self._sampled[name]

    def grid(self, recipe: str, sampler: str, num: int) -> Grid:
        """The first samples of the run of a recipe: `num`, unless the context has another number."""
        folder, command = Path(self.runs) / recipe, f"`blackout train {recipe} --out {Path(self.runs) / recipe}`"
        if not (folder / "model.json").is_file():
            raise MissingRunError(f"there is no run in {folder}; train it with {command}")
        model, num = load(folder).to(self.device), self.num or num
        steps = min(self.steps or len(model.times), len(model.times))
        samples = model.sample(
            num, steps, sampler, self.seed,
            callback=lambda k, total, _: self.progress(f"samples of {recipe}", k, total),
        )  # fmt: skip
        max_state, dropout = int(model.max_state or samples.max()), model.record.sampling.dropout
        return Grid(samples.cpu(), steps, sampler, dropout, max_state, _training(folder))

    def images(self, num: int) -> tuple[Tensor, int, str]:
        """Images for the forward process, their largest intensity, and where they come from."""
        if self.data is None:
            found = self.sampled("cifar10")
            return found.samples[:num], found.max_state, f"samples of the model `cifar10` ({len(found.times)} steps)"
        path = Path(self.data)
        dataset = open_dataset("cifar10", "test", folder=path) if find_cifar10(path) else open_dataset(path)
        if dataset.x.dim() != 4 or dataset.x.shape[1] not in (1, 3):
            raise ValueError(f"data must hold images, but entries of {path} have shape {tuple(dataset.x.shape[1:])}")
        return dataset.x[:num], int(dataset.max_state or dataset.x.max()), f"the first images of {dataset.name}"

    def record(self, name: str) -> Record:
        """A record of results by its id."""
        folder = packaged_results() if self.results is None else Path(self.results)
        found = {record.id: record for record in read(folder)}
        if name not in found:
            raise ValueError(f"results must hold a record {name!r}, but {folder} has {', '.join(found)}")
        return found[name]


def packaged_results() -> Path:
    """The records of the package; in a clone, those of the repository."""
    inside, beside = _PACKAGE / "results", _PACKAGE.parents[1] / "results"
    return inside if inside.is_dir() else beside


def _training(run: Path) -> str:
    """How a run was trained, as far as its folder tells."""
    checkpoints = RunFolder(run).checkpoints()
    if not checkpoints or not (run / "config.json").is_file():
        return "an unknown training"
    config, step = TrainConfig.read(run / "config.json"), Checkpoint(checkpoints[-1]).step
    precision = "" if config["precision"] == "auto" else f", {config['precision']}"
    return f"{step:,} training steps of {config['batch_size']} images, {config['loss']} loss{precision}"
