"""Heads and numbers of steps on seven-segment digits, in minutes on a laptop."""

import math
from collections.abc import Iterator

from blackout.data import make_seven_segment
from blackout.model import DiffusionModel
from blackout.recipes import build_model, recipe
from blackout.sampling import TauLeaping

Comparison = tuple[str, str, list[tuple[str, float]]]  # what is compared, the unit, and the values


def run(steps: int = 300, num_data: int = 128) -> Iterator[Comparison]:
    """Yield each comparison when it is finished."""
    models = {head: _trained(head, steps) for head in ("softplus", "bounded-logit")}
    x = make_seven_segment(split="test").x[:num_data]
    yield (
        f"head, digits, {steps} training steps",
        "bits/dim, held out",
        [(head, float(model.bits_per_dim(x, num_times=16))) for head, model in models.items()],
    )
    model = models["bounded-logit"]
    bounds = {"continuous time": float(model.bits_per_dim(x, num_times=16))}
    for number in (250, 50, 10):
        nats = TauLeaping(events="binomial").bound(model.denoiser(), model.process, model.times.subset(number), x)
        bounds[f"{number} binomial leaps"] = float(nats.mean()) / (x[0].numel() * math.log(2))
    yield "steps, digits", "bits/dim, held out", list(bounds.items())


def _trained(head: str, steps: int) -> DiffusionModel:
    data = make_seven_segment()
    config = recipe("digits").replace(head=head, steps=steps, log_every=steps)
    return build_model(config, data).train(config, data.x)
