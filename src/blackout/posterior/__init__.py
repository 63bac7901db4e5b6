"""The posterior of X_0 given X_t: what a denoiser answers with."""

from blackout.posterior.base import ListedPosterior, MeanPosterior, Posterior, RatePosterior, rate_divergence
from blackout.posterior.categorical import CategoricalPosterior
from blackout.posterior.exact import ExactPosterior

__all__ = [
    "CategoricalPosterior",
    "ExactPosterior",
    "ListedPosterior",
    "MeanPosterior",
    "Posterior",
    "RatePosterior",
    "rate_divergence",
]
