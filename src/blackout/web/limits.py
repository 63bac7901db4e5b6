"""Limits of one request; every error message names the limit."""

import math
from typing import TYPE_CHECKING

from blackout.model import DiffusionModel
from blackout.sampling.inpainting import ROUNDS

if TYPE_CHECKING:
    from blackout.web.requests import SamplingRequest

STEPS = 1000
CORRECTORS = 10
RESAMPLE = 20
GUIDANCE = 20.0
SEED = 2**53 - 1  # the largest integer that JavaScript represents exactly
IMAGES = 64
FRAMES = 60  # of one job that are sent to the browser
UPLOAD = 8 << 20  # bytes
PIXELS = 24_000_000  # of an uploaded image, once decoded
SCANS = 300  # of a progressive JPEG: about ten are usual, and each one passes over all pixels
MESSAGE = 2 << 20  # bytes of a JSON request
ERROR = 1000  # characters of an error message
SESSIONS = 16  # clients with a turn of their own in the queue
WAITING = 4  # jobs of one session: as many as one browser submits
CONNECTIONS = 128
SECONDS_FOR_HEAD = 10.0  # to send the head of a request, or to use a new connection
SECONDS_FOR_BODY = 60.0
SECONDS_TO_READ = 60.0  # until a client reads what it was sent
SECONDS_TO_STOP = 0.5  # that a server waits for a network pass when it stops

_COMPONENTS = 1 << 16  # of all images of a job, because they are sent to the browser up to FRAMES times
_COST = {"cpu": 1e14, "cuda": 1e16}  # multiplications: some minutes
_PASSES_PER_EVENT = 6  # of the exact sampler: five nodes of a quadrature, and the rates at the event


def max_images(model: DiffusionModel) -> int:
    """The largest number of images of a job: a power of two, smaller for larger images."""
    fitting = max(1, _COMPONENTS // math.prod(model.shape or ()))
    return min(IMAGES, 1 << (fitting.bit_length() - 1))


def check_cost(model: DiffusionModel, request: "SamplingRequest") -> None:
    """Raise ValueError for a job that would block the queue for too long."""
    _, height, width = model.shape or (1, 1, 1)
    parameters = sum(p.numel() for p in model.predictor.parameters())
    allowed = max(1, int(_COST.get(model.device.type, _COST["cpu"]) / (parameters * height * width)))
    wanted = network_passes(model, request) * request.num
    if wanted > allowed:
        raise ValueError(
            f"this job costs {wanted / allowed:.1f} times the limit of the page for {request.model} "
            f"({wanted:,} network passes, at most {allowed:,}): use fewer images or steps; "
            f"`blackout sample` has no limit"
        )


def network_passes(model: DiffusionModel, request: "SamplingRequest") -> int:
    """Network passes per image; for the exact sampler an upper bound, every component rising to the largest state."""
    rounds = 0
    if request.observed is not None:
        default = ROUNDS if model.process.mask_state is None else 0
        rounds = default if request.resample is None else request.resample
    passes = request.steps * (1 + rounds + request.correctors)
    if request.sampler == "exact":
        events = math.prod(model.shape or ()) * max(1, model.max_state or STEPS)
        passes = (events + passes) * _PASSES_PER_EVENT
    return passes * (2 if request.guidance not in (0, 1) else 1)
