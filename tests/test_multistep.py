"""The multistep bridge against brute force and exact worlds. Goodness of fit is Pearson's test at 1e-4.

`python tests/test_multistep.py` prints the table of few steps in docs/samplers.md.
"""

import itertools
import math

import numpy
import pytest
import torch
from scipy.linalg import expm

import blackout as bo
from blackout.posterior import ListedPosterior
from blackout.sampling import Past, Step
from test_categorical_posterior import CHAIN, EVERY, SIZE, late_grid, name
from worlds import (
    cube,
    frequencies,
    grid,
    lattice,
    line,
    multistep_probs,
    on_lattice,
    p_value,
    random_generator,
    ridge,
    sampler_probs,
    total_variation,
)

ONE = bo.PosteriorBridge()
LINEAR, LOG = bo.MultistepBridge(), bo.MultistepBridge("log")
PIECEWISE = bo.PiecewiseGenerator([random_generator(5), random_generator(5, seed=1)], breaks=[0.5])
FIVE_STATES = [
    bo.PureDeath(4),
    bo.Uniform(5),
    bo.BirthDeath(5, 0.3, 1.0, 1.0),
    bo.DiscretizedGaussian(5),
    bo.FiniteState(random_generator(5)),
    PIECEWISE,
    bo.Absorbing(6),
]


def length_times(process, steps):
    """Equal steps of e^-t for masking, the rule `length` for the others."""
    rule = "survival" if process.mask_state is not None else "length"
    return bo.ObservationTimes.by_rule(rule, process, steps)


def bias(sampler, process, data, times, **options):
    """The exact total variation between samples and data."""
    points, weights = data
    denoise, find = bo.ExactPosterior(process, points, weights), sampler_probs
    if sampler.has_memory:
        find = multistep_probs
    probs = find(sampler, denoise, process, times, points.shape[1], **options)
    return total_variation(probs, on_lattice(points, weights, process.num_states))


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("process", [*EVERY, bo.PiecewiseGenerator([random_generator(SIZE)] * 2, [0.5])], ids=name)
def test_one_component_is_exact(process, steps):
    """Nothing is told by others, so nothing is corrected; the bound is the information of each point."""
    points, weights = line(SIZE - 1)
    data, posterior = on_lattice(points, weights, SIZE), bo.ExactPosterior(process, points, weights)
    times = late_grid(process, steps)
    for sampler in (LINEAR, LOG):
        assert total_variation(multistep_probs(sampler, posterior, process, times, 1), data) < 1e-9
        bound = sampler.bound(posterior, process, times, points, seed=steps)
        assert torch.allclose(bound, -torch.log(weights), atol=1e-8)


def bayes_step(matrices, joint, past, now, weight, rule):
    """P(X_s of each component | X_r = now, X_t = past) from transition matrices and the joint distribution of data.

    matrices: those of 0 to r, 0 to t, r to t, 0 to s and s to r.
    """
    early, late, step, first, second = matrices
    found = []
    for c in range(2):
        table = joint if c == 0 else joint.T  # (own X_0, the other's)
        m, x, other_m, other_x = now[c], past[c], now[1 - c], past[1 - c]
        p = early[:, m] * (table @ early[:, other_m])
        at_past = late[:, x] * (table @ late[:, other_x])
        told = at_past * early[:, m] * step[m, x] / late[:, x]  # times the bridge from x to m
        p, told = p / p.sum(), told / told.sum()
        q = numpy.maximum((1 + weight) * p - weight * told, 0.1 * p)
        if rule == "log":
            q = p * numpy.minimum(p / told, 100.0) ** weight
        back = first * second[:, m] / early[:, m : m + 1]  # P(X_s | X_0, X_r = m)
        found.append((q / q.sum()) @ back)
    return numpy.stack(found)


@pytest.mark.parametrize("weight", [0.5, 1.0])
@pytest.mark.parametrize("rule", ["linear", "log"])
def test_probabilities_of_a_step_equal_brute_force(rule, weight):
    """By Bayes' rule from matrix exponentials, for every pair of neighbouring states."""
    size, (s, r, t) = 3, (0.3, 0.7, 1.6)
    generator = random_generator(size)
    joint = numpy.random.default_rng(2).dirichlet(numpy.ones(size * size)).reshape(size, size)
    matrices = [expm(generator * d) for d in (r, t, t - r, s, r - s)]
    process = bo.FiniteState(generator)
    exact = bo.ExactPosterior(process, lattice(size, 2), joint.flatten())
    states, (s, r, t) = lattice(size, 2), torch.tensor([s, r, t], dtype=torch.float64)
    past, now = (states.repeat_interleave(9, 0), states.repeat(9, 1))
    sampler = bo.MultistepBridge(rule, weight)
    _, left = sampler.next_log_prob(Step.of(exact, process, r, t), past, past, None)
    assert torch.equal(left.x, past)
    at = Step.of(exact, process, s, r)
    for state in range(size):
        log_prob, _ = sampler.next_log_prob(at, torch.full_like(now, state), now, left)
        expected = [bayes_step(matrices, joint, *pair, weight, rule)[:, state] for pair in zip(past, now, strict=True)]
        assert numpy.allclose(log_prob.exp().numpy(), numpy.stack(expected), rtol=1e-9)


@pytest.mark.parametrize(("process", "factor"), [*zip(FIVE_STATES, (1.6, 1.8, 1.8, 1.9, 1.8, 1.8, 1.5), strict=True)])
def test_error_is_smaller_than_that_of_the_posterior_bridge_at_equal_calls(process, factor):
    for steps in (8, 16):
        times = length_times(process, steps)
        assert factor * bias(LINEAR, process, cube(2), times) < bias(ONE, process, cube(2), times)


def test_order_of_convergence_is_two_on_smooth_data():
    process, data = bo.PureDeath(5), ridge(6)
    found = {
        sampler: [bias(sampler, process, data, length_times(process, n)) for n in (8, 32)] for sampler in (ONE, LINEAR)
    }
    order = {sampler: math.log(few / many, 4) for sampler, (few, many) in found.items()}
    assert 0.9 < order[ONE] < 1.15
    assert order[LINEAR] > 1.9
    assert found[LINEAR][0] < found[ONE][0] / 3
    assert found[LINEAR][1] < found[ONE][1] / 10


@pytest.mark.parametrize(("sampler", "process"), [(LINEAR, bo.PureDeath(4)), (LOG, bo.Uniform(5))])
def test_distribution_of_samples_converges_to_rough_data(sampler, process):
    """Corrections that would be negative leave an error of first order."""
    few, some, many = (bias(sampler, process, cube(2), grid(process, n)) for n in (8, 24, 72))
    assert few > 2.5 * some > 6.25 * many
    assert many < 0.02


def test_two_stages_in_each_step_are_worse_at_equal_calls():
    """A step to the middle, and one from there with twice the change: what the memory replaces."""
    process, data = bo.PureDeath(4), cube(2)
    for calls in (8, 16):
        two = bias(
            bo.MultistepBridge(weight=1.0), process, data, halved(process, length_times(process, calls // 2)), stages=2
        )
        assert bias(LINEAR, process, data, length_times(process, calls)) < 0.95 * two


def halved(process, times):
    """Each step in two, half-way in e^-γt."""
    tau = torch.cat([torch.zeros(1), process.clock_time(times.values)]).double() * process.relaxation_rate
    kept = torch.exp(-tau)
    middle = -torch.log((kept[1:] + kept[:-1]) / 2)
    both = torch.stack([middle, tau[1:]], -1).flatten() / process.relaxation_rate
    return bo.ObservationTimes.from_values(process.real_time(both))


@pytest.mark.parametrize(
    ("sampler", "process"), [(LINEAR, bo.PureDeath(4)), (LOG, bo.BirthDeath(5, 0.3, 1.0, 1.0)), (LINEAR, PIECEWISE)]
)
def test_samples_fit_the_distribution_of_the_steps(sampler, process):
    denoise, times = bo.ExactPosterior(process, *cube(2)), length_times(process, 5)
    probs = multistep_probs(sampler, denoise, process, times, 2)
    plain = sampler_probs(ONE, denoise, process, times, 2)
    samples = frequencies(sampler.sample(denoise, process, times, (6000, 2), seed=1), 5)
    assert p_value(samples, probs) > 1e-4
    assert p_value(samples, plain) < 1e-8  # the test can tell the two samplers apart


def test_a_chain_takes_any_steps():
    process, (points, weights) = bo.Chain(expm(0.01 * random_generator(5))), cube(2)
    denoise, ends = bo.ExactPosterior(process, points, weights), [1, 2, 4, 6, 9, 13, 18, 25, 35, 50, 80, 200]
    times = bo.ObservationTimes.from_values(ends)
    probs = multistep_probs(LINEAR, denoise, process, times, 2)
    plain = sampler_probs(ONE, denoise, process, times, 2)
    assert total_variation(probs, weights) < 0.6 * total_variation(plain, weights)
    assert p_value(frequencies(LINEAR.sample(denoise, process, times, (4000, 2)), 5), probs) > 1e-4
    with pytest.raises(ValueError, match="corrector_steps must be 0 for a chain"):
        bo.MultistepBridge(corrector_steps=1).check(CHAIN)


def test_a_step_is_one_call_of_the_denoiser():
    process, calls, done = bo.PureDeath(4), [], []
    posterior = bo.ExactPosterior(process, *cube(2))

    def denoise(xt, t):
        calls.append(float(t[0]))
        return posterior(xt, t)

    times = bo.ObservationTimes.fisher(6)
    LINEAR.sample(denoise, process, times, (3, 2), callback=lambda k, n, x: done.append((k, n)))
    assert calls == times.values.flip(0).tolist()
    assert done == [(k, 6) for k in range(1, 7)]
    calls.clear()
    LINEAR.bound(denoise, process, times, cube(2)[0])
    assert len(calls) == 6


def test_weight_zero_is_the_posterior_bridge():
    process, times = bo.PureDeath(4), bo.ObservationTimes.fisher(6)
    denoise = bo.ExactPosterior(process, *cube())
    plain = ONE.sample(denoise, process, times, (200, 3), seed=3)
    for rule in ("linear", "log"):
        assert torch.equal(bo.MultistepBridge(rule, 0.0).sample(denoise, process, times, (200, 3), seed=3), plain)
    assert not torch.equal(LINEAR.sample(denoise, process, times, (200, 3), seed=3), plain)


def paths_bound(sampler, denoise, process, times, x0):
    """The mean of log q / p over all paths of the forward process given x0, by enumeration."""
    states = lattice(process.num_states, x0.shape[-1])
    edges = [0.0, *times.values.tolist()]
    total = 0.0
    for path in itertools.product(range(len(states)), repeat=len(times)):  # x at t_1, ..., t_T
        x = [x0, *states[list(path)]]
        log_q = sum(float(process.log_prob(x[k], x[k - 1], edges[k] - edges[k - 1]).sum()) for k in range(1, len(x)))
        log_p, past = float(process.terminal_log_prob(x[-1]).sum()), None
        for k in range(len(times), 0, -1):
            s, t = (torch.tensor(v, dtype=torch.float64) for v in edges[k - 1 : k + 1])
            one, past = sampler.next_log_prob(Step.of(denoise, process, s, t), x[k - 1][None], x[k][None], past)
            log_p += float(one.sum())
        total += math.exp(log_q) * (log_q - log_p)
    return total


@pytest.mark.parametrize("sampler", [LINEAR, LOG], ids=lambda sampler: sampler.rule)
def test_bound_is_the_divergence_of_paths_and_above_the_information(sampler):
    """Looser than that of `PosteriorBridge`, although the samples are nearer to the data: docs/samplers.md."""
    process, times = bo.Uniform(2), bo.ObservationTimes.from_values([0.4, 1.1, 3.0])
    points, weights = lattice(2, 2), torch.tensor([0.5, 0.1, 0.05, 0.35], dtype=torch.float64)
    denoise = bo.ExactPosterior(process, points, weights)
    exact = torch.tensor([paths_bound(sampler, denoise, process, times, x0) for x0 in points], dtype=torch.float64)
    drawn = sampler.bound(denoise, process, times, points.repeat(4000, 1), seed=1).reshape(4000, 4)
    assert bool(((drawn.mean(0) - exact).abs() < 5 * drawn.std(0) / math.sqrt(4000)).all())
    probs, plain = (multistep_probs(s, denoise, process, times, 2) for s in (sampler, ONE))
    assert bool((exact > -torch.log(probs)).all())
    assert total_variation(probs, weights) < 0.75 * total_variation(plain, weights)
    tighter = torch.tensor([paths_bound(ONE, denoise, process, times, x0) for x0 in points], dtype=torch.float64)
    assert float(weights @ exact) > float(weights @ tighter)


def test_bound_is_finite_where_a_correction_would_be_negative():
    """Two points that differ in both components: without its floor the linear rule excludes one of them."""
    process, points = bo.Absorbing(3), torch.tensor([[0, 0], [1, 1], [0, 1]])
    denoise = bo.ExactPosterior(process, points, [0.6, 0.39, 0.01])
    for sampler in (LINEAR, LOG, bo.MultistepBridge(weight=3.0)):
        bound = sampler.bound(denoise, process, bo.ObservationTimes.survival(6), points.repeat(200, 1))
        assert bool(torch.isfinite(bound).all())
    with pytest.raises(ValueError, match="num_steps must be None for steps that depend on the step before, got 3"):
        LINEAR.bound(denoise, process, bo.ObservationTimes.survival(6), points, num_steps=3)


@pytest.mark.parametrize("sampler", [LINEAR, LOG], ids=lambda sampler: sampler.rule)
def test_denoisers_that_contradict_themselves_are_followed(sampler):
    """Where the posterior of the step before excludes the state of now, there is nothing to correct."""
    process, (r, t) = bo.PureDeath(4), torch.tensor([0.5, 1.0], dtype=torch.float64)
    certain = torch.nn.functional.one_hot(torch.tensor([[1, 4]]), 5).double()

    def flat(xt, t):
        return ListedPosterior(process, xt, t, torch.full((*xt.shape, 5), 0.2, dtype=torch.float64))

    past, now = Past(torch.tensor([[0, 0]]), t, certain), torch.tensor([[2, 2]])  # two are left of at most one
    every = [torch.full_like(now, state) for state in range(5)]
    at = Step.of(flat, process, torch.zeros((), dtype=torch.float64), r)
    found = torch.stack([sampler.next_log_prob(at, xs, now, past)[0].exp() for xs in every], -1)
    assert torch.allclose(found[0, 0], torch.tensor([0, 0, 1, 1, 1]).double() / 3)
    assert float(found[0, 1].sum()) == pytest.approx(1.0)
    assert float(found[0, 1, 4]) < 1 / 3 < float(found[0, 1, 2])
    path = sampler.sample(flat, process, bo.ObservationTimes.fisher(6), (50, 2), trajectory=True)
    assert bool((path.diff(dim=0) >= 0).all())


def test_corrector_steps_reduce_the_error():
    """Of both samplers, and the error of this one stays the smaller."""
    process, (points, weights) = bo.Uniform(5), cube(2)
    denoise, times = bo.ExactPosterior(process, points, weights), length_times(process, 6)

    def error(sampler):
        samples = sampler.sample(denoise, process, times, (20_000, 2), seed=2)
        return total_variation(frequencies(samples, 5) / 20_000, weights)

    corrected = error(bo.MultistepBridge(corrector_steps=3, corrector_size=0.3))
    assert corrected < 0.75 * total_variation(multistep_probs(LINEAR, denoise, process, times, 2), weights)
    assert corrected < 0.65 * error(bo.PosteriorBridge(corrector_steps=3, corrector_size=0.3))


@pytest.mark.parametrize("sampler", [LINEAR, bo.MultistepBridge("log", corrector_steps=1)], ids=["plain", "corrected"])
def test_sample_depends_on_seed_and_index_alone(sampler, monkeypatch):
    process = bo.BirthDeath(5, 0.3, 1.0, 1.0)
    posterior, times = bo.ExactPosterior(process, *cube()), length_times(process, 4)

    def sample(size, seed=7, **options):
        return sampler.sample(posterior, process, times, (size, 3), seed=seed, **options)

    samples = sample(15)
    assert torch.equal(samples, sample(15, batch_size=4))
    assert torch.equal(samples[10:], sample(5, start_index=10))
    assert not torch.equal(samples, sample(15, seed=8))
    monkeypatch.setattr("blackout.sampling.multistep._WORKSPACE", 60)  # four samples at a time
    assert torch.equal(samples, sample(15))
    for shape in ((0, 3), (2, 3)):
        assert sampler.sample(posterior, process, times, shape).shape == shape


def test_inpainting_of_masked_labels_has_the_distribution_of_the_conditional_data():
    """Observed labels are never masked: sampling is that of the other two components given the first."""
    process, (points, weights) = bo.Absorbing(6), cube()
    times, rest = bo.ObservationTimes.survival(4), points[:, 0] == 2
    given = bo.ExactPosterior(process, points[rest][:, 1:], weights[rest])
    probs = multistep_probs(LINEAR, given, process, times, 2)
    sampler = bo.Inpainting(LINEAR, [2, 0, 0], [True, False, False])
    samples = sampler.sample(bo.ExactPosterior(process, points, weights), process, times, (20_000, 3), seed=1)
    assert bool((samples[:, 0] == 2).all())
    found = frequencies(samples[:, 1:], 6)
    assert p_value(found, probs) > 1e-4
    assert p_value(found, sampler_probs(ONE, given, process, times, 2)) < 1e-4


def test_inpainting_keeps_the_past_between_steps_but_not_in_rounds():
    seen = []

    class Spy(bo.MultistepBridge):
        def next_step(self, at, xt, rng, past):
            seen.append(None if past is None else (float(past.t), past.x))
            return super().next_step(at, xt, rng, past)

    process, times = bo.PureDeath(4), bo.ObservationTimes.from_values([0.2, 0.7, 1.5])
    denoise = bo.ExactPosterior(process, *cube(2))
    samples = bo.Inpainting(Spy(), [2, 0], [True, False], resample=1).sample(denoise, process, times, (50, 2))
    assert bool((samples[:, 0] == 2).all())
    assert [None if past is None else past[0] for past in seen] == [None, None, 1.5, None, 0.7, None]


@pytest.mark.parametrize("head", ["levels", "mixture", "categorical"])
@pytest.mark.parametrize("process", [bo.PureDeath(9), bo.DiscretizedGaussian(10)], ids=repr)
def test_models_are_sampled_by_name(process, head):
    x = torch.randint(10, (64, 1, 4, 4), generator=torch.Generator().manual_seed(0))
    model = bo.DiffusionModel.for_data(x, process, head=head, width=8, blocks=1)
    samples = model.sample(3, num_steps=4, sampler="multistep")
    assert samples.shape == (3, 1, 4, 4)
    assert torch.equal(samples, model.sample(3, num_steps=4, sampler=bo.MultistepBridge(), batch_size=2))
    bound = LINEAR.bound(model.denoiser(), process, model.sampling_times(4), x[:2])
    assert bool(torch.isfinite(bound).all())


def test_invalid_arguments_are_rejected():
    for options, message in (
        ({"rule": "cubic"}, "rule must be one of"),
        ({"weight": -0.1}, r"weight must be at least 0.*got -0\.1"),
    ):
        with pytest.raises(ValueError, match=message):
            bo.MultistepBridge(**options)
    with pytest.raises(ValueError, match="process must have finitely many states"):
        LINEAR.check(bo.PureDeath())
    x = torch.randint(5, (16, 4), generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match="MultistepBridge needs a head that gives a distribution over X_0"):
        bo.DiffusionModel.for_data(x, bo.PureDeath(4), width=8, blocks=1).sample(1, num_steps=2, sampler="multistep")


if __name__ == "__main__":
    rows = [(process, cube(2)) for process in FIVE_STATES] + [(bo.PureDeath(4), cube()), (bo.PureDeath(7), ridge(8))]
    for process, data in rows:
        grids = {calls: length_times(process, calls) for calls in (8, 16, 32, 64)}
        for sampler in (ONE, LINEAR, LOG):
            found = [bias(sampler, process, data, times) for times in grids.values()]
            rule = getattr(sampler, "rule", "")
            print(f"| {process!r} {len(data[0])} | {type(sampler).__name__} {rule} |", *(f"{v:.4f} |" for v in found))
        two = bo.MultistepBridge(weight=1.0)
        found = [bias(two, process, data, halved(process, length_times(process, n // 2)), stages=2) for n in grids]
        print(f"| {process!r} {len(data[0])} | two stages |", *(f"{v:.4f} |" for v in found), flush=True)
