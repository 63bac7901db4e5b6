"""Blackout: generative diffusion on discrete states."""

from typing import TYPE_CHECKING

from blackout.registry import exports

if TYPE_CHECKING:
    from blackout import figures as figures
    from blackout.cells.model import CountModel as CountModel
    from blackout.distillation import distill as distill
    from blackout.io.models import load as load
    from blackout.io.models import pretrained as pretrained
    from blackout.likelihood import evidence_bound as evidence_bound
    from blackout.loss import FiniteTimeLoss as FiniteTimeLoss
    from blackout.loss import InstantaneousLoss as InstantaneousLoss
    from blackout.loss import LikelihoodLoss as LikelihoodLoss
    from blackout.loss import RateLoss as RateLoss
    from blackout.model import DiffusionModel as DiffusionModel
    from blackout.posterior import CategoricalPosterior as CategoricalPosterior
    from blackout.posterior import ExactPosterior as ExactPosterior
    from blackout.posterior import MeanPosterior as MeanPosterior
    from blackout.posterior import Posterior as Posterior
    from blackout.posterior import RatePosterior as RatePosterior
    from blackout.process import Absorbing as Absorbing
    from blackout.process import BirthDeath as BirthDeath
    from blackout.process import Chain as Chain
    from blackout.process import DiscretizedGaussian as DiscretizedGaussian
    from blackout.process import FiniteState as FiniteState
    from blackout.process import Halving as Halving
    from blackout.process import MarkovProcess as MarkovProcess
    from blackout.process import PiecewiseGenerator as PiecewiseGenerator
    from blackout.process import PureDeath as PureDeath
    from blackout.process import Schedule as Schedule
    from blackout.process import Uniform as Uniform
    from blackout.process import remaining_tilt as remaining_tilt
    from blackout.process import substitution_model as substitution_model
    from blackout.reactions import Dimerisation as Dimerisation
    from blackout.reactions import Exchange as Exchange
    from blackout.reactions import ReactionModel as ReactionModel
    from blackout.reactions import ReactionNetwork as ReactionNetwork
    from blackout.sampling import BinomialBridge as BinomialBridge
    from blackout.sampling import Exact as Exact
    from blackout.sampling import Inpainting as Inpainting
    from blackout.sampling import MultistepBinomialBridge as MultistepBinomialBridge
    from blackout.sampling import MultistepBridge as MultistepBridge
    from blackout.sampling import PosteriorBridge as PosteriorBridge
    from blackout.sampling import Remasking as Remasking
    from blackout.sampling import Sampler as Sampler
    from blackout.sampling import StudentBridge as StudentBridge
    from blackout.sampling import TauLeaping as TauLeaping
    from blackout.times import ObservationTimes as ObservationTimes

__version__ = "0.1.0"

__getattr__, __all__ = exports(__name__)
