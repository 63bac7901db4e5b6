"""Pure death against scipy, mpmath and the matrix exponential. Goodness-of-fit tests: one seed in 1e6."""

import math

import mpmath
import numpy
import pytest
import torch
from scipy import stats
from scipy.integrate import solve_ivp

import blackout as bo
from blackout.posterior import call
from worlds import fit

LOG2 = math.log(2)


def generator():
    return torch.Generator().manual_seed(3)


def pairs(largest):
    """Every (x0, xt) up to `largest`, reachable or not."""
    grid = torch.cartesian_prod(torch.arange(largest + 1), torch.arange(largest + 1))
    return grid[:, 0], grid[:, 1]


def generator_matrix(size):
    states = numpy.arange(size, dtype=float)
    return numpy.diag(states[1:], -1) - numpy.diag(states)


def test_probabilities_at_the_smallest_times_are_numbers():
    """q = 1 - e^{-t} is a subnormal number: k deaths of n have the probability C(n, k) q^k."""
    process, q = bo.PureDeath(max_count=8), 1e-310
    found = process.log_prob(torch.tensor([8, 7, 5, 0]), torch.full((4,), 8), q)
    expected = [math.log(math.comb(8, k)) + k * math.log(q) for k in (0, 1, 3, 8)]
    assert found.tolist() == pytest.approx(expected, rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("t", [0.01, LOG2, 3.0])
def test_forward_distribution_is_binomial(t):
    x0, xt = pairs(60)
    expected = stats.binom.logpmf(xt.numpy(), x0.numpy(), math.exp(-t))
    numpy.testing.assert_allclose(bo.PureDeath(60).log_prob(xt, x0, t), expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("t", [1e-7, 1e-3, LOG2, 5.0, 15.0, 40.0])
@pytest.mark.parametrize("n", [1, 7, 255, 40_000, 1_000_000])
def test_log_prob_is_exact_to_rounding_at_all_times(n, t, dtype):
    time = torch.tensor(t, dtype=dtype)
    with mpmath.workdps(60):
        p = mpmath.exp(-mpmath.mpf(time.item()))
        near = int(n * p)
        ks = sorted({k for k in (0, 1, n // 3, n // 2, n - 1, n, near, near - 2, near + 2) if 0 <= k <= n})
        exact = [float(mpmath.log(mpmath.binomial(n, k)) + k * mpmath.log(p) + (n - k) * mpmath.log(1 - p)) for k in ks]
    value = bo.PureDeath().log_prob(torch.tensor(ks), torch.full((len(ks),), n), time)
    assert value.dtype == dtype
    tolerance = {"rtol": 1e-12, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 2e-7, "atol": 1e-30}
    numpy.testing.assert_allclose(value, exact, **tolerance)


@pytest.mark.parametrize(("n", "k", "t"), [(836, 1, 712.5), (18, 17, 5.3e-308), (27_989, 16_681, 1.4e-61)])
def test_log_prob_of_the_smallest_probabilities(n, k, t):
    """Of a survival of 1e-310, or a death of 5e-308, a ratio of counts would overflow."""
    with mpmath.workdps(60):
        survival = -mpmath.mpf(t)
        death = mpmath.log(-mpmath.expm1(survival))
        exact = float(mpmath.log(mpmath.binomial(n, k)) + k * survival + (n - k) * death)
    value = bo.PureDeath().log_prob(torch.tensor([k]), torch.tensor([n]), t)
    assert float(value) == pytest.approx(exact, rel=1e-11)


@pytest.mark.parametrize(("x0", "t"), [(1, LOG2), (255, 0.05), (255, 3.0), (5000, 0.7)])
@pytest.mark.parametrize("dtype", [torch.int16, torch.int64])
def test_samples_fit_the_forward_distribution(x0, t, dtype):
    draws = bo.PureDeath(x0).sample(torch.full((40_000,), x0, dtype=dtype), t, generator())
    assert draws.dtype == dtype
    assert fit(draws, stats.binom.pmf(numpy.arange(x0 + 1), x0, math.exp(-t))) > 1e-6


def test_each_sample_has_its_own_time():
    t = torch.tensor([0.1, 2.0], dtype=torch.float64).repeat(20_000)
    draws = bo.PureDeath(30).sample(torch.full((40_000, 1), 30), t, generator())
    for k in (0, 1):
        assert fit(draws[k::2], stats.binom.pmf(numpy.arange(31), 30, math.exp(-float(t[k])))) > 1e-6


def test_chapman_kolmogorov():
    process, m = bo.PureDeath(25), torch.arange(26)
    x0, xt = pairs(25)
    first = process.log_prob(m.expand(len(x0), -1), x0.unsqueeze(-1).expand(-1, 26), 0.4)
    second = process.log_prob(xt.unsqueeze(-1).expand(-1, 26), m.expand(len(x0), -1), 0.9)
    torch.testing.assert_close((first + second).logsumexp(-1), process.log_prob(xt, x0, 1.3), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("s", "t"), [(1e-4, 2e-4), (0.3, 1.1), (0.3, 15.0), (9.0, 15.0)])
def test_bridge_equals_bayes_rule(s, t):
    process = bo.PureDeath(12)
    x0, xt, xs = torch.cartesian_prod(*[torch.arange(13)] * 3).T
    keep = (xt <= xs) & (xs <= x0)
    x0, xt, xs = x0[keep], xt[keep], xs[keep]
    bayes = process.log_prob(xs, x0, s) + process.log_prob(xt, xs, t - s) - process.log_prob(xt, x0, t)
    torch.testing.assert_close(process.bridge_log_prob(xs, x0, xt, s, t), bayes, rtol=1e-9, atol=1e-9)


def test_bridge_samples_fit_the_bridge_distribution():
    process, states = bo.PureDeath(40), torch.arange(41)
    full = torch.full((40_000,), 40)
    draws = process.sample_bridge(full, full - 28, 0.5, 2.0, generator())
    probs = process.bridge_log_prob(states, full[:41], full[:41] - 28, 0.5, 2.0).exp()
    r = (math.exp(-0.5) - math.exp(-2.0)) / (1 - math.exp(-2.0))
    numpy.testing.assert_allclose(probs, stats.binom.pmf(states - 12, 28, r), rtol=1e-11, atol=1e-300)
    assert fit(draws, probs) > 1e-6


@pytest.mark.parametrize("t", [1e-3, 0.05, LOG2, 3.0, 15.0])
def test_closed_forms_equal_the_matrix_exponential(t):
    process, matrix = bo.PureDeath(20), bo.FiniteState(generator_matrix(21))
    x0, xt = pairs(20)
    torch.testing.assert_close(matrix.log_prob(xt, x0, t), process.log_prob(xt, x0, t), rtol=1e-9, atol=1e-9)
    for name in ("reverse_rates", "score"):
        closed, general = (getattr(p, name)(x0, xt, t) for p in (process, matrix))
        torch.testing.assert_close(general, closed, rtol=1e-9, atol=1e-9)
    assert matrix.jumps == process.jumps == (-1,)
    torch.testing.assert_close(matrix.forward_rates(xt), process.forward_rates(xt))


@pytest.mark.parametrize(("s", "t"), [(1e-3, 2e-3), (0.2, 0.9), (3.0, 15.0)])
def test_bridge_equals_the_matrix_exponential(s, t):
    process, matrix = bo.PureDeath(12), bo.FiniteState(generator_matrix(13))
    x0, xt, xs = torch.cartesian_prod(*[torch.arange(13)] * 3).T
    closed, general = (p.bridge_log_prob(xs, x0, xt, s, t) for p in (process, matrix))
    torch.testing.assert_close(general, closed, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("t", [1e-4, LOG2, 8.0])
def test_score_equals_its_closed_form(t):
    x0, xt = pairs(30)
    p, q = math.exp(-t), -math.expm1(-t)
    expected = torch.where(xt <= x0, (x0.double() * p - xt) / q - 1, 0.0).unsqueeze(-1)
    torch.testing.assert_close(bo.PureDeath().score(x0, xt, t), expected, rtol=1e-10, atol=1e-10)
    expected[xt == 30] = 0.0  # the largest state: there is none above it
    torch.testing.assert_close(bo.PureDeath(30).score(x0, xt, t), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("x0", "xt", "s", "t"), [(9, 2, 0.1, 1.5), (30, 0, 0.5, 6.0), (5, 5, 0.2, 1.0)])
def test_reverse_master_equation_ends_in_the_bridge_distribution(x0, xt, s, t):
    # Eq. (5): dp_m/dt of the reverse process, integrated from t down to s.
    process, m = bo.PureDeath(x0), torch.arange(xt, x0 + 1)
    start = torch.full_like(m, x0)

    def backwards(elapsed, p):
        flow = process.reverse_rates(start, m, t - elapsed)[:, 0].numpy() * p
        return numpy.append(0.0, flow[:-1]) - flow

    begin = numpy.eye(len(m))[0]
    probs = solve_ivp(backwards, (0, t - s), begin, rtol=1e-10, atol=1e-13).y[:, -1]
    expected = process.bridge_log_prob(m, start, torch.full_like(m, xt), s, t).exp()
    numpy.testing.assert_allclose(probs, expected, atol=1e-8)


def test_bridge_to_time_zero_ends_in_x0():
    process = bo.PureDeath(255)
    x0 = torch.randint(256, (50, 7), generator=generator())
    xt = process.sample(x0, 1.0, generator())
    assert torch.equal(process.sample_bridge(x0, xt, 0.0, 1.0, generator()), x0)
    assert not process.bridge_log_prob(x0, x0, xt, 0.0, 1.0).any()
    assert bool((process.bridge_log_prob(xt, x0, xt, 0.0, 1.0)[xt < x0] == -math.inf).all())


def test_unbounded_process_takes_any_count():
    process, x0 = bo.PureDeath(), torch.tensor([3, 2_000_000_000])
    assert process.num_states is None
    xt = process.sample(x0, LOG2, generator())
    assert abs(int(xt[1]) - 10**9) < 10 * math.sqrt(5e8)
    assert torch.isfinite(process.log_prob(xt, x0, LOG2)).all()
    assert process.probs(torch.tensor([3, 5]), LOG2).shape == (2, 6)
    assert torch.equal(process.sample_bridge(x0, xt, 0.0, LOG2, generator()), x0)


def test_unreachable_states_give_no_nan():
    process = bo.PureDeath(9)
    x0, xt = torch.tensor([3, 0]), torch.tensor([4, 9])
    assert torch.equal(process.log_prob(xt, x0, 0.5), torch.full((2,), -math.inf, dtype=torch.float64))
    assert not process.reverse_rates(x0, xt, 0.5).any()
    assert not process.score(x0, xt, 0.5).any()
    assert bool((process.bridge_log_prob(x0, x0, xt, 0.2, 0.5) == -math.inf).all())
    with pytest.raises(ValueError, match="xt=4 cannot be reached from x0=3"):
        process.sample_bridge(x0, xt, 0.2, 0.5)


def test_at_time_zero_nothing_has_happened():
    process = bo.PureDeath(9)
    x0, xt = pairs(9)
    same = x0 == xt
    expected = torch.where(same, 0.0, -math.inf).double()
    assert torch.equal(process.log_prob(xt, x0, 0.0), expected)
    assert torch.equal(process.sample(x0, 0.0), x0)
    assert not process.reverse_rates(x0, xt, 0.0).any()
    assert torch.isfinite(process.score(x0, xt, 0.0)).all()


def test_terminal_state_is_zero():
    process = bo.PureDeath(9)
    assert not process.terminal((3, 4)).any()
    assert process.terminal_log_prob(torch.tensor([0, 1])).tolist() == [0.0, -math.inf]


@pytest.mark.parametrize(("dtype", "max_count"), [(torch.int8, 255), (torch.uint8, 1000), (torch.int64, 1000)])
def test_predictions_are_clipped_to_the_possible_counts_in_every_dtype(dtype, max_count):
    process, xt = bo.PureDeath(max_count), torch.tensor([[5, 100]], dtype=dtype)
    y = torch.full((1, 2), max_count - 5.5)
    posterior = call(lambda xt, t: y, process, xt, torch.tensor(0.5))
    assert posterior.difference()[0].tolist() == [max_count - 5.5, max_count - 100]


@pytest.mark.parametrize("t", [-1.0, math.nan, math.inf, "soon"])
def test_invalid_times_are_rejected(t):
    with pytest.raises(ValueError, match="t must be"):
        bo.PureDeath(9).log_prob(torch.tensor([1]), torch.tensor([2]), t)


def test_invalid_states_and_unordered_times_are_rejected():
    process, x = bo.PureDeath(9), torch.tensor([5])
    with pytest.raises(ValueError, match="x0 must be at most 9, got 10"):
        process.sample(x + 5, 1.0)
    with pytest.raises(ValueError, match="x0 must not be negative"):
        process.sample(x - 6, 1.0)
    with pytest.raises(ValueError, match="x0 must hold integers"):
        process.sample(x.double(), 1.0)
    with pytest.raises(ValueError, match="s must be less than t"):
        process.sample_bridge(x, x, 1.0, 1.0)
