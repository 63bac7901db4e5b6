"""Phase 1 only: the core's new names in terms of its old ones."""

import copy
from typing import Any

from torch import Tensor

from blackout.classes import ModelDenoiser
from blackout.io import SAMPLERS as OLD
from blackout.io import check_sampler, sampler_for, sampler_name
from blackout.likelihood import rate_divergence
from blackout.model import DiffusionModel
from blackout.process import Chain, PureDeath
from blackout.sampling import Sampler
from blackout.times import MEASURES, ObservationTimes

SAMPLERS = OLD
TIME_RULES = MEASURES


def _name(name: str | None) -> str:
    return "bridge" if name in (None, "auto") else str(name)


def with_times(model: DiffusionModel, times: str | None) -> DiffusionModel:
    return copy.copy(model).walk_by(times) if times else model


def model_sampler(model: DiffusionModel, name: str | None = None, corrector_steps: int = 0) -> Sampler:
    check_sampler(model, _name(name), corrector_steps)
    return sampler_for(model, _name(name), corrector_steps)


def name_of(model: DiffusionModel, name: str) -> str:
    return sampler_name(model, _name(name))


def sampling_times(model: DiffusionModel, num_steps: int, times: str | None) -> ObservationTimes:
    return with_times(model, times).walk(num_steps)


def sampling_rule(model: DiffusionModel, num_steps: int, times: str | None) -> str:
    return with_times(model, times).walks_by(num_steps)


def model_denoiser(model: DiffusionModel) -> Any:
    return ModelDenoiser(model, None)


def divergence(model: DiffusionModel, x0: Tensor, xt: Tensor, t: Tensor) -> Tensor:
    return rate_divergence(model.denoise, model.process, x0, xt, t)


def is_discrete_time(model: DiffusionModel) -> bool:
    return isinstance(model.process, Chain)


def mean_suffices(model: DiffusionModel) -> bool:
    return isinstance(model.process, PureDeath)
