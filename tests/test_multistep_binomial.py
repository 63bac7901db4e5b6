"""The multistep binomial bridge: its steps against scipy, its effect on data that can be listed, where it is used."""

import numpy
import pytest
import torch
from scipy.special import expit, logit
from scipy.stats import binom

import blackout as bo
from blackout.sampling import Past, Step
from blackout.sampling.choice import bound_sampler, default_sampler
from worlds import p_value

PROCESS = bo.PureDeath(6)
SAMPLER = bo.MultistepBinomialBridge()


def denoise(xt, t):
    """Some posterior mean that depends on other components."""
    return (PROCESS.max_count - xt) * torch.sigmoid(xt.flip(-1) - 2.0 + t.reshape(-1, 1))


def states(*values):
    return torch.tensor(values).reshape(1, -1)


@pytest.mark.parametrize("s", [0.0, 0.3])
def test_probabilities_of_a_step_equal_scipy(s):
    t, before = 0.8, 1.7
    past, now = states(0, 1, 2, 1), states(1, 1, 4, 2)
    late, here = (float(numpy.exp(-time)) for time in (before, t))
    early = float(numpy.exp(-s))
    weight = expit((logit(early) - logit(here)) / 2)
    y, y_past = (denoise(x, torch.tensor([time]))[0].double().numpy() for x, time in ((now, t), (past, before)))
    change = (now[0].numpy() + y) - (past[0].numpy() + y_past)
    corrected = numpy.minimum(numpy.maximum(y + weight * change, 0.1 * y), 6 - now[0].numpy())
    low, r = numpy.floor(corrected), (early - here) / (1 - here)
    assert late < here < early

    times = [torch.tensor(time, dtype=torch.float64) for time in (s, t, before)]
    _, left = SAMPLER.next_log_prob(Step.of(denoise, PROCESS, times[1], times[2]), past, past, None)
    at, found = Step.of(denoise, PROCESS, times[0], times[1]), []
    for state in range(7):
        log_prob, _ = SAMPLER.next_log_prob(at, torch.full_like(now, state), now, left)
        births = state - now[0].numpy()
        expected = (low + 1 - corrected) * binom.pmf(births, low, r) + (corrected - low) * binom.pmf(births, low + 1, r)
        assert numpy.allclose(log_prob.exp()[0].numpy(), expected, atol=1e-12)
        found.append(expected)
    num = 20_000
    rng = bo.random.Streams(0, num)
    many = Past(*(value.expand(num, -1) if value.dim() > 1 else value for value in left))
    drawn, _ = SAMPLER.next_step(at, now.expand(num, -1), rng, many)
    for component, probs in enumerate(numpy.stack(found, 1)):
        counts = numpy.bincount(drawn[:, component].numpy(), minlength=7)
        assert p_value(torch.from_numpy(counts), torch.from_numpy(probs)) > 1e-4


def test_the_first_step_and_every_step_without_change_are_those_of_the_binomial_bridge():
    times = bo.ObservationTimes.fisher(1)
    plain = bo.BinomialBridge().sample(denoise, PROCESS, times, (50, 4), seed=1)
    assert torch.equal(SAMPLER.sample(denoise, PROCESS, times, (50, 4), seed=1), plain)
    point = torch.tensor([[1, 5, 0]])  # nothing changes where X_0 is known
    samples = SAMPLER.sample(bo.ExactPosterior(PROCESS, point), PROCESS, bo.ObservationTimes.fisher(9), (20, 3))
    assert torch.equal(samples, point.expand(20, 3))


def test_large_steps_keep_the_variance_of_brightness():
    """Images of one brightness each: the binomial bridge makes them alike."""
    process, brightness = bo.PureDeath(255), torch.arange(10, 231)
    weights = torch.exp(-(((brightness - 120) / 30.0) ** 2) / 2).double()
    posterior = bo.ExactPosterior(process, brightness[:, None].expand(-1, 64).contiguous(), weights / weights.sum())
    times = bo.ObservationTimes.by_rule("length", process, 16)
    found = {
        sampler: sampler.sample(posterior, process, times, (600, 64), seed=0).double().mean(1)
        for sampler in (bo.BinomialBridge(), SAMPLER)
    }
    plain, multistep = found.values()
    assert abs(float(multistep.mean()) - 120) < 4
    assert float(plain.std()) < 24  # of 30
    assert 27 < float(multistep.std()) < 36


@pytest.mark.parametrize(
    ("max_count", "shape", "steps", "name"),
    [
        (255, (3, 8, 8), 64, "bridge-multistep"),
        (255, (3, 8, 8), 65, "bridge"),
        (255, (3, 8, 8), None, "bridge"),
        (16, (1, 8, 8), 8, "bridge"),
        (255, (20,), 8, "bridge"),
        (None, (1, 8, 8), 8, "bridge"),
    ],
)
def test_few_steps_of_images_of_many_levels_use_it(max_count, shape, steps, name):
    assert default_sampler(bo.PureDeath(max_count), "mean", steps, shape) == name
    assert default_sampler(bo.PureDeath(max_count), "rates", steps, shape) == "bridge"


def test_models_use_it_by_default_also_to_inpaint_and_with_guidance():
    x = torch.randint(0, 256, (16, 1, 8, 8), generator=torch.Generator().manual_seed(0))
    model = bo.DiffusionModel.for_data(x, bo.PureDeath(255), width=8, blocks=1, num_classes=2)
    samples = model.sample(3, num_steps=6, seed=2)
    assert torch.equal(samples, model.sample(3, num_steps=6, seed=2, sampler=SAMPLER, batch_size=2))
    assert not torch.equal(samples, model.sample(3, num_steps=6, seed=2, sampler="bridge"))
    assert torch.equal(model.sample(2, num_steps=6, seed=2, start_index=1), samples[1:])
    mask = torch.zeros(1, 8, 8, dtype=torch.bool)
    mask[:, :4] = True
    filled = model.sample(2, num_steps=6, observed=x[0], mask=mask, label=1, guidance=2.0)
    assert torch.equal(filled[:, :, :4], x[0].expand(2, -1, -1, -1)[:, :, :4])


def test_steps_between_very_late_times_are_finite():
    times = bo.ObservationTimes.from_values([1.0, 900.0, 1000.0])
    assert SAMPLER.sample(denoise, PROCESS, times, (5, 4)).max() <= 6


def test_its_bound_is_that_of_leaps():
    assert bound_sampler("bridge-multistep", bo.PureDeath(255), finite_head=True) == "binomial"
    with pytest.raises(ValueError, match="process must be PureDeath"):
        SAMPLER.check(bo.Uniform(4))
