"""Temporary: the registries and model methods of the new core, in terms of the old one."""

import functools
from typing import Any

from blackout.io.samples import SAMPLERS as _SAMPLERS
from blackout.io.samples import check_sampler, sampler_for, sampler_name
from blackout.process import *  # noqa: F403
from blackout.process import Absorbing, BirthDeath, PureDeath, Uniform
from blackout.sampling.conditional import ROUNDS, condition
from blackout.times import MEASURES, ObservationTimes

_HELP = {
    "bridge": "binomial bridge (paper)",
    "bridge-nearest": "binomial bridge, rounding to the nearest integer (the authors' code)",
    "poisson": "tau-leaping with Poisson numbers of events",
    "poisson-instantaneous": "tau-leaping with the rates at the start of the step",
    "binomial": "tau-leaping with binomial numbers of births; never exceeds the largest state",
    "exact": "event by event, without time steps: slow",
    "posterior": "a draw of X_0 from the posterior, then the exact bridge",
}


class _Reg(dict):
    noun = ""

    def __init__(self, noun, entries, help):
        super().__init__(entries)
        self.noun, self._help = noun, dict(help)

    def add(self, name, entry, help):
        self[name] = entry
        self._help[name] = help

    def remove(self, name):
        del self[name]

    def help(self, name):
        return self._help[name]

    def check(self, name):
        if not isinstance(name, str) or name not in self:
            raise ValueError(f"{self.noun} must be one of {', '.join(self)}, got {name!r}")
        return name


SAMPLERS: Any = _Reg("sampler", _SAMPLERS, _HELP)
TIME_RULES: Any = _Reg("times", {m: m for m in MEASURES}, {m: f"equal steps of {m}" for m in MEASURES})


class _P:
    def __init__(self, make):
        self.for_levels = functools.cache(make)


PROCESSES: Any = _Reg(
    "process",
    {
        "pure-death": _P(lambda n: PureDeath(n - 1)),
        "birth-death": _P(lambda n: BirthDeath(n, immigration=6.0)),
        "uniform": _P(lambda n: Uniform(n)),
        "absorbing": _P(lambda n: Absorbing(n + 1)),
    },
    {
        "pure-death": "each unit dies at rate 1",
        "birth-death": "units die at rate 1 and arrive at a constant rate",
        "uniform": "jumps to a uniformly drawn state",
        "absorbing": "jumps to the mask",
    },
)


def sampler(model, name=None, corrector_steps=0):
    name = "bridge" if name in (None, "auto") else name
    SAMPLERS.check(name)
    check_sampler(model, name, corrector_steps)
    return sampler_for(model, name, corrector_steps)


def default_sampler(model):
    return sampler_name(model, "bridge")


def sampling_times(model, num_steps, times=None):
    if times is None:
        return model.walk(num_steps)
    return ObservationTimes.equalize(model.process, times, len(model.times), model.times.t_end).subset(num_steps)


def sample(model, num, num_steps, sampler=None, seed=0, *, times=None, observed=None, **more):
    model._walked = None
    if times is not None:
        model.walk_by(times)
    try:
        return model.sample(num, num_steps, sampler, seed, known=observed, **more)
    finally:
        model._walked = None


def mask_state(process):
    return process.mask_state if isinstance(process, Absorbing) else None


def mean_suffices(process):
    return isinstance(process, PureDeath)


inpainting = condition
__all__ = ["ROUNDS"]
