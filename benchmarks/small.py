"""Heads and numbers of steps on seven-segment digits, in minutes on a laptop."""

import math
from collections.abc import Iterator

from blackout.data import make_digits
from blackout.io.models import from_config
from blackout.model import DiffusionModel
from blackout.recipes import recipe
from blackout.sampling import TauLeaping
from blackout.training.config import changed

Comparison = tuple[str, str, list[tuple[str, float]]]  # what is compared, the unit, and the values


def run(steps: int = 300, num_data: int = 128) -> Iterator[Comparison]:
    """Yield each comparison when it is finished."""
    models = {head: _trained(head, steps) for head in ("softplus", "bounded-logit")}
    x = make_digits(split="test").x[:num_data]
    yield (
        f"head, digits, {steps} training steps",
        "bits/dim, held out",
        [(head, float(model.bits_per_dim(x, num_times=16))) for head, model in models.items()],
    )
    model = models["bounded-logit"]
    bounds = {"continuous time": float(model.bits_per_dim(x, num_times=16))}
    for number in (250, 50, 10):
        nats = TauLeaping(law="binomial").bound(model.denoise, model.process, model.times.subset(number), x)
        bounds[f"{number} binomial leaps"] = float(nats.mean()) / (x[0].numel() * math.log(2))
    yield "steps, digits", "bits/dim, held out", list(bounds.items())


def _trained(head: str, steps: int) -> DiffusionModel:
    data = make_digits()
    config = changed(recipe("digits"), {"head": head, "steps": steps, "log_every": steps})
    return from_config(config, data).train(config, data.x)
