"""The posterior of X_0 given X_t: what a denoiser answers with."""

from typing import TYPE_CHECKING

from blackout.registry import exports

if TYPE_CHECKING:
    from blackout.posterior.base import Denoiser as Denoiser
    from blackout.posterior.base import ListedPosterior as ListedPosterior
    from blackout.posterior.base import MeanPosterior as MeanPosterior
    from blackout.posterior.base import Posterior as Posterior
    from blackout.posterior.base import RatePosterior as RatePosterior
    from blackout.posterior.base import call as call
    from blackout.posterior.base import rate_divergence as rate_divergence
    from blackout.posterior.categorical import CategoricalPosterior as CategoricalPosterior
    from blackout.posterior.drawn import DrawnPosterior as DrawnPosterior
    from blackout.posterior.exact import ExactPosterior as ExactPosterior

__getattr__, __all__ = exports(__name__)
