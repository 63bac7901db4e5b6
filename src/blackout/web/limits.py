"""How much one visitor may ask for at a time; every refusal says what would be allowed."""

from typing import TYPE_CHECKING

from blackout.model import DiffusionModel
from blackout.process import Absorbing
from blackout.sampling.conditional import ROUNDS

if TYPE_CHECKING:
    from blackout.web.orders import Order

STEPS = 1000
CORRECTORS = 10
RESAMPLE = 20
GUIDANCE = 20.0
SEED = 2**53 - 1  # what a browser holds exactly
IMAGES = 64
FRAMES = 60  # pictures of one walk that are sent
UPLOAD = 8 << 20  # bytes
PIXELS = 24_000_000  # of an upload, once decoded
SCANS = 300  # of a progressive JPEG: some ten are usual, and each one passes over all pixels
MESSAGE = 2 << 20  # bytes of a request in JSON
REASON = 1000  # letters of a refusal
WAITING = 2  # walks of one visitor that wait
LINE = 64  # walks of all visitors that wait

_COMPONENTS = 1 << 16  # of all images of a walk: what the browser is sent again and again
_WORK = {"cpu": 1e14, "cuda": 1e16}  # multiplications: some minutes
_PASSES_OF_AN_EVENT = 6  # of the exact sampler: five nodes of a quadrature, and the rates at the event


def images(model: DiffusionModel) -> int:
    """The largest number of images of a walk: a power of two, smaller for larger images."""
    components = 1
    for size in model.shape or ():
        components *= size
    fitting = max(1, _COMPONENTS // components)
    return int(min(IMAGES, 1 << (fitting.bit_length() - 1)))


def check_work(model: DiffusionModel, order: "Order") -> None:
    """Refuse a walk that would keep the others waiting for too long."""
    _, height, width = model.shape or (1, 1, 1)
    weights = sum(p.numel() for p in model.predictor.parameters())
    allowed = max(1, int(_WORK.get(model.device.type, _WORK["cpu"]) / (weights * height * width)))
    wanted = passes(model, order) * order.num
    if wanted > allowed:
        raise ValueError(
            f"this walk is {wanted / allowed:.1f} times what the page computes in one go with {order.model} "
            f"({wanted:,} passes of the network, at most {allowed:,}): take fewer images or steps; "
            f"`blackout sample` has no limit"
        )


def passes(model: DiffusionModel, order: "Order") -> int:
    """How often the network is asked for one image; with the exact sampler, if every count rises to the largest."""
    rounds = 0
    if order.known is not None:
        usual = 0 if isinstance(model.process, Absorbing) else ROUNDS
        rounds = usual if order.resample is None else order.resample
    steps = order.steps * (1 + rounds + order.correctors)
    if order.sampler == "exact":
        channels, height, width = model.shape or (1, 1, 1)
        events = channels * height * width * max(1, model.max_state or STEPS)
        steps = (events + steps) * _PASSES_OF_AN_EVENT
    return steps * (2 if order.guidance not in (0, 1) else 1)
