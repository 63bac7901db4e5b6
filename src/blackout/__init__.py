"""Blackout: generative diffusion on discrete states."""

from blackout import figures
from blackout.cells.model import CountModel
from blackout.io.models import load, pretrained
from blackout.likelihood import evidence_bound
from blackout.loss import FiniteTimeLoss, InstantaneousLoss, LikelihoodLoss, RateLoss
from blackout.model import DiffusionModel
from blackout.posterior import ExactPosterior
from blackout.process import (
    Absorbing,
    BirthDeath,
    Chain,
    DiscretizedGaussian,
    FiniteState,
    Halving,
    MarkovProcess,
    PureDeath,
    Schedule,
    Uniform,
)
from blackout.sampling import BinomialBridge, Conditioned, Exact, PosteriorBridge, Sampler, TauLeaping
from blackout.times import ObservationTimes

__version__ = "0.1.0"

__all__ = [
    "Absorbing",
    "BinomialBridge",
    "BirthDeath",
    "Chain",
    "Conditioned",
    "CountModel",
    "DiffusionModel",
    "DiscretizedGaussian",
    "Exact",
    "ExactPosterior",
    "FiniteState",
    "FiniteTimeLoss",
    "Halving",
    "InstantaneousLoss",
    "LikelihoodLoss",
    "MarkovProcess",
    "ObservationTimes",
    "PosteriorBridge",
    "PureDeath",
    "RateLoss",
    "Sampler",
    "Schedule",
    "TauLeaping",
    "Uniform",
    "evidence_bound",
    "figures",
    "load",
    "pretrained",
]
