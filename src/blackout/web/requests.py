"""SamplingRequest: what a client requests, as JSON, validated against a model."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from blackout import validate
from blackout.conditioning import check_label
from blackout.labels import by_number
from blackout.model import DiffusionModel
from blackout.sampling import Sampler
from blackout.sampling.inpainting import ROUNDS, inpainting
from blackout.times import TIME_RULES
from blackout.web import limits

_PASSES_PER_EVENT = 6  # of the exact sampler: five nodes of a quadrature, and the rates at the event


@dataclass(frozen=True, kw_only=True)
class SamplingRequest:
    """Arguments of `model.sample`, and the name of the model."""

    model: str
    sampler: str
    steps: int
    times: str | None
    correctors: int
    num: int
    seed: int
    label: int | str | None
    guidance: float
    observed: Tensor | None
    mask: Tensor | None
    resample: int | None

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of `model.sample`; optional ones only where they are set."""
        names = ("times", "label", "observed", "mask", "resample")
        optional = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if self.guidance != 1:
            optional["guidance"] = self.guidance
        return {"num_steps": self.steps, "sampler": self.sampler, "seed": self.seed, **optional}


FIELDS = tuple(field.name for field in dataclasses.fields(SamplingRequest))


def read_request(values: Mapping[str, Any], model: DiffusionModel) -> SamplingRequest:
    """A request from JSON for an open model; raises ValueError naming the field and its value."""
    unknown = sorted(set(values) - set(FIELDS))
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r}; a sampling request has {', '.join(FIELDS)}")
    shape = model.shape or (1, 1, 1)
    max_state = 255 if model.max_state is None else model.max_state
    mask = _integers("mask", values.get("mask"), (1, *shape[1:]), 1)
    request = SamplingRequest(
        model=str(values["model"]),
        sampler=_string("sampler", values.get("sampler", "auto")),
        steps=validate.integer("steps", values.get("steps", 100), 1, min(limits.STEPS, len(model.times))),
        times=None if values.get("times") is None else TIME_RULES.check(_string("times", values["times"])),
        correctors=validate.integer("correctors", values.get("correctors", 0), 0, limits.CORRECTORS),
        num=validate.integer("num", values.get("num", 1), 1, limits.max_images(model)),
        seed=validate.integer("seed", values.get("seed", 0), 0, limits.SEED),
        label=_label(values.get("label"), model),
        guidance=_guidance(values.get("guidance", 1.0)),
        observed=_integers("observed", values.get("observed"), shape, max_state),
        mask=None if mask is None else mask == 1,
        resample=_optional("resample", values.get("resample"), limits.RESAMPLE),
    )
    check_label(request.label, request.guidance, request.num, model.num_classes, model.class_names)
    sampler_of(model, request)
    check_cost(model, request)
    return request


def sampler_of(model: DiffusionModel, request: SamplingRequest) -> Sampler:
    """The sampler of a request, with its observed entries if there are any."""
    sampler = model.sampler(request.sampler, request.correctors, request.steps)
    shape = (request.num, *(model.shape or ()))
    return inpainting(sampler, model.process, shape, request.observed, request.mask, request.resample)


def check_cost(model: DiffusionModel, request: SamplingRequest) -> None:
    """Raise ValueError for a job that would block the queue for too long."""
    _, height, width = model.shape or (1, 1, 1)
    parameters = sum(p.numel() for p in model.predictor.parameters())
    allowed = max(1, int(limits.COST.get(model.device.type, limits.COST["cpu"]) / (parameters * height * width)))
    wanted = network_passes(model, request) * request.num
    if wanted > allowed:
        raise ValueError(
            f"this job costs {wanted / allowed:.1f} times the limit of the page for {request.model} "
            f"({wanted:,} network passes, at most {allowed:,}): use fewer images or steps; "
            f"`blackout sample` has no limit"
        )


def network_passes(model: DiffusionModel, request: SamplingRequest) -> int:
    """Network passes per image; for the exact sampler an upper bound, every component rising to the largest state."""
    rounds = 0
    if request.observed is not None:
        default = ROUNDS if model.process.mask_state is None else 0
        rounds = default if request.resample is None else request.resample
    passes = request.steps * (1 + rounds + request.correctors)
    if request.sampler == "exact":
        events = math.prod(model.shape or ()) * max(1, model.max_state or limits.STEPS)
        passes = (events + passes) * _PASSES_PER_EVENT
    return passes * (2 if request.guidance not in (0, 1) else 1)


def _string(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string, got {value!r}")
    return value


def _optional(name: str, value: Any, maximum: int = validate.LARGEST) -> int | None:
    return None if value is None else validate.integer(name, value, 0, maximum)


def _label(value: Any, model: DiffusionModel) -> int | str | None:
    """A class by its name, where it has one: a number in a command could be the name of another class."""
    names = model.class_names or ()
    number = by_number("label", value, names or None) if isinstance(value, str) else _optional("label", value)
    return names[number] if number is not None and number < len(names) else number


def _guidance(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError(f"guidance must be a number, got {value!r}")
    number = validate.real("guidance", value, 0.0)
    if number > limits.GUIDANCE:
        raise ValueError(f"guidance must be at most {limits.GUIDANCE:g}, got {number:g}")
    return number


def _integers(name: str, values: Any, shape: tuple[int, ...], maximum: int) -> Tensor | None:
    if values is None:
        return None
    count = math.prod(shape)
    if not isinstance(values, list) or len(values) != count:
        got = f"{len(values)} of them" if isinstance(values, list) else type(values).__name__
        raise ValueError(f"{name} must be a list of {count} integers, got {got}")
    wrong = next((v for v in values if type(v) is not int or not 0 <= v <= maximum), None)
    if wrong is not None:
        raise ValueError(f"{name} must hold integers from 0 to {maximum}, got {wrong!r}")
    return torch.tensor(values).reshape(shape)
