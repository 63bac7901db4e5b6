"""A sampling job: runs `model.sample`, and reports every step to the client."""

import base64
from collections.abc import Callable
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from blackout.io.animation import gif
from blackout.model import DiffusionModel
from blackout.random import Streams
from blackout.times import ObservationTimes
from blackout.web import limits
from blackout.web.export import Step, code, files, standard_deviation
from blackout.web.jobs import Event, Job
from blackout.web.requests import SamplingRequest, sampler_of


def sampling_job(model: DiffusionModel, request: SamplingRequest, device: str) -> Callable[[Job], Event]:
    """The work of a job; `device` is the option for the exported command."""

    def work(job: Job) -> Event:
        frames, steps = run(model, request, job)
        x = frames[-1]
        contents = files(model, request, x, steps, device)
        contents["trajectory.gif"] = gif(numpy.stack(frames), model.max_state, model.process.mask_state)
        encoded = {name: base64.b64encode(data).decode() for name, data in contents.items()}
        event: Event = {"event": "done", "x": pack(x), "files": encoded, **code(model, request, device)}
        if request.observed is not None:
            event["std"] = pack(standard_deviation(x))
        return event

    return work


def run(model: DiffusionModel, request: SamplingRequest, job: Job) -> tuple[list[NDArray[Any]], list[Step]]:
    """Frames, the last of which has the samples, and a record of each step.

    The job can be cancelled between two passes of the network.
    """
    times = model.sampling_times(request.steps, request.times)  # here, because it can take seconds
    clock = [*times.values.flip(0).tolist(), 0.0]
    before = _initial(model, request, times)
    frames = [compact(model, before)]
    job.emit({"event": "start", "times": clock, "frame": pack(frames[0])})
    with_frame = {round(k) for k in numpy.linspace(0, request.steps, limits.FRAMES + 1)}
    steps: list[Step] = []

    def observe(k: int, _: int, x: Tensor) -> None:
        nonlocal before
        change = x - before
        births, deaths = (float(part.sum()) / len(x) for part in (change.clamp(min=0), (-change).clamp(min=0)))
        steps.append(Step(k, clock[k], float(x.double().mean()), births, deaths))
        event = {"event": "step", **steps[-1]._asdict()}
        if k in with_frame:
            frames.append(compact(model, x))
            event["frame"] = pack(frames[-1])
        job.emit(event)
        before = x

    hook = model.predictor.network.register_forward_pre_hook(lambda *_: job.check())
    try:
        sampler = model.sampler(request.sampler, request.correctors, request.steps)
        x = model.sample(request.num, **{**request.arguments(), "sampler": sampler, "times": times}, callback=observe)
    finally:
        hook.remove()
    return [*frames[:-1], compact(model, x)], steps


def _initial(model: DiffusionModel, request: SamplingRequest, times: ObservationTimes) -> Tensor:
    """The first state of the reverse process: the streams of a seed reproduce it."""
    rng = Streams(request.seed, request.num, device=model.device)
    with torch.no_grad():
        return sampler_of(model, request).start(model.process, times, (request.num, *(model.shape or ())), rng)


def compact(model: DiffusionModel, x: Tensor) -> NDArray[Any]:
    """States in the smallest integer type that holds them, as `blackout sample` writes them."""
    states = model.process.num_states
    return x.cpu().numpy().astype(numpy.int64 if states is None else numpy.min_scalar_type(states - 1))


def pack(x: NDArray[Any]) -> str:
    """States for the browser in base64: bytes if they fit, else four bytes each."""
    return base64.b64encode(x.astype("u1" if x.dtype == numpy.uint8 else "<i4").tobytes()).decode()
