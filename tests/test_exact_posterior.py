import numpy
import pytest
import torch
from scipy.linalg import expm
from scipy.special import comb
from scipy.stats import binom

import blackout as bo
from worlds import cube, lattice, line, random_generator

TIMES = (1e-9, 1e-3, 0.4, 2.0, 9.0)


def series(Q, t):
    """exp(Q t) with every entry right to relative precision: a sum of positive terms."""
    rate = -numpy.diagonal(Q).min()
    chain, term, total = numpy.eye(len(Q)) + Q / rate, numpy.eye(len(Q)), 0.0
    for k in range(1, 400):
        total = total + term
        term = term @ chain * (rate * t / k)
    return numpy.exp(-rate * t) * total


def bayes(transition, points, weights, xt):
    """P(X_0 = points[j] | X_t = xt) for one state xt."""
    joint = weights * numpy.prod([transition[points[:, c], xt[c]] for c in range(len(xt))], axis=0)
    return joint / joint.sum()


def death_matrix(size, t):
    n, k = numpy.arange(size)[:, None], numpy.arange(size)[None, :]
    return comb(n, k) * numpy.exp(-t * k) * (-numpy.expm1(-t)) ** numpy.maximum(n - k, 0) * (k <= n)


@pytest.mark.parametrize("t", TIMES)
@pytest.mark.parametrize("process", [bo.PureDeath(4), bo.PureDeath()], ids=repr)
def test_pure_death_equals_brute_force(process, t):
    points, weights = cube()
    matrix = death_matrix(5, t)
    assert numpy.allclose(matrix, binom.pmf(numpy.arange(5)[None, :], numpy.arange(5)[:, None], numpy.exp(-t)))
    expected = [
        bayes(matrix, points.numpy(), weights.numpy(), xt) @ numpy.maximum(points.numpy() - xt, 0)
        for xt in points.numpy()
    ]
    y = bo.ExactPosterior(process, points, weights)(points, t)
    assert numpy.allclose(y, numpy.array(expected), rtol=1e-9, atol=0)


@pytest.mark.parametrize("t", TIMES)
@pytest.mark.parametrize(
    "process",
    [
        bo.Uniform(5),
        bo.BirthDeath(5, birth=0.3, death=1.0, immigration=1.0),
        bo.DiscretizedGaussian(5),
        bo.FiniteState(random_generator(5)),
    ],
    ids=repr,
)
def test_reverse_rates_equal_brute_force(process, t):
    points, weights = cube()
    Q = process.generator.numpy()
    matrix = series(Q, t)
    assert numpy.allclose(matrix, expm(Q * t))
    kappa = bo.ExactPosterior(process, points, weights)(points, t).numpy()
    for xt, answer in zip(points.numpy(), kappa, strict=True):
        posterior = bayes(matrix, points.numpy(), weights.numpy(), xt)
        for c, here in enumerate(xt):
            for r, jump in enumerate(process.jumps):
                before = here - jump
                start = points[:, c].numpy()
                inside = 0 <= before < 5
                rates = Q[before, here] * matrix[start, before] / matrix[start, here] if inside else 0 * start
                assert numpy.isclose(answer[c, r], posterior @ rates, rtol=1e-9, atol=0)


@pytest.mark.parametrize("t", TIMES)
def test_masked_components_return_at_the_posterior_probability_of_each_label(t):
    points, weights = line(5)
    process = bo.Absorbing(6)
    kappa = bo.ExactPosterior(process, points, weights)(torch.tensor([[5]]), t)
    for r, jump in enumerate(process.jumps):
        assert float(kappa[0, 0, r]) == pytest.approx(float(weights[5 - jump]) / numpy.expm1(t), rel=1e-9)


def test_pure_death_and_birth_death_without_births_agree():
    points, weights = cube()
    t = 0.7
    y = bo.ExactPosterior(bo.PureDeath(4), points, weights)(points, t)
    kappa = bo.ExactPosterior(bo.BirthDeath(5), points, weights)(points, t).squeeze(-1)
    assert torch.allclose(kappa, y / numpy.expm1(t), rtol=1e-9, atol=0)


def test_a_schedule_is_a_change_of_clock():
    points, weights = cube()
    schedule = bo.Schedule.linear(0.5, 2.0)
    t, tau, rate = 0.6, 0.5 * 0.6 + 0.6**2, 0.5 + 2 * 0.6
    plain = bo.ExactPosterior(bo.Uniform(5), points, weights)(points, tau)
    timed = bo.ExactPosterior(bo.Uniform(5, schedule=schedule), points, weights)(points, t)
    assert torch.allclose(timed, rate * plain, rtol=1e-9, atol=0)
    y = bo.ExactPosterior(bo.PureDeath(4, schedule=schedule), points, weights)(points, t)
    assert torch.allclose(y, bo.ExactPosterior(bo.PureDeath(4), points, weights)(points, tau), rtol=1e-9, atol=0)


def test_tiny_times_keep_relative_precision():
    # To first order in t, y at level m is (m + 1) w(m + 1) / w(m) t.
    points, weights = line()
    y = bo.ExactPosterior(bo.PureDeath(8), points, weights)(points, 1e-12).squeeze(-1)
    expected = torch.arange(1, 9) * weights[1:] / weights[:-1] * 1e-12
    assert torch.allclose(y[:-1], expected, rtol=1e-9, atol=0)
    assert float(y[-1]) == 0


@pytest.mark.parametrize(
    ("process", "state"), [(bo.PureDeath(8), [3, 5]), (bo.PureDeath(), [9, 0]), (bo.Absorbing(9), [1, 3])], ids=repr
)
def test_impossible_states_have_the_answer_zero(process, state):
    posterior = bo.ExactPosterior(process, torch.tensor([[1, 4], [3, 3]]))
    xt = torch.tensor([state, [0, 3]])
    for t in (0.0, 1e-9, 1.0, 20.0):
        answer = posterior(xt, t)
        assert bool(torch.isfinite(answer).all())
        assert bool((answer[0] == 0).all())
        assert bool((posterior.weights(xt, t)[0] == 0).all())


@pytest.mark.parametrize("process", [bo.PureDeath(4), bo.Uniform(5), bo.BirthDeath(5, immigration=1.0)], ids=repr)
def test_each_row_is_answered_on_its_own(process):
    points, weights = cube()
    posterior = bo.ExactPosterior(process, points, weights)
    t = torch.linspace(0.01, 5.0, len(points), dtype=torch.float64)
    each = torch.cat([posterior(points[i : i + 1], float(t[i])) for i in range(len(points))])
    assert torch.allclose(posterior(points, t), each, rtol=1e-12, atol=0)
    one = torch.cat([posterior(points[i : i + 1], 0.8) for i in range(len(points))])
    assert torch.allclose(posterior(points, 0.8), one, rtol=1e-12, atol=0)
    assert torch.equal(posterior(points, 0.8), posterior(points, torch.full((len(points),), 0.8, dtype=torch.float64)))
    assert torch.equal(posterior(points.repeat(2, 1), 0.8)[125:], posterior(points, 0.8))
    assert posterior(points[:0], 0.8).shape == (0, *posterior(points, 0.8).shape[1:])


def test_components_may_have_any_shape():
    points, weights = cube(4)
    flat = bo.ExactPosterior(bo.Uniform(5), points, weights)(points[:50], 0.7)
    square = bo.ExactPosterior(bo.Uniform(5), points.reshape(-1, 2, 2), weights)(points[:50].reshape(-1, 2, 2), 0.7)
    assert torch.allclose(square.reshape(flat.shape), flat, rtol=1e-12, atol=0)


def test_level_law_is_the_marginal_of_the_weights():
    points, weights = cube()
    posterior = bo.ExactPosterior(bo.BirthDeath(5, immigration=1.0), points, weights)
    law, joint = posterior.level_law(points, 0.7), posterior.weights(points, 0.7)
    assert torch.allclose(joint.sum(-1), torch.ones(125, dtype=torch.float64))
    for level in range(5):
        assert torch.allclose(law[:, 1, level], joint[:, points[:, 1] == level].sum(-1))


def test_weights_need_not_be_normalised_and_default_to_equal():
    points = lattice(3, 2)
    equal = bo.ExactPosterior(bo.PureDeath(2), points)(points, 0.5)
    assert torch.allclose(bo.ExactPosterior(bo.PureDeath(2), points, [7.0] * 9)(points, 0.5), equal, rtol=1e-12)


@pytest.mark.parametrize(
    ("points", "weights", "message"),
    [
        (torch.tensor([1, 2]), None, r"points must have shape \(n, \.\.\.\), got \(2,\)"),
        (torch.zeros(0, 2, dtype=torch.long), None, "points"),
        (torch.tensor([[9]]), None, "points must be at most 8, got 9"),
        (torch.tensor([[1.0]]), None, "points must hold integers"),
        (torch.tensor([[1], [2]]), [1.0], "weights"),
        (torch.tensor([[1], [2]]), [1.0, -1.0], "weights"),
        (torch.tensor([[1], [2]]), [1.0, float("nan")], "weights"),
        (torch.tensor([[1], [2]]), [0.0, 0.0], "weights"),
        (torch.tensor([[1], [2]]), "equal", "weights"),
    ],
)
def test_bad_worlds_are_refused(points, weights, message):
    with pytest.raises(ValueError, match=message):
        bo.ExactPosterior(bo.PureDeath(8), points, weights)


@pytest.mark.parametrize(
    ("xt", "t", "message"),
    [
        (torch.zeros(3, 2, dtype=torch.long), 1.0, "xt must have shape"),
        (torch.zeros(3, 1), 1.0, "xt must hold integers"),
        (torch.full((3, 1), 9), 1.0, "xt must be at most 8, got 9"),
        (torch.zeros(3, 1, dtype=torch.long), -1.0, "t=-1.0"),
        (torch.zeros(3, 1, dtype=torch.long), torch.ones(2), "t must have shape"),
    ],
)
def test_bad_questions_are_refused(xt, t, message):
    posterior = bo.ExactPosterior(bo.PureDeath(8), *line())
    with pytest.raises(ValueError, match=message):
        posterior(xt, t)
