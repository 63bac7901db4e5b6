"""The end of the process at a finite time: the last time of data, the remaining tilt, the prior term of the bound."""

import math

import numpy
import pytest
import torch
from scipy import stats
from scipy.linalg import expm

import blackout as bo
from blackout.recipes import build_model, recipe
from blackout.times.measures import mixing_time
from worlds import lattice, line, on_lattice, random_generator, sampler_probs

TOTALS = torch.tensor([[1_000_000], [10_000_000]])
TWO_LEAVE = numpy.array([[-1.0, 1.0, 0, 0], [2.0, -2.0, 0, 0], [0.5, 0, -1.0, 0.5], [0, 0, 1.0, -1.0]])
SHIFT = numpy.diag(numpy.ones(4), -1) - numpy.diag([0.0, *[1.0] * 4])  # m -> m - 1 at rate one


def death_generator(size: int) -> numpy.ndarray:
    return numpy.diag(numpy.arange(1.0, size), -1) - numpy.diag(numpy.arange(float(size)))


def share_of_the_larger(times: bo.ObservationTimes, num: int = 2000) -> float:
    process = bo.PureDeath()
    x = bo.BinomialBridge().sample(bo.ExactPosterior(process, TOTALS), process, times.subset(300), (num, 1))
    assert set(x.flatten().tolist()) == {1_000_000, 10_000_000}
    return float((x == 10_000_000).double().mean())


def test_two_totals_a_factor_of_ten_apart_are_sampled_equally_often():
    """Five standard deviations of 2,000 samples: fails for one seed in two million; the seed is fixed."""
    times = bo.DiffusionModel.for_data(TOTALS, bo.PureDeath(), width=8, blocks=1).times
    assert share_of_the_larger(times) == pytest.approx(0.5, abs=5 * math.sqrt(0.25 / 2000))


def test_starting_from_black_too_early_samples_the_larger_total_less_often():
    """At t = 15 a unit is alive with probability 3e-7: the odds of the larger total are exp(-9e6 * 3e-7)."""
    black = stats.binom.pmf(0, TOTALS.flatten().numpy(), math.exp(-15))
    expected = black[1] / black.sum()
    assert expected == pytest.approx(0.06, abs=0.001)
    found = share_of_the_larger(bo.ObservationTimes.fisher(1000, 15.0))
    assert found == pytest.approx(expected, abs=5 * math.sqrt(expected * (1 - expected) / 2000))
    tilt = bo.remaining_tilt(bo.PureDeath(), TOTALS, 15.0)
    assert tilt.factors == pytest.approx((2 * expected, 2 - 2 * expected))
    assert tilt.remaining == pytest.approx(1 - black.mean())
    assert tilt.nats == pytest.approx(-numpy.log(black).mean() + math.log(black.mean()))


@pytest.mark.parametrize("total", [3, 10_000, 400_000, 10**9])
def test_last_time_of_pure_death_follows_from_the_largest_total(total):
    x = torch.tensor([[1, 0, 2], [total - 2, 2, 0]])
    end = bo.ObservationTimes.for_process(bo.PureDeath(), 20, x0=x).t_end
    assert stats.binom.sf(0, total, math.exp(-end)) <= 1e-3
    assert end == 15.0 or stats.binom.sf(0, total, math.exp(-(end - 0.5))) > 1e-3
    clock = bo.Schedule.linear(0.3, 2.0)
    slowed = bo.ObservationTimes.for_process(bo.PureDeath(schedule=clock), 20, x0=x).t_end
    assert float(clock.integral(torch.tensor(slowed, dtype=torch.float64))) == pytest.approx(end)


@pytest.mark.parametrize(
    "process",
    [
        bo.Uniform(4),
        bo.Absorbing(5),
        bo.BirthDeath(16, immigration=8.0),
        bo.Halving(16),
        bo.FiniteState(random_generator(5)),
        bo.FiniteState(SHIFT),
        bo.Chain(0.9 * torch.eye(5) + 0.1 * torch.eye(5)[4]),
    ],
    ids=repr,
)
def test_last_time_accounts_for_all_components(process):
    """D components that are each at a distance e from the end are up to D e from it together."""
    ends = []
    for components in (1, 1000, 100_000):
        x = torch.arange(process.max_state + 1).unsqueeze(-1).expand(-1, components)
        end = mixing_time(process, x0=x)
        distance = (
            process.probs(x[:, 0], end) - process.terminal_log_prob(torch.arange(process.num_states)).exp()
        ).abs()
        each = float(distance.sum(-1).max()) / 2
        assert -math.expm1(components * math.log1p(-each)) <= 1e-3 * (1 + 1e-6)
        ends.append(end)
    assert ends[0] == mixing_time(process)
    assert ends[0] <= ends[1] < ends[2]


def test_given_last_time_is_kept():
    assert bo.ObservationTimes.for_process(bo.PureDeath(), 20, 10.0, TOTALS).t_end == 10.0


@pytest.mark.parametrize("t", [0.5, 3.0, 15.0])
def test_tilt_is_the_same_by_closed_form_and_by_matrices(t):
    x = torch.randint(0, 9, (50, 3, 2), generator=torch.Generator().manual_seed(0))
    closed, table = (bo.remaining_tilt(p, x, t) for p in (bo.PureDeath(8), bo.FiniteState(death_generator(9))))
    assert closed.remaining == pytest.approx(table.remaining)
    assert closed.factors == pytest.approx(table.factors)
    assert closed.nats == pytest.approx(table.nats, abs=1e-12)
    black = numpy.prod(stats.binom.pmf(0, x.numpy(), math.exp(-t)), axis=(1, 2))
    assert closed.remaining == pytest.approx(1 - black.mean())
    assert closed.nats == pytest.approx(math.log(black.mean()) - numpy.log(black).mean(), abs=1e-12)


def test_tilt_of_other_processes_bounds_the_total_variation_of_all_components():
    process, t = bo.BirthDeath(5, birth=0.3, death=1.0, immigration=1.0), 1.0
    states = lattice(5, 2)
    end = process.terminal_log_prob(states).sum(-1).exp()
    for point in ([[0, 0]], [[4, 1]], [[2, 2]]):
        probs = torch.exp(process.log_prob(states, torch.tensor(point).expand(25, 2), t).sum(-1))
        distance = float((probs - end).abs().sum()) / 2
        tilt = bo.remaining_tilt(process, torch.tensor(point), t)
        assert distance <= tilt.remaining <= 2 * distance
        assert tilt.factors is tilt.nats is None


@pytest.mark.parametrize("process", [bo.PureDeath(12), bo.FiniteState(death_generator(13)), bo.Absorbing(14)], ids=repr)
def test_bound_from_a_finite_time_is_that_of_the_tilted_distribution(process):
    """A perfect denoiser that starts from the terminal state samples x0 with probability w P(ended | x0) / Z."""
    points, weights, end = torch.tensor([[2], [12]]), torch.tensor([0.3, 0.7], dtype=torch.float64), 2.0
    posterior, times = bo.ExactPosterior(process, points, weights), bo.ObservationTimes.uniform(4, end)
    ended = process.log_prob(torch.full_like(points, process.terminal_state), points, end).exp().flatten()
    tilted = weights * ended / (weights @ ended)
    assert math.log(weights[1] / tilted[1]) > 0.1 or process.mask_state is not None
    sampled = sampler_probs(bo.PosteriorBridge(), posterior, process, times, 1)
    torch.testing.assert_close(sampled, on_lattice(points, tilted, process.num_states), rtol=1e-9, atol=1e-12)
    bound = bo.evidence_bound(posterior, process, points, 512, t_end=end)
    torch.testing.assert_close(bound, -torch.log(tilted), rtol=0, atol=1e-9)
    steps = bo.PosteriorBridge().bound(posterior, process, times, points)
    torch.testing.assert_close(steps, -torch.log(tilted), rtol=0, atol=1e-9)
    draws = bo.evidence_bound(posterior, process, points.repeat(1000, 1), 16, t_end=end, method="monte-carlo")
    error = draws.reshape(1000, 2).std(0) / math.sqrt(1000)
    assert bool(((draws.reshape(1000, 2).mean(0) + torch.log(tilted)).abs() < 5 * error).all())
    late = bo.evidence_bound(posterior, process, points, 512, t_end=25.0)
    torch.testing.assert_close(late, -torch.log(weights), rtol=0, atol=1e-8)


@pytest.mark.parametrize("factor", [0.7, 1.4])
def test_bound_from_a_finite_time_holds_for_wrong_rates(factor):
    """Against the distribution of many small steps from black at t = 1."""
    points, weights = line(5)
    process, end = bo.PureDeath(4), 1.0
    posterior = bo.ExactPosterior(process, points, weights)

    def denoise(xt, t):
        return (factor * posterior(xt, t).difference()).clamp(max=4 - xt)

    steps = bo.ObservationTimes.from_values(process.at_log_time(torch.linspace(-9.0, math.log(math.e - 1), 500))[0])
    sampled = sampler_probs(bo.TauLeaping(events="binomial"), denoise, process, steps, 1)
    bound = bo.evidence_bound(denoise, process, points, 512, t_end=end)
    excess = bound + torch.log(sampled)
    assert float(excess.min()) > -5e-3  # the error of the steps
    assert 0.02 < float(excess.max()) < 1


def test_bound_from_a_finite_time_where_several_states_are_left_for_good():
    process, end = bo.FiniteState(TWO_LEAVE), 3.0
    points, weights = line(4)
    posterior = bo.ExactPosterior(process, points, weights)
    table = process.probs(torch.arange(4), end)
    start = process.terminal_log_prob(torch.arange(4)).exp()
    sampled = (weights.unsqueeze(1) * table / (weights @ table)) @ start
    excess = bo.evidence_bound(posterior, process, points, 512, t_end=end) + torch.log(sampled)
    assert 0 < float(excess.min()) < float(excess.max()) < 2e-3
    steps = bo.PosteriorBridge().bound(posterior, process, bo.ObservationTimes.uniform(3, end), points.repeat(1000, 1))
    steps = steps.reshape(1000, 4) + torch.log(sampled)
    assert bool(((steps.mean(0) - excess).abs() < 5 * steps.std(0) / math.sqrt(1000)).all())


@pytest.mark.parametrize("measure", ["length", "kl", "entropy"])
def test_equalized_times_end_at_t_end_where_nothing_changes_any_more(measure):
    assert bo.ObservationTimes.equalize(bo.Absorbing(3), measure, 40, t_end=200.0).t_end == 200.0


def test_model_states_its_end_and_the_tilt_that_remains(tmp_path):
    x = torch.randint(0, 200_000, (16, 4), generator=torch.Generator().manual_seed(0))
    model = bo.DiffusionModel.for_data(x, bo.PureDeath(), bo.ObservationTimes.fisher(20, 13.0), width=8, blocks=1)
    assert "ends at t=13\n" in repr(model)
    model.fit(x, steps=1, batch_size=4)
    black = stats.binom.pmf(0, x.sum(1).numpy(), math.exp(-13))
    assert f"ends at t=13: {100 * (1 - black.mean()):.2g}% of data points not in the terminal state" in repr(model)
    again = bo.load(model.save(tmp_path / "model"))
    assert again.record.tilt == model.record.tilt
    assert repr(again) == repr(model)
    assert "ends at t=15\n" in repr(bo.load("seven-segment"))


def test_cells_end_by_their_library_sizes():
    counts = numpy.random.default_rng(0).poisson(400.0, (20, 6)) * numpy.array([[1], [50]] * 10)
    model = bo.CountModel(width=8, blocks=1).fit(counts, steps=1, batch_size=4)
    end = model.model.times.t_end
    assert stats.binom.sf(0, counts.sum(1).max(), math.exp(-end)) <= 1e-3
    assert stats.binom.sf(0, counts.sum(1).max(), math.exp(-(end - 0.5))) > 1e-3
    assert f"ends at t={end:g}: " in repr(model)
    assert model.model.record.tilt == bo.remaining_tilt(bo.PureDeath(), counts, end)


@pytest.mark.parametrize(
    ("name", "end"), [("cifar10-paper", 15.0), ("celeba64-paper", 15.0), ("mnist-binary-paper", 10.0)]
)
def test_recipes_of_the_paper_keep_its_last_time(name, end):
    assert recipe(name).process.t_end == end


def test_recipe_without_a_last_time_takes_it_from_the_data():
    from blackout.data import Dataset

    x = torch.full((8, 1, 16, 16), 255, dtype=torch.uint8)
    config = recipe("cifar10-likelihood").replace(preset="tiny", width=8, blocks=1, num_times=50, compile=False)
    model = build_model(config, Dataset(x=x, name="white", max_state=255))
    assert model.times.t_end == 18.0  # log(65,280 / 1e-3) = 17.99
    assert build_model(config.replace(t_end=15.0), Dataset(x=x, name="white", max_state=255)).times.t_end == 15.0


@pytest.mark.parametrize("time_input", ["logit", "index"])
def test_networks_train_and_sample_on_grids_with_a_late_end(time_input):
    x = TOTALS.expand(2, 3).repeat(8, 1)
    model = bo.DiffusionModel.for_data(x, bo.PureDeath(), time_input=time_input, width=8, blocks=1)
    density = "grid" if time_input == "index" else "logistic"
    model.fit(x, steps=3, batch_size=8, time_density=density)
    assert model.times.t_end == 24.5
    y = model.posterior(torch.zeros(2, 3, dtype=torch.long), torch.tensor(model.times.t_end)).difference()
    assert bool(torch.isfinite(y).all())
    assert bool((model.sample(4, num_steps=20) >= 0).all())


def up_then_down(end: float) -> tuple[bo.PiecewiseGenerator, torch.Tensor, torch.Tensor]:
    """A process that rises before its break and then falls to zero, data, and the probability of zero at the end."""
    up = torch.diag(torch.tensor([0.7, 0.4]), 1).double()
    down = torch.diag(torch.tensor([1.0, 1.5]), -1).double()
    pieces = [matrix - torch.diag(matrix.sum(1)) for matrix in (up, down)]
    process = bo.PiecewiseGenerator(pieces, breaks=[1.0])
    spent = [min(end, 1.0), max(0.0, end - 1.0)]
    probs = expm(spent[0] * pieces[0].numpy()) @ expm(spent[1] * pieces[1].numpy())
    return process, torch.arange(3).unsqueeze(-1), torch.from_numpy(probs[:, 0])


@pytest.mark.parametrize("end", [1.5, 3.0])
def test_bound_from_a_finite_time_after_a_change_of_the_generator(end: float) -> None:
    process, points, ended = up_then_down(end)
    posterior = bo.ExactPosterior(process, points)
    bound = bo.evidence_bound(posterior, process, points, t_end=end, method="exact")
    assert torch.allclose(bound, -torch.log(ended / ended.sum()), atol=1e-6)


def test_data_that_cannot_have_ended_have_an_infinite_bound() -> None:
    process, points, ended = up_then_down(0.3)
    assert ended[1:].tolist() == [0, 0]
    posterior = bo.ExactPosterior(process, points)
    for method in ("exact", "monte-carlo"):
        bound = bo.evidence_bound(posterior, process, points, t_end=0.3, method=method)
        assert bound[1:].tolist() == [torch.inf, torch.inf]
        assert float(bound[0]) == pytest.approx(0.0, abs=0.05 if method == "monte-carlo" else 1e-6)
    steps = bo.PosteriorBridge().bound(posterior, process, bo.ObservationTimes.uniform(4, 0.3), points)
    assert steps[1:].tolist() == [torch.inf, torch.inf]


def test_last_time_accounts_for_labels_that_are_slower_than_their_neighbours() -> None:
    few = torch.linspace(0, 99, 32).round().long().tolist()
    ladder = [0, *(m for m in range(100) if m not in few)]
    rates = torch.zeros(100, 100, dtype=torch.float64)
    rates[few[1:], 0] = 1.0
    rates[ladder[1:], ladder[:-1]] = 1.0
    process = bo.FiniteState(rates - torch.diag(rates.sum(1)))
    times = bo.ObservationTimes.for_process(process, 20, x0=torch.tensor([[98]]))
    assert bo.remaining_tilt(process, torch.tensor([[98]]), times.t_end).remaining < 1.01e-3
