"""Observation times. The test of uniform draws fails for one seed in 1e6."""

import math

import mpmath
import numpy
import pytest
import torch
from scipy import stats

import blackout as bo
from blackout.process import Halving
from blackout.times import TIME_RULES
from worlds import cube, on_lattice, random_generator, sampler_probs, total_variation

Times = bo.ObservationTimes
MEASURES = ["fisher", "entropy", "production", "variance", "snr", "kl", "length"]


def pure_death_generator(size):
    states = numpy.arange(size, dtype=float)
    return numpy.diag(states[1:], -1) - numpy.diag(states)


@pytest.mark.parametrize(("num_steps", "t_end"), [(1000, 15.0), (250, 10.0), (7, 45.0), (2, 0.7)])
def test_fisher_times_are_uniform_in_logit(num_steps, t_end):
    # eq:observationTimes: e^{-t_k} = sigmoid of an even grid between ± logit(e^{-t_T}).
    with mpmath.workdps(50):
        end = mpmath.log(mpmath.expm1(mpmath.mpf(t_end)))
        grid = [end * (2 * mpmath.mpf(k) / (num_steps - 1) - 1) for k in range(num_steps)]
        exact = [float(mpmath.log(1 + mpmath.exp(g))) for g in grid]
    numpy.testing.assert_allclose(Times.fisher(num_steps, t_end).values, exact, rtol=1e-12)


def test_fisher_times_run_from_the_mirror_image_of_the_last_time():
    values = Times.fisher().values
    assert len(values) == 1000
    assert values.dtype == torch.float64
    assert float(values[-1]) == 15.0
    assert float(values[0]) == pytest.approx(-math.log1p(-math.exp(-15)), rel=1e-12)
    logit = -torch.log(torch.expm1(values))
    torch.testing.assert_close(logit, -logit.flip(0), rtol=1e-9, atol=1e-9)
    assert float(Times.fisher(5).values[2]) == pytest.approx(math.log(2), rel=1e-14)


@pytest.mark.parametrize("t_end", [0.0, -1.0, math.inf, math.nan, 0.5])
def test_fisher_rejects_ends_without_a_mirror_image(t_end):
    with pytest.raises(ValueError, match="t_end"):
        Times.fisher(10, t_end)


def test_uniform_times_have_equal_steps_from_zero():
    times = Times.uniform(8, 2.0)
    torch.testing.assert_close(times.values, torch.arange(1, 9, dtype=torch.float64) / 4)
    assert times.t_end == 2.0


@pytest.mark.parametrize("num_steps", [0, -3, 2.5, True])
def test_num_steps_must_be_a_positive_integer(num_steps):
    for make in (Times.fisher, Times.uniform, Times.uniform(9).subset):
        with pytest.raises(ValueError, match="num_steps"):
            make(num_steps)


def test_given_values_are_copied():
    values = torch.tensor([0.5, 1.0, 4.0])
    times = Times.from_values(values)
    values[0] = 3.0
    assert times.values.tolist() == [0.5, 1.0, 4.0]


@pytest.mark.parametrize(
    "values", [[1.0, 1.0], [2.0, 1.0], [0.0, 1.0], [-1.0, 1.0], [1.0, math.nan], [1.0, math.inf], [], 3.0, [[1.0]]]
)
def test_invalid_values_are_rejected(values):
    with pytest.raises(ValueError, match="values must be"):
        Times.from_values(values)


@pytest.mark.parametrize("num_steps", [1, 2, 3, 57, 250, 999, 1000])
def test_subset_has_times_of_the_grid_and_both_ends(num_steps):
    times = Times.fisher()
    some = times.subset(num_steps)
    assert len(some) == num_steps
    assert set(some.values.tolist()) <= set(times.values.tolist())
    assert some.t_end == times.t_end
    if num_steps > 1:
        assert some.values[0] == times.values[0]


def test_subset_is_not_larger_than_the_grid():
    with pytest.raises(ValueError, match="num_steps must be at most 9, the number of times, got 10"):
        Times.uniform(9).subset(10)


def test_draws_are_uniform_over_neighbouring_pairs():
    times = Times.fisher(20)
    s, t = times.draw(40_000, torch.Generator().manual_seed(0))
    edges = torch.cat([torch.zeros(1, dtype=torch.float64), times.values])
    k = torch.searchsorted(edges, t)
    assert torch.equal(edges[k], t)
    assert torch.equal(edges[k - 1], s)
    assert stats.chisquare(numpy.bincount(k, minlength=21)[1:]).pvalue > 1e-6


def test_stratified_draws_use_each_step_equally_often():
    times = Times.uniform(20)
    _, t = times.draw(60, torch.Generator().manual_seed(0), stratified=True)
    assert torch.equal(t, times.values.repeat_interleave(3))


def test_backwards_visits_every_step_from_the_last_time_to_zero():
    steps = [(float(s), float(t)) for s, t in Times.from_values([0.5, 1.0, 4.0]).backwards()]
    assert steps == [(1.0, 4.0), (0.5, 1.0), (0.0, 0.5)]


def test_equalised_fisher_information_of_pure_death_gives_the_times_of_the_paper():
    expected = Times.fisher(100, 15.0).values
    for process in (bo.PureDeath(255), bo.PureDeath()):
        torch.testing.assert_close(Times.equalize(process, "fisher", 100).values, expected, rtol=1e-9, atol=0.0)


def test_equalised_fisher_information_of_the_matrix_form_gives_the_same_times():
    process = bo.FiniteState(pure_death_generator(30))
    values = Times.equalize(process, "fisher", 100, resolution=256).values
    torch.testing.assert_close(values, Times.fisher(100, 15.0).values, rtol=1e-4, atol=0.0)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize(
    "process", [bo.PureDeath(20), bo.Uniform(6), bo.Absorbing(6), bo.BirthDeath(20, immigration=3.0)], ids=repr
)
def test_equalised_times_increase_and_keep_both_ends(process, measure):
    values = Times.equalize(process, measure, 40, t_end=9.0, resolution=128).values
    gamma = process.relaxation_rate
    assert len(values) == 40
    assert bool((values.diff() > 0).all())
    assert float(values[-1]) == pytest.approx(9.0, rel=1e-9)
    # The first time is the mirror image of the last: e^{-γ t_1} = 1 - e^{-γ t_T}.
    assert float(values[0]) == pytest.approx(-math.log1p(-math.exp(-9.0 * gamma)) / gamma, rel=1e-6)


def test_entropy_grows_by_equal_steps():
    process = bo.Uniform(8)
    times = Times.equalize(process, "entropy", 30, t_end=6.0, resolution=1500)
    probs = process.probs(torch.zeros(30, dtype=torch.int64), times.values)
    steps = -(probs * probs.log()).sum(-1).diff()
    torch.testing.assert_close(steps, steps.mean().expand(29), rtol=2e-3, atol=0.0)


def test_variance_grows_by_equal_steps():
    # Immigration and death from the stationary mean: the variance only grows.
    process = bo.BirthDeath(60, immigration=9.0)
    times = Times.equalize(process, "variance", 30, t_end=6.0, x0=[9], resolution=1000)
    probs, m = process.probs(torch.full((30,), 9), times.values), torch.arange(60.0, dtype=torch.float64)
    steps = (probs @ m**2 - (probs @ m) ** 2).diff()
    torch.testing.assert_close(steps, steps.mean().expand(29), rtol=5e-3, atol=0.0)


def equal_steps_of(measure, process, value, x0, **options):
    """Whether the measure, a function of time in closed form, grows by equal steps."""
    times = Times.equalize(process, measure, 30, t_end=6.0, x0=[x0], resolution=3000, **options).values.numpy()
    steps = numpy.diff(value(times))
    numpy.testing.assert_allclose(steps, steps.mean(), rtol=5e-3)


def test_entropy_production_under_detailed_balance_is_the_loss_of_divergence_from_the_end():
    """Immigrants are Poisson: KL(Poisson(a (1 - e^-t)) ‖ Poisson(a)), a sum over scipy's probabilities."""
    m = numpy.arange(80)

    def divergence(times):
        logs = stats.poisson.logpmf(m, -9 * numpy.expm1(-times[:, None]))
        return (numpy.exp(logs) * (logs - stats.poisson.logpmf(m, 9.0))).sum(-1)

    equal_steps_of("production", bo.BirthDeath(60, immigration=9.0), divergence, 0)


@pytest.mark.parametrize("process", [bo.PureDeath(20), bo.FiniteState(pure_death_generator(21))], ids=repr)
def test_entropy_production_of_one_way_jumps_is_their_number(process):
    """It is infinite; with reverse rates ε, its leading term is log(1 / ε) times the number of deaths."""
    equal_steps_of("production", process, lambda t: stats.binom.mean(20, numpy.exp(-t)), 20)


def test_entropy_production_with_rare_returns_approaches_that_of_one_way_jumps():
    t = Times.equalize(bo.BirthDeath(21, immigration=1e-250), "production", 30, t_end=6.0, resolution=500).values
    one_way = Times.equalize(bo.PureDeath(20), "production", 30, t_end=6.0, resolution=500).values
    torch.testing.assert_close(t, one_way, rtol=0.02, atol=0.0)


def test_signal_to_noise_of_pure_death_gives_the_times_of_the_paper():
    """Binomial counts: mean² / variance is o p / (1 - p), whose logarithm is logit(p) but for a constant."""
    values = Times.equalize(bo.PureDeath(20), "snr", 100).values
    torch.testing.assert_close(values, Times.fisher(100, 15.0).values, rtol=1e-6, atol=0.0)


def test_signal_to_noise_of_immigrants_grows_by_equal_steps():
    def ratio(times):
        mean, variance = stats.poisson.stats(-9 * numpy.expm1(-times), moments="mv")
        return numpy.log(mean**2 / variance)

    equal_steps_of("snr", bo.BirthDeath(60, immigration=9.0), ratio, 0)


def test_divergence_between_neighbours_is_nearly_equal():
    # One start of Uniform: a one-parameter family, whose Fisher–Rao length is twice the Bhattacharyya angle.
    process = bo.Uniform(8)
    times = Times.equalize(process, "kl", 200, t_end=6.0, x0=[0], resolution=1500)
    probs = process.probs(torch.zeros(200, dtype=torch.int64), times.values)
    angles = torch.arccos((probs[1:] * probs[:-1]).sqrt().sum(-1))
    torch.testing.assert_close(angles, angles.mean().expand(199), rtol=5e-3, atol=0.0)
    divergence = (probs[1:] * (probs[1:] / probs[:-1]).log()).sum(-1)[5:]
    assert float(divergence.max() / divergence.min()) < 1.25


@pytest.mark.parametrize("measure", MEASURES)
def test_schedule_moves_equalised_times_along_its_clock(measure):
    schedule = bo.Schedule.linear(0.3, 2.0)
    plain = Times.equalize(bo.Uniform(5), measure, 20, t_end=0.3 * 2 + 4.0, resolution=128)
    moved = Times.equalize(bo.Uniform(5, schedule=schedule), measure, 20, t_end=2.0, resolution=128)
    assert moved.t_end == pytest.approx(2.0, rel=1e-9)
    torch.testing.assert_close(moved.values, schedule.inverse(plain.values), rtol=1e-9, atol=0.0)


SMALL = [
    bo.Uniform(5),
    bo.BirthDeath(5, birth=0.3, death=1.0, immigration=1.0),
    bo.DiscretizedGaussian(5),
    bo.FiniteState(random_generator(5)),
]


@pytest.mark.parametrize("process", SMALL, ids=repr)
def test_sampling_errs_less_by_length_than_by_fisher_information(process):
    points, weights = cube(3)
    posterior, data = bo.ExactPosterior(process, points, weights), on_lattice(points, weights, process.num_states)
    grids = {"fisher": Times.equalize(process), "kl": Times.equalize(process, "kl"), "own": Times.for_process(process)}
    error = {
        name: total_variation(sampler_probs(bo.PosteriorBridge(), posterior, process, times.subset(20), 3), data)
        for name, times in grids.items()
    }
    assert error["kl"] < 0.5 * error["fisher"]
    assert error["own"] < 0.8 * error["fisher"]


def test_default_times_do_not_cluster_where_nothing_happens():
    """Of a hundred steps a quarter or more lie between a tenth of the relaxation time and three of them."""
    for process in (*SMALL, bo.BirthDeath(64, immigration=32.0), bo.DiscretizedGaussian(64), Halving(64)):
        times = Times.for_process(process).subset(100).values * process.relaxation_rate
        assert int(((times > 0.1) & (times < 3)).sum()) >= 25, process


def test_default_times_last_until_the_process_has_mixed():
    """A number of seven bits is zero after seven halvings, but the relaxation rate is that of one."""
    times = Times.for_process(Halving(128), 20)
    assert stats.poisson.cdf(6, 15.0) > 0.005  # probability of not being zero by then
    assert stats.poisson.cdf(6, times.t_end) < 127 * math.exp(-15) < stats.poisson.cdf(6, times.t_end / 1.1)
    shift = bo.FiniteState(numpy.diag(numpy.ones(31), -1) - numpy.diag([0.0, *[1.0] * 31]))  # m -> m - 1 at rate one
    end = Times.for_process(shift, 20).t_end
    assert stats.poisson.cdf(30, end) < 31 * math.exp(-15) < stats.poisson.cdf(30, end / 1.1)
    for process in (bo.Uniform(5), bo.BirthDeath(64, immigration=32.0), Halving(2)):
        assert Times.for_process(process, 20).t_end * process.relaxation_rate == pytest.approx(15.0)


def test_default_times_of_a_nilpotent_chain_last_until_it_has_mixed():
    """m -> m // 2 in every step: no eigenvalue but 0 and 1, and four steps from 15 to 0."""
    transition = numpy.zeros((16, 16))
    transition[numpy.arange(16), numpy.arange(16) // 2] = 1
    assert Times.for_process(bo.Chain(transition)).values.tolist() == [1, 2, 3, 4]


def test_length_rule_balances_length_and_remaining_length():
    """Under masking the length is an angle: e^{-t} = cos²."""
    times = Times.equalize(bo.Absorbing(3), "length", 40, t_end=40.0, x0=[0], resolution=8000).values
    share = torch.arccos(torch.exp(-times / 2)) * (2 / math.pi)
    steps = (share - torch.log(1 - share + 1e-3) / math.log(1001)).diff()
    torch.testing.assert_close(steps, steps.mean().expand(39), rtol=2e-3, atol=0.0)


@pytest.mark.parametrize("measure", ["kl", "length"])
def test_closed_form_length_of_pure_death_holds_from_every_start(measure):
    """Against the matrix form, from one start and from all."""
    closed = Times.equalize(bo.PureDeath(8), measure, 30).values
    for starts in ([8], [1], list(range(9))):
        found = Times.equalize(bo.FiniteState(pure_death_generator(9)), measure, 30, x0=starts).values
        torch.testing.assert_close(found, closed, rtol=1e-4, atol=0.0)


@pytest.mark.parametrize("process", [bo.PureDeath, bo.Absorbing])
def test_schedule_moves_default_times_along_its_clock(process):
    schedule = bo.Schedule.linear(0.3, 2.0)
    plain, moved = Times.for_process(process(6), 20), Times.for_process(process(6, schedule=schedule), 20)
    torch.testing.assert_close(moved.values, schedule.inverse(plain.values), rtol=1e-9, atol=0.0)


def test_invalid_arguments_of_equalize_are_rejected():
    with pytest.raises(ValueError, match="measure must be one of"):
        Times.equalize(bo.Uniform(5), "beauty")
    with pytest.raises(ValueError, match="t_end"):
        Times.equalize(bo.Uniform(5), "fisher", 20, t_end=0.1)
    with pytest.raises(ValueError, match="x0 must be at most 4"):
        Times.equalize(bo.Uniform(5), "fisher", 20, x0=[5])


def test_survival_times_have_equal_steps_of_the_survival_probability() -> None:
    times = bo.ObservationTimes.survival(10, 12.0)
    left = torch.exp(-torch.cat([torch.zeros(1, dtype=torch.float64), times.values]))
    torch.testing.assert_close(torch.diff(left), torch.full((10,), -(1 - math.exp(-12.0)) / 10, dtype=torch.float64))
    assert times.t_end == 12.0


def test_cosine_times_leave_the_cosine_masked() -> None:
    """From the end: cos(π/16), cos(2π/16), ... of all labels, up to those that are never masked."""
    times = bo.ObservationTimes.cosine(8, 12.0)
    masked = -torch.expm1(-times.values.flip(0)) / -math.expm1(-12.0)
    torch.testing.assert_close(masked, torch.tensor([math.cos(k * math.pi / 16) for k in range(8)]).double())
    assert times.t_end == 12.0
    assert len(bo.ObservationTimes.cosine(1, 3.0)) == 1


@pytest.mark.parametrize(("t_end", "reason"), [(0.5, "more than log 2"), (1000.0, "at most 700")])
def test_fisher_names_the_limits_of_t_end(t_end: float, reason: str) -> None:
    with pytest.raises(ValueError, match=f"t_end must be {reason}"):
        bo.ObservationTimes.fisher(10, t_end=t_end)


CONTINUOUS = [
    bo.PureDeath(20),
    bo.Uniform(6),
    bo.Absorbing(6),
    bo.BirthDeath(8, immigration=3.0),
    bo.Uniform(6, schedule=bo.Schedule.linear(0.3, 0.2)),
    bo.PureDeath(20, schedule=bo.Schedule.exponential(0.5, 2.0)),
]
RULES = [rule for rule in TIME_RULES if rule not in ("steps", "fitted")]  # of chains, of models


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("process", CONTINUOUS, ids=lambda process: f"{process!r}-{process.schedule is not None}")
def test_every_time_rule_by_name(process, rule):
    times = Times.by_rule(rule, process, 12, 6.0)
    assert len(times) == 12
    assert times.t_end == pytest.approx(6.0, rel=1e-9)
    # The homogeneous clock determines the steps: of these three directly, of the others through `equalize`.
    tau = process.clock_time(times.values)
    end = float(tau[-1])
    if rule == "uniform":
        expected = Times.uniform(12, end).values
    elif rule in ("survival", "cosine"):
        expected = getattr(Times, rule)(12, end).values
    elif rule == "fisher" and isinstance(process, bo.PureDeath):
        expected = Times.fisher(12, end).values
    else:
        expected = process.clock_time(Times.equalize(process, rule, 12, 6.0).values)
    torch.testing.assert_close(tau, expected, rtol=1e-9, atol=0.0)


def test_rules_of_fisher_information_agree_for_pure_death():
    """The closed form and the equalised measure, which only pure death has both of."""
    closed = Times.by_rule("fisher", bo.PureDeath(20), 12, 6.0).values
    torch.testing.assert_close(closed, Times.equalize(bo.PureDeath(20), "fisher", 12, 6.0).values, rtol=1e-6, atol=0)


def test_default_rules_of_processes():
    chain = bo.Chain([[0.9, 0.1], [0.2, 0.8]])
    for process, rule in (
        (bo.PureDeath(5), "fisher"),
        (bo.Absorbing(5), "cosine"),
        (bo.Uniform(5), "length"),
        (bo.BirthDeath(5, immigration=1.0), "length"),
        (chain, "steps"),
    ):
        assert process.time_rule == rule
        assert torch.equal(Times.by_rule(rule, process, 9).values, Times.for_process(process, 9).values)
    assert Times.by_rule("steps", chain, 9, 30.0).values.tolist() == list(range(1, 31))


def test_invalid_time_rules_are_rejected():
    with pytest.raises(
        ValueError, match=r"time rule must be one of fisher, uniform, survival, cosine, .* got 'beauty'"
    ):
        Times.by_rule("beauty", bo.Uniform(5))
    with pytest.raises(ValueError, match="time rule 'steps' is for chains in discrete time, got Uniform"):
        Times.by_rule("steps", bo.Uniform(5))
    with pytest.raises(ValueError, match="process must run in continuous time"):
        Times.by_rule("length", bo.Chain([[0.9, 0.1], [0.2, 0.8]]))
    with pytest.raises(ValueError, match=r"t_end must be more than 0\.0, got -1\.0"):
        Times.by_rule("uniform", bo.Uniform(5), 9, -1.0)


@pytest.mark.parametrize("schedule", [None, bo.Schedule.linear(0.3, 2.0)])
def test_fisher_grids_are_recognised_on_any_clock(schedule):
    process = bo.PureDeath(9, schedule=schedule)
    assert Times.for_process(process, 50).is_fisher(process)
    assert not Times.by_rule("length", process, 50).is_fisher(process)
    assert not Times.by_rule("fisher", bo.Uniform(5), 50).is_fisher(bo.Uniform(5))


@pytest.mark.parametrize("growing", [False, True])
@pytest.mark.parametrize("number", [1, 3, 20, 40])
def test_runs_of_steps_cover_every_step_once(number, growing):
    times = Times.uniform(20, 5.0)
    runs = times.runs(number, growing)
    assert len(runs) == min(number, 20)
    assert [k for low, high in reversed(runs) for k in range(low, high)] == list(range(20))
    steps = [(float(s), float(t)) for s, t in times.backwards()]
    s, t = times.steps(torch.arange(20).flip(0))
    assert list(zip(s.tolist(), t.tolist(), strict=True)) == steps
