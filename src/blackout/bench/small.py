"""What a laptop can repeat in minutes, side by side in one run: heads and numbers of steps."""

import dataclasses
import math
from collections.abc import Iterator

from blackout.data import make_digits
from blackout.io.models import from_config
from blackout.model import DiffusionModel
from blackout.recipes import recipe
from blackout.sampling import TauLeaping

Comparison = tuple[str, str, list[tuple[str, float]]]  # what is compared, in which unit, and the figures


def run(steps: int = 300, images: int = 128) -> Iterator[Comparison]:
    """One comparison after another, as they are finished."""
    models = {head: _trained(head, steps) for head in ("softplus", "bounded-logit")}
    x = make_digits(split="test").x[:images]
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
    config = dataclasses.replace(recipe("digits"), head=head, steps=steps, log_every=steps)
    return from_config(config, data).train(config, data.x)
