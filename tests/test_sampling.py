"""Samplers against the exact distributions of their steps. Goodness of fit is Pearson's test at 1e-4."""

import math

import numpy
import pytest
import torch

import blackout as bo
from blackout.random import Streams
from blackout.sampling import Step
from worlds import (
    cube,
    draw,
    frequencies,
    grid,
    line,
    marginal,
    noise,
    on_lattice,
    p_value,
    sampler_name,
    sampler_probs,
    total_variation,
)

CASES = [
    (bo.BinomialBridge(), bo.PureDeath(4)),
    (bo.TauLeaping(), bo.PureDeath(4)),
    (bo.TauLeaping(step="instantaneous"), bo.PureDeath(4)),
    (bo.TauLeaping(events="binomial"), bo.PureDeath(4)),
    (bo.TauLeaping(), bo.Uniform(5)),
    (bo.TauLeaping(), bo.Absorbing(6)),
    (bo.TauLeaping(), bo.BirthDeath(5, birth=0.3, death=1.0, immigration=1.0)),
    (bo.TauLeaping(), bo.DiscretizedGaussian(5)),
]
CASE_NAMES = [f"{sampler_name(sampler)}-{process!r}" for sampler, process in CASES]
GENERAL = [bo.PureDeath(4), bo.Uniform(5), bo.BirthDeath(5, birth=0.3, death=1.0, immigration=1.0)]
SAMPLERS = [bo.BinomialBridge(), bo.TauLeaping(), bo.Exact(), bo.TauLeaping(corrector_steps=2)]


def world(process, components=3):
    points, weights = cube(components)
    return bo.ExactPosterior(process, points, weights), on_lattice(points, weights, process.num_states)


def zero(xt, t):
    return torch.zeros(xt.shape)


@pytest.mark.parametrize(("sampler", "process"), CASES, ids=CASE_NAMES)
def test_distribution_of_samples_converges_to_the_data_at_first_order(sampler, process):
    """The distribution is computed from the probabilities of the steps, without sampling noise."""
    posterior, data = world(process)
    steps = (10, 40, 160)
    bias = [total_variation(sampler_probs(sampler, posterior, process, grid(process, n), 3), data) for n in steps]
    assert bias == sorted(bias, reverse=True)
    assert bias[-1] < 0.05
    assert 0.85 < math.log(bias[1] / bias[2], 4) < 1.1


@pytest.mark.parametrize(("sampler", "process"), CASES, ids=CASE_NAMES)
def test_samples_fit_the_distribution_of_the_steps(sampler, process):
    posterior, _ = world(process)
    probs = sampler_probs(sampler, posterior, process, grid(process, 10), 3)
    samples = sampler.sample(posterior, process, grid(process, 10), (5000, 3), seed=1)
    assert p_value(frequencies(samples, process.num_states), probs) > 1e-4


@pytest.mark.parametrize(("sampler", "process"), [CASES[0], CASES[4]], ids=[CASE_NAMES[0], CASE_NAMES[4]])
def test_samples_of_many_steps_differ_from_the_data_by_noise_alone(sampler, process):
    posterior, data = world(process)
    samples = sampler.sample(posterior, process, grid(process, 160), (5000, 3), seed=1)
    distance = total_variation(frequencies(samples, process.num_states) / 5000, data)
    assert distance < 1.5 * noise(data, 5000)


def test_nearest_rounding_loses_rare_counts():
    process, times = bo.PureDeath(1), bo.ObservationTimes.fisher(50)
    posterior = bo.ExactPosterior(process, torch.tensor([[0], [1]]), [0.7, 0.3])
    nearest = bo.BinomialBridge(rounding="nearest").sample(posterior, process, times, (1000, 1))
    assert not bool(nearest.any())
    stochastic = bo.BinomialBridge().sample(posterior, process, times, (10_000, 1))
    assert float(stochastic.double().mean()) == pytest.approx(0.3, abs=5 * math.sqrt(0.21 / 10_000))


def test_bias_of_nearest_rounding_does_not_vanish_with_steps():
    posterior, data = world(bo.PureDeath(4))
    sampler = bo.BinomialBridge(rounding="nearest")
    for steps in (80, 160):
        probs = sampler_probs(sampler, posterior, bo.PureDeath(4), grid(bo.PureDeath(4), steps), 3)
        assert total_variation(probs, data) > 0.15


@pytest.mark.parametrize("steps", [1, 3, 20])
def test_exact_sampler_fits_the_data_on_any_grid(steps):
    process = bo.PureDeath(4)
    posterior, data = world(process, 2)
    samples = bo.Exact().sample(posterior, process, grid(process, steps), (1500, 2), seed=steps)
    assert p_value(frequencies(samples, 5), data) > 1e-4


@pytest.mark.parametrize(
    "process",
    [
        bo.Uniform(4),
        bo.Absorbing(5),
        bo.BirthDeath(4, birth=0.3, death=1.0, immigration=1.0),
        bo.DiscretizedGaussian(4),
        bo.PureDeath(3, schedule=bo.Schedule.linear(0.1, 0.2)),
    ],
    ids=repr,
)
def test_exact_sampler_reverses_any_process(process):
    points, weights = line(4, seed=1)
    posterior = bo.ExactPosterior(process, points, weights)
    times = bo.ObservationTimes.from_values([t / process.relaxation_rate for t in (0.3, 2.0, 7.0)])
    samples = bo.Exact().sample(posterior, process, times, (2000, 1), seed=1)
    assert p_value(frequencies(samples, process.num_states), on_lattice(points, weights, process.num_states)) > 1e-4


def corrected(process, x, t, steps, seed):
    """The grid is so coarse that `corrector_size` alone determines the length of the steps."""
    now, before = (torch.tensor(v, dtype=torch.float64) for v in (t, 2 * t))
    at = Step.of(bo.ExactPosterior(process, *cube()), process, now, before)
    return bo.TauLeaping(corrector_steps=steps, corrector_size=0.05).correct(at, x, Streams(seed, len(x)))


@pytest.mark.parametrize("process", GENERAL, ids=repr)
def test_corrector_steps_keep_the_marginal_distribution(process):
    points, weights = cube()
    probs = marginal(process, points, weights, 1.0)
    x = process.sample(draw(points, weights, 10_000), 1.0, torch.Generator().manual_seed(1))
    x = corrected(process, x, 1.0, steps=20, seed=2)
    assert total_variation(frequencies(x, 5) / 10_000, probs) < 1.25 * noise(probs, 10_000)


@pytest.mark.parametrize("process", GENERAL, ids=repr)
def test_corrector_steps_restore_the_marginal_distribution(process):
    probs = marginal(process, *cube(), 1.0)
    x = torch.zeros(4000, 3, dtype=torch.long)
    distances = [total_variation(frequencies(x, 5) / 4000, probs)]
    for steps in (20, 40, 60):
        x = corrected(process, x, 1.0, steps, seed=steps)
        distances.append(total_variation(frequencies(x, 5) / 4000, probs))
    assert distances[0] > 0.9 > 2 * distances[1] > 3 * distances[2]
    assert distances[-1] < 1.25 * noise(probs, 4000)


@pytest.mark.parametrize(("sampler", "t"), [(bo.BinomialBridge, 6.0), (bo.TauLeaping, 3.0)])
def test_corrector_steps_keep_the_mean_intensity(sampler, t):
    """A hundred steps on images whose intensity is constrained by the images themselves alone.

    Pixels are Poisson(b), and b is gamma(3, 0.03): its mean given X_t has a closed form. Leaps in both directions at
    once, in which a unit dies at most once, raised the intensity by 40 % at t = 6.
    """
    process, num, pixels, keep = bo.PureDeath(), 120, 1000, math.exp(-t)

    def denoise(xt, t):
        p = torch.exp(-t.double()).reshape(-1, 1)
        return ((1 - p) * (3 + xt.sum(1, keepdim=True)) / (0.03 + pixels * p)).expand(xt.shape)

    draws = numpy.random.default_rng(0)
    x = torch.from_numpy(draws.poisson(keep * draws.gamma(3, 1 / 0.03, (num, 1)), (num, pixels)))
    now, before = (torch.tensor(v, dtype=torch.float64) for v in (t, t + 1))
    after = sampler(corrector_steps=100).correct(Step.of(denoise, process, now, before), x, Streams(0, len(x)))
    change = (after - x).double().mean(1) / x.double().mean()
    error = float(change.std()) / math.sqrt(len(x))
    assert abs(float(change.mean())) < 3 * error < 0.15


def test_corrector_step_is_not_longer_than_the_step_it_corrects():
    """Correctors of a fixed length would undo what many steps gain."""
    times_called = []

    def denoise(xt, t):
        times_called.append(float(t.flatten()[0]))
        return torch.zeros(xt.shape)

    process, times = bo.PureDeath(4), bo.ObservationTimes.from_values([0.5, 0.51, 3.0])
    bo.TauLeaping(corrector_steps=1, corrector_size=0.1).sample(denoise, process, times, (2, 3))
    assert times_called == pytest.approx([3.0, 0.51 + 0.1 * -math.expm1(-0.51), 0.51, 0.51, 0.5])


def test_corrector_steps_reduce_the_bias_of_few_steps():
    posterior, data = world(bo.PureDeath(4))
    times = grid(bo.PureDeath(4), 20)
    plain, corrected = (
        frequencies(bo.TauLeaping(corrector_steps=n).sample(posterior, bo.PureDeath(4), times, (5000, 3)), 5) / 5000
        for n in (0, 3)
    )
    assert total_variation(corrected, data) < 0.8 * total_variation(plain, data)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=sampler_name)
def test_trajectory_increases_from_zero_to_the_sample(sampler):
    process, times = bo.PureDeath(4), bo.ObservationTimes.fisher(12)
    posterior, _ = world(process)
    path = sampler.sample(posterior, process, times, (6, 3), seed=3, trajectory=True, batch_size=4)
    assert path.shape == (13, 6, 3)
    assert path.dtype == torch.int64
    assert torch.equal(path[-1], sampler.sample(posterior, process, times, (6, 3), seed=3))
    assert not bool(path[0].any())
    if not sampler.corrector_steps:
        assert bool((path.diff(dim=0) >= 0).all())


def test_trajectory_begins_with_the_terminal_distribution():
    process = bo.Uniform(5)
    posterior, _ = world(process)
    path = bo.TauLeaping().sample(posterior, process, grid(process, 2), (2000, 3), trajectory=True)
    uniform = torch.full((125,), 1 / 125, dtype=torch.float64)
    assert p_value(frequencies(path[0], 5), uniform) > 1e-4
    masked = bo.TauLeaping().sample(world(bo.Absorbing(6))[0], bo.Absorbing(6), grid(process, 2), (9, 3), 0, True)
    assert bool((masked[0] == 5).all())


@pytest.mark.parametrize(
    ("sampler", "process"), [*((sampler, bo.PureDeath(4)) for sampler in SAMPLERS), CASES[4], CASES[6]]
)
def test_sample_depends_on_seed_and_index_alone(sampler, process):
    posterior, _ = world(process)

    def sample(size, seed=7, **options):
        return sampler.sample(posterior, process, grid(process, 4), (size, 3), seed=seed, **options)

    samples = sample(10)
    assert torch.equal(samples, sample(10, batch_size=4))
    assert torch.equal(samples[:4], sample(4))
    assert torch.equal(samples[4:], sample(6, start_index=4))
    assert torch.equal(samples[3:4], sample(1, start_index=3))
    assert not torch.equal(samples, sample(10, seed=8))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert torch.equal(samples, sample(10))
    finally:
        torch.set_num_threads(threads)


def test_sample_of_large_counts_depends_on_seed_and_index_alone():
    sampler, times = bo.TauLeaping(), bo.ObservationTimes.fisher(5)

    def sample(size, **options):
        return sampler.sample(lambda xt, t: 300.0 + 0 * xt, bo.PureDeath(), times, (size, 4), seed=1, **options)

    assert torch.equal(sample(25, batch_size=6)[10:], sample(15, start_index=10))
    assert int(sample(25).min()) > 100


def test_callback_is_called_after_every_step():
    calls = []
    process, times = bo.PureDeath(4), bo.ObservationTimes.fisher(5)
    path = bo.TauLeaping().sample(
        world(process)[0], process, times, (4, 3), 0, True, callback=lambda k, n, x: calls.append((k, n, x))
    )
    assert [(k, n) for k, n, _ in calls] == [(k, 5) for k in range(1, 6)]
    assert all(torch.equal(x, path[k]) for k, _, x in calls)


@pytest.mark.parametrize("sampler", [*SAMPLERS, bo.TauLeaping(events="binomial")], ids=sampler_name)
def test_counts_stay_within_max_count_for_any_denoiser(sampler):
    samples = sampler.sample(lambda xt, t: 1e3 + 0.0 * xt, bo.PureDeath(4), bo.ObservationTimes.fisher(6), (50, 3))
    assert (int(samples.min()) >= 0, int(samples.max())) == (True, 4)
    nothing = sampler.sample(lambda xt, t: -1.0 + 0.0 * xt, bo.PureDeath(4), bo.ObservationTimes.fisher(6), (50, 3))
    assert not bool(nothing.any())


@pytest.mark.parametrize("sampler", SAMPLERS, ids=sampler_name)
def test_samples_may_have_any_shape(sampler):
    times = bo.ObservationTimes.fisher(4)
    for shape in ((0, 3), (3, 0), (4,), (2, 1, 2, 2)):
        samples = sampler.sample(lambda xt, t: torch.ones(xt.shape), bo.PureDeath(4), times, shape)
        assert samples.shape == shape
    assert sampler.sample(zero, bo.PureDeath(4), times, (0, 3), trajectory=True).shape == (5, 0, 3)


@pytest.mark.parametrize(
    ("process", "times"),
    [
        (bo.PureDeath(3), bo.ObservationTimes.uniform(64, t_end=1.0)),
        (bo.Absorbing(4), bo.ObservationTimes.uniform(64, t_end=1.0)),
        (bo.Chain(0.99 * torch.eye(5) + 0.01 * torch.eye(5)[4]), bo.ObservationTimes.from_values(range(1, 101))),
    ],
    ids=str,
)
def test_bound_of_subsampled_steps_where_sampling_starts_before_mixing(process, times):
    """The bounds of all steps and of a subsample agree, with the exact posterior of one component."""
    points, weights = torch.tensor([[0], [1], [3]]), torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    posterior, many = bo.ExactPosterior(process, points, weights), points.repeat(250, 1)
    found = [
        bo.PosteriorBridge().bound(posterior, process, times, many, num_steps=number).reshape(250, 3)
        for number in (None, len(times) - 1)
    ]
    # Their mean is the bound of sampling from the terminal state; data that have not reached it at t_T add to it.
    error = sum(bound.var(0) for bound in found).div(250).sqrt()
    assert bool(((found[0] - found[1]).mean(0).abs() <= 5 * error + 0.01).all())  # one step represents two
    assert float((weights * found[1].mean(0)).sum()) > float(-(weights * weights.log()).sum()) - 5 * float(error.max())


def test_bound_ignores_rounding_where_the_data_have_negligible_probability():
    process = bo.BirthDeath(4, 0.3, 1.0, 0.4)
    points = torch.tensor([[0, 0], [2, 2], [2, 1], [3, 0], [1, 3]])
    posterior = bo.ExactPosterior(process, points, [0.3, 0.25, 0.2, 0.15, 0.1])
    times, many = bo.ObservationTimes.uniform(40, t_end=6.0), points.repeat(30, 1)
    found = [
        bo.TauLeaping().bound(posterior, process, times, many, num_steps=number).reshape(30, 5) for number in (None, 39)
    ]
    long = bo.ObservationTimes.for_process(process, 50)
    assert torch.isfinite(bo.TauLeaping().bound(posterior, process, long, points, num_steps=49)).all()
    error = sum(bound.var(0) for bound in found).div(30).sqrt()
    assert bool(((found[0] - found[1]).mean(0).abs() <= 5 * error).all())


def test_exact_sampler_keeps_events_where_rates_differ_by_many_orders():
    """Pearson's test at 1e-6."""
    generator = [[0.0, 0.0, 0.0], [1.0, -1.0, 0.0], [0.0, 1e13, -1e13]]
    process = bo.FiniteState(generator)
    assert process.relaxation_rate == pytest.approx(1.0, rel=0.01)
    posterior = bo.ExactPosterior(process, torch.tensor([[2], [1], [0]]), [0.6, 0.3, 0.1])
    x = bo.Exact().sample(posterior, process, bo.ObservationTimes.from_values([15.0]), (1500, 1))
    assert p_value(torch.bincount(x.flatten(), minlength=3), torch.tensor([0.1, 0.3, 0.6])) > 1e-6


def test_exact_sampler_decides_late_between_large_counts():
    """Two points that differ by one part in ten, with a thousand events in a sample: Pearson's test at 1e-4."""
    process = bo.PureDeath(1000)
    posterior = bo.ExactPosterior(process, torch.tensor([[900], [1000]]), [0.3, 0.7])
    times = bo.ObservationTimes.from_values([22.0])
    x = bo.Exact().sample(posterior, process, times, (16, 1), seed=1)
    assert p_value(torch.stack([(x == 900).sum(), (x == 1000).sum()]), torch.tensor([0.3, 0.7])) > 1e-4
    assert torch.equal(bo.Exact().sample(posterior, process, times, (1, 1), seed=1, start_index=7), x[7:8])


def test_exact_sampler_calls_the_denoiser_once_for_several_events_of_one_component():
    calls = []

    def denoise(x, t):
        calls.append(len(x))
        return (3000 - x).double()

    times = bo.ObservationTimes.from_values([15.0])
    assert int(bo.Exact().sample(denoise, bo.PureDeath(3000), times, (1, 1))) == 3000
    assert len(calls) < 1000


def test_exact_sampler_predicts_the_next_events_of_several_components():
    """The second component has less where the first has more, so some predictions fail: Pearson's test at 1e-4."""
    calls, process, times = [], bo.PureDeath(1000), bo.ObservationTimes.from_values([22.0])
    points, weights = torch.tensor([[900, 300], [500, 700], [100, 1000]]), [0.2, 0.5, 0.3]
    posterior = bo.ExactPosterior(process, points, weights)

    def denoise(x, t):
        calls.append(len(x))
        return posterior(x, t)

    x = bo.Exact().sample(denoise, process, times, (40, 2), seed=1)
    found = (x.unsqueeze(1) == points).all(-1)
    assert bool(found.any(1).all())
    assert p_value(found.sum(0), torch.tensor(weights)) > 1e-4
    calls.clear()
    assert torch.equal(bo.Exact().sample(denoise, process, times, (1, 2), seed=1, start_index=7), x[7:8])
    assert len(calls) < 600  # for 1,100 or 1,200 events
