"""How to walk back: one loop, many steps."""

from blackout.sampling.base import Sampler
from blackout.sampling.bridge import BinomialBridge
from blackout.sampling.conditional import Conditioned, condition
from blackout.sampling.exact import Exact
from blackout.sampling.leaping import TauLeaping
from blackout.sampling.planes import Planes
from blackout.sampling.posterior_bridge import PosteriorBridge

__all__ = ["BinomialBridge", "Conditioned", "Exact", "Planes", "PosteriorBridge", "Sampler", "TauLeaping", "condition"]
