"""Order: what a visitor asks for, checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from blackout import validate
from blackout.classes import check_label
from blackout.io import SAMPLERS, check_sampler, sampler_for
from blackout.model import DiffusionModel
from blackout.sampling import condition
from blackout.web import limits

FIELDS = ("model", "sampler", "steps", "correctors", "num", "seed", "label", "guidance", "known", "mask", "resample")


@dataclass(frozen=True, kw_only=True)
class Order:
    """One walk back."""

    model: str
    sampler: str
    steps: int
    correctors: int
    num: int
    seed: int
    label: int | None
    guidance: float
    known: Tensor | None
    mask: Tensor | None
    resample: int | None


def read_order(values: Mapping[str, Any], model: DiffusionModel) -> Order:
    """An order from JSON, for a model that has been looked up already; a ValueError says what is wrong with it."""
    unknown = sorted(set(values) - set(FIELDS))
    if unknown:
        raise ValueError(f"a walk has no {unknown[0]!r}; it has {', '.join(FIELDS)}")
    sampler = validate.choice("sampler", values.get("sampler", "bridge"), tuple(SAMPLERS))
    order = Order(
        model=str(values["model"]),
        sampler=sampler,
        steps=validate.integer("steps", values.get("steps", 100), 1, min(limits.STEPS, len(model.times))),
        correctors=validate.integer("correctors", values.get("correctors", 0), 0, limits.CORRECTORS),
        num=validate.integer("num", values.get("num", 1), 1, limits.images(model)),
        seed=validate.integer("seed", values.get("seed", 0), 0, limits.SEED),
        label=_optional("label", values.get("label"), 0),
        guidance=_guidance(values.get("guidance", 1.0)),
        known=_known(values.get("known"), model),
        mask=_mask(values.get("mask"), model),
        resample=_optional("resample", values.get("resample"), 0, limits.RESAMPLE),
    )
    check_label(order.label, order.guidance, order.num, model.num_classes)
    check_sampler(model, order.sampler, order.correctors)
    shape = (order.num, *(model.shape or ()))
    method = sampler_for(model, order.sampler, order.correctors)
    condition(method, model.process, shape, order.known, order.mask, order.resample)
    limits.check_work(model, order)
    return order


def _optional(name: str, value: Any, low: int, high: int | None = None) -> int | None:
    return None if value is None else validate.integer(name, value, low, high)


def _guidance(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError(f"guidance must be a number, got {value!r}")
    number = validate.real("guidance", value, 0.0)
    if number > limits.GUIDANCE:
        raise ValueError(f"guidance must be at most {limits.GUIDANCE:g}, got {number:g}")
    return number


def _known(values: Any, model: DiffusionModel) -> Tensor | None:
    if values is None:
        return None
    shape = model.shape or ()
    largest = 255 if model.max_state is None else model.max_state
    return _whole_numbers("known", values, shape, largest)


def _mask(values: Any, model: DiffusionModel) -> Tensor | None:
    if values is None:
        return None
    _, height, width = model.shape or (1, 1, 1)
    return _whole_numbers("mask", values, (1, height, width), 1) == 1


def _whole_numbers(name: str, values: Any, shape: tuple[int, ...], largest: int) -> Tensor:
    count = int(torch.Size(shape).numel())
    if not isinstance(values, list) or len(values) != count:
        got = f"{len(values)} of them" if isinstance(values, list) else type(values).__name__
        raise ValueError(f"{name} must be a list of {count} whole numbers, got {got}")
    wrong = next((v for v in values if type(v) is not int or not 0 <= v <= largest), None)
    if wrong is not None:
        raise ValueError(f"{name} must hold whole numbers from 0 to {largest}, got {wrong!r}")
    return torch.tensor(values).reshape(shape)
