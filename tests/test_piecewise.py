"""Generators that change at given times, against products of scipy's matrix exponentials and the master equation."""

import itertools
import math
from pathlib import Path

import numpy
import pytest
import torch
from scipy import linalg, stats
from scipy.integrate import solve_ivp
from torch import Tensor

import blackout as bo
from blackout.model import DiffusionModel
from blackout.process.paths import forward_paths
from blackout.random import Streams
from blackout.sampling import Step
from worlds import (
    cube,
    draw,
    fit,
    frequencies,
    lattice,
    line,
    on_lattice,
    p_value,
    random_generator,
    sampler_probs,
    total_variation,
)

BREAKS = (0.3, 1.1)
SIZE = 5
DEATH = numpy.diag(-numpy.arange(SIZE, dtype=float)) + numpy.diag(numpy.arange(1.0, SIZE), -1)
PIECES = (0.4 * random_generator(SIZE, 1), 2 * DEATH, random_generator(SIZE, 2) / SIZE)  # no two of them commute
TIMES = (1e-6, 0.1, 0.3, 0.30001, 0.7, 1.1, 1.5, 9.0)


def process() -> bo.PiecewiseGenerator:
    return bo.PiecewiseGenerator(PIECES, BREAKS)


def generator_at(t: float) -> numpy.ndarray:
    return PIECES[int(numpy.searchsorted(BREAKS, t))]


def transition(s: float, t: float) -> numpy.ndarray:
    """P(s -> t) by a product over the pieces."""
    result = numpy.eye(SIZE)
    for matrix, (low, high) in zip(PIECES, itertools.pairwise((0.0, *BREAKS, math.inf)), strict=True):
        result = result @ linalg.expm(matrix * max(0.0, min(t, high) - max(s, low)))
    return result


def pairs() -> tuple[Tensor, Tensor]:
    x0, xt = lattice(SIZE, 2).T
    return x0, xt


@pytest.mark.parametrize("t", TIMES)
def test_forward_solution_is_the_product_of_exponentials(t: float) -> None:
    x0, xt = pairs()
    expected = transition(0.0, t)
    numpy.testing.assert_allclose(process().probs(torch.arange(SIZE), t), expected, atol=1e-12)
    numpy.testing.assert_allclose(process().log_prob(xt, x0, t).exp().reshape(SIZE, SIZE), expected, atol=1e-12)


def test_forward_solution_solves_the_master_equation() -> None:
    def change(t: float, p: numpy.ndarray) -> numpy.ndarray:
        return p @ generator_at(t)

    p = numpy.eye(SIZE)[3]
    for s, t in ((0.0, 0.3), (0.3, 1.1), (1.1, 2.0)):  # from break to break
        p = solve_ivp(change, (s + 1e-15, t), p, rtol=1e-11, atol=1e-13).y[:, -1]
        numpy.testing.assert_allclose(process().probs(torch.tensor(3), t), p, atol=1e-9)


def test_a_batch_has_a_time_for_each_row() -> None:
    x0 = torch.full((len(TIMES), 2), 3)
    t = torch.tensor(TIMES, dtype=torch.float64)
    expected = numpy.stack([transition(0.0, one)[3] for one in TIMES])
    numpy.testing.assert_allclose(process().probs(x0, t)[:, 1], expected, atol=1e-12)
    rates = process().forward_rates(x0, t)
    for k, one in enumerate(TIMES):
        numpy.testing.assert_allclose(rates[k, 0].sum(), -generator_at(one)[3, 3], atol=1e-12)


def test_the_earlier_generator_holds_at_a_break() -> None:
    states = torch.arange(SIZE)
    for t, matrix in ((0.0, PIECES[0]), (0.3, PIECES[0]), (0.31, PIECES[1]), (1.1, PIECES[1]), (1e9, PIECES[2])):
        rates, jumps = process().forward_rates(states, t), process().jumps
        expected = [[matrix[m, m + d] if 0 <= m + d < SIZE else 0.0 for d in jumps] for m in range(SIZE)]
        numpy.testing.assert_allclose(rates, expected)


@pytest.mark.parametrize("t", TIMES[1:])
def test_reverse_rates_and_score_follow_from_bayes_rule(t: float) -> None:
    x0, xt = pairs()
    rates, score = process().reverse_rates(x0, xt, t), process().score(x0, xt, t)
    p, q = transition(0.0, t), generator_at(t)
    for k, (o, m) in enumerate(zip(x0.tolist(), xt.tolist(), strict=True)):
        for r, d in enumerate(process().jumps):
            arrival = q[m - d, m] if 0 <= m - d < SIZE else 0.0
            ratio = p[o, m - d] / p[o, m] if arrival else 0.0
            assert float(rates[k, r]) == pytest.approx(arrival * ratio, rel=1e-9, abs=1e-12)
            assert float(score[k, r]) == pytest.approx(arrival * (ratio - 1), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("s", "t"), [(0.05, 0.2), (0.2, 0.7), (0.3, 1.1), (0.1, 2.0), (1.2, 3.0), (0.0, 0.5)])
def test_bridge_is_bayes_rule_between_two_times(s: float, t: float) -> None:
    xs, x0, xt = lattice(SIZE, 3).T
    first, second, both = transition(0.0, s), transition(s, t), transition(0.0, t)
    expected = first[x0, xs] * second[xs, xt] / both[x0, xt]
    numpy.testing.assert_allclose(process().bridge_log_prob(xs, x0, xt, s, t).exp(), expected, atol=1e-11)


def test_samples_fit_their_distributions() -> None:
    rng, full = torch.Generator().manual_seed(0), torch.full((20_000, 1), 3)
    assert fit(process().sample(full, 0.7, rng), transition(0.0, 0.7)[3]) > 1e-6
    bridge = transition(0.0, 0.2)[3] * transition(0.2, 1.5)[:, 1] / transition(0.0, 1.5)[3, 1]
    assert fit(process().sample_bridge(full, torch.full_like(full, 1), 0.2, 1.5, rng), bridge) > 1e-6
    s, t = (torch.tensor(v, dtype=torch.float64) for v in (0.2, 1.5))
    assert fit(process().sample_step_at(full, s, t, rng), transition(0.2, 1.5)[3]) > 1e-6
    rows = torch.stack([s, s, t]).repeat_interleave(20_000 // 3)  # several times in one batch
    drawn = process().sample_step_at(full[: len(rows)], rows, rows + 0.4, rng)
    assert fit(drawn[: len(rows) // 3], transition(0.2, 0.6)[3]) > 1e-6
    assert fit(drawn[-len(rows) // 3 :], transition(1.5, 1.9)[3]) > 1e-6


def test_paths_follow_the_generator_of_their_time() -> None:
    paths = forward_paths(process(), torch.full((4000,), 4), 1.5, seed=0)
    for t in (0.25, 0.9, 1.5):
        at = torch.stack([path.states[(path.times <= t).sum() - 1] for path in paths])
        assert fit(at, transition(0.0, t)[4]) > 1e-6


def test_terminal_distribution_and_times_are_those_of_the_last_generator() -> None:
    last = bo.FiniteState(PIECES[-1])
    torch.testing.assert_close(process().terminal_probs, last.terminal_probs)
    late = bo.PiecewiseGenerator((PIECES[2], DEATH), [40.0])  # long after 15 relaxation times of the last generator
    times = bo.ObservationTimes.for_process(late, 50)
    assert times.t_end >= 40 + 15
    assert float(late.probs(torch.arange(SIZE), times.t_end)[:, 0].min()) > 1 - 1e-5


def test_a_piece_may_stand_still() -> None:
    still = bo.PiecewiseGenerator([PIECES[0], numpy.zeros((SIZE, SIZE)), PIECES[2]], BREAKS)
    for t in (0.3, 0.7, 1.1):
        numpy.testing.assert_allclose(still.probs(torch.arange(SIZE), t), linalg.expm(PIECES[0] * 0.3), atol=1e-12)
    assert not still.forward_rates(torch.arange(SIZE), 0.7).any()


STILL, MASK = numpy.zeros((3, 3)), numpy.array([[0.0, 0, 0], [1, -1, 0], [1, 0, -1]])
SWAP = numpy.array([[-1.0, 1, 0], [1, -2, 1], [0, 1, -1]])
WORLDS = {
    "random": (PIECES, BREAKS),
    "forgotten before the break": ((MASK, SWAP), [50.0]),
    "nothing happens at first": ((STILL, SWAP), [1.0]),
    "fast, then slow": ((1000 * SWAP, 0.01 * SWAP), [1e-5]),
    "ends in one state": ((0.001 * SWAP, 10 * MASK), [5.0]),
}


@pytest.mark.parametrize("name", WORLDS)
def test_bound_of_the_exact_posterior_is_the_information_of_each_point(name: str) -> None:
    world = bo.PiecewiseGenerator(*WORLDS[name])
    points, weights = line(world.num_states)
    bound = bo.evidence_bound(bo.ExactPosterior(world, points, weights), world, points, 256)
    torch.testing.assert_close(bound, -torch.log(weights), rtol=0, atol=1e-8)


def test_bound_by_draws_is_unbiased() -> None:
    points, weights = line(SIZE)
    x0 = points.repeat(400, 1)
    denoise = bo.ExactPosterior(process(), points, weights)
    bound = bo.evidence_bound(denoise, process(), x0, 8, method="monte-carlo").reshape(400, SIZE)
    error = (bound.mean(0) + torch.log(weights)) / (bound.std(0) / math.sqrt(400))
    assert float(error.abs().max()) < 4.5


def test_posterior_bridge_has_no_error_in_one_component() -> None:
    points, weights = line(SIZE)
    denoise, times = bo.ExactPosterior(process(), points, weights), bo.ObservationTimes.for_process(process(), 6)
    probs = sampler_probs(bo.PosteriorBridge(), denoise, process(), times, 1)
    assert total_variation(probs, weights) < 1e-6
    bound = bo.PosteriorBridge().bound(denoise, process(), times, points.repeat(4000, 1)).reshape(4000, SIZE)
    assert float((bound.mean(0) + torch.log(weights)).abs().max()) < 0.1


def test_tau_leaping_converges() -> None:
    points, weights = line(SIZE)
    denoise = bo.ExactPosterior(process(), points, weights)
    errors = []
    for steps in (40, 160):
        times = bo.ObservationTimes.for_process(process(), steps)
        errors.append(total_variation(sampler_probs(bo.TauLeaping(), denoise, process(), times, 1), weights))
    assert errors[1] < 0.02
    assert errors[1] < 0.4 * errors[0]


def test_exact_sampler_draws_the_data() -> None:
    points, weights = cube(2)
    denoise, times = bo.ExactPosterior(process(), points, weights), bo.ObservationTimes.from_values([40.0])
    samples = bo.Exact().sample(denoise, process(), times, (400, 2), seed=0)
    assert p_value(frequencies(samples, SIZE), on_lattice(points, weights, SIZE)) > 1e-6


def test_exact_sampler_waits_for_the_rates_of_each_time() -> None:
    """Rates that are given: the share of paths without a jump is e to minus their integral, pieces apart."""
    two = bo.PiecewiseGenerator([[[-1.0, 1], [1, -1]], [[-9.0, 9], [1, -1]]], [1.0])

    def denoise(xt: Tensor, t: Tensor) -> Tensor:
        return torch.where(t > 1.0, 2.0, 0.1).reshape(-1, 1, 1) * torch.ones(*xt.shape, 2)

    paths = bo.Exact().paths(denoise, two, 1.2, (4000, 1), seed=0)
    for t, integral in ((1.1, 0.2), (1.0, 0.4), (0.5, 0.45), (0.0, 0.5)):
        quiet = sum(1 for path in paths if len(path.times) == 1 or float(path.times[1]) < t)
        assert stats.binomtest(quiet, 4000, math.exp(-integral)).pvalue > 1e-6


def test_corrector_keeps_the_distribution() -> None:
    points, weights = line(SIZE)
    denoise = bo.ExactPosterior(process(), points, weights)
    s, t = (torch.tensor(v, dtype=torch.float64) for v in (0.25, 0.6))
    x = process().sample(draw(points, weights, 20_000), s, torch.Generator().manual_seed(0))
    sampler = bo.PosteriorBridge(corrector_steps=1, corrector_size=5.0)
    corrected = sampler.correct(Step.of(denoise, process(), s, t), x, Streams(0, len(x)))
    assert not torch.equal(corrected, x)
    assert fit(corrected, weights.numpy() @ transition(0.0, 0.25)) > 1e-6


def test_repeated_steps_of_inpainting_go_forward_from_their_own_time() -> None:
    """Without reverse jumps, and with nothing observed, each step is one of the forward process from s to t."""
    one, nothing = torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.bool)
    sampler = bo.Inpainting(bo.TauLeaping(), one, nothing, resample=1)
    times, channels = bo.ObservationTimes.from_values([0.2, 1.5]), len(process().jumps)
    samples = sampler.sample(lambda xt, t: torch.zeros(*xt.shape, channels), process(), times, (20_000, 1))
    expected = process().terminal_probs.numpy() @ transition(0.2, 1.5) @ transition(0.0, 0.2)
    assert fit(samples, expected) > 1e-6


def test_training_sampling_and_saving(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    first = torch.randint(0, SIZE, (512, 1), generator=generator)
    x = torch.cat([first, SIZE - 1 - first], 1)
    model = DiffusionModel.for_data(x, process(), bo.ObservationTimes.for_process(process(), 100), width=32, blocks=2)
    model.fit(x, steps=150, batch_size=64, learning_rate=5e-3, ema=0.95)
    assert model.bits_per_dim(x[:128], num_times=32) < 1.6  # independent components: 2.32; at best 1.16
    samples = model.sample(200, num_steps=20, seed=0)
    assert float((samples.sum(-1) == SIZE - 1).double().mean()) > 0.8
    model.save(tmp_path)
    loaded = bo.load(tmp_path)
    assert loaded.process.breaks == BREAKS
    assert torch.equal(loaded.sample(200, num_steps=20, seed=0), samples)


@pytest.mark.parametrize(
    ("matrices", "breaks", "message"),
    [
        (PIECES, [1.0], "generators must be one more than breaks, and at least two, got 3 and 1"),
        (PIECES[:1], [], "generators must be one more than breaks, and at least two, got 1 and 0"),
        (PIECES, [2.0, 1.0], "breaks must be increasing, got"),
        (PIECES, [0.0, 1.0], "breaks must be more than 0.0, got 0.0"),
        (PIECES, 1.0, "breaks must be a list of numbers, got 1.0"),
        ((PIECES[0], -PIECES[1], PIECES[2]), BREAKS, r"generators\[1\] must not be negative"),
        ((PIECES[0], PIECES[1][:3, :3], PIECES[2]), BREAKS, "generators must have one shape, got"),
    ],
)
def test_bad_arguments_are_named(matrices: object, breaks: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bo.PiecewiseGenerator(matrices, breaks)


def test_rates_need_a_time() -> None:
    with pytest.raises(ValueError, match="t is needed: the rates of this process depend on time"):
        process().forward_rates(torch.arange(SIZE))
