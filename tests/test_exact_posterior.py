"""ExactPosterior against Bayes' rule over all data points."""

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
    """exp(Q t) with relative precision in every entry: a sum of positive terms."""
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
def test_means_of_pure_death_equal_brute_force(process, t):
    points, weights = cube()
    matrix = death_matrix(5, t)
    assert numpy.allclose(matrix, binom.pmf(numpy.arange(5)[None, :], numpy.arange(5)[:, None], numpy.exp(-t)))
    expected = [
        bayes(matrix, points.numpy(), weights.numpy(), xt) @ numpy.maximum(points.numpy() - xt, 0)
        for xt in points.numpy()
    ]
    posterior = bo.ExactPosterior(process, points, weights)(points, t)
    assert numpy.allclose(posterior.difference(), expected, rtol=1e-9, atol=0)
    assert numpy.allclose(posterior.mean(), numpy.array(expected) + points.numpy(), rtol=1e-9, atol=0)
    rates = numpy.array(expected)[..., None] / numpy.expm1(t)
    assert numpy.allclose(posterior.rates(), rates, rtol=1e-9, atol=0)


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
    kappa = bo.ExactPosterior(process, points, weights)(points, t).rates().numpy()
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
def test_rates_of_masked_components_are_proportional_to_the_posterior(t):
    points, weights = line(5)
    process = bo.Absorbing(6)
    kappa = bo.ExactPosterior(process, points, weights)(torch.tensor([[5]]), t).rates()
    for r, jump in enumerate(process.jumps):
        assert float(kappa[0, 0, r]) == pytest.approx(float(weights[5 - jump]) / numpy.expm1(t), rel=1e-9)


def test_pure_death_and_birth_death_without_births_agree():
    points, weights = cube()
    t = 0.7
    death, matrix = (bo.ExactPosterior(p, points, weights)(points, t) for p in (bo.PureDeath(4), bo.BirthDeath(5)))
    assert torch.allclose(matrix.rates(), death.rates(), rtol=1e-9, atol=0)
    assert torch.allclose(matrix.difference(), death.difference(), rtol=1e-9, atol=1e-15)


def test_schedule_changes_the_clock():
    points, weights = cube()
    schedule = bo.Schedule.linear(0.5, 2.0)
    t, tau, rate = 0.6, 0.5 * 0.6 + 0.6**2, 0.5 + 2 * 0.6
    plain = bo.ExactPosterior(bo.Uniform(5), points, weights)(points, tau)
    timed = bo.ExactPosterior(bo.Uniform(5, schedule=schedule), points, weights)(points, t)
    assert torch.allclose(timed.rates(), rate * plain.rates(), rtol=1e-9, atol=0)
    assert torch.allclose(timed.probs(), plain.probs(), rtol=1e-9, atol=0)
    timed = bo.ExactPosterior(bo.PureDeath(4, schedule=schedule), points, weights)(points, t)
    plain = bo.ExactPosterior(bo.PureDeath(4), points, weights)(points, tau)
    assert torch.allclose(timed.difference(), plain.difference(), rtol=1e-9, atol=0)
    assert torch.allclose(timed.rates(), rate * plain.rates(), rtol=1e-9, atol=0)


def test_tiny_times_keep_relative_precision():
    # To first order in t, y at level m is (m + 1) w(m + 1) / w(m) t.
    points, weights = line()
    y = bo.ExactPosterior(bo.PureDeath(8), points, weights)(points, 1e-12).difference().squeeze(-1)
    expected = torch.arange(1, 9) * weights[1:] / weights[:-1] * 1e-12
    assert torch.allclose(y[:-1], expected, rtol=1e-9, atol=0)
    assert float(y[-1]) == 0


@pytest.mark.parametrize(
    ("process", "state"), [(bo.PureDeath(8), [3, 5]), (bo.PureDeath(), [9, 0]), (bo.Absorbing(9), [1, 3])], ids=repr
)
def test_unreachable_states_have_no_weights_and_no_rates(process, state):
    posterior = bo.ExactPosterior(process, torch.tensor([[1, 4], [3, 3]]))
    xt = torch.tensor([state, [0, 3]])
    for t in (0.0, 1e-9, 1.0, 20.0):
        for value in (posterior(xt, t).rates(), posterior(xt, t).difference()):
            assert bool(torch.isfinite(value).all())
            assert bool((value[0] == 0).all())
        assert bool((posterior.weights(xt, t)[0] == 0).all())


@pytest.mark.parametrize("process", [bo.PureDeath(4), bo.Uniform(5), bo.BirthDeath(5, immigration=1.0)], ids=repr)
def test_each_row_is_computed_independently(process):
    points, weights = cube()
    posterior = bo.ExactPosterior(process, points, weights)
    t = torch.linspace(0.01, 5.0, len(points), dtype=torch.float64)
    each = torch.cat([posterior(points[i : i + 1], float(t[i])).rates() for i in range(len(points))])
    assert torch.allclose(posterior(points, t).rates(), each, rtol=1e-12, atol=0)
    one = torch.cat([posterior(points[i : i + 1], 0.8).rates() for i in range(len(points))])
    same = posterior(points, 0.8)
    assert torch.allclose(same.rates(), one, rtol=1e-12, atol=0)
    assert torch.equal(same.rates(), posterior(points, torch.full((len(points),), 0.8, dtype=torch.float64)).rates())
    twice = posterior(points.repeat(2, 1), 0.8)
    for name in ("rates", "difference", "mean", "probs"):
        value = getattr(same, name)()
        assert torch.equal(getattr(twice, name)()[125:], value)
        assert getattr(posterior(points[:0], 0.8), name)().shape == (0, *value.shape[1:])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16])
@pytest.mark.parametrize("process", [bo.PureDeath(8), bo.Uniform(6), bo.Absorbing(6)], ids=repr)
def test_states_may_have_any_integer_dtype(process, dtype):
    points, x0 = torch.tensor([[1, 4], [3, 3]]), torch.tensor([[3, 4], [3, 4], [1, 4]])
    xt = torch.tensor([[2, 1], [3, 4], [0, 3]])
    wide = bo.ExactPosterior(process, points)(xt, 0.5)
    narrow = bo.ExactPosterior(process, points.to(dtype))(xt.to(dtype), 0.5)
    for method in ("mean", "difference", "rates", "probs"):
        torch.testing.assert_close(getattr(narrow, method)(), getattr(wide, method)())
    torch.testing.assert_close(narrow.divergence(x0.to(dtype)), wide.divergence(x0))


def test_components_may_have_any_shape():
    points, weights = cube(4)
    flat = bo.ExactPosterior(bo.Uniform(5), points, weights)(points[:50], 0.7).rates()
    exact = bo.ExactPosterior(bo.Uniform(5), points.reshape(-1, 2, 2), weights)
    square = exact(points[:50].reshape(-1, 2, 2), 0.7).rates()
    assert torch.allclose(square.reshape(flat.shape), flat, rtol=1e-12, atol=0)


def test_probs_are_the_marginals_of_the_weights():
    points, weights = cube()
    posterior = bo.ExactPosterior(bo.BirthDeath(5, immigration=1.0), points, weights)
    probs, joint = posterior(points, 0.7).probs(), posterior.weights(points, 0.7)
    assert torch.allclose(joint.sum(-1), torch.ones(125, dtype=torch.float64))
    for level in range(5):
        assert torch.allclose(probs[:, 1, level], joint[:, points[:, 1] == level].sum(-1))


def test_probs_cover_all_states_and_unreachable_states_stay():
    process, points = bo.PureDeath(8), torch.tensor([[1, 4], [3, 3]])
    posterior = bo.ExactPosterior(process, points, [0.25, 0.75])
    probs = posterior(torch.tensor([[0, 3], [3, 4]]), 0.5).probs()
    p = numpy.exp(-0.5)
    joint = numpy.array([0.25 * binom.pmf(0, 1, p) * binom.pmf(3, 4, p), 0.75 * binom.pmf(0, 3, p) * p**3])
    joint /= joint.sum()
    expected = numpy.zeros((2, 9))
    expected[0, [1, 3]], expected[1, [4, 3]] = joint, joint
    assert numpy.allclose(probs[0], expected)
    assert posterior(points[:0], 0.5).probs().shape == (0, 2, 9)
    # No point leads to (3, 4): both components stay.
    assert torch.equal(probs[1], torch.nn.functional.one_hot(torch.tensor([3, 4]), 9).double())
    with pytest.raises(ValueError, match="finitely many states"):
        bo.ExactPosterior(bo.PureDeath(), points)(points, 0.5).probs()


def test_weights_need_not_be_normalised_and_default_to_equal():
    points = lattice(3, 2)
    equal, sevens = (bo.ExactPosterior(bo.PureDeath(2), points, w)(points, 0.5) for w in (None, [7.0] * 9))
    assert torch.allclose(sevens.probs(), equal.probs(), rtol=1e-12)


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
def test_invalid_points_and_weights_are_rejected(points, weights, message):
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
def test_invalid_states_and_times_are_rejected(xt, t, message):
    posterior = bo.ExactPosterior(bo.PureDeath(8), *line())
    with pytest.raises(ValueError, match=message):
        posterior(xt, t)
