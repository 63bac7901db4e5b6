"""A walk, told step by step."""

import base64
from collections.abc import Callable
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from blackout.io import sampler_for
from blackout.model import DiffusionModel
from blackout.sampling import Sampler, condition
from blackout.random import Streams
from blackout.web import limits
from blackout.web.again import Row, files_of, spread, words
from blackout.web.jobs import Event, Job
from blackout.web.orders import Order


def work(model: DiffusionModel, order: Order, device: str) -> Callable[[Job], Event]:
    """An order as the work of a job."""

    def do(job: Job) -> Event:
        x, rows = take(model, order, job)
        contents = files_of(model, order, x, rows, device)
        files = {name: base64.b64encode(data).decode() for name, data in contents.items()}
        event: Event = {"event": "done", "x": packed(x), "files": files, **words(model, order, device)}
        if order.known is not None:
            event["spread"] = packed(spread(x))
        return event

    return do


def take(model: DiffusionModel, order: Order, job: Job) -> tuple[NDArray[Any], list[Row]]:
    """The walk of `model.sample`, observed: the job hears of every step, and is asked before every pass."""
    sampler = sampler_for(model, order.sampler, order.correctors)
    before = _start(model, order, sampler)
    clock = [*(float(t) for t in reversed(model.walk(order.steps).values)), 0.0]
    job.tell({"event": "start", "times": clock, "frame": packed(smallest(model, before))})
    shown = {round(k) for k in numpy.linspace(0, order.steps, limits.FRAMES + 1)}
    rows: list[Row] = []

    def observe(k: int, steps: int, x: Tensor) -> None:
        nonlocal before
        change = x - before
        births, deaths = (float(part.sum()) / len(x) for part in (change.clamp(min=0), (-change).clamp(min=0)))
        rows.append(Row(k, clock[k], float(x.double().mean()), births, deaths))
        event: Event = {"event": "step", **rows[-1]._asdict()}
        if k in shown:
            event["frame"] = packed(smallest(model, x))
        job.tell(event)
        before = x

    hook = model.predictor.network.register_forward_pre_hook(lambda *_: job.check())
    try:
        x = model.sample(
            order.num, order.steps, sampler, order.seed, label=order.label, guidance=order.guidance, known=order.known,
            mask=order.mask, resample=order.resample, callback=observe,
        )  # fmt: skip
    finally:
        hook.remove()
    return smallest(model, x), rows


def _start(model: DiffusionModel, order: Order, sampler: Sampler) -> Tensor:
    """Where the walk begins; the streams of a seed give it as often as one asks."""
    shape = (order.num, *(model.shape or ()))
    method = condition(sampler, model.process, shape, order.known, order.mask, order.resample)
    source = Streams(order.seed, order.num, device=model.device)
    with torch.no_grad():
        return method.start(model.process, model.walk(order.steps), shape, source)


def smallest(model: DiffusionModel, x: Tensor) -> NDArray[Any]:
    """States in the smallest integers that hold them, as `blackout sample` writes them."""
    states = model.process.num_states
    return x.cpu().numpy().astype(numpy.int64 if states is None else numpy.min_scalar_type(states - 1))


def packed(x: NDArray[Any]) -> str:
    """States for the browser: bytes where they fit in bytes, and four of them otherwise."""
    return base64.b64encode(x.astype("u1" if x.dtype == numpy.uint8 else "<i4").tobytes()).decode()
