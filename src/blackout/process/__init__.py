"""What destroys the data: pure mathematics on tensors."""

from blackout.process.base import MarkovProcess
from blackout.process.birth_death import BirthDeath
from blackout.process.categorical import Absorbing, DiscretizedGaussian, Halving, Uniform
from blackout.process.chain import Chain
from blackout.process.finite_state import FiniteState
from blackout.process.pure_death import PureDeath
from blackout.process.schedule import Schedule

__all__ = [
    "Absorbing",
    "BirthDeath",
    "Chain",
    "DiscretizedGaussian",
    "FiniteState",
    "Halving",
    "MarkovProcess",
    "PureDeath",
    "Schedule",
    "Uniform",
]
