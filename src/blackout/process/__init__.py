"""Forward processes that destroy the data: pure mathematics on tensors."""

from typing import TYPE_CHECKING

from blackout.registry import Registry, exports

if TYPE_CHECKING:
    from blackout.process.base import MarkovProcess as MarkovProcess
    from blackout.process.birth_death import BirthDeath as BirthDeath
    from blackout.process.categorical import Absorbing as Absorbing
    from blackout.process.categorical import DiscretizedGaussian as DiscretizedGaussian
    from blackout.process.categorical import Halving as Halving
    from blackout.process.categorical import Uniform as Uniform
    from blackout.process.chain import Chain as Chain
    from blackout.process.ending import Tilt as Tilt
    from blackout.process.ending import remaining_tilt as remaining_tilt
    from blackout.process.finite_state import FiniteState as FiniteState
    from blackout.process.piecewise import PiecewiseGenerator as PiecewiseGenerator
    from blackout.process.pure_death import PureDeath as PureDeath
    from blackout.process.schedule import Schedule as Schedule
    from blackout.process.substitution import substitution_model as substitution_model

PROCESSES = Registry("process")
PROCESSES.add("pure-death", "blackout.process.pure_death:PureDeath", "every unit decays at rate one (the paper's)")
PROCESSES.add("birth-death", "blackout.process.birth_death:BirthDeath", "linear birth and death, with immigration")
PROCESSES.add("absorbing", "blackout.process.categorical:Absorbing", "labels are masked at rate one")
PROCESSES.add("uniform", "blackout.process.categorical:Uniform", "labels are redrawn uniformly at rate one")
PROCESSES.add("gaussian", "blackout.process.categorical:DiscretizedGaussian", "jumps of Gaussian length")
PROCESSES.add("halving", "blackout.process.categorical:Halving", "the last binary digit is lost at rate one")
PROCESSES.add(
    "finite-state", "blackout.process.finite_state:FiniteState", "any generator matrix (in Python, or a file)"
)
PROCESSES.add(
    "piecewise",
    "blackout.process.piecewise:PiecewiseGenerator",
    "generators that change at given times (in Python, or a file)",
)
PROCESSES.add("chain", "blackout.process.chain:Chain", "any transition matrix, in discrete time (in Python, or a file)")

__getattr__, _names = exports(__name__)
__all__ = ["PROCESSES", *_names]
