"""The Gaussian diffusion that figures compare with, against scipy."""

import math

import numpy
import pytest
import torch
from scipy import integrate, stats

from blackout.figures import GaussianDiffusion
from blackout.random import Streams, normal

PROBS = torch.tensor([0.5, 0.1, 0.0, 0.4], dtype=torch.float64)


def test_normal_numbers() -> None:
    z = normal((4000, 3), torch.device("cpu"), Streams(5, 4000))
    assert stats.kstest(z.flatten().numpy(), "norm").pvalue > 1e-4  # fails once in ten thousand seeds
    assert torch.isfinite(z).all()


def test_the_cosine_schedule() -> None:
    kept = GaussianDiffusion(3, 1000).alpha_bar
    assert kept[0] == 1
    assert bool((kept.diff() < 0).all())
    half = math.cos((0.5 + 0.008) / 1.008 * math.pi / 2) ** 2 / math.cos(0.008 / 1.008 * math.pi / 2) ** 2
    assert float(kept[500]) == pytest.approx(half, rel=1e-9)
    assert 0 < float(kept[-1]) < 1e-6


@pytest.mark.parametrize("k", [0, 1, 300, 1000])
def test_the_density(k: int) -> None:
    """Against scipy's integral over the unit intervals, in units of the data."""
    gaussian = GaussianDiffusion(3)
    x = torch.linspace(-9, 12, 4201, dtype=torch.float64)
    density = gaussian.density(PROBS, x, k)
    assert float(torch.trapezoid(density, x)) == pytest.approx(1, abs=0.005)
    if k == 300:
        kept = float(gaussian.alpha_bar[k])
        mean, spread = 1.5 * (1 - math.sqrt(kept)), 1.5 * math.sqrt(1 - kept)
        for place in (0.3, 2.0, 4.0):
            parts = [
                weight
                * integrate.quad(
                    lambda a, place=place: stats.norm.pdf(place, mean + math.sqrt(kept) * a, spread), o - 0.5, o + 0.5
                )[0]
                for o, weight in enumerate(PROBS.tolist())
            ]
            at = gaussian.density(PROBS, torch.tensor([place], dtype=torch.float64), k)
            assert float(at) == pytest.approx(sum(parts), rel=1e-9)


def test_forward_paths_have_the_variance_of_the_process() -> None:
    gaussian, x0 = GaussianDiffusion(3, 50), torch.full((4000,), 3)
    seen = gaussian.path(x0, [0, 20, 50], Streams(0, 4000))
    assert torch.equal(seen[0], x0.double())
    kept = float(gaussian.alpha_bar[20])
    z = (seen[1].numpy() - 1.5 * (1 + math.sqrt(kept))) / (1.5 * math.sqrt(1 - kept))
    assert stats.kstest(z, "norm").pvalue > 1e-4  # fails once in ten thousand seeds
    assert stats.kstest(seen[2].numpy() / 1.5 - 1, "norm").pvalue > 1e-4


def test_reverse_paths_end_in_the_data() -> None:
    gaussian = GaussianDiffusion(3, 40)
    paths = gaussian.reverse_paths(PROBS, 3000, Streams(1, 3000))
    assert paths.shape == (41, 3000)
    states = numpy.bincount(paths[-1].round().long().numpy(), minlength=4)
    assert states[2] == 0
    probs = PROBS.numpy()
    assert stats.chisquare(states[probs > 0], 3000 * probs[probs > 0]).pvalue > 1e-4  # fails once in ten thousand seeds
    within = (paths[-1] - paths[-1].round()).numpy() + 0.5
    assert stats.kstest(within, "uniform").pvalue > 1e-4
