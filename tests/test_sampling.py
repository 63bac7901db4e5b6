import math

import numpy
import pytest
import torch

import blackout as bo
from blackout.streams import Streams
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
    sampler_law,
    sampler_name,
    total_variation,
)

WALKS = [
    (bo.BinomialBridge(), bo.PureDeath(4)),
    (bo.TauLeaping(), bo.PureDeath(4)),
    (bo.TauLeaping(step="instantaneous"), bo.PureDeath(4)),
    (bo.TauLeaping(law="binomial"), bo.PureDeath(4)),
    (bo.TauLeaping(), bo.Uniform(5)),
    (bo.TauLeaping(), bo.Absorbing(6)),
    (bo.TauLeaping(), bo.BirthDeath(5, birth=0.3, death=1.0, immigration=1.0)),
    (bo.TauLeaping(), bo.DiscretizedGaussian(5)),
]
WALK_NAMES = [f"{sampler_name(sampler)}-{process!r}" for sampler, process in WALKS]
GENERAL = [bo.PureDeath(4), bo.Uniform(5), bo.BirthDeath(5, birth=0.3, death=1.0, immigration=1.0)]
SAMPLERS = [bo.BinomialBridge(), bo.TauLeaping(), bo.Exact(), bo.TauLeaping(corrector_steps=2)]


def world(process, components=3):
    points, weights = cube(components)
    return bo.ExactPosterior(process, points, weights), on_lattice(points, weights, process.num_states)


def zero(xt, t):
    return torch.zeros(xt.shape)


@pytest.mark.parametrize(("sampler", "process"), WALKS, ids=WALK_NAMES)
def test_the_law_converges_to_that_of_the_data_at_first_order(sampler, process):
    """The law is computed from the probabilities of the steps, so there is no noise in it."""
    posterior, data = world(process)
    steps = (10, 40, 160)
    bias = [total_variation(sampler_law(sampler, posterior, process, grid(process, n), 3), data) for n in steps]
    assert bias == sorted(bias, reverse=True)
    assert bias[-1] < 0.05
    assert 0.85 < math.log(bias[1] / bias[2], 4) < 1.1


@pytest.mark.parametrize(("sampler", "process"), WALKS, ids=WALK_NAMES)
def test_samples_follow_the_law_of_the_steps(sampler, process):
    """Pearson's test at 1e-4."""
    posterior, _ = world(process)
    law = sampler_law(sampler, posterior, process, grid(process, 10), 3)
    samples = sampler.sample(posterior, process, grid(process, 10), (5000, 3), seed=1)
    assert p_value(frequencies(samples, process.num_states), law) > 1e-4


@pytest.mark.parametrize(("sampler", "process"), [WALKS[0], WALKS[4]], ids=[WALK_NAMES[0], WALK_NAMES[4]])
def test_samples_of_many_steps_are_as_near_to_the_data_as_noise_allows(sampler, process):
    posterior, data = world(process)
    samples = sampler.sample(posterior, process, grid(process, 160), (5000, 3), seed=1)
    distance = total_variation(frequencies(samples, process.num_states) / 5000, data)
    assert distance < 1.5 * noise(data, 5000)


def test_nearest_rounding_never_lights_a_pixel_that_is_rarely_lit():
    process, times = bo.PureDeath(1), bo.ObservationTimes.fisher(50)
    posterior = bo.ExactPosterior(process, torch.tensor([[0], [1]]), [0.7, 0.3])
    nearest = bo.BinomialBridge(rounding="nearest").sample(posterior, process, times, (1000, 1))
    assert not bool(nearest.any())
    stochastic = bo.BinomialBridge().sample(posterior, process, times, (10_000, 1))
    assert float(stochastic.double().mean()) == pytest.approx(0.3, abs=5 * math.sqrt(0.21 / 10_000))


def test_nearest_rounding_keeps_its_bias():
    posterior, data = world(bo.PureDeath(4))
    sampler = bo.BinomialBridge(rounding="nearest")
    for steps in (80, 160):
        law = sampler_law(sampler, posterior, bo.PureDeath(4), grid(bo.PureDeath(4), steps), 3)
        assert total_variation(law, data) > 0.15


@pytest.mark.parametrize("steps", [1, 3, 20])
def test_exact_follows_the_law_of_the_data_on_any_grid(steps):
    """Pearson's test at 1e-4, here and below."""
    process = bo.PureDeath(4)
    posterior, data = world(process, 2)
    samples = bo.Exact().sample(posterior, process, grid(process, steps), (2500, 2), seed=steps)
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
def test_exact_walks_any_process_back(process):
    points, weights = line(4, seed=1)
    posterior = bo.ExactPosterior(process, points, weights)
    times = bo.ObservationTimes.from_values([t / process.relaxation_rate for t in (0.3, 2.0, 7.0)])
    samples = bo.Exact().sample(posterior, process, times, (2000, 1), seed=1)
    assert p_value(frequencies(samples, process.num_states), on_lattice(points, weights, process.num_states)) > 1e-4


def corrected(process, x, t, steps, seed):
    """By steps from a grid so coarse that the size alone says how long they are."""
    posterior, source = bo.ExactPosterior(process, *cube()), Streams(seed, len(x))
    now, before = (torch.tensor(v, dtype=torch.float64) for v in (t, 2 * t))
    return bo.TauLeaping(corrector_steps=steps, corrector_size=0.05).correct(posterior, process, x, now, before, source)


@pytest.mark.parametrize("process", GENERAL, ids=repr)
def test_corrector_steps_leave_the_right_marginal_in_place(process):
    points, weights = cube()
    law = marginal(process, points, weights, 1.0)
    x = process.sample(draw(points, weights, 10_000), 1.0, torch.Generator().manual_seed(1))
    x = corrected(process, x, 1.0, steps=20, seed=2)
    assert total_variation(frequencies(x, 5) / 10_000, law) < 1.25 * noise(law, 10_000)


@pytest.mark.parametrize("process", GENERAL, ids=repr)
def test_corrector_steps_pull_a_wrong_marginal_to_the_right_one(process):
    law = marginal(process, *cube(), 1.0)
    x = torch.zeros(4000, 3, dtype=torch.long)
    distances = [total_variation(frequencies(x, 5) / 4000, law)]
    for steps in (20, 40, 60):
        x = corrected(process, x, 1.0, steps, seed=steps)
        distances.append(total_variation(frequencies(x, 5) / 4000, law))
    assert distances[0] > 0.9 > 2 * distances[1] > 3 * distances[2]
    assert distances[-1] < 1.25 * noise(law, 4000)


@pytest.mark.parametrize(("sampler", "t"), [(bo.BinomialBridge, 6.0), (bo.TauLeaping, 3.0)])
def test_corrector_steps_do_not_make_pictures_brighter(sampler, t):
    """A hundred of them, where a picture itself says how bright it is, and little but that pulls it back.

    Pixels are Poisson(b), and b is gamma(3, 0.03): its mean given X_t is known. Leaps both ways at once, in which one
    unit dies at most once, brought 40 % more light at t = 6.
    """
    process, pixels, keep = bo.PureDeath(), 1000, math.exp(-t)

    def denoise(xt, t):
        p = torch.exp(-t.double()).reshape(-1, 1)
        return ((1 - p) * (3 + xt.sum(1, keepdim=True)) / (0.03 + pixels * p)).expand(xt.shape)

    draws = numpy.random.default_rng(0)
    x = torch.from_numpy(draws.poisson(keep * draws.gamma(3, 1 / 0.03, (200, 1)), (200, pixels)))
    now, before = (torch.tensor(v, dtype=torch.float64) for v in (t, t + 1))
    after = sampler(corrector_steps=100).correct(denoise, process, x, now, before, Streams(0, len(x)))
    change = (after - x).double().mean(1) / x.double().mean()
    error = float(change.std()) / math.sqrt(len(x))
    assert abs(float(change.mean())) < 3 * error < 0.15


def test_a_corrector_step_is_no_longer_than_the_step_it_corrects():
    """What many steps gain, correctors of a fixed length would lose again."""
    seen = []

    def denoise(xt, t):
        seen.append(float(t.flatten()[0]))
        return torch.zeros(xt.shape)

    process, times = bo.PureDeath(4), bo.ObservationTimes.from_values([0.5, 0.51, 3.0])
    bo.TauLeaping(corrector_steps=1, corrector_size=0.1).sample(denoise, process, times, (2, 3))
    assert seen == pytest.approx([3.0, 0.51 + 0.1 * -math.expm1(-0.51), 0.51, 0.51, 0.5])


def test_corrector_steps_reduce_the_bias_of_a_coarse_walk():
    posterior, data = world(bo.PureDeath(4))
    times = grid(bo.PureDeath(4), 20)
    plain, helped = (
        frequencies(bo.TauLeaping(corrector_steps=n).sample(posterior, bo.PureDeath(4), times, (5000, 3)), 5) / 5000
        for n in (0, 3)
    )
    assert total_variation(helped, data) < 0.8 * total_variation(plain, data)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=sampler_name)
def test_a_trajectory_leads_from_black_to_the_sample_and_only_up(sampler):
    process, times = bo.PureDeath(4), bo.ObservationTimes.fisher(12)
    posterior, _ = world(process)
    walk = sampler.sample(posterior, process, times, (6, 3), seed=3, trajectory=True, batch_size=4)
    assert walk.shape == (13, 6, 3)
    assert walk.dtype == torch.int64
    assert torch.equal(walk[-1], sampler.sample(posterior, process, times, (6, 3), seed=3))
    assert not bool(walk[0].any())
    if not sampler.corrector_steps:
        assert bool((walk.diff(dim=0) >= 0).all())


def test_a_trajectory_begins_with_the_terminal_law():
    process = bo.Uniform(5)
    posterior, _ = world(process)
    walk = bo.TauLeaping().sample(posterior, process, grid(process, 2), (2000, 3), trajectory=True)
    uniform = torch.full((125,), 1 / 125, dtype=torch.float64)
    assert p_value(frequencies(walk[0], 5), uniform) > 1e-4
    masked = bo.TauLeaping().sample(world(bo.Absorbing(6))[0], bo.Absorbing(6), grid(process, 2), (9, 3), 0, True)
    assert bool((masked[0] == 5).all())


@pytest.mark.parametrize(
    ("sampler", "process"), [*((sampler, bo.PureDeath(4)) for sampler in SAMPLERS), WALKS[4], WALKS[6]]
)
def test_a_sample_depends_on_the_seed_and_its_number_alone(sampler, process):
    posterior, _ = world(process)

    def sample(size, seed=7, **options):
        return sampler.sample(posterior, process, grid(process, 4), (size, 3), seed=seed, **options)

    whole = sample(25)
    assert torch.equal(whole, sample(25))
    assert torch.equal(whole, sample(25, batch_size=10))
    assert torch.equal(whole[:10], sample(10))
    assert torch.equal(whole[10:], sample(15, start_index=10))
    assert torch.equal(whole[3:4], sample(1, start_index=3))
    assert not torch.equal(whole, sample(25, seed=8))


def test_large_counts_too_depend_on_the_seed_and_their_number_alone():
    sampler, times = bo.TauLeaping(), bo.ObservationTimes.fisher(5)

    def sample(size, **options):
        return sampler.sample(lambda xt, t: 300.0 + 0 * xt, bo.PureDeath(), times, (size, 4), seed=1, **options)

    assert torch.equal(sample(25, batch_size=6)[10:], sample(15, start_index=10))
    assert int(sample(25).min()) > 100


def test_the_callback_hears_of_every_step():
    heard = []
    process, times = bo.PureDeath(4), bo.ObservationTimes.fisher(5)
    walk = bo.TauLeaping().sample(
        world(process)[0], process, times, (4, 3), 0, True, callback=lambda k, n, x: heard.append((k, n, x))
    )
    assert [(k, n) for k, n, _ in heard] == [(k, 5) for k in range(1, 6)]
    assert all(torch.equal(x, walk[k]) for k, _, x in heard)


@pytest.mark.parametrize("sampler", [*SAMPLERS, bo.TauLeaping(law="binomial")], ids=sampler_name)
def test_counts_stay_within_max_count_whatever_the_denoiser_says(sampler):
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
def test_some_steps_stand_for_all_where_the_walk_ends_before_the_process_does(process, times):
    """The bound of all steps or of some, with the exact posterior of one component; never below the entropy."""
    points, weights = torch.tensor([[0], [1], [3]]), torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    posterior, many = bo.ExactPosterior(process, points, weights), points.repeat(500, 1)
    found = [
        bo.PosteriorBridge().bound(posterior, process, times, many, num_steps=number).reshape(500, 3)
        for number in (None, len(times) - 1)
    ]
    # Their mean is what a walk costs that starts in the terminal state; data that are not there yet by then add to it.
    error = sum(bound.var(0) for bound in found).div(500).sqrt()
    assert bool(((found[0] - found[1]).mean(0).abs() <= 5 * error + 0.01).all())  # one step stands for two
    assert float((weights * found[1].mean(0)).sum()) > float(-(weights * weights.log()).sum()) - 5 * float(error.max())


def test_what_rounding_makes_impossible_costs_nothing_where_the_data_hardly_goes():
    process = bo.BirthDeath(4, 0.3, 1.0, 0.4)
    points = torch.tensor([[0, 0], [2, 2], [2, 1], [3, 0], [1, 3]])
    posterior = bo.ExactPosterior(process, points, [0.3, 0.25, 0.2, 0.15, 0.1])
    times, many = bo.ObservationTimes.uniform(60, t_end=6.0), points.repeat(60, 1)
    found = [
        bo.TauLeaping().bound(posterior, process, times, many, num_steps=number).reshape(60, 5) for number in (None, 59)
    ]
    long = bo.ObservationTimes.for_process(process, 200)
    assert torch.isfinite(bo.TauLeaping().bound(posterior, process, long, points, num_steps=199)).all()
    error = sum(bound.var(0) for bound in found).div(60).sqrt()
    assert bool(((found[0] - found[1]).mean(0).abs() <= 5 * error).all())


def test_exact_loses_no_event_where_rates_differ_by_many_orders():
    """A sound sampler fails for one seed in 1e6."""
    generator = [[0.0, 0.0, 0.0], [1.0, -1.0, 0.0], [0.0, 1e13, -1e13]]
    process = bo.FiniteState(generator)
    assert process.relaxation_rate == pytest.approx(1.0, rel=0.01)
    posterior = bo.ExactPosterior(process, torch.tensor([[2], [1], [0]]), [0.6, 0.3, 0.1])
    x = bo.Exact().sample(posterior, process, bo.ObservationTimes.from_values([15.0]), (4000, 1))
    assert p_value(torch.bincount(x.flatten(), minlength=3), torch.tensor([0.1, 0.3, 0.6])) > 1e-6
