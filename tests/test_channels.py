"""Algorithm 3 with a drawn channel: the loss of one channel stands for the sum over all of them."""

from pathlib import Path

import numpy
import pytest
import torch
from torch import Tensor

import blackout as bo
from blackout.model import DiffusionModel
from blackout.network.categorical_heads import RatesHead, marginal_probs
from blackout.network.head import Observation
from test_cli import status
from worlds import random_generator

PROCESSES = [bo.BirthDeath.for_levels(5), bo.Uniform(5), bo.FiniteState(random_generator(5)), bo.PureDeath(4)]


def observed(process: bo.MarkovProcess, size: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x0 = torch.randint(0, 5, (size, 3), generator=generator)
    t = 0.1 + torch.rand(size, dtype=torch.float64, generator=generator)
    return x0, process.sample(x0, t, generator), t


@pytest.mark.parametrize("process", PROCESSES, ids=repr)
def test_mean_over_drawn_channels_is_the_sum_over_all(process: bo.MarkovProcess) -> None:
    x0, xt, t = observed(process)
    head, observation = RatesHead(marginal_probs(x0, process)), Observation(process, xt, t)
    raw = 0.3 * torch.randn(6, 3, head.outputs(process), generator=torch.Generator().manual_seed(1))

    def value_and_gradient(channel: int | None) -> tuple[Tensor, Tensor]:
        outputs = raw.clone().requires_grad_()
        posterior = head.posterior(outputs, observation)
        drawn = None if channel is None else torch.full((len(x0),), channel)
        value = posterior.divergence(x0) if drawn is None else posterior.channel_divergence(x0, drawn)
        (gradient,) = torch.autograd.grad(value.sum(), outputs)
        return value.detach(), gradient

    parts = [value_and_gradient(r) for r in range(len(process.jumps))]
    for mean, every in zip(
        (torch.stack(p).mean(0) for p in zip(*parts, strict=True)), value_and_gradient(None), strict=True
    ):
        torch.testing.assert_close(mean, every, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("process", PROCESSES, ids=repr)
def test_gradient_is_that_of_the_loss_of_algorithm_3(process: bo.MarkovProcess) -> None:
    """(t_k - t_{k-1}) R (κ_r - λ_r log κ_r) differs from the weighted divergence by what does not depend on κ."""
    x0, xt, t = observed(process)
    s, channel = 0.8 * t, torch.arange(len(x0)) % len(process.jumps)
    kappa = (0.5 + torch.rand(6, 3, len(process.jumps), dtype=torch.float64)).requires_grad_()
    chosen = channel.reshape(-1, 1, 1).expand(6, 3, 1)
    paper = bo.RateLoss(process)(kappa.gather(-1, chosen).squeeze(-1), x0, xt, s, t, channel)
    ours = (t - s).unsqueeze(-1) * bo.RatePosterior(process, xt, t, kappa).channel_divergence(x0, channel)
    expected, found = (torch.autograd.grad(v.sum(), kappa)[0] for v in (paper, ours))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_training_with_a_drawn_channel_learns() -> None:
    generator = torch.Generator().manual_seed(0)
    first = torch.randint(0, 4, (512, 1), generator=generator)
    x = torch.cat([first, 3 - first], 1)  # one component determines the other
    model = DiffusionModel.for_data(x, bo.BirthDeath.for_levels(4), head="rates", width=32, blocks=2)
    untrained = model.bits_per_dim(x[:128], num_times=32)
    model.fit(x, steps=200, batch_size=64, learning_rate=5e-3, ema=0.95, channels="one")
    assert untrained > 1.8  # independent components: 2
    assert model.bits_per_dim(x[:128], num_times=32) < untrained - 0.3  # at best 1


def test_channels_of_a_chain_are_rejected() -> None:
    x = torch.zeros(8, 2, dtype=torch.int64)
    model = DiffusionModel.for_data(x, bo.Chain([[0.9, 0.1], [0.2, 0.8]]), width=8, blocks=1)
    with pytest.raises(ValueError, match="channels must be 'all' for a chain, which has no rates, got 'one'"):
        model.fit(x, steps=1, channels="one")


def test_algorithms_3_and_4_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    numpy.save("x.npy", numpy.random.default_rng(0).integers(0, 4, (32, 5)))
    algorithm = ["--process", "birth-death", "--head", "rates", "--loss", "likelihood", "--time-density", "grid"]
    small = ["--max-count", "3", "--width", "8", "--blocks", "1", "--batch-size", "8", "--num-times", "20"]
    command = [
        "train",
        "digits",
        "--data",
        "x.npy",
        "--out",
        "run",
        *algorithm,
        *small,
        "--channels",
        "one",
        "--steps",
        "3",
    ]
    assert status(command, monkeypatch) == 0
    assert (
        status(["sample", "run", "--num", "4", "--sampler", "poisson", "--steps", "20", "--out", "x.npz"], monkeypatch)
        == 0
    )
    samples = numpy.load("x.npz")["x"]
    assert samples.shape == (4, 5)
    assert samples.max() <= 3
