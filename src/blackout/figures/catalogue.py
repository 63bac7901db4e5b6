"""FIGURES: the figures of the command ``blackout figures``. A new figure is one function and one line here.

The function takes a ``Context`` and the keyword arguments of its line, and returns a ``CaptionedFigure``. Figures with
a ``run`` need a run that the user has trained.
"""

from typing import TYPE_CHECKING

from blackout.registry import Registry

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from blackout.figures.context import Context

_PAPER, _RECORDED = "blackout.figures.paper", "blackout.figures.recorded"
_STEPS = f"{_RECORDED}:steps"

FIGURES = Registry("figure")
FIGURES.add("forward", f"{_PAPER}:forward", "Forward process on images", scaled=False)
FIGURES.add("forward-scaled", f"{_PAPER}:forward", "Forward process, intensities rescaled", scaled=True)
FIGURES.add("paths", f"{_PAPER}:paths", "Distributions and sample paths on {0, ..., 8}")
FIGURES.add("times", f"{_PAPER}:times", "Observation times")
FIGURES.add("generation", f"{_PAPER}:generation", "Sampling trajectories of cifar10", model="cifar10")
FIGURES.add(
    "generation-scaled", f"{_PAPER}:generation", "Trajectories, intensities rescaled", model="cifar10", scaled=True
)
FIGURES.add(
    "generation-mnist-binary", f"{_PAPER}:generation", "Sampling trajectories of mnist-binary", model="mnist-binary"
)
FIGURES.add("samples-cifar10", f"{_PAPER}:samples", "Samples of cifar10", model="cifar10")
FIGURES.add("samples-mnist-binary", f"{_PAPER}:samples", "Samples of mnist-binary", model="mnist-binary")
for _name, _help, _run, _sampler, _num, _label in (
    ("grid-finite-bridge", "Finite-time loss, bridge", "cifar10-paper-finite", "bridge-nearest", 400, "fig:grid-f-b"),
    ("grid-finite-poisson", "Finite-time loss, Poisson", "cifar10-paper-finite", "poisson", 400, "fig:grid-f-p"),
    ("grid-instant-bridge", "Instantaneous loss, bridge", "cifar10-paper", "bridge-nearest", 400, "fig:grid-i-b"),
    ("grid-instant-poisson", "Instantaneous loss, Poisson", "cifar10-paper", "poisson", 400, "fig:grid-i-p"),
    ("grid-mnist", "Binarised MNIST, Poisson", "mnist-binary-paper", "poisson", 400, "fig:mnist-grid"),
    ("grid-celeba", "CelebA, Poisson", "celeba64-paper", "poisson", 144, "fig:celebA"),
):
    FIGURES.add(_name, f"{_PAPER}:grid", _help, run=_run, sampler=_sampler, num=_num, label=_label)
FIGURES.add("steps-cifar10", _STEPS, "Steps and sample quality, cifar10", record="cifar10-samplers")
FIGURES.add("steps-mnist-binary", _STEPS, "Steps and sample quality, mnist-binary", record="mnist-binary-samplers")
FIGURES.add("heads", f"{_RECORDED}:heads", "Heads and training time, cifar10", record="cifar10-heads-training")


def draw(name: str, context: "Context | None" = None) -> "Figure":
    """Draw one figure by its name in ``FIGURES``."""
    from blackout.figures.context import Context

    figure: Figure = FIGURES.make(name, context or Context()).draw()
    return figure
