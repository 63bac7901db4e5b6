"""Laws over X_0 against brute force, and the sampler that draws from them. Fits are by Pearson's test at 1e-4."""

import math

import numpy
import pytest
import torch
from scipy.stats import binom
from torch.utils._python_dispatch import TorchDispatchMode

import blackout as bo
from blackout.law import LawDenoiser, chain_divergence, law_divergence, law_rates, posterior_law, transitions
from blackout.process.propagator import Exponential
from blackout.streams import Streams
from test_posterior import death_matrix, series
from worlds import (
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
    sampler_law,
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
WORLD = [*PROCESSES, CHAIN]
TIMES = (1e-6, 1e-3, 0.4, 2.0, 15.0)
SAMPLER = bo.PosteriorBridge()


def name(process):
    return repr(process) + ("" if process.schedule is None else "-schedule")


def clock(process, t):
    return 0.5 * t + 0.025 * t**2 if process.schedule is LINEAR else t


def brute_matrix(process, t):
    """P_t by the binomial law or by a series with positive terms: nothing of ours."""
    tau = clock(process, t)
    if isinstance(process, bo.PureDeath):
        return death_matrix(process.num_states, tau)
    return series(process.generator.numpy(), tau)


def matrices(process, *times):
    return transitions(process, torch.tensor([clock(process, t) for t in times], dtype=torch.float64))


def laws(*shape, seed=0, scale=3.0):
    """Unnormalised laws over SIZE states."""
    return torch.from_numpy(scale * numpy.random.default_rng(seed).dirichlet(numpy.ones(SIZE), shape))


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
def test_transitions_are_those_of_brute_force(process, t):
    assert numpy.allclose(matrices(process, t)[0], brute_matrix(process, t), rtol=1e-9, atol=1e-300)


def test_transitions_of_many_counts_are_binomial_and_of_a_chain_powers():
    t, o = numpy.array([1e-6, 0.3, 15.0]), numpy.arange(256)
    dead, lit = (
        binom.pmf(o[:, None] - o, o[:, None], -numpy.expm1(-t[:2, None, None])),
        binom.pmf(o, o[:, None], numpy.exp(-15)),
    )
    result = transitions(bo.PureDeath(255), torch.from_numpy(t))
    assert numpy.allclose(result, numpy.concatenate([dead, lit[None]]), rtol=1e-8, atol=1e-250)
    assert torch.equal(transitions(bo.PureDeath(255), torch.tensor(15.0)), result[2:])
    for k, power in zip((0, 1, 7), transitions(CHAIN, torch.tensor([0, 1, 7])), strict=True):
        assert numpy.allclose(power, numpy.linalg.matrix_power(CHAIN.transition.numpy(), k), rtol=1e-12)


def test_a_time_that_comes_twice_is_worked_out_once(monkeypatch):
    asked, process = [], bo.FiniteState(random_generator(SIZE))
    plain = Exponential.matrices
    monkeypatch.setattr(Exponential, "matrices", lambda self, taus: asked.extend(taus.tolist()) or plain(self, taus))
    result = transitions(process, torch.tensor([0.5, 0.2, 0.5, 0.5], dtype=torch.float64))
    assert asked == [0.2, 0.5]
    assert torch.equal(result[0], result[3])
    assert not torch.equal(result[0], result[1])
    assert transitions(process, torch.zeros(0)).shape == (0, SIZE, SIZE)


@pytest.mark.parametrize("t", TIMES)
@pytest.mark.parametrize("process", PROCESSES, ids=name)
def test_posterior_and_rates_are_those_of_brute_force(process, t):
    u, (_, xt) = laws(SIZE, SIZE), every_pair()
    expected, posterior = brute_rates(process, u, xt, t)
    P = matrices(process, t)
    assert numpy.allclose(posterior_law(u, xt, P), posterior, rtol=1e-9, atol=0)
    answer = law_rates(process, u, xt, P, t)
    if isinstance(process, bo.PureDeath):
        y = (posterior * numpy.maximum(numpy.arange(SIZE) - xt.numpy()[..., None], 0)).sum(-1)
        assert numpy.allclose(answer, y, rtol=1e-9, atol=0)
        answer = process.rates_from(answer, xt, torch.tensor(t, dtype=torch.float64))
    assert numpy.allclose(answer, expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize("t", TIMES)
@pytest.mark.parametrize("process", PROCESSES, ids=name)
def test_divergence_is_that_of_brute_force(process, t):
    u, (x0, xt) = laws(SIZE, SIZE), every_pair()
    kappa, _ = brute_rates(process, u, xt, t)
    lamda = process.reverse_rates(x0, xt, t).numpy()
    with numpy.errstate(divide="ignore", invalid="ignore"):
        each = kappa - lamda + numpy.where(lamda > 0, lamda * numpy.log(lamda / kappa), 0.0)
    answer = law_divergence(process, u, x0, xt, matrices(process, t), t).numpy()
    assert answer.shape == (SIZE, SIZE)
    assert bool((numpy.abs(answer - each.sum(-1)) <= 1e-9 * (kappa + lamda).sum(-1)).all())


@pytest.mark.parametrize("process", PROCESSES, ids=name)
def test_each_sample_has_its_own_time_and_the_law_need_not_be_normalised(process):
    u, x0, xt = (
        laws(3, 2, 2),
        torch.randint(SIZE, (3, 2, 2), generator=torch.manual_seed(0)),
        torch.zeros(3, 2, 2).long(),
    )
    t = torch.tensor([0.1, 0.7, 3.0], dtype=torch.float64)
    P = transitions(process, process.clock_time(t))
    whole = posterior_law(u, xt, P), law_rates(process, u, xt, P, t), law_divergence(process, u, x0, xt, P, t)
    for k in range(3):
        one, part = (slice(k, k + 1),), matrices(process, float(t[k]))
        some = (
            posterior_law(7 * u[one], xt[one], part),
            law_rates(process, 7 * u[one], xt[one], part, t[k]),
            law_divergence(process, 7 * u[one], x0[one], xt[one], part, t[k]),
        )
        assert all(torch.allclose(a[one], b, rtol=1e-9) for a, b in zip(whole, some, strict=True))


@pytest.mark.parametrize("process", [PROCESSES[k] for k in (0, 1, 3, 4, 8)], ids=name)
def test_gradients_are_those_of_finite_differences(process):
    u, x0, xt = (0.2 + laws(3, 3)).requires_grad_(), *(x[::2, ::2] for x in every_pair())
    t = torch.linspace(0.05, 3.0, 3, dtype=torch.float64)
    P = transitions(process, process.clock_time(t))
    assert torch.autograd.gradcheck(lambda v: law_divergence(process, v, x0, xt, P, t), u)
    assert torch.autograd.gradcheck(lambda v: law_rates(process, v, xt, P, t), u)
    assert torch.autograd.gradcheck(lambda v: posterior_law(v, xt, P), u)


@pytest.mark.parametrize("process", [bo.PureDeath(255), bo.BirthDeath(64, immigration=2.0), bo.Uniform(64)], ids=name)
def test_single_precision_is_as_good_at_every_time(process):
    size = process.num_states
    t = torch.tensor([1e-6, 1e-4, 1e-2, 0.5, 3.0, 15.0], dtype=torch.float64)
    u = torch.softmax(4 * torch.randn(6, 40, size, dtype=torch.float64, generator=torch.manual_seed(0)), -1).float()
    x0 = torch.multinomial(u.flatten(0, 1), 1).reshape(6, 40)
    xt, P = process.sample(x0, t, torch.Generator().manual_seed(1)), transitions(process, t)
    gradients, values = [], []
    for law in (u, u.double()):
        law.requires_grad_()
        value = law_divergence(process, law, x0, xt, P, t)
        value.mean().backward()
        values.append((value.detach(), law_rates(process, law, xt, P, t).detach(), posterior_law(law, xt, P).detach()))
        gradients.append(law.grad)
    assert values[0][2].dtype == torch.float32
    for single, double in zip(*values, strict=True):
        assert torch.allclose(single.double(), double, rtol=1e-5, atol=1e-30)
    assert torch.allclose(gradients[0].double(), gradients[1], rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("t", [3e-7, 0.1, 15.0])
@pytest.mark.parametrize("process", [bo.PureDeath(255), bo.BirthDeath(64, immigration=2.0), bo.Absorbing(64)], ids=name)
def test_a_network_that_is_wrong_beyond_double_precision_gets_finite_gradients(process, t):
    size = process.num_states
    x0 = torch.tensor([[0, 0, size - 1, size - 1, size // 2]])
    xt = torch.tensor([[0, size - 1, 0, size - 1, size // 2 - 1]])
    P = transitions(process, torch.tensor([t]))
    for peak in (0, 5, size - 1):
        logits = torch.full((1, 5, size), -400.0)
        logits[..., peak] = 400.0
        u = torch.softmax(logits.requires_grad_(), -1)
        value = law_divergence(process, u, x0, xt, P, t)
        (value * t).sum().backward()
        assert bool(torch.isfinite(value).all() & torch.isfinite(logits.grad).all())
        assert bool(torch.isfinite(law_rates(process, u, xt, P, t)).all())
        assert torch.allclose(posterior_law(u, xt, P)[0, 0].sum(), torch.tensor(1.0))


def test_where_the_law_and_the_state_exclude_each_other_the_law_is_flat():
    u, xt = torch.tensor([[[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]]), torch.tensor([[1, 2]])
    posterior = posterior_law(u, xt, transitions(bo.PureDeath(2), torch.tensor([0.5])))
    p = math.exp(-0.5)
    expected = numpy.array([0, p, 2 * p * (1 - p)]) / (p + 2 * p * (1 - p))
    assert numpy.allclose(posterior[0, 0], expected)
    assert posterior[0, 1].tolist() == [0, 0, 1]
    nowhere = posterior_law(u, torch.tensor([[0, 0]]), transitions(bo.Chain([[0.0, 1, 0]] * 3), torch.tensor([1])))
    assert not nowhere.any()


class Largest(TorchDispatchMode):
    """The largest tensor that any operation makes."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.numel = max(
            [self.numel, *(v.numel() for v in (out if isinstance(out, tuple) else (out,)) if hasattr(v, "numel"))]
        )
        return out


@pytest.mark.parametrize("process", [bo.PureDeath(255), bo.DiscretizedGaussian(256)], ids=name)
def test_memory_is_that_of_the_law_at_256_states_of_an_image(process):
    shape, t = (1, 3, 32, 32), torch.tensor([0.5])
    x0 = torch.randint(256, shape, generator=torch.manual_seed(0))
    xt = process.sample(x0, 0.5, torch.Generator().manual_seed(0))
    u = torch.full((*shape, 256), 1 / 256).requires_grad_()
    with Largest() as most:
        P = transitions(process, t)
        law_divergence(process, u, x0, xt, P, t).sum().backward()
        law_rates(process, u.detach(), xt, P, t)
        posterior_law(u.detach(), xt, P)
    assert most.numel <= u.numel() // 256 * max(256, len(process.jumps) + 1)


class Known:
    """Independent components of one known law u: a denoiser by `posterior_law` and `law_rates`."""

    def __init__(self, process, u):
        self.process, self.u = process, u

    def law(self, xt, t):
        return posterior_law(*self._ready(xt, t))

    def __call__(self, xt, t):
        return law_rates(self.process, *self._ready(xt, t), t)

    def _ready(self, xt, t):
        return self.u.expand(*xt.shape, -1), xt, transitions(self.process, self.process.clock_time(t))


@pytest.mark.parametrize("process", [PROCESSES[k] for k in (0, 1, 3, 4, 8)], ids=name)
def test_the_evidence_bound_of_a_law_is_the_information_of_each_point(process):
    """All of the parametrisation at once: the bound is met for every x0 only where the rates are right at all times."""
    points, weights = line(SIZE - 1)
    law = on_lattice(points, weights, SIZE)
    bound = bo.evidence_bound(Known(process, law), process, points, num_times=256)
    assert torch.allclose(bound, -torch.log(weights), atol=1e-5)


def ends(process, steps):
    """Grids whose last time is as good as infinity."""
    if process is CHAIN:
        return bo.ObservationTimes.from_values({1: [60], 2: [7, 60], 5: [1, 2, 5, 16, 60]}[steps])
    tau = {1: [30.0], 2: [0.7, 30.0], 5: [1e-4, 0.2, 1.0, 4.0, 30.0]}[steps]
    times = process.real_time(torch.tensor(tau, dtype=torch.float64) / process.relaxation_rate)
    return bo.ObservationTimes.from_values(times)


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("process", WORLD, ids=name)
def test_in_one_component_any_number_of_steps_is_exact(process, steps):
    points, weights = line(SIZE - 1)
    data, posterior = on_lattice(points, weights, SIZE), bo.ExactPosterior(process, points, weights)
    assert total_variation(sampler_law(SAMPLER, posterior, process, ends(process, steps), 1), data) < 1e-9
    # The bound along a path is then the information of the point, whatever the path.
    bound = SAMPLER.bound(posterior, process, ends(process, steps), points, seed=steps)
    assert torch.allclose(bound, -torch.log(weights), atol=1e-9)


@pytest.mark.parametrize("process", WORLD, ids=name)
def test_draws_in_one_component_follow_the_law_of_the_data(process):
    points, weights = line(SIZE - 1)
    posterior = bo.ExactPosterior(process, points, weights)
    samples = SAMPLER.sample(posterior, process, ends(process, 2), (10_000, 1), seed=1)
    assert p_value(frequencies(samples, SIZE), on_lattice(points, weights, SIZE)) > 1e-4


@pytest.mark.parametrize("process", [bo.PureDeath(4), bo.BirthDeath(5, immigration=1.0), bo.Uniform(5)], ids=name)
def test_draws_of_several_components_follow_the_law_of_the_steps(process):
    posterior = bo.ExactPosterior(process, *cube(2))
    law = sampler_law(SAMPLER, posterior, process, grid(process, 6), 2)
    samples = SAMPLER.sample(posterior, process, grid(process, 6), (5000, 2), seed=2)
    assert p_value(frequencies(samples, 5), law) > 1e-4


@pytest.mark.parametrize(
    "process", [bo.BirthDeath(5, birth=0.3, immigration=1.0), bo.Uniform(5), bo.Absorbing(6)], ids=name
)
def test_the_law_of_several_components_converges_at_first_order(process):
    points, weights = cube(2)
    posterior, data = bo.ExactPosterior(process, points, weights), on_lattice(points, weights, process.num_states)
    bias = [total_variation(sampler_law(SAMPLER, posterior, process, grid(process, n), 2), data) for n in (10, 40, 160)]
    assert bias == sorted(bias, reverse=True)
    assert 0.85 < math.log(bias[1] / bias[2], 4) < 1.1


def test_under_pure_death_it_is_nearer_to_the_data_than_samplers_that_know_a_mean():
    """The rows of docs/samplers.md."""
    process, (points, weights) = bo.PureDeath(4), cube()
    posterior = bo.ExactPosterior(process, points, weights)
    bias = {
        sampler: [
            total_variation(sampler_law(sampler, posterior, process, grid(process, n), 3), weights) for n in steps
        ]
        for steps in [(10, 20, 40, 80, 160)]
        for sampler in (SAMPLER, bo.BinomialBridge(), bo.TauLeaping())
    }
    ours, *others = bias.values()
    assert ours == sorted(ours, reverse=True)
    assert all(a < 0.65 * b for other in others for a, b in zip(ours, other, strict=True))
    assert numpy.allclose(ours, [0.178, 0.108, 0.0568, 0.0294, 0.0150], rtol=0.01)


def test_two_modes_far_apart_are_kept_in_few_steps():
    """The bimodal law on {2, 18}: a bridge that knows a mean is far off at ten steps."""
    process, points = bo.PureDeath(20), torch.tensor([[2], [18]])
    posterior, times = bo.ExactPosterior(process, points), bo.ObservationTimes.fisher(10)
    data = on_lattice(points, torch.tensor([0.5, 0.5], dtype=torch.float64), 21)
    assert total_variation(sampler_law(SAMPLER, posterior, process, times, 1), data) < 1e-5
    assert total_variation(sampler_law(bo.BinomialBridge(), posterior, process, times, 1), data) > 0.3


def test_the_bound_of_steps_is_finite_and_falls_to_the_entropy():
    points, weights = cube(2)
    for process in (bo.PureDeath(4), bo.Uniform(5), bo.Absorbing(6)):
        posterior, x0 = bo.ExactPosterior(process, points, weights), draw(points, weights, 1000)
        bounds = [SAMPLER.bound(posterior, process, grid(process, n), x0) for n in (3, 12, 48)]
        assert all(bool(torch.isfinite(bound).all()) for bound in bounds)
        few, more, many = (float(bound.mean()) for bound in bounds)
        # The draw of x0 itself has an information that differs from the entropy by its noise: it is taken out.
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
def test_a_sample_depends_on_the_seed_and_its_number_alone(sampler, process):
    posterior = bo.ExactPosterior(process, *cube())

    def sample(size, seed=7, **options):
        return sampler.sample(posterior, process, grid(process, 4), (size, 3), seed=seed, **options)

    whole = sample(15)
    assert torch.equal(whole, sample(15, batch_size=1))
    assert torch.equal(whole, sample(15, batch_size=7))
    assert torch.equal(whole[10:], sample(5, start_index=10))
    assert not torch.equal(whole, sample(15, seed=8))


def test_samples_may_have_any_shape_and_walks_end_on_the_sample():
    process = bo.PureDeath(SIZE - 1)
    denoise, times = Known(process, laws()), bo.ObservationTimes.fisher(4)
    for shape in ((0, 3), (3, 0), (4,), (2, 1, 2, 2)):
        assert SAMPLER.sample(denoise, process, times, shape).shape == shape
    walk = SAMPLER.sample(denoise, process, times, (50, 3), trajectory=True)
    assert walk.dtype == torch.int64
    assert bool((walk.diff(dim=0) >= 0).all())
    assert torch.equal(walk[-1], SAMPLER.sample(denoise, process, times, (50, 3)))


class Says:
    """Whatever it is told to."""

    def __init__(self, answer):
        self.answer = answer

    def law(self, xt, t):
        return self.answer(xt)

    def __call__(self, xt, t):
        raise AssertionError("the sampler asks for a law")


def test_a_state_that_does_not_lead_here_is_never_drawn():
    process, times = bo.PureDeath(4), bo.ObservationTimes.fisher(6)
    low = Says(lambda xt: torch.nn.functional.one_hot(torch.zeros_like(xt), 5).float() * 0.999 + 0.0002)
    walk = SAMPLER.sample(low, process, times, (500, 2), trajectory=True)
    assert bool((walk.diff(dim=0) >= 0).all())
    never = Says(lambda xt: torch.nn.functional.one_hot((xt - 1).clamp(min=0), 5).double())
    xt, (s, t) = torch.full((3000, 1), 2), torch.tensor([0.5, 1.0], dtype=torch.float64)
    steps = SAMPLER.step_log_prob(never, process, torch.arange(5).unsqueeze(-1), torch.full((5, 1), 2), s, t)
    flat = torch.stack(
        [
            process.bridge_log_prob(torch.arange(5), torch.full((5,), o), torch.full((5,), 2), s, t).exp()
            for o in (2, 3, 4)
        ]
    )
    assert torch.allclose(steps.exp().squeeze(-1), flat.mean(0))
    drawn = SAMPLER.step(never, process, xt, s, t, Streams(0, 3000))
    assert p_value(frequencies(drawn, 5), flat.mean(0)) > 1e-4
    with pytest.raises(ValueError, match="xt=0 cannot be reached from any state"):
        SAMPLER.step(low, bo.Chain([[0.0, 1, 0, 0, 0]] * 5), 0 * xt, 0 * s, t, Streams(0, 3000))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda xt: torch.ones(*xt.shape, 5), "denoise.law must sum to 1 over the last dimension, got 5.0"),
        (lambda xt: torch.full((*xt.shape, 5), 0.2005), "sum to 1"),
        (lambda xt: torch.full((*xt.shape, 4), 0.25), r"denoise.law must return shape \(2, 3, 5\), got \(2, 3, 4\)"),
        (lambda xt: torch.tensor([1.5, -0.5, 0, 0, 0]).expand(2, 3, 5), "denoise.law must not be negative, got -0.5"),
        (lambda xt: torch.full((*xt.shape, 5), math.nan), "finite"),
        (lambda xt: torch.ones(*xt.shape, 5).long(), "floating-point"),
        (lambda xt: None, "floating-point"),
    ],
)
def test_bad_answers_are_refused(answer, message):
    with pytest.raises(ValueError, match=message):
        SAMPLER.sample(Says(answer), bo.PureDeath(4), bo.ObservationTimes.fisher(3), (2, 3))


def test_bad_arguments_are_refused():
    times, u, xt = bo.ObservationTimes.fisher(3), laws(2, 3), torch.zeros(2, 3).long()
    with pytest.raises(ValueError, match=r"denoise must have a method law\(xt, t\) .* got function without one"):
        SAMPLER.sample(lambda xt, t: torch.zeros(xt.shape), bo.PureDeath(4), times, (2, 3))
    with pytest.raises(ValueError, match="process must have finitely many states"):
        SAMPLER.sample(Says(None), bo.PureDeath(), times, (2, 3))
    with pytest.raises(ValueError, match="corrector_steps must be 0 for a chain"):
        bo.PosteriorBridge(corrector_steps=1).check(CHAIN)
    with pytest.raises(ValueError, match="must be a whole number of steps"):
        SAMPLER.sample(Known(CHAIN, laws()), CHAIN, times, (2, 3))
    with pytest.raises(ValueError, match="finitely many states"):
        transitions(bo.PureDeath(), torch.ones(1))
    P = matrices(bo.PureDeath(SIZE - 1), 1.0)
    with pytest.raises(ValueError, match=r"u must have shape \(\*\(2, 3\), S\), got \(2, 4, 6\)"):
        posterior_law(laws(2, 4), xt, P)
    with pytest.raises(ValueError, match=r"matrices must have shape \(2, 6, 6\) or \(1, 6, 6\), got \(3, 6, 6\)"):
        law_rates(bo.PureDeath(SIZE - 1), u, xt, P.expand(3, -1, -1), 1.0)
    with pytest.raises(ValueError, match="continuous time"):
        law_divergence(CHAIN, u, xt, xt, P, 1.0)


def test_the_exact_posterior_is_a_law_denoiser():
    process, points = bo.PureDeath(8), torch.tensor([[1, 4], [3, 3]])
    posterior = bo.ExactPosterior(process, points, [0.25, 0.75])
    assert isinstance(posterior, LawDenoiser)
    law = posterior.law(torch.tensor([[0, 3], [3, 4]]), 0.5)
    joint = numpy.array(
        [
            0.25 * binom.pmf(0, 1, math.exp(-0.5)) * binom.pmf(3, 4, math.exp(-0.5)),
            0.75 * binom.pmf(0, 3, math.exp(-0.5)) * math.exp(-1.5),
        ]
    )
    joint /= joint.sum()
    expected = numpy.zeros((2, 9))
    expected[0, [1, 3]], expected[1, [4, 3]] = joint, joint
    assert numpy.allclose(law[0], expected)
    assert posterior.law(points[:0], 0.5).shape == (0, 2, 9)
    # No point leads to (3, 4): both components stay.
    assert torch.equal(law[1], torch.nn.functional.one_hot(torch.tensor([3, 4]), 9).double())
    with pytest.raises(ValueError, match="finitely many states"):
        bo.ExactPosterior(bo.PureDeath(), points).law(points, 0.5)


@pytest.mark.parametrize("process", WORLD, ids=name)
def test_with_the_marginal_law_of_the_data_one_component_is_exact(process):
    points, weights = line(SIZE - 1)
    u, xt = on_lattice(points, weights, SIZE).expand(SIZE, 1, SIZE), torch.arange(SIZE).unsqueeze(-1)
    t = 3.0 if process is CHAIN else 0.6
    possible = marginal(process, points, weights, t) > 0
    law = posterior_law(u, xt, transitions(process, process.clock_time(torch.tensor([t], dtype=torch.float64))))
    assert torch.allclose(law[possible], bo.ExactPosterior(process, points, weights).law(xt, t)[possible], rtol=1e-9)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_divergence_of_a_chain_is_that_of_its_laws_of_one_step_back(k: int) -> None:
    """Against Bayes' rule, state by state."""
    generator = torch.Generator().manual_seed(3)
    steps = torch.rand(4, 4, dtype=torch.float64, generator=generator)
    steps /= steps.sum(1, keepdim=True)
    chain, u = bo.Chain(steps), torch.rand(6, 4, dtype=torch.float64, generator=generator)
    x0, xt = (torch.randint(0, 4, (6,), generator=generator) for _ in range(2))
    early, late = torch.linalg.matrix_power(steps, k - 1), torch.linalg.matrix_power(steps, k)
    for row in range(6):
        q = early[x0[row]] * steps[:, xt[row]] / late[x0[row], xt[row]]
        p = (u[row] @ early) * steps[:, xt[row]] / (u[row] @ late)[xt[row]]
        expected = torch.xlogy(q, q / p).sum()
        pieces = (u[row].reshape(1, 1, 4), x0[row].reshape(1, 1), xt[row].reshape(1, 1))
        found = chain_divergence(*pieces, early.unsqueeze(0), chain.transition.unsqueeze(0), late.unsqueeze(0))
        torch.testing.assert_close(found[0, 0], expected, rtol=1e-9, atol=1e-12)
