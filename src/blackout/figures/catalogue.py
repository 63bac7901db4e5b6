"""The figures by name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from blackout import validate
from blackout.figures import models, recorded
from blackout.figures import process_figures as processes
from blackout.figures.context import Plate, Studio

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Drawing:
    """One figure: its title, and who makes it."""

    title: str
    plate: Callable[[Studio], Plate]


FIGURES = {
    "forward": Drawing("The forward process on pictures", processes.forward),
    "forward-scaled": Drawing("The same, each picture's colours scaled", processes.forward_scaled),
    "paths": Drawing("Probabilities and paths on {0, ..., 8}", processes.paths),
    "times": Drawing("Observation times", processes.times),
    "generation": Drawing("From black to picture", models.generation),
    "generation-scaled": Drawing("The same, each picture's colours scaled", models.generation_scaled),
    "generation-mnist-binary": Drawing("From black to digit", models.generation_digits),
    "samples-cifar10": Drawing("Samples of cifar10", models.samples),
    "samples-mnist-binary": Drawing("Samples of mnist-binary", models.samples_digits),
    "steps-cifar10": Drawing("Steps against quality, cifar10", recorded.steps_cifar10),
    "steps-mnist-binary": Drawing("Steps against quality, mnist-binary", recorded.steps_digits),
    "heads": Drawing("Heads against training time", recorded.heads_cifar10),
}


def draw(name: str, studio: Studio | None = None) -> "Figure":
    """One figure of the gallery, by its name in `FIGURES`."""
    return FIGURES[validate.choice("name", name, tuple(FIGURES))].plate(studio or Studio()).draw()
