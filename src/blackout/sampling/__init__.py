"""Samplers: algorithms that run the process backwards. One loop, many steps."""

from typing import TYPE_CHECKING

from blackout.registry import Registry, exports

if TYPE_CHECKING:
    from blackout.sampling.base import Sampler as Sampler
    from blackout.sampling.bridge import BinomialBridge as BinomialBridge
    from blackout.sampling.exact import Exact as Exact
    from blackout.sampling.fitting import fit_times as fit_times
    from blackout.sampling.inpainting import Inpainting as Inpainting
    from blackout.sampling.leaping import TauLeaping as TauLeaping
    from blackout.sampling.multistep import MultistepBridge as MultistepBridge
    from blackout.sampling.multistep_binomial import MultistepBinomialBridge as MultistepBinomialBridge
    from blackout.sampling.posterior_bridge import PosteriorBridge as PosteriorBridge
    from blackout.sampling.remasking import Remasking as Remasking
    from blackout.sampling.step import Past as Past
    from blackout.sampling.step import PosteriorAt as PosteriorAt
    from blackout.sampling.step import Step as Step
    from blackout.sampling.student import StudentBridge as StudentBridge

_BRIDGE, _LEAPING = "blackout.sampling.bridge:BinomialBridge", "blackout.sampling.leaping:TauLeaping"

MAX_REPEATS = 10_000
"""The most corrector steps after a step, and the most repetitions of one."""

SAMPLERS = Registry("sampler")
SAMPLERS.add("bridge", _BRIDGE, "binomial bridge, stochastic rounding (pure death)")
SAMPLERS.add("bridge-nearest", _BRIDGE, "binomial bridge, nearest rounding (the authors' code)", rounding="nearest")
SAMPLERS.add(
    "bridge-multistep",
    "blackout.sampling.multistep_binomial:MultistepBinomialBridge",
    "binomial bridge, corrected by the step before: for few steps (images of many levels)",
)
SAMPLERS.add("poisson", _LEAPING, "tau-leaping with Poisson events (any process)")
SAMPLERS.add("poisson-instantaneous", _LEAPING, "tau-leaping with the rate at t times the step", step="instantaneous")
SAMPLERS.add("binomial", _LEAPING, "tau-leaping with binomial births (bounded pure death)", events="binomial")
SAMPLERS.add("exact", "blackout.sampling.exact:Exact", "event by event, without time steps (slow)")
SAMPLERS.add(
    "posterior",
    "blackout.sampling.posterior_bridge:PosteriorBridge",
    "samples X_0, then the exact bridge (heads with a distribution)",
)
SAMPLERS.add(
    "multistep",
    "blackout.sampling.multistep:MultistepBridge",
    "posterior, corrected by the step before: for few steps (heads with a distribution)",
)
SAMPLERS.add(
    "remasking",
    "blackout.sampling.remasking:Remasking",
    "posterior, with correctors that mask labels again (masking)",
)
SAMPLERS.add(
    "student",
    "blackout.sampling.student:StudentBridge",
    "draws X_0 from noise, then the bridge (distilled models)",
)

__getattr__, _names = exports(__name__)
__all__ = ["MAX_REPEATS", "SAMPLERS", *_names]
