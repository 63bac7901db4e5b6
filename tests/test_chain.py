"""Chains in discrete time against matrix powers. Goodness-of-fit tests fail for one seed in 1e6."""

import numpy
import pytest
import torch

import blackout as bo
from worlds import fit

SIZE = 5
MATRIX = numpy.random.default_rng(0).dirichlet(numpy.ones(SIZE), SIZE)
STEPS = [1, 2, 3, 7, 64, 1000]


def power(k):
    return numpy.linalg.matrix_power(MATRIX, k)


def all_states(count):
    return torch.cartesian_prod(*[torch.arange(SIZE)] * count).T


@pytest.mark.parametrize("k", [0, *STEPS])
def test_forward_probs_are_the_matrix_power(k):
    x0, xt = all_states(2)
    chain = bo.Chain(MATRIX)
    numpy.testing.assert_allclose(chain.log_prob(xt, x0, k).exp(), power(k)[x0, xt], rtol=1e-11)
    numpy.testing.assert_allclose(chain.probs(torch.arange(SIZE), k), power(k), rtol=1e-11)


def test_each_sample_has_its_own_number_of_steps():
    k = torch.tensor([0.0, 1.0, 5.0, 12.0])
    x0, xt = torch.tensor([1, 2, 3, 4]), torch.tensor([1, 0, 0, 2])
    expected = [power(int(n))[a, b] for n, a, b in zip(k, x0, xt, strict=True)]
    numpy.testing.assert_allclose(bo.Chain(MATRIX).log_prob(xt, x0, k).exp(), expected, rtol=1e-6)


@pytest.mark.parametrize("k", STEPS)
def test_reverse_rates_equal_bayes_rule(k):
    # eq:cBayes: p(m', k-1 | m, k, o) = p(m | m') p(m', k-1 | o) / p(m, k | o).
    chain = bo.Chain(MATRIX)
    x0, xt = all_states(2)
    rates = chain.reverse_rates(x0, xt, k)
    for r, jump in enumerate(chain.jumps):
        before = xt - jump
        inside = (before >= 0) & (before < SIZE)
        source = before.clamp(0, SIZE - 1)
        bayes = MATRIX[source, xt] * power(k - 1)[x0, source] / power(k)[x0, xt]
        numpy.testing.assert_allclose(rates[:, r], numpy.where(inside, bayes, 0.0), rtol=1e-10)
    stay = MATRIX[xt, xt] * power(k - 1)[x0, xt] / power(k)[x0, xt]
    numpy.testing.assert_allclose(rates.sum(-1).numpy() + stay, 1.0, rtol=1e-10)


def test_reverse_equation_reproduces_the_bridge_distribution():
    # eq:romeo: from (n, ℓ) one step back at a time; the state stays with the probability that no channel has.
    chain, m, start, end, last = bo.Chain(MATRIX), torch.arange(SIZE), 2, 4, 6
    probs = numpy.eye(SIZE)[end]
    for k in range(last, 1, -1):
        rates = chain.reverse_rates(torch.full_like(m, start), m, k).numpy()
        earlier = probs * (1 - rates.sum(1))
        for r, jump in enumerate(chain.jumps):
            back = m.numpy() - jump
            inside = (back >= 0) & (back < SIZE)
            earlier[back[inside]] += (probs * rates[:, r])[inside]
        probs = earlier
        bridge = chain.bridge_log_prob(m, torch.full_like(m, start), torch.full_like(m, end), k - 1, last)
        numpy.testing.assert_allclose(probs, bridge.exp(), rtol=1e-10)


def test_joint_distribution_of_two_steps_solves_its_equation():
    # eq:juliet by matrices, and the same difference by the reverse rates of step k + 1.
    chain, m, start, end, k, last = bo.Chain(MATRIX), torch.arange(SIZE), 2, 4, 3, 6
    p, later, change = power(k)[start], power(last - k - 1)[:, end], MATRIX - numpy.eye(SIZE)
    juliet = p * (change @ later) - later * (p @ change)
    flow = chain.reverse_rates(torch.full_like(m, start), m, k + 1).numpy()
    flow *= (power(k + 1)[start] * later)[:, None]
    back = -flow.sum(1)
    for r, jump in enumerate(chain.jumps):
        source = m.numpy() - jump
        inside = (source >= 0) & (source < SIZE)
        back[source[inside]] += flow[inside, r]
    numpy.testing.assert_allclose(back, juliet, rtol=1e-10, atol=1e-14)


def test_bridge_equals_bayes_rule():
    x0, xt, xs = all_states(3)
    bayes = power(2)[x0, xs] * power(3)[xs, xt] / power(5)[x0, xt]
    numpy.testing.assert_allclose(bo.Chain(MATRIX).bridge_log_prob(xs, x0, xt, 2, 5).exp(), bayes, rtol=1e-10)


@pytest.mark.parametrize("k", [1, 4])
def test_samples_fit_the_forward_distribution(k):
    draws = bo.Chain(MATRIX).sample(torch.full((20_000,), 3), k, torch.Generator().manual_seed(k))
    assert fit(draws, power(k)[3]) > 1e-6


def test_bridge_samples_fit_the_bridge_distribution():
    x0, xt = torch.full((20_000,), 1), torch.full((20_000,), 4)
    draws = bo.Chain(MATRIX).sample_bridge(x0, xt, 1, 3, torch.Generator().manual_seed(0))
    assert fit(draws, MATRIX[1] * power(2)[:, 4] / power(3)[1, 4]) > 1e-6


def test_terminal_distribution_is_stationary():
    chain = bo.Chain(MATRIX)
    numpy.testing.assert_allclose(chain.terminal_probs.numpy() @ MATRIX, chain.terminal_probs, rtol=1e-12)
    assert fit(chain.terminal((20_000,), torch.Generator().manual_seed(0)), chain.terminal_probs) > 1e-6


def test_periodic_chain_has_no_terminal_distribution():
    swap = bo.Chain([[0.0, 1.0], [1.0, 0.0]])
    with pytest.raises(ValueError, match="no terminal distribution: it returns to a state every 2 steps"):
        swap.terminal((3,))


def test_at_step_zero_nothing_has_happened():
    chain = bo.Chain(MATRIX)
    x0, xt = all_states(2)
    assert torch.equal(chain.sample(x0, 0), x0)
    assert not chain.reverse_rates(x0, xt, 0).any()
    assert torch.equal(chain.log_prob(xt, x0, 0) == 0, x0 == xt)
    assert not chain.score(x0, xt, 0).isnan().any()


def test_unreachable_states_give_no_nan():
    chain = bo.Chain([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])
    x0, xt = torch.cartesian_prod(torch.arange(3), torch.arange(3)).T
    for k in (1, 2, 9):
        lost = chain.log_prob(xt, x0, k).isneginf()
        rates = chain.reverse_rates(x0, xt, k)
        assert torch.isfinite(rates).all()
        assert not rates[lost].any()
        assert not chain.bridge_log_prob(x0, x0, xt, k, k + 1).isnan().any()
    assert chain.terminal_state == 2


@pytest.mark.parametrize("k", [0.5, 2.000001, torch.tensor([1.0, 1.5])])
def test_times_must_be_integers(k):
    x = torch.tensor([0, 1])
    chain = bo.Chain(MATRIX)
    for method in (lambda: chain.sample(x, k), lambda: chain.log_prob(x, x, k), lambda: chain.reverse_rates(x, x, k)):
        with pytest.raises(ValueError, match="t must be an integer number of steps"):
            method()


@pytest.mark.parametrize(
    ("matrix", "match"),
    [
        ([[0.5, 0.6], [0.5, 0.5]], "rows that sum to 1"),
        ([[1.5, -0.5], [0.5, 0.5]], "must not be negative"),
        ([[1.0, 0.0]], "square"),
        ([[float("nan"), 1.0], [0.5, 0.5]], "finite"),
    ],
)
def test_invalid_transition_matrices_are_rejected(matrix, match):
    with pytest.raises(ValueError, match=match):
        bo.Chain(matrix)
