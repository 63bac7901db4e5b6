"""Observation times, and the rules that choose them."""

from typing import TYPE_CHECKING

from blackout.registry import Registry, exports

if TYPE_CHECKING:
    from blackout.times.fitted import FittedTimes as FittedTimes
    from blackout.times.grid import ObservationTimes as ObservationTimes

_MEASURES = "blackout.times.measures"

TIME_RULES = Registry("time rule")
TIME_RULES.add("fisher", f"{_MEASURES}:fisher", "equal steps of Fisher information (the paper's)")
TIME_RULES.add("uniform", f"{_MEASURES}:uniform", "equal steps of time")
TIME_RULES.add("survival", f"{_MEASURES}:survival", "equal steps of e^-t, for masking")
TIME_RULES.add("cosine", f"{_MEASURES}:cosine", "the cosine schedule, for masking")
TIME_RULES.add("entropy", f"{_MEASURES}:equalized", "equal steps of entropy", measure="entropy")
TIME_RULES.add("production", f"{_MEASURES}:equalized", "equal entropy production", measure="production")
TIME_RULES.add("variance", f"{_MEASURES}:equalized", "equal steps of variance", measure="variance")
TIME_RULES.add("snr", f"{_MEASURES}:equalized", "equal steps of the log signal-to-noise ratio", measure="snr")
TIME_RULES.add("kl", f"{_MEASURES}:equalized", "equal Kullback-Leibler divergence between times", measure="kl")
TIME_RULES.add("length", f"{_MEASURES}:equalized", "equal Fisher-Rao length, dense at the end", measure="length")
TIME_RULES.add("steps", f"{_MEASURES}:every_step", "every step of a chain")
TIME_RULES.add("fitted", "blackout.times.fitted:not_fitted", "fitted to the model by `blackout times`")

__getattr__, _names = exports(__name__)
__all__ = ["TIME_RULES", *_names]
