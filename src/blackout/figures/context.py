"""Studio: what the figures of one call share, so that a model walks once for all that show it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from blackout import validate
from blackout.data import Dataset, open_dataset
from blackout.data.cifar import find_cifar10
from blackout.figures.record import Record, read
from blackout.io.models import load
from blackout.times import ObservationTimes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Tell = Callable[[str, int, int], None]
_PACKAGE = Path(__file__).parent.parent


@dataclass(frozen=True)
class Plate:
    """A figure still to be drawn, and what is seen in it."""

    draw: "Callable[[], Figure]"
    caption: str


@dataclass(frozen=True)
class Walks:
    """Walks of a model that ships, from black to its samples."""

    trajectory: Tensor
    times: ObservationTimes
    max_state: int

    @property
    def samples(self) -> Tensor:
        return self.trajectory[-1]


@dataclass(kw_only=True)
class Studio:
    """`num` samples of each shipped model in `steps` steps; pictures from `data`; records from `results`.

    Without `data` the model's own samples are destroyed; without `results` the records are those that ship.
    """

    seed: int = 0
    num: int = 24
    steps: int = 50
    data: Path | None = None
    results: Path | None = None
    tell: Tell = field(default=lambda name, done, total: None, repr=False)
    _walks: dict[str, Walks] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        validate.integer("seed", self.seed, 0)
        validate.integer("num", self.num, 1)
        validate.integer("steps", self.steps, 1)
        for name, path in (("data", self.data), ("results", self.results)):
            if path is not None and not Path(path).exists():
                raise ValueError(f"{name} must be there, but {path} does not exist")
        if self.results is not None:
            read(self.results)  # refused now, not after minutes of sampling

    def walks(self, name: str) -> Walks:
        """The first walks of a model that ships, taken once."""
        if name not in self._walks:
            model = load(name)
            steps = min(self.steps, len(model.times))
            trajectory = model.sample(
                self.num, steps, seed=self.seed, trajectory=True, batch_size=self.num,
                callback=lambda k, total, _: self.tell(f"samples of {name}", k, total),
            )  # fmt: skip
            self._walks[name] = Walks(trajectory, model.walk(steps), int(model.max_state or trajectory.max()))
        return self._walks[name]

    def pictures(self, num: int) -> tuple[Tensor, int, str]:
        """Pictures to destroy, their largest intensity, and where they are from."""
        if self.data is None:
            walks = self.walks("cifar10")
            return walks.samples[:num], walks.max_state, f"samples of the model `cifar10` ({self.steps} steps)"
        found = self._dataset(Path(self.data))
        if found.x.dim() != 4 or found.x.shape[1] not in (1, 3):
            raise ValueError(f"data must hold pictures, but those of {self.data} have shape {tuple(found.x.shape[1:])}")
        return found.x[:num], int(found.max_state or found.x.max()), f"the first pictures of {found.name}"

    def record(self, name: str) -> Record:
        """A record of results by its id."""
        folder = shipped_results() if self.results is None else Path(self.results)
        found = {record.id: record for record in read(folder)}
        if name not in found:
            raise ValueError(f"results must hold a record {name!r}, but {folder} has {', '.join(found)}")
        return found[name]

    def _dataset(self, path: Path) -> Dataset:
        return open_dataset("cifar10", "test", folder=path) if find_cifar10(path) else open_dataset(path)


def shipped_results() -> Path:
    """The records of the package; in a clone, which the package is run from, those of the repository."""
    inside, beside = _PACKAGE / "results", _PACKAGE.parents[1] / "results"
    return inside if inside.is_dir() else beside
