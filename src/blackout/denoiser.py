"""What a denoiser is, and how samplers and bounds call one: a network, an exact posterior, or a plain function."""

from collections.abc import Callable

from torch import Tensor

from blackout.posterior.base import MeanPosterior, Posterior, RatePosterior
from blackout.process.base import MarkovProcess

Denoiser = Callable[[Tensor, Tensor], Posterior | Tensor]
"""denoise(xt, t), t of shape (batch,): a Posterior, or a tensor: y = E[X_0 - X_t | X_t] for pure death, reverse rates
(..., R) for the others."""


def call(denoise: Denoiser, process: MarkovProcess, xt: Tensor, t: Tensor) -> Posterior:
    """The denoiser's posterior in float64, checked, with one time for each row of xt.

    Raises
    ------
    ValueError
        If the answer has the wrong shape or device, or holds NaN, infinities or negative rates.
    """
    t = t.expand(len(xt)) if t.dim() == 0 else t
    answer = denoise(xt, t)
    if isinstance(answer, Posterior):
        return answer.checked()
    wrap = MeanPosterior if process.mean_suffices else RatePosterior
    if not isinstance(answer, Tensor):
        raise ValueError(f"denoise must return a floating-point tensor or a Posterior, got {type(answer).__name__}")
    return wrap(process, xt, t, answer).checked()
