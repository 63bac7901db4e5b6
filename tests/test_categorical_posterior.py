"""CategoricalPosterior against brute force, and the sampler that draws X_0 from it. Pearson's test is at 1e-4."""

import math

import numpy
import pytest
import torch
from scipy.stats import binom

import blackout as bo
from blackout.posterior import ListedPosterior
from blackout.process.propagator import Exponential
from blackout.process.transitions import DenseTransitions
from blackout.random import Streams
from blackout.sampling import Step
from test_exact_posterior import death_matrix, series
from worlds import (
    LargestTensor,
    cube,
    draw,
    entropy,
    frequencies,
    grid,
    line,
    marginal,
    on_lattice,
    p_value,
    random_generator,
    sampler_probs,
    total_variation,
)

SIZE = 6
LINEAR = bo.Schedule.linear(0.5, 0.05)
PROCESSES = [
    bo.PureDeath(SIZE - 1),
    bo.BirthDeath(SIZE, birth=0.3, death=1.0, immigration=1.0),
    bo.FiniteState(random_generator(SIZE)),
    bo.FiniteState(random_generator(SIZE, seed=1), ordered=False),
    bo.Absorbing(SIZE),
    bo.Absorbing(SIZE, mask_state=2),
    bo.Uniform(SIZE),
    bo.DiscretizedGaussian(SIZE),
    bo.PureDeath(SIZE - 1, schedule=LINEAR),
    bo.BirthDeath(SIZE, immigration=0.5, schedule=LINEAR),
    bo.FiniteState(random_generator(SIZE), schedule=LINEAR),
    bo.Absorbing(SIZE, schedule=LINEAR),
]
CHAIN = bo.Chain(numpy.random.default_rng(0).dirichlet(numpy.ones(SIZE), SIZE))
EVERY = [*PROCESSES, CHAIN]
TIMES = (1e-6, 1e-3, 0.4, 2.0, 15.0)
SAMPLER = bo.PosteriorBridge()


def name(process):
    return repr(process) + ("" if process.schedule is None else "-schedule")


def clock(process, t):
    return 0.5 * t + 0.025 * t**2 if process.schedule is LINEAR else t


def brute_matrix(process, t):
    """P_t by the binomial distribution or by a series with positive terms, independent of the package."""
    tau = clock(process, t)
    if isinstance(process, bo.PureDeath):
        return death_matrix(process.num_states, tau)
    return series(process.generator.numpy(), tau)


def matrices(process, *times):
    return process.transition_matrices(torch.tensor([clock(process, t) for t in times], dtype=torch.float64))


def weights_of(*shape, seed=0, scale=3.0):
    """Unnormalised weights of SIZE states."""
    return torch.from_numpy(scale * numpy.random.default_rng(seed).dirichlet(numpy.ones(SIZE), shape))


def posterior_of(process, u, xt, t):
    times = torch.as_tensor(t, dtype=torch.float64).expand(len(xt))
    return bo.CategoricalPosterior(process, xt, times, u)


def every_pair():
    """All (x0, xt), shape (SIZE, SIZE) each: a batch of SIZE with SIZE components."""
    states = torch.arange(SIZE)
    return states.unsqueeze(-1).expand(SIZE, SIZE), states.expand(SIZE, SIZE)


def brute_rates(process, u, xt, t):
    """Σ_o p(o | xt) λ_r(o, xt, t), and p itself, one component after the other."""
    P = brute_matrix(process, t)
    shape = (*xt.shape, SIZE)
    each = process.reverse_rates(torch.arange(SIZE).expand(shape), xt.unsqueeze(-1).expand(shape), t).numpy()
    posterior = u.numpy() * numpy.moveaxis(P[:, xt.numpy()], 0, -1)
    posterior = posterior / posterior.sum(-1, keepdims=True)
    return (posterior[..., None] * each).sum(-2), posterior


@pytest.mark.parametrize("t", [0.0, 1e-12, *TIMES])
@pytest.mark.parametrize("process", PROCESSES, ids=name)
def test_transition_matrices_equal_brute_force(process, t):
    assert numpy.allclose(matrices(process, t)[0], brute_matrix(process, t), rtol=1e-9, atol=1e-300)


def test_transition_matrices_of_many_counts_and_of_a_chain():
    t, o = numpy.array([1e-6, 0.3, 15.0]), numpy.arange(256)
    dead, alive = (
        binom.pmf(o[:, None] - o, o[:, None], -numpy.expm1(-t[:2, None, None])),
        binom.pmf(o, o[:, None], numpy.exp(-15)),
    )
    result = bo.PureDeath(255).transition_matrices(torch.from_numpy(t))
    assert numpy.allclose(result, numpy.concatenate([dead, alive[None]]), rtol=1e-8, atol=1e-250)
    assert torch.equal(bo.PureDeath(255).transition_matrices(torch.tensor(15.0)), result[2:])
    for k, power in zip((0, 1, 7), CHAIN.transition_matrices(torch.tensor([0, 1, 7])), strict=True):
        assert numpy.allclose(power, numpy.linalg.matrix_power(CHAIN.transition.numpy(), k), rtol=1e-12)


def test_transition_matrix_of_a_repeated_time_is_computed_once(monkeypatch):
    computed, process = [], bo.FiniteState(random_generator(SIZE))
    plain = Exponential.matrices
    monkeypatch.setattr(Exponential, "matrices", lambda self, taus: computed.extend(taus.tolist()) or plain(self, taus))
    result = process.transition_matrices(torch.tensor([0.5, 0.2, 0.5, 0.5], dtype=torch.float64))
    assert computed == [0.2, 0.5]
    assert torch.equal(result[0], result[3])
    assert not torch.equal(result[0], result[1])
    assert process.transition_matrices(torch.zeros(0)).shape == (0, SIZE, SIZE)


@pytest.mark.parametrize("t", TIMES)
@pytest.mark.parametrize("process", PROCESSES, ids=name)
def test_probs_means_and_rates_equal_brute_force(process, t):
    u, (_, xt) = weights_of(SIZE, SIZE), every_pair()
    expected, probs = brute_rates(process, u, xt, t)
    posterior = posterior_of(process, u, xt, t)
    assert numpy.allclose(posterior.probs(), probs, rtol=1e-9, atol=0)
    assert numpy.allclose(posterior.rates(), expected, rtol=1e-9, atol=0)
    offsets = numpy.arange(SIZE) - xt.numpy()[..., None]
    difference, scale = (probs * offsets).sum(-1), (probs * numpy.abs(offsets)).sum(-1)
    assert bool((numpy.abs(posterior.difference().numpy() - difference) <= 1e-9 * scale).all())
    assert numpy.allclose(posterior.mean(), xt.numpy() + difference, rtol=1e-9, atol=0)


@pytest.mark.parametrize("t", TIMES)
@pytest.mark.parametrize("process", PROCESSES, ids=name)
def test_divergence_equals_brute_force(process, t):
    u, (x0, xt) = weights_of(SIZE, SIZE), every_pair()
    kappa, _ = brute_rates(process, u, xt, t)
    lamda = process.reverse_rates(x0, xt, t).numpy()
    with numpy.errstate(divide="ignore", invalid="ignore"):
        each = kappa - lamda + numpy.where(lamda > 0, lamda * numpy.log(lamda / kappa), 0.0)
    answer = posterior_of(process, u, xt, t).divergence(x0).numpy()
    assert answer.shape == (SIZE, SIZE)
    assert bool((numpy.abs(answer - each.sum(-1)) <= 1e-9 * (kappa + lamda).sum(-1)).all())


@pytest.mark.parametrize("process", PROCESSES, ids=name)
def test_each_sample_has_its_own_time_and_weights_need_not_be_normalised(process):
    u, x0, xt = (
        weights_of(3, 2, 2),
        torch.randint(SIZE, (3, 2, 2), generator=torch.manual_seed(0)),
        torch.zeros(3, 2, 2).long(),
    )
    t = torch.tensor([0.1, 0.7, 3.0], dtype=torch.float64)

    def values(posterior, x0):
        return posterior.probs(), posterior.rates(), posterior.difference(), posterior.divergence(x0)

    batch = values(posterior_of(process, u, xt, t), x0)
    for k in range(3):
        one = slice(k, k + 1)
        single = values(posterior_of(process, 7 * u[one], xt[one], t[k]), x0[one])
        assert all(torch.allclose(a[one], b, rtol=1e-9) for a, b in zip(batch, single, strict=True))


@pytest.mark.parametrize("process", [PROCESSES[k] for k in (0, 1, 3, 4, 8)], ids=name)
def test_gradients_equal_finite_differences(process):
    u, x0, xt = (0.2 + weights_of(3, 3)).requires_grad_(), *(x[::2, ::2] for x in every_pair())
    t = torch.linspace(0.05, 3.0, 3, dtype=torch.float64)
    P = process.transitions(process.clock_time(t))

    def posterior(v):
        return bo.CategoricalPosterior(process, xt, t, v, P)

    assert torch.autograd.gradcheck(lambda v: posterior(v).divergence(x0), u)
    assert torch.autograd.gradcheck(lambda v: posterior(v).rates(), u)
    assert torch.autograd.gradcheck(lambda v: posterior(v).probs(), u)


@pytest.mark.parametrize("process", [bo.PureDeath(255), bo.BirthDeath(64, immigration=2.0), bo.Uniform(64)], ids=name)
def test_weights_in_single_precision_lose_nothing_at_any_time(process):
    size = process.num_states
    t = torch.tensor([1e-6, 1e-4, 1e-2, 0.5, 3.0, 15.0], dtype=torch.float64)
    u = torch.softmax(4 * torch.randn(6, 40, size, dtype=torch.float64, generator=torch.manual_seed(0)), -1).float()
    x0 = torch.multinomial(u.flatten(0, 1), 1).reshape(6, 40)
    xt, P = process.sample(x0, t, torch.Generator().manual_seed(1)), process.transitions(t)
    gradients, values = [], []
    for weights in (u, u.double()):
        weights.requires_grad_()
        posterior = bo.CategoricalPosterior(process, xt, t, weights, P)
        value = posterior.divergence(x0)
        value.mean().backward()
        values.append((value.detach(), posterior.rates().detach(), posterior.probs().detach()))
        gradients.append(weights.grad)
    for single, double in zip(*values, strict=True):
        assert torch.allclose(single.double(), double, rtol=1e-5, atol=1e-30)
    assert torch.allclose(gradients[0].double(), gradients[1], rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("t", [3e-7, 0.1, 15.0])
@pytest.mark.parametrize("process", [bo.PureDeath(255), bo.BirthDeath(64, immigration=2.0), bo.Absorbing(64)], ids=name)
def test_gradients_of_extreme_weights_are_finite(process, t):
    size = process.num_states
    x0 = torch.tensor([[0, 0, size - 1, size - 1, size // 2]])
    xt = torch.tensor([[0, size - 1, 0, size - 1, size // 2 - 1]])
    for peak in (0, 5, size - 1):
        logits = torch.full((1, 5, size), -400.0)
        logits[..., peak] = 400.0
        posterior = posterior_of(process, torch.softmax(logits.requires_grad_(), -1), xt, t)
        value = posterior.divergence(x0)
        (value * t).sum().backward()
        assert bool(torch.isfinite(value).all() & torch.isfinite(logits.grad).all())
        assert bool(torch.isfinite(posterior.rates()).all())
        assert float(posterior.probs()[0, 0].sum().detach()) == pytest.approx(1.0)


def test_probs_are_those_of_flat_weights_where_weights_exclude_the_state():
    u, xt = torch.tensor([[[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]]), torch.tensor([[1, 2]])
    probs = posterior_of(bo.PureDeath(2), u, xt, 0.5).probs()
    p = math.exp(-0.5)
    expected = numpy.array([0, p, 2 * p * (1 - p)]) / (p + 2 * p * (1 - p))
    assert numpy.allclose(probs[0, 0], expected)
    assert probs[0, 1].tolist() == [0, 0, 1]
    unreachable = posterior_of(bo.Chain([[0.0, 1, 0]] * 3), u, torch.tensor([[0, 0]]), 1.0).probs()
    assert not unreachable.any()


@pytest.mark.parametrize("process", [bo.PureDeath(255), bo.DiscretizedGaussian(256)], ids=name)
def test_memory_is_that_of_the_weights_for_images_of_256_states(process):
    shape, t = (1, 3, 32, 32), torch.tensor([0.5], dtype=torch.float64)
    x0 = torch.randint(256, shape, generator=torch.manual_seed(0))
    xt = process.sample(x0, 0.5, torch.Generator().manual_seed(0))
    u = torch.full((*shape, 256), 1 / 256).requires_grad_()
    with LargestTensor() as largest:
        bo.CategoricalPosterior(process, xt, t, u).divergence(x0).sum().backward()
        posterior = bo.CategoricalPosterior(process, xt, t, u.detach())
        posterior.rates(), posterior.probs(), posterior.difference()
    assert largest.numel <= u.numel() // 256 * max(256, len(process.jumps) + 1)


def independent(process, u):
    """The denoiser of independent components with the distribution u."""
    return lambda xt, t: bo.CategoricalPosterior(process, xt, t, u.expand(*xt.shape, -1))


@pytest.mark.parametrize("process", [PROCESSES[k] for k in (0, 1, 3, 4, 8)], ids=name)
def test_evidence_bound_is_the_information_of_each_point(process):
    """The bound is tight for every x0 only where the rates are right at all times."""
    points, weights = line(SIZE - 1)
    denoise = independent(process, on_lattice(points, weights, SIZE))
    bound = bo.evidence_bound(denoise, process, points, num_times=256)
    assert torch.allclose(bound, -torch.log(weights), atol=1e-5)


def late_grid(process, steps):
    """Grids whose last time is late enough to be infinite."""
    if process is CHAIN:
        return bo.ObservationTimes.from_values({1: [60], 2: [7, 60], 5: [1, 2, 5, 16, 60]}[steps])
    tau = {1: [30.0], 2: [0.7, 30.0], 5: [1e-4, 0.2, 1.0, 4.0, 30.0]}[steps]
    times = process.real_time(torch.tensor(tau, dtype=torch.float64) / process.relaxation_rate)
    return bo.ObservationTimes.from_values(times)


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("process", EVERY, ids=name)
def test_posterior_bridge_is_exact_in_one_component(process, steps):
    points, weights = line(SIZE - 1)
    data, posterior = on_lattice(points, weights, SIZE), bo.ExactPosterior(process, points, weights)
    times = late_grid(process, steps)
    assert total_variation(sampler_probs(SAMPLER, posterior, process, times, 1), data) < 1e-9
    # The bound along a path is then the information of the point, for any path.
    bound = SAMPLER.bound(posterior, process, times, points, seed=steps)
    assert torch.allclose(bound, -torch.log(weights), atol=1e-9)


@pytest.mark.parametrize("process", EVERY, ids=name)
def test_samples_of_one_component_fit_the_data(process):
    points, weights = line(SIZE - 1)
    posterior = bo.ExactPosterior(process, points, weights)
    samples = SAMPLER.sample(posterior, process, late_grid(process, 2), (10_000, 1), seed=1)
    assert p_value(frequencies(samples, SIZE), on_lattice(points, weights, SIZE)) > 1e-4


@pytest.mark.parametrize("process", [bo.PureDeath(4), bo.BirthDeath(5, immigration=1.0), bo.Uniform(5)], ids=name)
def test_samples_of_several_components_fit_the_distribution_of_the_steps(process):
    posterior = bo.ExactPosterior(process, *cube(2))
    probs = sampler_probs(SAMPLER, posterior, process, grid(process, 6), 2)
    samples = SAMPLER.sample(posterior, process, grid(process, 6), (5000, 2), seed=2)
    assert p_value(frequencies(samples, 5), probs) > 1e-4


@pytest.mark.parametrize(
    "process", [bo.BirthDeath(5, birth=0.3, immigration=1.0), bo.Uniform(5), bo.Absorbing(6)], ids=name
)
def test_posterior_bridge_converges_at_first_order_in_several_components(process):
    points, weights = cube(2)
    posterior, data = bo.ExactPosterior(process, points, weights), on_lattice(points, weights, process.num_states)
    bias = [
        total_variation(sampler_probs(SAMPLER, posterior, process, grid(process, n), 2), data) for n in (10, 40, 160)
    ]
    assert bias == sorted(bias, reverse=True)
    assert 0.85 < math.log(bias[1] / bias[2], 4) < 1.1


def test_posterior_bridge_is_nearer_to_the_data_than_samplers_that_use_means():
    """The rows of docs/samplers.md."""
    process, (points, weights) = bo.PureDeath(4), cube()
    posterior, steps = bo.ExactPosterior(process, points, weights), (10, 20, 40, 80, 160)

    def bias(sampler):
        found = (sampler_probs(sampler, posterior, process, grid(process, n), 3) for n in steps)
        return [total_variation(probs, weights) for probs in found]

    ours = bias(SAMPLER)
    assert ours == sorted(ours, reverse=True)
    assert numpy.allclose(ours, [0.178, 0.108, 0.0568, 0.0294, 0.0150], rtol=0.01)
    for other in (bo.BinomialBridge(), bo.TauLeaping()):
        assert all(a < 0.65 * b for a, b in zip(ours, bias(other), strict=True))


def test_few_steps_keep_two_distant_modes():
    """Data on {2, 18}: a bridge that uses means is far off with ten steps."""
    process, points = bo.PureDeath(20), torch.tensor([[2], [18]])
    posterior, times = bo.ExactPosterior(process, points), bo.ObservationTimes.fisher(10)
    data = on_lattice(points, torch.tensor([0.5, 0.5], dtype=torch.float64), 21)
    assert total_variation(sampler_probs(SAMPLER, posterior, process, times, 1), data) < 1e-5
    assert total_variation(sampler_probs(bo.BinomialBridge(), posterior, process, times, 1), data) > 0.3


def test_bound_of_steps_is_finite_and_decreases_to_the_entropy():
    points, weights = cube(2)
    for process in (bo.PureDeath(4), bo.Uniform(5), bo.Absorbing(6)):
        posterior, x0 = bo.ExactPosterior(process, points, weights), draw(points, weights, 1000)
        bounds = [SAMPLER.bound(posterior, process, grid(process, n), x0) for n in (3, 12, 48)]
        assert all(bool(torch.isfinite(bound).all()) for bound in bounds)
        few, more, many = (float(bound.mean()) for bound in bounds)
        # The mean information of the drawn x0 differs from the entropy by its noise, which is subtracted.
        places = torch.tensor([5, 1])
        noise = float(-torch.log(weights[(x0 * places).sum(-1)]).mean()) - entropy(weights)
        assert few - noise > more - noise > many - noise > entropy(weights)
        assert many - noise < entropy(weights) + 0.1


@pytest.mark.parametrize(
    ("sampler", "process"),
    [
        (SAMPLER, bo.PureDeath(4)),
        (SAMPLER, bo.BirthDeath(5, immigration=1.0)),
        (bo.PosteriorBridge(corrector_steps=1), bo.Uniform(5)),
    ],
    ids=["pure-death", "birth-death", "corrected"],
)
def test_sample_depends_on_seed_and_index_alone(sampler, process):
    posterior = bo.ExactPosterior(process, *cube())

    def sample(size, seed=7, **options):
        return sampler.sample(posterior, process, grid(process, 4), (size, 3), seed=seed, **options)

    samples = sample(15)
    assert torch.equal(samples, sample(15, batch_size=1))
    assert torch.equal(samples, sample(15, batch_size=7))
    assert torch.equal(samples[10:], sample(5, start_index=10))
    assert not torch.equal(samples, sample(15, seed=8))


def test_samples_may_have_any_shape_and_trajectories_end_in_the_sample():
    process = bo.PureDeath(SIZE - 1)
    denoise, times = independent(process, weights_of()), bo.ObservationTimes.fisher(4)
    for shape in ((0, 3), (3, 0), (4,), (2, 1, 2, 2)):
        assert SAMPLER.sample(denoise, process, times, shape).shape == shape
    path = SAMPLER.sample(denoise, process, times, (50, 3), trajectory=True)
    assert path.dtype == torch.int64
    assert bool((path.diff(dim=0) >= 0).all())
    assert torch.equal(path[-1], SAMPLER.sample(denoise, process, times, (50, 3)))


def listed(process, probs_of):
    """A denoiser that answers with given probabilities."""
    return lambda xt, t: ListedPosterior(process, xt, t, probs_of(xt))


def test_states_that_do_not_lead_to_xt_are_never_sampled():
    process, times = bo.PureDeath(4), bo.ObservationTimes.fisher(6)
    one_hot = torch.nn.functional.one_hot
    low = listed(process, lambda xt: one_hot(torch.zeros_like(xt), 5).double() * 0.999 + 0.0002)
    path = SAMPLER.sample(low, process, times, (500, 2), trajectory=True)
    assert bool((path.diff(dim=0) >= 0).all())
    impossible = listed(process, lambda xt: one_hot((xt - 1).clamp(min=0), 5).double())
    xt, (s, t) = torch.full((3000, 1), 2), torch.tensor([0.5, 1.0], dtype=torch.float64)
    at = Step.of(impossible, process, s, t)
    steps = SAMPLER.step_log_prob(at, torch.arange(5).unsqueeze(-1), torch.full((5, 1), 2))
    flat = torch.stack(
        [
            process.bridge_log_prob(torch.arange(5), torch.full((5,), o), torch.full((5,), 2), s, t).exp()
            for o in (2, 3, 4)
        ]
    )
    assert torch.allclose(steps.exp().squeeze(-1), flat.mean(0))
    samples = SAMPLER.step(at, xt, Streams(0, 3000))
    assert p_value(frequencies(samples, 5), flat.mean(0)) > 1e-4
    with pytest.raises(ValueError, match="xt=0 cannot be reached from any state"):
        SAMPLER.step(Step.of(impossible, bo.Chain([[0.0, 1, 0, 0, 0]] * 5), 0 * s, t), 0 * xt, Streams(0, 3000))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda xt: torch.ones(*xt.shape, 5), r"probabilities that sum to 1 over the last dimension, got 5\.0"),
        (lambda xt: torch.full((*xt.shape, 5), 0.2005), "sum to 1"),
        (lambda xt: torch.full((*xt.shape, 4), 0.25), r"probabilities of shape \(2, 3, 5\), got \(2, 3, 4\)"),
        (lambda xt: torch.tensor([1.5, -0.5, 0, 0, 0]).expand(2, 3, 5), r"that are not negative, got -0\.5"),
        (lambda xt: torch.full((*xt.shape, 5), math.nan), "finite"),
        (lambda xt: torch.ones(*xt.shape, 5).long(), "floating-point"),
    ],
)
def test_invalid_probabilities_are_rejected(answer, message):
    process = bo.PureDeath(4)
    with pytest.raises(ValueError, match=message):
        SAMPLER.sample(listed(process, answer), process, bo.ObservationTimes.fisher(3), (2, 3))


def test_invalid_weights_are_rejected():
    process, times = bo.PureDeath(4), bo.ObservationTimes.fisher(3)
    for u, message in (
        (torch.tensor([1.5, -0.5, 0, 0, 0]), r"probabilities that are not negative, got -0\.5"),
        (torch.tensor([math.inf, 0, 0, 0, 0]), "finite numbers, got inf"),
    ):
        with pytest.raises(ValueError, match=message):
            SAMPLER.sample(independent(process, u), process, times, (2, 3))


def test_invalid_arguments_are_rejected():
    times, u, xt = bo.ObservationTimes.fisher(3), weights_of(2, 3), torch.zeros(2, 3).long()
    with pytest.raises(ValueError, match="MeanPosterior does not know the distribution of X_0"):
        SAMPLER.sample(lambda xt, t: torch.zeros(xt.shape), bo.PureDeath(4), times, (2, 3))
    with pytest.raises(ValueError, match="process must have finitely many states"):
        SAMPLER.sample(None, bo.PureDeath(), times, (2, 3))
    with pytest.raises(ValueError, match="corrector_steps must be 0 for a chain"):
        bo.PosteriorBridge(corrector_steps=1).check(CHAIN)
    with pytest.raises(ValueError, match="must be an integer number of steps"):
        SAMPLER.sample(independent(CHAIN, weights_of()), CHAIN, times, (2, 3))
    with pytest.raises(ValueError, match="finitely many states"):
        bo.PureDeath().transition_matrices(torch.ones(1))
    P, t = DenseTransitions(matrices(bo.PureDeath(SIZE - 1), 1.0)), torch.ones(2, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"u must have shape \(\*\(2, 3\), S\), got \(2, 4, 6\)"):
        bo.CategoricalPosterior(bo.PureDeath(SIZE - 1), xt, t, weights_of(2, 4), P)
    with pytest.raises(ValueError, match="transitions must be of 6 states at 2 times, or at one, got 6 states at 3"):
        bo.CategoricalPosterior(bo.PureDeath(SIZE - 1), xt, t, u, DenseTransitions(P.matrices.expand(3, -1, -1)))
    with pytest.raises(ValueError, match="continuous time"):
        bo.CategoricalPosterior(CHAIN, xt, t, u, P).rates()


@pytest.mark.parametrize("process", EVERY, ids=name)
def test_weights_of_the_data_give_the_exact_posterior_of_one_component(process):
    points, weights = line(SIZE - 1)
    u, xt = on_lattice(points, weights, SIZE).expand(SIZE, 1, SIZE), torch.arange(SIZE).unsqueeze(-1)
    t = 3.0 if process is CHAIN else 0.6
    possible = marginal(process, points, weights, t) > 0
    probs, exact = posterior_of(process, u, xt, t).probs(), bo.ExactPosterior(process, points, weights)(xt, t).probs()
    assert torch.allclose(probs[possible], exact[possible], rtol=1e-9)


@pytest.mark.parametrize(("s", "k"), [(0, 1), (1, 2), (4, 5), (0, 3), (2, 5)])
def test_divergence_of_a_chain_is_that_of_the_step_back(s, k):
    """KL between the two distributions of X_s given X_k, by Bayes' rule for each state."""
    generator = torch.Generator().manual_seed(3)
    matrix = torch.rand(4, 4, dtype=torch.float64, generator=generator)
    matrix /= matrix.sum(1, keepdim=True)
    chain, u = bo.Chain(matrix), torch.rand(6, 1, 4, dtype=torch.float64, generator=generator)
    x0, xt = (torch.randint(0, 4, (6, 1), generator=generator) for _ in range(2))
    early, step, late = (torch.linalg.matrix_power(matrix, n) for n in (s, k - s, k))
    times = torch.full((6,), float(k), dtype=torch.float64)
    posterior = bo.CategoricalPosterior(chain, xt, times, u)
    found = posterior.divergence(x0, times - (k - s))
    if s == k - 1:
        assert torch.equal(found, posterior.divergence(x0))
    for row, (start, end) in enumerate(zip(x0.flatten(), xt.flatten(), strict=True)):
        q = early[start] * step[:, end] / late[start, end]
        p = (u[row, 0] @ early) * step[:, end] / (u[row, 0] @ late)[end]
        expected = torch.xlogy(q, torch.where(q > 0, q / p, 1.0)).sum()
        torch.testing.assert_close(found[row, 0], expected, rtol=1e-9, atol=1e-12)
