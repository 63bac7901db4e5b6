"""Reaction networks against brute force: the joint generator of a small world, written out state by state."""

import math
from functools import cache

import numpy
import pytest
import torch
from scipy import linalg
from torch import Tensor

import blackout as bo
from blackout.reactions import REACTIONS, LogClock, path_bound, path_divergence, sample_reverse
from test_bad_input import rejected
from worlds import entropy, p_value, total_variation

CATALYSIS = [[-1, 1, 0], [1, -1, 0], [0, 0, 1], [0, 0, -1]]
CATALYSTS = [[1, 0, 1], [0, 1, 0], [0, 0, 0], [0, 0, 1]]


def exchange_by_hand(a: int, b: int, c: int) -> list[tuple[tuple[int, ...], float]]:
    """Three cells in a row; every unit moves to a neighbour at rate 0.7."""
    right, left = [((a - 1, b + 1, c), a), ((a, b - 1, c + 1), b)], [((a + 1, b - 1, c), b), ((a, b + 1, c - 1), c)]
    return [(target, 0.7 * units) for target, units in right + left]


def dimerisation_by_hand(a: int, b: int) -> list[tuple[tuple[int, ...], float]]:
    return [((a - 2, b + 1), 0.4 * math.comb(a, 2)), ((a + 2, b - 1), 1.5 * b)]


def catalysis_by_hand(a: int, b: int, c: int) -> list[tuple[tuple[int, ...], float]]:
    """A -> B with C as a catalyst, B -> A alone; C appears and disappears, and there are at most two of it."""
    return [
        ((a - 1, b + 1, c), 2.0 * a * c),
        ((a + 1, b - 1, c), 0.5 * b),
        ((a, b, c + 1), 1.0 if c < 2 else 0.0),
        ((a, b, c - 1), 0.8 * c),
    ]


def catalysis(x: Tensor) -> Tensor:
    a, b, c = x.double().unbind(-1)
    return torch.stack([2.0 * a * c, 0.5 * b, torch.ones_like(c), 0.8 * c], -1)


class World:
    """All states of one conserved class, their joint generator, and a random distribution of the data on them."""

    def __init__(self, process, by_hand, states: list[tuple[int, ...]], seed: int = 0) -> None:
        self.process, self.states = process, torch.tensor(states)
        place = {state: i for i, state in enumerate(states)}
        size, channels = len(states), len(by_hand(*states[0]))
        self.flow = numpy.zeros((channels, size, size))  # by channel: rates from state i to state j
        for i, state in enumerate(states):
            for r, (target, rate) in enumerate(by_hand(*state)):
                if rate:
                    self.flow[r, i, place[target]] = rate
        off = self.flow.sum(0)
        self.generator = off - numpy.diag(off.sum(1))
        self.weights = numpy.random.default_rng(seed).dirichlet(numpy.ones(size))
        self.values, self.left = numpy.linalg.eig(self.generator)
        self.right = numpy.linalg.inv(self.left)

    def marginal(self, t: Tensor) -> numpy.ndarray:
        """p_t for many times at once, by the eigenvectors of the generator, shape (times, S)."""
        phases = numpy.exp(numpy.multiply.outer(t.numpy(), self.values))
        return ((self.weights @ self.left) * phases @ self.right).real

    def reverse(self, t: Tensor) -> Tensor:
        """The reverse rates of the definition, a_r(i) p_t(i) / p_t(j) for the i from which channel r leads to j."""
        probs = self.marginal(t)
        return torch.from_numpy(numpy.einsum("ti,rij->tjr", probs, self.flow) / probs[:, :, None])

    def index(self, x: Tensor) -> Tensor:
        hits = (x.unsqueeze(1) == self.states).all(-1)
        assert bool(hits.any(-1).all()), "a state outside of the world"
        return hits.long().argmax(-1)

    def rates(self, x: Tensor, t: Tensor) -> Tensor:
        times, member = t.unique(return_inverse=True)
        return self.reverse(times)[member, self.index(x)]

    def frequencies(self, x: Tensor) -> Tensor:
        return torch.bincount(self.index(x), minlength=len(self.states)).double()


@cache
def world(name: str) -> World:
    if name == "exchange":
        process = bo.Exchange((3,), rate=0.7)
        return World(process, exchange_by_hand, [(a, b, 3 - a - b) for a in range(4) for b in range(4 - a)])
    if name == "dimerisation":
        return World(bo.Dimerisation(bind=0.4, split=1.5), dimerisation_by_hand, [(7 - 2 * b, b) for b in range(4)])
    states = [(a, 2 - a, c) for a in range(3) for c in range(3)]
    if name == "catalysis":
        process = bo.ReactionNetwork(CATALYSIS, [2.0, 0.5, 1.0, 0.8], CATALYSTS, max_count=2)
    else:
        process = bo.ReactionNetwork(CATALYSIS, catalysis, max_count=2)
    return World(process, catalysis_by_hand, states)


WORLDS = ("exchange", "dimerisation", "catalysis", "function")
CLOSED = ("exchange", "dimerisation")  # equilibrium in closed form


@pytest.mark.parametrize("name", WORLDS)
def test_rates_equal_those_written_out_by_hand(name: str) -> None:
    w = world(name)
    numpy.testing.assert_allclose(w.process.propensities(w.states), w.flow.sum(2).T, rtol=1e-14)
    numpy.testing.assert_allclose(w.process.arrival_rates(w.states), w.flow.sum(1).T, rtol=1e-14)


@pytest.mark.parametrize("name", WORLDS)
def test_simulated_paths_fit_the_matrix_exponential(name: str) -> None:
    """The joint distribution of (X_s, X_t) from one start. A right simulation fails once in 10,000 such tests."""
    w, s, t, size = world(name), 0.2, 0.9, 20_000
    generator = torch.Generator().manual_seed(1)
    times = torch.tensor([[s, t]], dtype=torch.float64).expand(size, 2)
    path = w.process.sample_path(w.states[1].expand(size, -1), times, generator)
    early, late = linalg.expm(w.generator * s)[1], linalg.expm(w.generator * (t - s))
    joint = torch.from_numpy((early[:, None] * late).clip(0)).flatten()
    counts = torch.bincount(w.index(path[:, 0]) * len(w.states) + w.index(path[:, 1]), minlength=len(joint))
    assert p_value(counts.double(), joint / joint.sum()) > 1e-4


def test_times_differ_between_samples_and_absorbed_states_stay() -> None:
    decay = bo.ReactionNetwork([[-1]], [1.0])
    t = torch.linspace(0, 3, 4000, dtype=torch.float64)
    x = decay.sample(torch.full((4000, 1), 50), t, torch.Generator().manual_seed(0)).squeeze(1)
    mean = 50 * torch.exp(-t)
    score = (x - mean) / torch.sqrt(mean * -torch.expm1(-t)).clamp(min=1e-9)
    assert int(x[0]) == 50
    assert abs(float(score[1:].mean())) < 4 / math.sqrt(4000)  # X_t is binomial
    assert abs(float(score[1:].std()) - 1) < 4 / math.sqrt(8000)
    assert int(decay.sample(torch.tensor([[3]]), 1e6)) == 0


def test_mean_of_exchange_on_a_grid_follows_the_heat_equation() -> None:
    sides = [numpy.diag([1.0] + [2.0] * (n - 2) + [1.0]) - numpy.eye(n, k=1) - numpy.eye(n, k=-1) for n in (2, 3)]
    laplacian = numpy.kron(sides[0], numpy.eye(3)) + numpy.kron(numpy.eye(2), sides[1])
    process, x0 = bo.Exchange((2, 3)), torch.tensor([40, 0, 0, 0, 0, 8])
    x = process.sample(x0.expand(5000, 6), 0.4, torch.Generator().manual_seed(0))
    mean = x0.numpy() @ linalg.expm(-0.4 * laplacian)
    assert bool((x.sum(1) == 48).all())
    assert float(abs(x.double().mean(0).numpy() - mean).max()) < 4.5 * math.sqrt(mean.max() / 5000)
    assert process.relaxation_rate == pytest.approx(numpy.linalg.eigvalsh(laplacian)[1])


@pytest.mark.parametrize("name", CLOSED)
def test_equilibrium_is_the_null_vector_of_the_generator(name: str) -> None:
    w = world(name)
    (null,) = linalg.null_space(w.generator.T).T
    numpy.testing.assert_allclose(w.process.terminal_log_prob(w.states).exp(), null / null.sum(), rtol=1e-10)
    reverse = torch.from_numpy(numpy.einsum("i,rij->jr", null, w.flow) / null[:, None])
    numpy.testing.assert_allclose(w.process.reference_rates(w.states), reverse, rtol=1e-9)


@pytest.mark.parametrize("shape", [(7,), (4, 4)])
def test_default_last_time_of_exchange_leaves_little_of_the_start(shape: tuple[int, ...]) -> None:
    """Units in one corner are independent: the divergence from equilibrium is that of one unit, times their number."""
    process, cells = bo.Exchange(shape), math.prod(shape)
    x = torch.zeros(1, cells, dtype=torch.int64)
    x[0, 0] = 40
    generator = (process.stoichiometry.double().T.clamp(max=0) @ process.stoichiometry.double()).numpy()  # one unit's
    unit = linalg.expm(-generator * bo.ReactionModel.for_data(x, process).clock.t_end)[0]
    assert 40 * (unit * numpy.log(unit * cells)).sum() < 0.0015 * len(shape)


@pytest.mark.parametrize("name", WORLDS)
def test_loss_is_least_at_the_reverse_rates(name: str) -> None:
    """Of one free number for each state and channel: the gradient of the expected loss vanishes there."""
    w, t = world(name), torch.tensor([0.3], dtype=torch.float64)
    exact, probs = w.reverse(t)[0], torch.from_numpy(w.marginal(t)[0])

    def expected(kappa: Tensor) -> Tensor:
        rates = lambda x, t: kappa[w.index(x)]  # noqa: E731
        return probs @ path_divergence(rates, w.process, w.states, t.expand(len(w.states)))

    possible = exact > 0
    logarithm = torch.where(possible, exact, 1.0).log().requires_grad_()
    expected(torch.where(possible, logarithm.exp(), 0.0)).backward()
    assert float(logarithm.grad.abs().max()) < 1e-12
    other = exact * torch.exp(torch.randn(exact.shape, generator=torch.Generator().manual_seed(0)))
    excess = other - exact + torch.where(possible, exact * torch.log(exact / other), 0.0)  # Poisson divergence
    assert float(expected(other) - expected(exact)) == pytest.approx(float(probs @ excess.sum(-1)), rel=1e-10)


@pytest.mark.parametrize("name", WORLDS)
def test_loss_of_a_drawn_channel_averages_to_that_of_all(name: str) -> None:
    w = world(name)
    t = torch.full((len(w.states),), 0.5, dtype=torch.float64)
    share = w.process.propensities(w.states)
    share = share / share.sum(-1, keepdim=True)
    mean = torch.zeros(len(w.states), dtype=torch.float64)
    for r in range(share.shape[1]):
        rows = (share[:, r] > 0).nonzero().flatten()
        channel = torch.full((len(rows),), r)
        mean[rows] += share[rows, r] * path_divergence(w.rates, w.process, w.states[rows], t[rows], channel)
    torch.testing.assert_close(mean, path_divergence(w.rates, w.process, w.states, t), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("equilibrium", [False, True])
@pytest.mark.parametrize("name", CLOSED)
def test_bound_of_the_reverse_rates_is_the_information_of_each_point(name: str, equilibrium: bool) -> None:
    """By quadrature over time and a sum over all states; the model starts from equilibrium, at T = 1."""
    w, clock = world(name), LogClock(0.01, 1.0)
    nodes, shares = numpy.polynomial.legendre.leggauss(40)
    times = clock.time(torch.from_numpy((nodes + 1) / 2))
    bound = torch.zeros(len(w.states), dtype=torch.float64)
    for t, share in zip(times, shares / 2, strict=True):
        each = path_divergence(w.rates, w.process, w.states, t.expand(len(w.states)), equilibrium=equilibrium)
        bound += share * clock.stretch(t) * torch.from_numpy(linalg.expm(w.generator * float(t))) @ each
    last = torch.from_numpy(linalg.expm(w.generator))
    terminal = w.process.terminal_log_prob(w.states)
    bound -= terminal if equilibrium else last @ terminal
    start = torch.from_numpy(w.marginal(torch.tensor([1.0]))[0]).log() - terminal  # equilibrium instead of p_T
    expected = -torch.from_numpy(w.weights).log() + last @ start
    torch.testing.assert_close(bound, expected, rtol=1e-9, atol=1e-9)


def test_estimated_bound_agrees_with_the_information() -> None:
    w, size = world("exchange"), 4000
    bound = path_bound(w.rates, w.process, w.states[2].expand(size, 3), LogClock(0.01, 12.0), num_times=16)
    error = float(bound.std()) / math.sqrt(size)
    assert error < 0.03
    assert float(bound.mean()) == pytest.approx(-math.log(w.weights[2]), abs=4 * error)


def reversed_samples(w: World, steps: int, size: int, method: str, seed: int = 0) -> Tensor:
    clock = LogClock(0.02, 2.0)
    probs = w.marginal(torch.tensor([2.0], dtype=torch.float64))[0]
    start = w.states[torch.from_numpy(numpy.random.default_rng(seed).choice(len(probs), size, p=probs))]
    return sample_reverse(w.rates, w.process, clock.grid(steps), start, seed, method=method)


@pytest.mark.parametrize("name", WORLDS)
def test_reverse_process_event_by_event_ends_in_the_data(name: str) -> None:
    """Chi-square of 20,000 samples; a distribution without error fails once in 10,000 such tests."""
    w = world(name)
    samples = reversed_samples(w, 32, 20_000, "events")
    assert p_value(w.frequencies(samples), torch.from_numpy(w.weights)) > 1e-4


def distance(w: World, steps: int, method: str, size: int) -> float:
    samples = reversed_samples(w, steps, size, method)
    return total_variation(w.frequencies(samples) / size, torch.from_numpy(w.weights))


def test_error_of_leaps_is_of_first_order_and_that_of_events_of_second() -> None:
    """Total variation from the data: four times the steps leave a quarter of it, or a sixteenth and noise of 0.003."""
    w = world("exchange")
    few, many = (distance(w, steps, "leaps", 40_000) for steps in (8, 32))
    assert 0.2 * few < many < 0.3 * few
    few, many = (distance(w, steps, "events", 100_000) for steps in (2, 8))
    assert many < few / 16 + 0.004 < 0.2 * few


@pytest.mark.parametrize("method", ["leaps", "events"])
@pytest.mark.parametrize("name", WORLDS)
def test_reverse_steps_stay_inside_and_conserve_whatever_the_rates(name: str, method: str) -> None:
    w = world(name)
    start = w.states.repeat(20, 1)
    many = lambda x, t: torch.full((len(x), w.process.num_channels), 5.0)  # noqa: E731
    path = sample_reverse(many, w.process, LogClock(0.1, 1.0).grid(3), start, method=method, trajectory=True)
    w.index(path.flatten(0, 1))  # every state is one of the world
    assert torch.equal(path[0], start)
    part = sample_reverse(many, w.process, LogClock(0.1, 1.0).grid(3), start[:7], method=method)
    assert torch.equal(part, path[-1, :7])  # a sample does not depend on the others


def data(size: int = 2000) -> tuple[World, Tensor]:
    w = world("exchange")
    return w, w.states[torch.from_numpy(numpy.random.default_rng(3).choice(len(w.weights), size, p=w.weights))]


def test_training_approaches_the_reverse_rates_and_the_entropy(tmp_path) -> None:
    w, x = data()
    model = bo.ReactionModel.for_data(x, w.process, width=32, blocks=1)
    before = model.bits_per_dim(x, num_times=16)
    losses: list[float] = []
    model.fit(x, steps=250, batch_size=256, learning_rate=1e-2, callback=lambda step, loss: losses.append(loss))
    after, least = model.bits_per_dim(x, num_times=16), entropy(torch.from_numpy(w.weights)) / (3 * math.log(2))
    assert len(losses) == 250
    assert after - least < 0.3 * (before - least)
    assert after > least - 4 * after.standard_error
    samples = model.sample(4000, num_steps=60, seed=1)
    assert total_variation(w.frequencies(samples) / 4000, torch.from_numpy(w.weights)) < 0.1
    other = bo.ReactionModel.load(model.save(tmp_path / "model"))
    assert torch.equal(other.sample(50, num_steps=60, seed=1), samples[:50])
    assert other.bits_per_dim(x, num_times=16) == after
    with pytest.raises(ValueError, match=r"ReactionModel\.load"):
        bo.load(tmp_path / "model")


def test_saved_networks_have_the_same_rates() -> None:
    for name in ("exchange", "dimerisation", "catalysis"):
        w = world(name)
        other = REACTIONS.from_config(REACTIONS.to_config(w.process))
        assert type(other) is type(w.process)
        assert torch.equal(other.propensities(w.states), w.process.propensities(w.states))
    rejected(world("function").process.config, "propensities")


def test_bad_input_is_rejected() -> None:
    network, process = bo.ReactionNetwork, bo.Exchange((2, 2))
    rejected(lambda: network([[0, 0]], [1.0]), "stoichiometry", "row 0")
    rejected(lambda: network([1, 2], [1.0]), "stoichiometry", "(2,)")
    rejected(lambda: network([[1, -1]], [1.0, 2.0]), "propensities", "[1.0, 2.0]")
    rejected(lambda: network([[1, -1]], [-1.0]), "propensities", "-1.0")
    rejected(lambda: network([[1, -1]], [1.0], [[0, 0]]), "reactants", "[[0, 0]]")
    rejected(lambda: network([[1, -1]], lambda x: x.double(), [[0, 1]]), "reactants", "[[0, 1]]")
    rejected(lambda: network([[1, -1]], lambda x: x.double()).propensities(torch.ones(3, 2).long()), "propensities")
    rejected(lambda: network([[1]], lambda x: -x.double()).propensities(torch.ones(3, 1).long()), "propensities", -1.0)
    rejected(lambda: network([[1]], [1.0], max_count=0), "max_count", 0)
    rejected(lambda: network([[1]], [1.0], max_count=3).sample([[4]], 1.0), "x0", 4)
    rejected(lambda: bo.Exchange((1,)), "shape", "(1,)")
    rejected(lambda: bo.Dimerisation(split=0.0), "split", 0.0)
    rejected(lambda: process.sample([[1, 2, 3]], 1.0), "x0", "(1, 3)")
    rejected(lambda: process.sample([[1, 2, 3, 4]], -1.0), "t", -1.0)
    rejected(lambda: process.sample_path([[1, 2, 3, 4]], torch.tensor([[2.0, 1.0]])), "times", 2.0)
    rejected(lambda: LogClock(1.0, 0.5), "t_end", 0.5)
    rejected(lambda: network([[1]], [1.0]).terminal_log_prob(torch.ones(1, 1).long()), "ReactionNetwork")
    rejected(lambda: bo.ReactionModel.for_data([[4, 1]], bo.Dimerisation()), "t_end", "Dimerisation")
    rejected(lambda: bo.ReactionModel.for_data([[0, 0]], bo.Dimerisation(), 1.0), "x", "1 rows")
    rejected(lambda: bo.ReactionModel.for_data([[4, 1]], bo.Dimerisation(), 1.0).sample(1), "fit")
    start, times = torch.ones(2, 4).long(), LogClock(0.1, 1.0).grid(3)
    rejected(lambda: sample_reverse(lambda x, t: x.double(), process, times, start), "rates", "(2, 8)")
    wrong = lambda x, t: torch.full((2, 8), math.nan)  # noqa: E731
    rejected(lambda: sample_reverse(wrong, process, times, start), "rates", "nan")
    rejected(lambda: sample_reverse(wrong, process, times, start, method="walk"), "method", "walk")


def test_bad_arguments_of_models_are_rejected() -> None:
    process, x, times = bo.Exchange((2,)), torch.tensor([[1, 2], [3, 0]]), bo.ObservationTimes.fisher(2)
    model = bo.ReactionModel.for_data(x, process, width=8, blocks=1)
    for value in ("a", None, torch.tensor(1j), torch.ones(1, 1, device="meta"), {}):
        rejected(lambda value=value: process.sample_path(x, value), "times")
    for value in ("a", None, math.nan, -0.1, 1.0):
        rejected(lambda value=value: model.fit(x, steps=1, ema=value), "ema", value)
    rejected(lambda: model.fit(x, steps=1, callback="a"), "callback", "'a'")
    for value in ("a", None, 2.5):
        rejected(lambda value=value: bo.ReactionModel.for_data(x, process, width=value), "width", value)
    for value in (None, "a", bo.Uniform(4)):
        rejected(lambda value=value: bo.ReactionModel.for_data(x, value), "process", repr(value))
        rejected(lambda value=value: bo.ReactionModel(value, model.clock), "process", repr(value))
        rejected(lambda value=value: sample_reverse(model.rates, value, times, x), "process", repr(value))
    rejected(lambda: bo.ReactionModel(process, "a"), "clock", "'a'")
    rejected(lambda: sample_reverse(model.rates, process, [1.0], x), "times", "[1.0]")
    for value in (None, "a"):
        rejected(lambda value=value: sample_reverse(value, process, times, x), "rates", repr(value))
        rejected(lambda value=value: path_bound(value, process, x, model.clock), "rates", repr(value))
