"""The evidence bound against information, entropies and integrals that are computed otherwise."""

import itertools
import math

import numpy
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import binom, poisson, skellam

import blackout as bo
from blackout.likelihood import InfiniteBoundWarning
from blackout.random import Streams
from blackout.sampling import Step
from blackout.sampling.jump import leap_log_prob
from worlds import cube, draw, entropy, grid, line, p_value, random_generator, sampler_name, sampler_probs

BITS = math.log(2)
TWO_LEAVE = numpy.array([[-1.0, 1.0, 0, 0], [2.0, -2.0, 0, 0], [0.5, 0, -1.0, 0.5], [0, 0, 1.0, -1.0]])
PROCESSES = [
    bo.PureDeath(8),
    bo.PureDeath(),
    bo.PureDeath(8, schedule=bo.Schedule.linear(0.1, 2.0)),
    bo.Uniform(9),
    bo.Uniform(9, schedule=bo.Schedule.exponential(0.5, 3.0)),
    bo.Absorbing(10),
    bo.Absorbing(10, mask_state=4),
    bo.BirthDeath(9, birth=0.2, death=1.0),
    bo.BirthDeath(9, birth=0.2, death=1.0, immigration=1.5),
    bo.DiscretizedGaussian(9),
    bo.DiscretizedGaussian(9, terminal_std=1.5),
    bo.FiniteState(random_generator()),
]
STEPS = [
    (bo.BinomialBridge(), bo.PureDeath(4)),
    (bo.BinomialBridge(rounding="nearest"), bo.PureDeath(4)),
    (bo.BinomialBridge(), bo.PureDeath()),
    (bo.TauLeaping(), bo.PureDeath(4)),
    (bo.TauLeaping(), bo.PureDeath()),
    (bo.TauLeaping(step="instantaneous"), bo.PureDeath(4)),
    (bo.TauLeaping(events="binomial"), bo.PureDeath(4)),
    (bo.TauLeaping(), bo.PureDeath(4, schedule=bo.Schedule.linear(0.1, 2.0))),
    (bo.TauLeaping(), bo.Uniform(5)),
    (bo.TauLeaping(), bo.Absorbing(6)),
    (bo.TauLeaping(), bo.FiniteState(random_generator(5))),
    (bo.TauLeaping(), bo.BirthDeath(5)),
    (bo.TauLeaping(), bo.BirthDeath(5, birth=0.3, death=1.0, immigration=1.0)),
    (bo.TauLeaping(), bo.DiscretizedGaussian(5)),
    (bo.TauLeaping(), bo.FiniteState(random_generator(5), ordered=True)),
]
STEP_NAMES = [f"{sampler_name(sampler)}-{process!r}" for sampler, process in STEPS]


def test_bound_holds_for_rates_that_differ_by_many_orders():
    """The fastest jumps are 10^9 times as fast as the slowest decay."""
    process = bo.FiniteState([[-1e6, 1e6, 0], [1e6, -1e6 - 1e-3, 1e-3], [0, 1e-3, -1e-3]])
    points, weights = torch.tensor([[0, 1], [1, 2], [2, 0], [0, 0]]), torch.tensor([0.4, 0.3, 0.2, 0.1]).double()
    bound = bo.evidence_bound(bo.ExactPosterior(process, points, weights), process, points, 1024)
    assert torch.allclose(bound, -torch.log(weights), rtol=0, atol=1e-5)


@pytest.mark.parametrize("process", PROCESSES, ids=repr)
def test_bound_of_the_exact_posterior_is_the_information_of_each_point(process):
    """The exact posterior is the reversal itself, so the bound is tight: -log w for each point, entropy on average."""
    points, weights = line()
    bound = bo.evidence_bound(bo.ExactPosterior(process, points, weights), process, points, 256)
    assert bound.shape == (9,)
    assert bound.dtype == torch.float64
    assert torch.allclose(bound, -torch.log(weights), rtol=0, atol=1e-6 * BITS)
    assert float(bound @ weights) == pytest.approx(entropy(weights), abs=1e-6 * BITS)


def test_transient_states_need_no_end_time():
    points, weights = line(4)
    process = bo.FiniteState(TWO_LEAVE)
    bound = bo.evidence_bound(bo.ExactPosterior(process, points, weights), process, points, 256)
    assert torch.allclose(bound, -torch.log(weights), rtol=0, atol=1e-6)


def test_bound_of_pure_death_equals_scipy_quadrature():
    points, weights = line()
    probs, state = weights.numpy(), numpy.arange(9)

    def integrand(u, x0, skew):
        p = 1 / (1 + math.exp(u))
        table = binom.pmf(state[None, :], state[:, None], p)
        with numpy.errstate(invalid="ignore", divide="ignore"):
            y = skew * numpy.maximum(state[:, None] - state, 0).T @ (probs[:, None] * table) / (probs @ table)
        y = numpy.diagonal(y)[: x0 + 1]
        gap = x0 - state[: x0 + 1]
        terms = y - gap + numpy.where(gap > 0, gap * numpy.log(numpy.maximum(gap, 1) / numpy.maximum(y, 1e-300)), 0)
        return p * float(table[x0, : x0 + 1] @ terms)

    posterior = bo.ExactPosterior(bo.PureDeath(8), points, weights)
    for skew in (1.0, 1.4):
        bound = bo.evidence_bound(
            lambda xt, t, skew=skew: skew * posterior(xt, t).difference(), bo.PureDeath(), points, 256
        )
        for x0 in (0, 8):
            value = quad(integrand, -30, 30, args=(x0, skew), limit=400, epsabs=1e-8)[0]
            assert float(bound[x0]) == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("process", [bo.PureDeath(4), bo.Uniform(5), bo.BirthDeath(5, immigration=1.5)], ids=repr)
def test_bound_of_correlated_components_by_summation(process):
    points, weights = cube()
    bound = bo.evidence_bound(bo.ExactPosterior(process, points, weights), process, points, 256, method="exact")
    assert torch.allclose(bound, -torch.log(weights), rtol=0, atol=1e-6)


@pytest.mark.parametrize("process", [bo.PureDeath(4), bo.Uniform(5), bo.BirthDeath(5, immigration=1.5)], ids=repr)
def test_bound_of_correlated_components_by_monte_carlo(process):
    """Five standard errors: one run in two million fails by chance, and the seed is fixed."""
    points, weights = cube()
    x0 = draw(points, weights, 1000)
    information = -torch.log(weights[(x0 * torch.tensor([25, 5, 1])).sum(-1)])
    posterior = bo.ExactPosterior(process, points, weights)
    excess = bo.evidence_bound(posterior, process, x0, 64, method="monte-carlo") - information
    assert float(excess.mean().abs()) < 5 * float(excess.std()) / math.sqrt(len(x0))
    assert float(excess.std()) < 3


def test_auto_chooses_the_sum_for_few_states():
    points, weights = cube(2)
    posterior = bo.ExactPosterior(bo.PureDeath(4), points, weights)
    auto, exact = (bo.evidence_bound(posterior, bo.PureDeath(4), points, 64, method=name) for name in ("auto", "exact"))
    assert torch.equal(auto, exact)


@pytest.mark.parametrize("process", [bo.PureDeath(8), bo.Uniform(9), bo.BirthDeath(9, immigration=1.5)], ids=repr)
def test_bound_of_another_distribution_is_the_cross_entropy(process):
    points, weights = line()
    _, other = line(seed=5)
    bound = bo.evidence_bound(bo.ExactPosterior(process, points, other), process, points, 256)
    assert torch.allclose(bound, -torch.log(other), rtol=0, atol=1e-6)
    assert float(bound @ weights) > entropy(weights) + 0.1


@pytest.mark.parametrize("factor", [0.7, 1.3])
@pytest.mark.parametrize("process", [bo.PureDeath(8), bo.Uniform(9), bo.Absorbing(10)], ids=repr)
def test_bound_of_wrong_rates_exceeds_the_entropy(process, factor):
    points, weights = line()
    posterior = bo.ExactPosterior(process, points, weights)
    answer = "difference" if process.mean_suffices else "rates"
    bound = bo.evidence_bound(lambda xt, t: factor * getattr(posterior(xt, t), answer)(), process, points, 256)
    assert float(bound @ weights) > entropy(weights) + 0.03


def test_bound_is_infinite_where_rates_are_zero():
    bound = bo.evidence_bound(lambda xt, t: torch.zeros(xt.shape), bo.PureDeath(8), torch.tensor([[0], [1]]))
    assert bound.tolist() == [0.0, math.inf]


def test_monte_carlo_depends_on_seed_and_index_alone():
    points, weights = cube()
    process = bo.PureDeath(4)
    posterior, x0 = bo.ExactPosterior(process, points, weights), draw(points, weights, 50)

    def bound(x, seed):
        return bo.evidence_bound(posterior, process, x, 16, seed=seed, method="monte-carlo")

    assert torch.equal(bound(x0, 3), bound(x0, 3))
    assert torch.allclose(bound(x0, 3)[:20], bound(x0[:20], 3), rtol=1e-9)
    assert not torch.allclose(bound(x0, 3), bound(x0, 4), rtol=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("process", [bo.PureDeath(8), bo.Absorbing(10)], ids=repr)
def test_draws_from_a_finite_time_are_those_of_the_cpu(process):
    points, weights = line()
    cpu, gpu = (
        bo.evidence_bound(
            bo.ExactPosterior(process, x, weights.to(x.device)), process, x, t_end=1.1, method="monte-carlo"
        )
        for x in (points, points.cuda())
    )
    torch.testing.assert_close(gpu.cpu(), cpu)


@pytest.mark.parametrize("t_end", [25.0, 1e3, 1e9])
@pytest.mark.parametrize("process", [bo.Uniform(9), bo.BirthDeath(9, immigration=1.5)], ids=repr)
def test_late_ends_do_not_change_the_bound(process, t_end):
    points, weights = line()
    posterior = bo.ExactPosterior(process, points, weights)
    late = bo.evidence_bound(posterior, process, points, 256, t_end=t_end / process.relaxation_rate)
    assert torch.allclose(late, -torch.log(weights), rtol=0, atol=1e-6)


def test_early_end_adds_the_divergence_from_the_terminal_distribution():
    """The excess of the bound over the entropy falls with the time at which sampling starts."""
    points, weights = line()
    process = bo.Uniform(9)
    posterior = bo.ExactPosterior(process, points, weights)
    excess = [
        float(bo.evidence_bound(posterior, process, points, 512, t_end=t_end) @ weights) - entropy(weights)
        for t_end in (0.5, 1.0, 2.0, 4.0)
    ]
    assert all(late < early / 2 for early, late in itertools.pairwise(excess))
    assert excess[-1] > 0
    draws = bo.evidence_bound(posterior, process, points.repeat(200, 1), 32, t_end=1.0, method="monte-carlo")
    each = draws.reshape(200, 9) @ weights - entropy(weights)
    assert float(each.mean() - excess[1]) == pytest.approx(0, abs=5 * float(each.std()) / math.sqrt(200))


@pytest.mark.parametrize("t_end", [0.3, 1.1])
@pytest.mark.parametrize(
    "process",
    [bo.Uniform(9), bo.BirthDeath(9, immigration=1.5), bo.FiniteState(random_generator()), bo.DiscretizedGaussian(9)],
    ids=repr,
)
def test_bound_from_a_finite_time_is_the_divergence_of_its_paths(process, t_end):
    """KL(p_T(. | x0) ‖ terminal) + E[-log P(x0 | X_T)], by Bayes' rule over all X_T."""
    points, weights = line()
    forward = process.probs(points.squeeze(-1), t_end)
    posterior = weights.unsqueeze(-1) * forward
    posterior = posterior / posterior.sum(0)
    expected = (forward * (torch.log(forward / process.terminal_probs) - torch.log(posterior))).sum(-1)
    denoise = bo.ExactPosterior(process, points, weights)
    for nodes in (256, 1024):
        bound = bo.evidence_bound(denoise, process, points, nodes, t_end=t_end)
        torch.testing.assert_close(bound, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("x0", [torch.tensor([0, 3, 8]), torch.zeros(0, 1, dtype=torch.long)], ids=["flat", "empty"])
@pytest.mark.parametrize("process", [bo.PureDeath(8), bo.Uniform(9)], ids=repr)
@pytest.mark.parametrize("method", ["exact", "monte-carlo"])
def test_bound_of_flat_and_empty_batches(process, x0, method):
    channels = () if process.mean_suffices else (len(process.jumps),)

    def ones(xt, t):
        return torch.ones(*xt.shape, *channels) * -torch.expm1(-t).reshape(-1, *(1,) * (xt.dim() + len(channels) - 1))

    assert bo.evidence_bound(ones, process, x0, 16, method=method).shape == (len(x0),)
    assert bo.TauLeaping().bound(ones, process, bo.ObservationTimes.fisher(4), x0).shape == (len(x0),)


def test_bound_of_steps_decreases_to_the_entropy():
    """The mean of 1,000 paths for each point, five standard errors."""
    points, weights = line()
    process = bo.PureDeath(8)
    posterior = bo.ExactPosterior(process, points, weights)
    for sampler in (bo.TauLeaping(), bo.TauLeaping(events="binomial")):
        means, errors = [], []
        for steps in (4, 16, 64):
            bound = sampler.bound(posterior, process, grid(process, steps), points.repeat(1000, 1)).reshape(1000, 9)
            means.append(float((bound @ weights).mean()) - entropy(weights))
            errors.append(5 * float((bound @ weights).std()) / math.sqrt(1000))
        assert means[0] > means[1] + errors[0] > means[2] + errors[1]
        assert -errors[2] < means[2] < 0.1


@pytest.mark.parametrize(
    ("sampler", "process"), [s for s in STEPS if s[1].num_states is not None and s[1].terminal_state is not None]
)
def test_bound_of_one_step_is_the_log_probability_of_its_outcome(sampler, process):
    points, weights = line(5)
    posterior, times = bo.ExactPosterior(process, points, weights), bo.ObservationTimes.from_values([12.0])
    probs = sampler_probs(sampler, posterior, process, times, 1)[:5]
    assert torch.allclose(sampler.bound(posterior, process, times, points), -torch.log(probs), rtol=1e-9)


def test_bound_is_infinite_where_a_bridge_cannot_reach_the_data():
    points, weights = line()
    process, times = bo.PureDeath(8), bo.ObservationTimes.from_values([15.0])
    posterior = bo.ExactPosterior(process, points, weights)
    y = float(posterior(torch.tensor([[0]]), 15.0).difference())
    bound = bo.BinomialBridge().bound(posterior, process, times, points)
    finite = torch.isfinite(bound).nonzero().squeeze(-1).tolist()
    assert finite == [math.floor(y), math.ceil(y)]
    assert float(torch.exp(-bound).sum()) == pytest.approx(1)
    nearest = bo.BinomialBridge(rounding="nearest").bound(posterior, process, times, points)
    assert torch.isfinite(nearest).nonzero().squeeze(-1).tolist() == [round(y)]


def test_exact_sampler_has_no_bound_of_steps():
    with pytest.raises(ValueError, match="evidence_bound"):
        bo.Exact().bound(lambda xt, t: torch.ones(xt.shape), bo.PureDeath(4), grid(bo.PureDeath(4), 3), line(5)[0])


@pytest.mark.parametrize("step", [(0.0, 0.05), (0.1, 0.7), (0.7, 2.0), (1.0, 12.0), (0.5, 0.500001)])
@pytest.mark.parametrize(("sampler", "process"), STEPS, ids=STEP_NAMES)
def test_step_log_prob_is_the_distribution_of_step(sampler, process, step):
    """Pearson's test at 1e-5 for 400 rows: fails for one of 250 seeds; the seed is fixed."""
    points, weights = line(5)
    posterior = bo.ExactPosterior(process, points, weights)
    at = Step.of(posterior, process, *(torch.tensor(v, dtype=torch.float64) for v in step))
    states, size = process.num_states or 40, 1000
    for start in range(min(states, 6)):
        xs, xt = torch.arange(states).unsqueeze(-1), torch.full((states, 1), start)
        probs = torch.exp(sampler.step_log_prob(at, xs, xt)).squeeze(-1)
        assert float(probs.sum()) == pytest.approx(1, abs=1e-9)
        ends = sampler.step(at, torch.full((size, 1), start), Streams(start, size))
        assert p_value(torch.bincount(ends.reshape(-1), minlength=states).double(), probs) > 1e-5


def naive_mean(levels: int, weights: numpy.ndarray):
    """A posterior mean in plain numpy: it underflows, and is the difference of two means."""

    def denoise(xt, t):
        p = numpy.exp(-t.numpy()).reshape(-1, *(1,) * xt.dim())
        with numpy.errstate(invalid="ignore"):
            joint = weights * binom.pmf(xt.numpy()[..., None], numpy.arange(levels), p)
            return torch.from_numpy((joint / joint.sum(-1, keepdims=True) * numpy.arange(levels)).sum(-1) - xt.numpy())

    return denoise


@pytest.mark.parametrize(
    "weights", [numpy.full(30, 1 / 30), numpy.array([0.499, 0.5, 0.001])], ids=["30 counts", "a rare count"]
)
def test_bound_of_a_naive_posterior_mean_is_the_entropy(weights):
    size = len(weights)
    x0 = torch.arange(size).unsqueeze(-1)
    bound = bo.evidence_bound(naive_mean(size, weights), bo.PureDeath(size - 1), x0)
    numpy.testing.assert_allclose(bound.numpy() @ weights, -(weights * numpy.log(weights)).sum(), atol=1e-7)


@pytest.mark.parametrize("method", ["exact", "monte-carlo"])
@pytest.mark.parametrize(
    ("process", "points", "outside"),
    [
        (bo.PureDeath(4), [[0], [2]], [[1]]),
        (bo.PureDeath(4), [[0], [4]], [[1]]),
        (bo.Uniform(5), [[0], [2]], [[1]]),
        (bo.BirthDeath(5, immigration=1.5), [[0], [4]], [[2]]),
        (bo.FiniteState(random_generator(5)), [[0], [3]], [[1]]),
        (bo.PureDeath(4, schedule=bo.Schedule.linear(0.1, 2.0)), [[0], [2]], [[1]]),
        (bo.PureDeath(4), [[2, 2], [0, 1]], [[2, 1]]),
    ],
    ids=repr,
)
def test_bound_of_data_that_the_model_cannot_produce_diverges(process, points, outside, method):
    """From x0 the model still expects a jump, at a rate of 1/t. Every data point that it can produce stays finite."""
    posterior = bo.ExactPosterior(process, torch.tensor(points))
    with pytest.warns(InfiniteBoundWarning, match="infinite for 1 of 3 data points.*bound='steps'"):
        bound = bo.evidence_bound(posterior, process, torch.tensor(points + outside), 16, method=method)
    assert torch.isfinite(bound).tolist() == [True, True, False]
    if process.discrete_time or process.terminal_state is not None:
        steps = bo.PosteriorBridge().bound(posterior, process, grid(process, 8), torch.tensor(outside))
        assert steps.tolist() == [math.inf]


@pytest.mark.parametrize("method", ["exact", "monte-carlo"])
@pytest.mark.parametrize(
    ("process", "points", "outside"),
    [(bo.PureDeath(4), [[0], [1]], [[3]]), (bo.Absorbing(4), [[0], [1]], [[2]]), (bo.PureDeath(4), [[1, 1]], [[1, 2]])],
    ids=repr,
)
def test_bound_of_data_that_no_jump_of_the_model_leads_to_is_infinite(process, points, outside, method):
    posterior = bo.ExactPosterior(process, torch.tensor(points))
    bound = bo.evidence_bound(posterior, process, torch.tensor(points + outside), 1, method=method)
    assert torch.isfinite(bound).tolist() == [True] * len(points) + [False]


@pytest.mark.parametrize("method", ["exact", "monte-carlo"])
def test_bound_diverges_where_the_prediction_does_not_vanish_and_that_of_poisson_steps_does_not(method):
    """y = 0.01 for ever adds 0.01 nats per unit of g; y ∝ 1 - p converges, however rare the data."""
    process, x0 = bo.PureDeath(9), torch.tensor([[3, 0], [9, 9]])

    def constant(xt, t):
        return torch.full(xt.shape, 0.01)

    with pytest.warns(InfiniteBoundWarning, match="1 of 2"):  # from 9, the largest state, no jump is left
        bound = bo.evidence_bound(constant, process, x0, 64, method=method)
    assert torch.isfinite(bound).tolist() == [False, True]
    assert bool(torch.isfinite(bo.TauLeaping().bound(constant, process, grid(process, 8), x0)).all())
    rare = bo.ExactPosterior(process, torch.tensor([[3, 0], [9, 9], [3, 1]]), [1e-9, 0.5, 0.5])
    assert bool(torch.isfinite(bo.evidence_bound(rare, process, x0, 64, method=method)).all())


def test_bound_of_rare_states_is_not_below_the_truth():
    """At t = e^{-32} the posterior of a state of probability 1e-11 still changes: what lies before counts."""
    weights = torch.tensor([1e-11, 0.5, 0.5], dtype=torch.float64)
    posterior = bo.ExactPosterior(bo.PureDeath(2), line(3)[0], weights)
    bound = bo.evidence_bound(posterior, bo.PureDeath(2), line(3)[0], 1024)
    assert torch.allclose(bound, -torch.log(weights), rtol=0, atol=1e-5)


@pytest.mark.parametrize("nodes", [512, 2048])
def test_bound_is_not_below_the_truth_for_rates_over_twelve_orders(nodes):
    """Fast rates of which model and truth differ by rounding alone, over times of 1e6: their divergence is zero."""
    fast = numpy.array([[0, 0, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]])
    rates = numpy.where(fast, 1e6, 1e-6)
    numpy.fill_diagonal(rates, 0)
    process = bo.FiniteState(rates - numpy.diag(rates.sum(1)))
    points, weights = line(4)
    bound = bo.evidence_bound(bo.ExactPosterior(process, points, weights), process, points, nodes)
    assert torch.allclose(bound, -torch.log(weights), rtol=0, atol=1e-7)


def test_rounded_probabilities_of_transient_states_do_not_spoil_the_bound():
    """States that are left for good end in probabilities below 1e-300, whose ratios have lost their digits."""
    leave = numpy.diag([1e3, 7e4, 20.0, 1e3, 6e3])
    rates = numpy.zeros((5, 5))
    rates[0, 1], rates[1, 2], rates[2, 3], rates[3, 2], rates[4, 1] = leave.diagonal()
    rates[0, 3], rates[1, 3], rates[4, 0], rates[4, 3] = 4e-5, 2.0, 0.6, 6.5
    process = bo.FiniteState(rates - numpy.diag(rates.sum(1)))
    points, weights = line(5)
    bound = bo.evidence_bound(bo.ExactPosterior(process, points, weights), process, points, 512)
    assert torch.allclose(bound, -torch.log(weights), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("sampler", "process"),
    [
        (bo.TauLeaping(), bo.PureDeath(8)),
        (bo.TauLeaping(), bo.Absorbing(9)),
        (bo.PosteriorBridge(), bo.Chain(0.9 * torch.eye(8) + 0.1 * torch.full((8, 8), 1 / 8))),
    ],
    ids=["pure death", "absorbing", "chain"],
)
def test_error_of_a_subsample_of_steps_is_the_spread_over_seeds(sampler, process):
    """40 seeds: the spread has a relative error of a tenth, and the mean agrees with that of all steps."""
    points, weights = line(8)
    x0 = torch.full((32, 2), 3)
    posterior = bo.ExactPosterior(process, torch.stack([points[:, 0]] * 2, -1), weights)
    times = bo.ObservationTimes.from_values(range(1, 41)) if process.discrete_time else grid(process, 40)
    bounds = [sampler.bound(posterior, process, times, x0, seed, num_steps=4) for seed in range(40)]
    means = torch.stack([bound.mean() for bound in bounds])
    error = float(torch.stack([bound.var() / len(x0) for bound in bounds]).mean().sqrt())
    assert float(means.std()) == pytest.approx(error, rel=0.35)
    every = sampler.bound(posterior, process, times, x0.repeat(20, 1), 99)
    assert float(means.mean() - every.mean()) == pytest.approx(
        0, abs=5 * error / math.sqrt(40) + 5 * float(every.std()) / math.sqrt(len(every))
    )


def test_leaps_with_several_channels_have_tiny_probabilities():
    process = bo.BirthDeath(9, birth=0.2, death=1.0, immigration=1.5)
    back = -torch.tensor(process.jumps)
    means = torch.tensor([[1e-7, 2e-5]], dtype=torch.float64).expand(9, 1, 2)
    up, down = (float(means[0, 0][back == sign]) for sign in (1, -1))
    for start in range(9):
        xs = torch.arange(9).unsqueeze(-1)
        found = leap_log_prob(process, xs, torch.full((9, 1), start), means, back)[1:8, 0]
        numpy.testing.assert_allclose(found, skellam.logpmf(numpy.arange(1, 8) - start, up, down), atol=1e-9)


def test_leaps_beyond_the_border_have_tiny_probabilities():
    """log P(N >= 40) for means at which it is no float any more, against the sum of the first terms in scipy."""
    mean = torch.tensor([[1e-12], [1e-30], [5.0]], dtype=torch.float64)
    found = leap_log_prob(
        bo.PureDeath(40), torch.full((3, 1), 40), torch.zeros(3, 1).long(), mean.unsqueeze(-1), torch.tensor([1])
    )
    terms = poisson.logpmf(numpy.arange(40, 140), mean.numpy())
    numpy.testing.assert_allclose(found[:, 0], numpy.logaddexp.reduce(terms, -1), rtol=1e-12)
