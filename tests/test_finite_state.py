"""Finite processes against matrix exponentials of scipy. Goodness-of-fit tests fail for one seed in 1e6."""

import concurrent.futures
import math
import threading

import numpy
import pytest
import torch
from scipy import linalg, sparse, special, stats
from scipy.integrate import solve_ivp

import blackout as bo
from worlds import fit, lattice, random_generator


def ring(size, rate=1.0):
    diagonals = [numpy.full(size - abs(d), rate if d else -2 * rate) for d in (0, 1, -1, size - 1, 1 - size)]
    return sparse.diags_array(diagonals, offsets=[0, 1, -1, size - 1, 1 - size]).tocsr()


def ring_probs(size, jumps_per_side):
    """The distribution from a start in 0, by the Fourier modes of the ring."""
    decay = 2 * jumps_per_side * (numpy.cos(2 * numpy.pi * numpy.arange(size) / size) - 1)
    return numpy.fft.ifft(numpy.exp(decay)).real


def torus(side=55, seed=0):
    """Random rates to the four neighbours."""
    states = numpy.arange(side * side).reshape(side, side)
    targets = [numpy.roll(states, shift, axis).ravel() for shift in (1, -1) for axis in (0, 1)]
    rates = numpy.random.default_rng(seed).exponential(size=4 * side * side)
    matrix = sparse.csr_array((rates, (numpy.tile(states.ravel(), 4), numpy.concatenate(targets))))
    return (matrix - sparse.diags_array(numpy.asarray(matrix.sum(axis=1)).ravel())).tocsr()


STIFF = numpy.array([[-1e4, 1e4, 0.0], [1e-3, -1.001, 1.0], [0.0, 1e-2, -1e-2]])
BANDED = sum(numpy.diag(numpy.arange(1.0, 41.0 - abs(d)), d) for d in (-2, -1, 1, 3))
BANDED -= numpy.diag(BANDED.sum(1))
DENSE = [random_generator(size, seed=size) * 5 / size for size in (2, 3, 8, 17, 64, 65, 200)]


@pytest.mark.parametrize("matrix", [*DENSE, STIFF, BANDED, random_generator(1024) / 1024], ids=len)
def test_dense_generators_equal_expm(matrix):
    process = bo.FiniteState(matrix)
    for t in (0.0, 1e-5, 0.37, 2.0, 40.0) if len(matrix) < 1000 else (2.3,):
        probs = process.probs(torch.arange(len(matrix)), t)
        numpy.testing.assert_allclose(probs, linalg.expm(matrix * t), rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "form",
    [sparse.csr_array, sparse.csc_array, sparse.coo_array, sparse.csr_matrix, torch.tensor, numpy.ndarray.tolist],
)
def test_dense_and_sparse_formats_give_the_same_process(form):
    matrix = random_generator(9)
    process, x = bo.FiniteState(form(matrix)), torch.arange(9)
    numpy.testing.assert_allclose(process.generator, matrix)
    torch.testing.assert_close(process.probs(x, 0.8), bo.FiniteState(matrix).probs(x, 0.8))


@pytest.mark.parametrize(
    "make",
    [lambda: bo.FiniteState(random_generator(12, seed=3) * 40), lambda: bo.Chain(linalg.expm(random_generator(12)))],
)
def test_concurrent_threads_get_the_same_result(make):
    """The first calls compute and cache powers of the matrix; the web page calls from several threads."""
    times = torch.arange(1.0, 41.0, dtype=torch.float64)
    start = torch.zeros(40, dtype=torch.int64)
    expected = make().probs(start, times)
    for _ in range(20):
        process, gate = make(), threading.Barrier(4)

        def probs(process=process, gate=gate):
            gate.wait()
            return process.probs(start, times)

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = [pool.submit(probs) for _ in range(4)]
        assert all(torch.equal(answer.result(), expected) for answer in answers)
        assert torch.equal(process.probs(start, times), expected)


def test_jumps_are_the_distinct_displacements():
    assert bo.Uniform(4).jumps == (-3, -2, -1, 1, 2, 3)
    assert bo.Absorbing(4).jumps == (1, 2, 3)
    assert bo.Absorbing(4, mask_state=1).jumps == (-2, -1, 1)
    assert bo.BirthDeath(5, birth=1.0).jumps == (-1, 1)
    assert bo.BirthDeath(5).jumps == (-1,)
    assert bo.FiniteState(BANDED).jumps == (-2, -1, 1, 3)
    assert bo.FiniteState(ring(100)).jumps == (-99, -1, 1, 99)


@pytest.mark.parametrize(("size", "t"), [(100_000, 0.01), (100_000, 600.0), (20_000, 2502.0)])
def test_large_rings_equal_their_fourier_modes(size, t):
    """By uniformisation, and for more than 5,000 jumps by Krylov's method."""
    start = size // 3
    probs = bo.FiniteState(ring(size)).probs(torch.tensor([start]), t)[0]
    numpy.testing.assert_allclose(probs, numpy.roll(ring_probs(size, t), start), rtol=0, atol=1e-9)


@pytest.mark.parametrize("unit", [1e8, 1e4, 1e-4])
@pytest.mark.parametrize("jumps", [30.0, 4000.0])
def test_accuracy_does_not_depend_on_the_unit_of_time(unit, jumps):
    probs = bo.FiniteState(ring(3000, rate=unit)).probs(torch.tensor([0]), jumps / unit)[0]
    numpy.testing.assert_allclose(probs, ring_probs(3000, jumps), rtol=0, atol=1e-9)


def test_random_sparse_generator_equals_expm_multiply():
    matrix = torus()
    unit = numpy.eye(matrix.shape[0])[[17, 2000]]
    expected = sparse.linalg.expm_multiply(matrix.T.tocsr() * 3.0, unit.T).T
    numpy.testing.assert_allclose(
        bo.FiniteState(matrix).probs(torch.tensor([17, 2000]), 3.0), expected, rtol=0, atol=1e-9
    )


def test_bridge_of_a_sparse_generator_equals_bayes_rule():
    matrix, start, end = torus(), 17, 20
    unit = numpy.eye(matrix.shape[0])[[start, end]]
    row = sparse.linalg.expm_multiply(matrix.T.tocsr() * 0.5, unit[0])
    column = sparse.linalg.expm_multiply(matrix * 1.5, unit[1])
    exact = row * column / (row @ column)
    xs = torch.from_numpy(numpy.argsort(-exact)[:20].copy())
    bridge = bo.FiniteState(matrix).bridge_log_prob(xs, torch.full_like(xs, start), torch.full_like(xs, end), 0.5, 2.0)
    numpy.testing.assert_allclose(bridge.exp(), exact[xs], rtol=1e-8)


def test_immigration_and_death_from_zero_is_poisson():
    process, m = bo.BirthDeath(150, death=0.8, immigration=12.0), torch.arange(100)
    for t in (0.1, 1.0, 20.0):
        expected = stats.poisson.pmf(m, 12 / 0.8 * -math.expm1(-0.8 * t))
        numpy.testing.assert_allclose(process.log_prob(m, 0 * m, t).exp(), expected, rtol=0, atol=1e-10)


def test_linear_birth_and_death_from_one_is_modified_geometric():
    # Kendall (1948): P(0) = α and P(n) = (1 - α)(1 - β) β^{n-1}.
    b, d, t = 0.6, 1.0, 1.4
    growth = math.exp((b - d) * t)
    alpha, beta = d * (growth - 1) / (b * growth - d), b * (growth - 1) / (b * growth - d)
    n = torch.arange(60)
    expected = numpy.where(n == 0, alpha, (1 - alpha) * (1 - beta) * beta ** (n.numpy() - 1.0))
    probs = bo.BirthDeath(120, birth=b, death=d).probs(torch.tensor([1, 20]), t)
    numpy.testing.assert_allclose(probs[0, :60], expected, rtol=0, atol=1e-10)
    assert float(probs[1] @ torch.arange(120).double()) == pytest.approx(20 * growth, rel=1e-9)


LABELS = [
    bo.Absorbing(7),
    bo.Absorbing(7, mask_state=2),
    bo.Uniform(7),
    bo.DiscretizedGaussian(9),
    bo.DiscretizedGaussian(9, bandwidth=2.0, rate=3.0, terminal_std=1.5),
]


@pytest.mark.parametrize("process", LABELS, ids=repr)
@pytest.mark.parametrize("t", [0.0, 1e-6, 0.3, 4.0])
def test_label_processes_equal_expm_of_their_generator(process, t):
    exact = linalg.expm(process.generator.numpy() * t)
    x0, xt = lattice(process.num_states, 2).T
    numpy.testing.assert_allclose(process.probs(torch.arange(process.num_states), t), exact, rtol=1e-9, atol=1e-12)
    numpy.testing.assert_allclose(process.log_prob(xt, x0, t).exp(), exact[x0, xt], rtol=1e-9, atol=1e-12)
    general = bo.FiniteState(process.generator)
    torch.testing.assert_close(process.reverse_rates(x0, xt, t), general.reverse_rates(x0, xt, t), rtol=1e-8, atol=1e-8)


SCHEDULES = [
    (bo.Schedule.constant(2.5), lambda t: 2.5),
    (bo.Schedule.linear(0.2, 1.5), lambda t: 0.2 + 1.5 * t),
    (bo.Schedule.exponential(0.3, 4.0), lambda t: 0.3 * math.log(4) * 4**t),
    (lambda t: 1 + torch.sin(3 * t) ** 2, lambda t: 1 + math.sin(3 * t) ** 2),
]


@pytest.mark.parametrize(("schedule", "beta"), SCHEDULES, ids=["constant", "linear", "exponential", "callable"])
def test_schedules_solve_the_inhomogeneous_master_equation(schedule, beta):
    matrix, t = random_generator(5), 1.3
    process, plain = bo.FiniteState(matrix, schedule=schedule), bo.FiniteState(matrix)
    start = numpy.eye(5)[2]
    expected = solve_ivp(lambda u, p: beta(u) * p @ matrix, (0, t), start, rtol=1e-10, atol=1e-13).y[:, -1]
    numpy.testing.assert_allclose(process.probs(torch.tensor([2]), t)[0], expected, rtol=0, atol=1e-9)
    x0, xt = lattice(5, 2).T
    torch.testing.assert_close(process.forward_rates(xt, t), beta(t) * plain.forward_rates(xt))
    clock = process.schedule.integral(torch.tensor(t, dtype=torch.float64))
    torch.testing.assert_close(process.reverse_rates(x0, xt, t), beta(t) * plain.reverse_rates(x0, xt, clock))
    torch.testing.assert_close(process.score(x0, xt, t), beta(t) * plain.score(x0, xt, clock))
    assert float(process.real_time(clock)) == pytest.approx(t, rel=1e-9)
    with pytest.raises(ValueError, match="t is needed"):
        process.forward_rates(xt)


PROCESSES = [
    bo.FiniteState(random_generator(6)),
    bo.FiniteState(random_generator(70) * 0.1),
    bo.Uniform(6),
    bo.Absorbing(6),
    bo.BirthDeath(30, birth=0.3, immigration=2.0),
    bo.FiniteState(random_generator(4), schedule=bo.Schedule.linear(0.1, 2.0)),
    bo.FiniteState(ring(2100)),
]


@pytest.mark.parametrize("process", PROCESSES, ids=repr)
def test_samples_fit_the_distribution_at_their_own_time(process):
    t = torch.tensor([0.4, 2.0], dtype=torch.float64).repeat(10_000)
    draws = process.sample(torch.full((20_000, 2), 1, dtype=torch.int16), t, torch.Generator().manual_seed(7))
    assert draws.dtype == torch.int16
    for k in (0, 1):
        assert fit(draws[k::2], process.probs(torch.tensor([1]), float(t[k]))[0]) > 1e-6


@pytest.mark.parametrize("process", PROCESSES, ids=repr)
def test_bridge_samples_fit_the_bridge_distribution(process):
    m, one = torch.arange(process.num_states), torch.ones(20_000, dtype=torch.int64)
    end = one + 1 if process.num_states > 6 else one
    draws = process.sample_bridge(one, end, 0.5, 1.2, torch.Generator().manual_seed(7))
    probs = process.bridge_log_prob(m, one[: len(m)], end[: len(m)], 0.5, 1.2).exp()
    assert float(probs.sum()) == pytest.approx(1.0, abs=1e-9)
    assert fit(draws, probs) > 1e-6


def test_bridge_equals_bayes_rule():
    matrix, (x0, xt, xs) = random_generator(5), lattice(5, 3).T
    early, late, full = (linalg.expm(matrix * u) for u in (0.2, 0.5, 0.7))
    value = bo.FiniteState(matrix).bridge_log_prob(xs, x0, xt, 0.2, 0.7)
    numpy.testing.assert_allclose(value.exp(), early[x0, xs] * late[xs, xt] / full[x0, xt], rtol=0, atol=1e-10)
    numpy.testing.assert_allclose(value.exp().reshape(25, 5).sum(-1), 1.0, rtol=1e-12)


def test_reverse_rates_and_scores_equal_brute_force():
    matrix, (x0, xt) = random_generator(6), lattice(6, 2).T
    process, exact = bo.FiniteState(matrix), linalg.expm(matrix * 0.6)
    rates, scores = process.reverse_rates(x0, xt, 0.6), process.score(x0, xt, 0.6)
    for r, jump in enumerate(process.jumps):
        source = (xt - jump).clamp(0, 5)
        arrival = numpy.where(source == xt - jump, matrix[source, xt], 0.0)
        ratio = exact[x0, source] / exact[x0, xt]
        numpy.testing.assert_allclose(rates[:, r], arrival * ratio, rtol=1e-9, atol=1e-9)
        numpy.testing.assert_allclose(scores[:, r], arrival * (ratio - 1), rtol=1e-9, atol=1e-9)


def test_reverse_master_equation_ends_in_the_bridge_distribution():
    process, s, t = bo.FiniteState(random_generator(5)), 0.1, 0.8
    m, start = torch.arange(5), torch.full((5,), 3)

    def backwards(elapsed, p):
        flow = process.reverse_rates(start, m, t - elapsed).numpy() * p[:, None]
        change = -flow.sum(1)
        for r, jump in enumerate(process.jumps):
            back = numpy.arange(5) - jump
            inside = (back >= 0) & (back < 5)
            change[back[inside]] += flow[inside, r]
        return change

    probs = solve_ivp(backwards, (0, t - s), numpy.eye(5)[1], rtol=1e-9, atol=1e-12).y[:, -1]
    bridge = process.bridge_log_prob(m, start, torch.ones_like(m), s, t).exp()
    numpy.testing.assert_allclose(probs, bridge, atol=1e-7)


def test_joint_distribution_of_two_times_solves_its_equation():
    # eq:alice by matrices, -d/ds [p_s(m | o) p(n, t | m, s)] = p (L q) - (L^T p) q, and eq:charlie by reverse rates.
    matrix, s, t, start, end = random_generator(6), 0.3, 0.9, 2, 4
    p, q = linalg.expm(matrix * s)[start], linalg.expm(matrix * (t - s))[:, end]
    alice = p * (matrix @ q) - (matrix.T @ p) * q
    process, m = bo.FiniteState(matrix), torch.arange(6)
    flow = process.reverse_rates(torch.full_like(m, start), m, s).numpy() * (p * q)[:, None]
    charlie = -flow.sum(1)
    for r, jump in enumerate(process.jumps):
        back = m.numpy() - jump
        inside = (back >= 0) & (back < 6)
        charlie[back[inside]] += flow[inside, r]
    numpy.testing.assert_allclose(charlie, alice, rtol=1e-9, atol=1e-12)


def test_chapman_kolmogorov():
    process = bo.FiniteState(random_generator(30) * 0.2)
    first, second, both = (process.probs(torch.arange(process.num_states), t) for t in (0.31, 1.09, 1.4))
    torch.testing.assert_close(first @ second, both, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("process", [*LABELS, *PROCESSES, bo.FiniteState(torus())], ids=repr)
def test_terminal_distribution_is_stationary_and_fits_terminal_draws(process):
    probs = process.terminal_probs.numpy()
    assert probs.sum() == pytest.approx(1.0)
    assert abs(probs @ process.generator.numpy()).max() < 1e-12
    assert fit(process.terminal((50, 400), torch.Generator().manual_seed(7)), probs) > 1e-6
    log_prob = process.terminal_log_prob(torch.arange(process.num_states))
    numpy.testing.assert_allclose(log_prob.exp(), probs, rtol=1e-12)


def test_discretised_gaussian_has_the_terminal_distribution_it_is_given():
    probs = stats.norm.pdf(numpy.arange(9), 4, 1.5)
    numpy.testing.assert_allclose(LABELS[-1].terminal_probs, probs / probs.sum(), rtol=1e-10)
    assert LABELS[0].terminal_state == 6
    assert LABELS[2].terminal_state is None


@pytest.mark.parametrize("link", [None, 0.0], ids=["absent", "stored zero"])
def test_two_closed_sets_have_no_terminal_distribution(link):
    block = sparse.block_diag([random_generator(2), random_generator(3)]).tocoo()
    rows, columns, rates = block.row, block.col, block.data
    if link is not None:
        rows, columns, rates = (numpy.append(a, b) for a, b in ((rows, [1, 2]), (columns, [2, 1]), (rates, [link] * 2)))
    process = bo.FiniteState(sparse.csr_array((rates, (rows, columns)), shape=(5, 5)))
    with pytest.raises(ValueError, match="no single terminal distribution"):
        process.terminal((3,))


@pytest.mark.parametrize("t", [0.0, 0.5])
@pytest.mark.parametrize("process", [bo.BirthDeath(5), bo.Absorbing(5), bo.FiniteState(ring(2100))], ids=repr)
def test_states_of_probability_zero_give_no_nan(process, t):
    x0, xt, xs = lattice(5, 3).T
    for value in (process.log_prob(xt, x0, t), process.bridge_log_prob(xs, x0, xt, t, t + 1)):
        assert not value.isnan().any()
        assert bool((value <= 1e-12).all())
    for value in (process.reverse_rates(x0, xt, t), process.score(x0, xt, t)):
        assert torch.isfinite(value).all()
        assert not value[process.log_prob(xt, x0, t).isneginf()].any()
    if t == 0:
        assert torch.equal(process.log_prob(xt, x0, t) == 0, xt == x0)
        assert torch.equal(process.sample(x0, t), x0)


@pytest.mark.parametrize(
    ("matrix", "match"),
    [
        ([[-1.0, 1.0], [1.0, -2.0]], "rows that sum to 0"),
        ([[1.0, -1.0], [1.0, -1.0]], "must not be negative"),
        ([[-1.0, 1.0]], "square"),
        ([[math.nan, 1.0], [1.0, -1.0]], "finite"),
        ([["a", "b"], ["c", "d"]], "numbers"),
    ],
)
def test_invalid_generators_are_rejected(matrix, match):
    with pytest.raises(ValueError, match=match):
        bo.FiniteState(matrix)


def test_rows_of_single_precision_matrices_are_made_exact():
    rates = torch.rand(6, 6, generator=torch.Generator().manual_seed(3)).fill_diagonal_(0)
    process = bo.FiniteState(rates - torch.diag(rates.sum(1)))
    assert process.generator.sum(1).abs().max() < 1e-15
    chain = bo.Chain(torch.softmax(torch.randn(8, 8, generator=torch.Generator().manual_seed(4)), -1))
    assert (chain.transition.sum(1) - 1).abs().max() < 1e-15


def test_constant_process_has_no_channels():
    for process in (bo.FiniteState(numpy.zeros((2, 2))), bo.Chain(numpy.eye(2))):
        states = torch.tensor([0, 1])
        assert process.reverse_rates(states, states, 1.0).shape == (2, 0)


def test_chain_that_mixes_too_slowly_is_rejected():
    with pytest.raises(ValueError, match="process must mix within 1,000,000 steps"):
        bo.ObservationTimes.for_process(bo.Chain([[1.0, 1e-17], [1e-17, 1.0]]))


def test_very_late_times_give_the_terminal_distribution():
    process = bo.FiniteState([[-1.0, 1.0], [2.0, -2.0]])
    late, later = (process.probs(torch.arange(process.num_states), t) for t in (100.0, 1e308))
    torch.testing.assert_close(later, late)
    late = bo.PureDeath(3, schedule=bo.Schedule.exponential(1.0, 10.0))
    with pytest.raises(ValueError, match="t is too late for the schedule"):
        late.reverse_rates(torch.tensor([3]), torch.tensor([0]), 400.0)


@pytest.mark.parametrize(
    ("rate", "integral"),
    [
        (lambda t: 1 + 0.9 * torch.sin(20 * t), lambda t: t + 0.045 * (1 - numpy.cos(20 * t))),
        (
            lambda t: 0.1 + 10 * torch.exp(-100 * (t - 3) ** 2),
            lambda t: 0.1 * t + math.sqrt(math.pi) / 2 * (special.erf(10 * (t - 3)) + special.erf(30)),
        ),
    ],
)
def test_clock_of_a_smooth_rate_is_its_integral(rate, integral):
    schedule, t = bo.Schedule.from_rate(rate), torch.linspace(0.01, 15, 300, dtype=torch.float64)
    clock = schedule.integral(t)
    numpy.testing.assert_allclose(clock, integral(t.numpy()), rtol=1e-8)
    torch.testing.assert_close(schedule.inverse(clock), t, rtol=1e-6, atol=1e-6)


def test_invalid_rates_of_a_schedule_are_rejected():
    for rate in (torch.cos, lambda t: t * torch.nan, lambda t: -1 + 0 * t):
        with pytest.raises(ValueError, match="schedule must be a rate that is positive and finite, got"):
            bo.PureDeath(3, schedule=rate).log_prob(torch.tensor([3]), torch.tensor([3]), 4.0)
    with pytest.raises(ValueError, match="schedule must be smooth but for kinks and steps"):
        bo.Schedule.from_rate(lambda t: 1 + torch.sin(1e5 * t)).integral(torch.tensor([15.0], dtype=torch.float64))


def test_large_generators_keep_tiny_probabilities():
    process, start = bo.BirthDeath(3000, death=1.0, birth=0.0), torch.tensor([2999])
    assert float(process.log_prob(start, start, 0.05)) == pytest.approx(-149.95, rel=1e-9)
    assert int(process.sample_bridge(start, start, 0.02, 0.05)) == 2999


ALONG = {
    "tridiagonal": bo.BirthDeath(40, birth=0.2, immigration=3.0),
    "few jumps": bo.Halving(64),
    "dense": bo.FiniteState(random_generator(24)),
    "stiff": bo.FiniteState(random_generator(24) * numpy.logspace(-4, 4, 24)[:, None]),  # takes the dense way at times
    "closed form": bo.Uniform(9),
}


@pytest.mark.parametrize("name", ALONG)
def test_rows_along_many_times_are_those_of_the_matrix_exponential(name):
    process = ALONG[name]
    starts, taus = torch.tensor([0, 3, 3, 8]), torch.logspace(-6, 2, 40, dtype=torch.float64)
    for tau, probs in zip(taus, process.probs_along(starts, taus), strict=True):
        expected = linalg.expm(process.generator.numpy() * float(tau))[starts]
        numpy.testing.assert_allclose(probs, expected, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(probs, process.probs_at(starts, tau), rtol=1e-9, atol=1e-15)


def test_rows_along_many_times_without_dense_matrices():
    process = bo.BirthDeath(2100, immigration=900.0)
    starts, taus = torch.tensor([0, 2000]), torch.tensor([1e-4, 0.3, 0.4, 9.0], dtype=torch.float64)
    m = numpy.arange(2100)
    for tau, probs in zip(taus.tolist(), process.probs_along(starts, taus), strict=True):
        # Immigrants are Poisson, survivors binomial; the last state is out of reach.
        p, immigrants = numpy.exp(-tau), stats.poisson.pmf(m, -900 * numpy.expm1(-tau))
        numpy.testing.assert_allclose(probs[0], immigrants, rtol=1e-7, atol=1e-12)
        both = numpy.convolve(immigrants, stats.binom.pmf(m, 2000, p))[:2100]
        numpy.testing.assert_allclose(probs[1], both, rtol=1e-7, atol=1e-11)
