"""The leaves of Posterior agree with each other and with brute force; how denoisers are called."""

import math

import numpy
import pytest
import torch
from scipy.special import kl_div

import blackout as bo
from blackout.conditioning import GuidedPosterior
from blackout.likelihood import divergence_at
from blackout.posterior import ListedPosterior, call, rate_divergence
from blackout.random import Streams
from worlds import cube, fit, lattice, random_generator

SIZE = 5
LINEAR = bo.Schedule.linear(0.5, 0.3)
PROCESSES = [
    bo.PureDeath(SIZE - 1),
    bo.PureDeath(SIZE - 1, schedule=LINEAR),
    bo.BirthDeath(SIZE, birth=0.3, death=1.0, immigration=1.0),
    bo.Uniform(SIZE),
    bo.Uniform(SIZE, schedule=LINEAR),
    bo.Absorbing(SIZE + 1),
    bo.DiscretizedGaussian(SIZE),
    bo.FiniteState(random_generator(SIZE)),
]
T = 0.7
CHAIN = bo.Chain(numpy.random.default_rng(0).dirichlet(numpy.ones(SIZE), SIZE))


def name(process):
    return repr(process) + ("" if process.schedule is None else "-schedule")


def brute_force(process):
    """x_t, t, and P(X_0 | X_t) of each of two components by Bayes' rule, for the reachable pairs of states."""
    points, weights = cube(2)
    xt = lattice(process.num_states, 2)
    likelihood = process.probs(torch.arange(process.num_states), T).numpy()
    joint = weights.numpy() * numpy.prod([likelihood[points[:, c]][:, xt[:, c]] for c in (0, 1)], axis=0).T
    reachable = joint.sum(-1) > 0
    xt, joint = xt[torch.from_numpy(reachable)], joint[reachable] / joint[reachable].sum(-1, keepdims=True)
    levels = numpy.arange(process.num_states)
    probs = numpy.stack([joint @ (points[:, c].numpy()[:, None] == levels) for c in (0, 1)], 1)
    return xt, torch.full((len(xt),), T, dtype=torch.float64), probs


def brute_rates(process, xt, probs):
    states = torch.arange(process.num_states).expand(*xt.shape, -1)
    each = process.reverse_rates(states, xt.unsqueeze(-1).expand_as(states), T).numpy()
    return (probs[..., None] * each).sum(-2)


def leaves(process):
    """All posteriors that describe the same distribution of X_0, by name."""
    points, weights = cube(2)
    xt, t, probs = brute_force(process)
    exact = bo.ExactPosterior(process, points, weights)(xt, t)
    # The weights of the states before X_t is seen: p(o | x_t) / P_t(o, x_t).
    likelihood = process.probs(torch.arange(process.num_states), T).T[xt]
    u = torch.where(likelihood > 0, torch.from_numpy(probs) / likelihood.clamp(min=1e-300), 0.0)
    categorical = bo.CategoricalPosterior(process, xt, t, u)
    found = {
        "exact": exact,
        "listed": ListedPosterior(process, xt, t, torch.from_numpy(probs)),
        "categorical": categorical,
        "rates": bo.RatePosterior(process, xt, t, exact.rates()),
        "guided": GuidedPosterior(categorical, exact, 2.5),
    }
    if process.mean_suffices:
        found["mean"] = bo.MeanPosterior(process, xt, t, exact.difference())
        found["guided mean"] = GuidedPosterior(exact, found["mean"], 0.5)
    return {**found, **{f"{key}, checked": leaf.checked() for key, leaf in found.items()}}


@pytest.mark.parametrize("process", PROCESSES, ids=name)
def test_leaves_agree_with_brute_force(process):
    xt, _, probs = brute_force(process)
    rates = brute_rates(process, xt, probs)
    mean = probs @ numpy.arange(process.num_states)
    rng = numpy.random.default_rng(1)
    # A start from which x_t can be reached, drawn from the posterior, for each component.
    x0 = torch.from_numpy(numpy.apply_along_axis(lambda p: rng.choice(len(p), p=p / p.sum()), -1, probs))
    true = process.reverse_rates(x0, xt, T).numpy()
    divergence = kl_div(true, rates).sum(-1)
    for key, leaf in leaves(process).items():
        assert numpy.allclose(leaf.rates(), rates, rtol=1e-9, atol=1e-12), key
        assert numpy.allclose(leaf.divergence(x0), divergence, rtol=1e-7, atol=1e-9), key
        if process.mean_suffices or "rates" not in key:
            assert numpy.allclose(leaf.mean(), mean, rtol=1e-9, atol=1e-12), key
            assert numpy.allclose(leaf.difference(), mean - xt.numpy(), rtol=1e-9, atol=1e-12), key
        if key.split(",")[0] in ("exact", "listed", "categorical", "guided"):
            assert numpy.allclose(leaf.probs(), probs, rtol=1e-9, atol=1e-12), key


@pytest.mark.parametrize("process", PROCESSES, ids=name)
def test_divergence_at_sums_over_components(process):
    exact = bo.ExactPosterior(process, *cube(2))
    x0 = cube(2)[0][:20]
    t = torch.linspace(0.2, 2.0, 20, dtype=torch.float64)
    xt = process.sample(x0, t, torch.Generator().manual_seed(0))
    expected = kl_div(process.reverse_rates(x0, xt, t).numpy(), exact(xt, t).rates().numpy()).sum((-1, -2))
    assert numpy.allclose(divergence_at(exact, process, x0, xt, t), expected, rtol=1e-9, atol=1e-12)


def test_rate_divergence_equals_scipy():
    values = torch.tensor([0.0, 1e-12, 0.3, 1.0, 7.0, 1e9], dtype=torch.float64)
    kappa, rates = torch.meshgrid(values, values, indexing="ij")
    found = rate_divergence(kappa, rates).numpy()
    expected = kl_div(rates.numpy(), kappa.numpy())
    finite = numpy.isfinite(expected)
    assert numpy.array_equal(numpy.isinf(found), ~finite)
    scale = (kappa + rates).numpy()[finite]
    assert bool((numpy.abs(found[finite] - expected[finite]) <= 1e-13 * scale + 1e-300).all())
    # A given logarithm of the ratio takes the place of the computed one.
    kappa, rates = kappa[1:, 1:], rates[1:, 1:]
    torch.testing.assert_close(rate_divergence(kappa, rates, torch.log(rates / kappa)), rate_divergence(kappa, rates))


def test_gradient_of_the_rate_divergence():
    """d/dκ = 1 - λ / κ, also where both are zero."""
    kappa = torch.tensor([0.0, 0.5, 2.0], dtype=torch.float64, requires_grad=True)
    rate_divergence(kappa, torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64)).sum().backward()
    assert kappa.grad.tolist() == [1.0, -1.0, 0.5]


@pytest.mark.parametrize("key", ["exact", "listed", "categorical", "guided"])
@pytest.mark.parametrize("process", [PROCESSES[k] for k in (0, 3, 5)], ids=name)
def test_samples_fit_the_probabilities(process, key):
    """Pearson's test at 1e-6 for three states each."""
    num, rng = 2000, Streams(3, 2000)
    xt = torch.tensor([[0, 1], [1, 2], [2, 0]])
    if process.mask_state is not None:
        xt = torch.full((1, 2), process.mask_state)
    for state in xt:
        rows = state.expand(num, 2)
        times = torch.full((num,), T, dtype=torch.float64)
        exact = bo.ExactPosterior(process, *cube(2))(rows, times)
        u = torch.arange(1.0, process.num_states + 1, dtype=torch.float64).expand(num, 2, -1)
        other = bo.CategoricalPosterior(process, rows, times, u)
        posterior = {
            "exact": exact,
            "listed": ListedPosterior(process, rows, times, exact.probs()),
            "categorical": other,
            "guided": GuidedPosterior(other, exact, 1.7),
        }[key]
        samples = posterior.sample(rng)
        assert samples.dtype == torch.int64
        assert samples.shape == (num, 2)
        for component in (0, 1):
            assert fit(samples[:, component], posterior.probs()[0, component]) > 1e-6


@pytest.mark.parametrize("process", PROCESSES[:2], ids=name)
def test_means_and_rates_have_no_distribution(process):
    for key in ("mean", "rates", "guided mean"):
        leaf = leaves(process)[key]
        for method in (leaf.probs, leaf.sample):
            with pytest.raises(ValueError, match="does not know the distribution of X_0: use a head that gives one"):
                method()


def test_rates_determine_the_mean_under_pure_death_alone():
    uniform = leaves(bo.Uniform(SIZE))["rates"]
    for method in (uniform.mean, uniform.difference):
        with pytest.raises(ValueError, match="the mean of X_0 does not determine the reverse rates of Uniform"):
            method()


def test_listed_rows_may_be_shared_and_states_few():
    process, states = bo.BirthDeath(9, immigration=1.0), torch.tensor([1, 4, 7])
    xt, t = torch.tensor([[2], [5], [2], [5]]), torch.full((4,), T, dtype=torch.float64)
    probs = torch.tensor([[[0.2, 0.3, 0.5]], [[0.6, 0.4, 0.0]]], dtype=torch.float64)
    member = torch.tensor([0, 1, 0, 1])
    every = torch.zeros(4, 1, 9, dtype=torch.float64)
    every[..., states] = probs[member]
    shared, plain = ListedPosterior(process, xt, t, probs, states, member), ListedPosterior(process, xt, t, every)
    for method in ("mean", "difference", "rates", "probs"):
        torch.testing.assert_close(getattr(shared, method)(), getattr(plain, method)())
    x0 = torch.tensor([[1], [4], [7], [4]])
    torch.testing.assert_close(shared.divergence(x0), plain.divergence(x0))
    assert torch.equal(shared.sample(Streams(0, 4)), plain.sample(Streams(0, 4)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_divergence_of_means_is_computed_in_single_precision_at_least(dtype):
    process, xt, x0 = bo.PureDeath(255), torch.tensor([[100, 3]]), torch.tensor([[200, 3]])
    y, t = torch.tensor([[80.0, 0.5]], dtype=dtype), torch.tensor([T], dtype=torch.float64)
    found = bo.MeanPosterior(process, xt, t, y).divergence(x0)
    assert found.dtype == torch.float32
    expected = kl_div([100.0, 0.0], y[0].double().numpy()) / math.expm1(T)
    assert numpy.allclose(found[0], expected, rtol=1e-5)


def test_listed_posterior_of_a_chain_has_no_divergence():
    xt, t = torch.tensor([[1, 2]]), torch.tensor([3.0], dtype=torch.float64)
    posterior = bo.ExactPosterior(CHAIN, *cube(2))(xt, t)
    with pytest.raises(ValueError, match="ListedPosterior has no divergence for a chain; CategoricalPosterior has"):
        posterior.divergence(xt)


@pytest.mark.parametrize("t", [torch.tensor(T), torch.tensor([T, T, T])], ids=["scalar", "each"])
def test_plain_functions_are_wrapped(t):
    """A tensor is y for pure death and reverse rates for other processes; it may have any precision."""
    xt = torch.tensor([[0, 2], [1, 1], [4, 0]])
    times = []

    def denoise(xt, t):
        times.append(t)
        return torch.full(xt.shape, 2.0)

    posterior = call(denoise, bo.PureDeath(4), xt, t)
    assert isinstance(posterior, bo.MeanPosterior)
    assert posterior.difference().dtype == torch.float64
    assert posterior.difference().tolist() == [[2, 2], [2, 2], [0, 2]]  # at most 4 in total
    assert times[0].shape == (3,)
    process = bo.BirthDeath(5, immigration=1.0)
    posterior = call(lambda xt, t: torch.full((*xt.shape, 2), 2.0), process, xt, t)
    assert isinstance(posterior, bo.RatePosterior)
    assert posterior.rates().dtype == torch.float64
    # Channels are -1 and 1; back from x they lead to x + 1 and x - 1, which must be states.
    inside = torch.stack([xt < 4, xt > 0], -1)
    assert torch.equal(posterior.rates(), torch.where(inside, 2.0, 0.0).double())


def test_posteriors_are_checked_when_called():
    process, xt, t = bo.Uniform(5), torch.tensor([[0, 2]]), torch.tensor([T])
    exact = bo.ExactPosterior(process, *cube(2))
    assert torch.equal(call(exact, process, xt, t).probs(), exact(xt, t).probs())
    single = call(lambda xt, t: ListedPosterior(process, xt, t, torch.full((1, 2, 5), 0.2)), process, xt, t)
    assert single.probs().dtype == torch.float64
    bad, ones = torch.full((1, 2, 5), math.nan), torch.ones(1, 2, 8)
    for answer, message in (
        (lambda xt, t: ListedPosterior(process, xt, t, bad), "finite numbers, got NaN"),
        (lambda xt, t: GuidedPosterior(exact(xt, t), ListedPosterior(process, xt, t, bad), 2.0), "got NaN"),
        (lambda xt, t: bo.CategoricalPosterior(process, xt, t, bad), r"finite numbers, got NaN at t=0\.69"),
        (lambda xt, t: bo.RatePosterior(process, xt, t, ones[..., :3]), r"of shape \(1, 2, 8\), got \(1, 2, 3\)"),
        (lambda xt, t: bo.MeanPosterior(process, xt, t, torch.ones(1, 3)), r"y of shape \(1, 2\), got \(1, 3\)"),
        (lambda xt, t: bo.RatePosterior(process, xt, t, -ones), r"rates that are not negative, got -1\.0"),
        (lambda xt, t: ones.to("meta"), "a tensor on cpu, where xt is, got meta"),
        (lambda xt, t: ones.long(), r"a floating-point tensor, got torch\.int64"),
        (lambda xt, t: [1.0], "a floating-point tensor or a Posterior, got list"),
    ):
        with pytest.raises(ValueError, match=message):
            call(answer, process, xt, t)
