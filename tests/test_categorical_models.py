"""Models whose head gives a distribution over X_0, or rates, under every process: entropies, training, saving."""

import math
import shutil
from pathlib import Path

import numpy
import pytest
import torch
from scipy import sparse, stats
from torch import Tensor

import blackout as bo
from blackout.data import from_array
from blackout.io import checksum
from blackout.model import DiffusionModel
from blackout.network import CategoricalHead, DistributionHead, LevelHead, MixtureHead
from blackout.network.categorical_heads import marginal_probs
from blackout.network.head import Observation
from blackout.process import PROCESSES, Halving, MarkovProcess, Schedule
from blackout.process.matrix import GeneratorProcess
from blackout.recipes import build_model, recipe
from blackout.training.loop import divergence


def random_generator(size: int, seed: int = 0) -> Tensor:
    rates = torch.rand(size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    rates.fill_diagonal_(0)
    return rates - torch.diag(rates.sum(1))


def chain_on_a_ring(size: int) -> bo.Chain:
    steps = torch.eye(size, dtype=torch.float64)
    return bo.Chain(0.9 * steps + 0.05 * steps.roll(1, 1) + 0.05 * steps.roll(-1, 1))


GIVEN_BY_MATRIX = {"finite-state": bo.FiniteState(random_generator(4)), "chain": chain_on_a_ring(4)}
GIVEN_BY_MATRIX["piecewise"] = bo.PiecewiseGenerator([bo.Uniform(4).generator, 0.5 * random_generator(4)], [0.5])
WORLDS: dict[str, MarkovProcess] = {
    name: GIVEN_BY_MATRIX[name] if name in GIVEN_BY_MATRIX else PROCESSES[name].for_levels(4) for name in PROCESSES
}


CASES = [
    (name, head)
    for name in WORLDS
    for head in ("categorical", "levels", "mixture", "rates")
    if (name, head) != ("chain", "rates")  # a chain has no rates
]


def independent_counts(num: int, seed: int = 0) -> tuple[Tensor, float]:
    """Pixels that are Binomial(3, 0.3), and their entropy in bits."""
    counts = torch.from_numpy(numpy.random.default_rng(seed).binomial(3, 0.3, (num, 1, 4, 4)))
    return counts, float(stats.binom(3, 0.3).entropy()) / math.log(2)


def pairs(num: int, seed: int = 0) -> Tensor:
    """Two labels out of four, the second one more than the first: 2 bits for two components."""
    first = torch.randint(0, 4, (num, 1), generator=torch.Generator().manual_seed(seed))
    return torch.cat([first, (first + 1) % 4], 1)


@pytest.mark.parametrize("head", ["categorical", "levels", "mixture", "rates"])
@pytest.mark.parametrize("name", [name for name in WORLDS if name != "chain"])
def test_untrained_model_has_the_entropy_of_independent_components(name: str, head: str) -> None:
    """The bound is the cross-entropy with the marginal distribution, here nearly the entropy, up to sampling noise."""
    x, entropy = independent_counts(256)
    model = DiffusionModel.for_data(x, WORLDS[name], head=head, width=8, blocks=1)
    bits = model.bits_per_dim(x, num_times=16)
    assert abs(bits - entropy) < 4 * bits.standard_error + 2e-3  # fails for one of 16,000 seeds
    assert bits.standard_error < 0.04


def test_untrained_model_of_a_chain_has_the_entropy_of_independent_components() -> None:
    x, entropy = independent_counts(256)
    model = DiffusionModel.for_data(x, WORLDS["chain"], width=8, blocks=1)
    bits = model.bits_per_dim(x)
    assert abs(bits - entropy) < 4 * bits.standard_error + 2e-3
    assert bits.standard_error < 0.03


@pytest.mark.parametrize(("name", "head"), [case for case in CASES if case != ("chain", "mixture")])
def test_training_learns_dependence_between_components(name: str, head: str) -> None:
    """Independent components have 2 bits each, dependent ones 1 on average."""
    x, slow = pairs(512), name == "chain" or head == "rates"
    model = DiffusionModel.for_data(x, WORLDS[name], head=head, width=32, blocks=2)
    if slow:
        model.fit(x, steps=140, batch_size=64, learning_rate=3e-3 if head == "rates" else 5e-3, ema=0.95)
    else:
        model.fit(x, steps=60, batch_size=32, learning_rate=6e-3, ema=0.9)
    assert model.bits_per_dim(x[:128], num_times=16) < 1.75


NO_COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")
@pytest.mark.parametrize(
    "backend", ["aot_eager_decomp_partition", pytest.param("inductor", marks=[pytest.mark.slow, NO_COMPILER])]
)
@pytest.mark.parametrize(
    ("name", "kind"), [("uniform", CategoricalHead), ("absorbing", CategoricalHead), ("birth-death", LevelHead)]
)
def test_compiled_divergence_equals_the_plain_one(name: str, kind: type[DistributionHead], backend: str) -> None:
    """Capture and differentiation of the graph in every run; code generation among the slow tests."""
    process, generator = WORLDS[name], torch.Generator().manual_seed(0)
    x0 = torch.randint(0, 4, (6, 5), generator=generator)
    t = torch.linspace(0.1, 2.0, 6, dtype=torch.float64)
    observation, head = Observation(process, process.sample(x0, t, generator), t), kind(marginal_probs(x0, process))
    start, _ = torch.randn(6, 5, head.outputs(process), generator=generator), observation.transitions
    found = []
    for function in (divergence, torch.compile(divergence, dynamic=False, fullgraph=True, backend=backend)):
        raw = start.clone().requires_grad_()
        value = function(head, raw, observation, x0, None)
        value.mean().backward()
        found.append((value.detach(), raw.grad))
    torch.testing.assert_close(found[1], found[0])


def test_two_steps_are_enough_in_one_component_with_a_distribution() -> None:
    """Two distant modes: a sampler that uses the mean between them gives neither."""
    x = torch.tensor([2, 18]).repeat(256).unsqueeze(1)
    model = DiffusionModel.for_data(x, bo.PureDeath(20), head="categorical", width=32, blocks=2)
    samples = [model.sample(400, 2, sampler) for sampler in ("posterior", "bridge")]
    share = [float(((x == 2) | (x == 18)).double().mean()) for x in samples]
    assert share[0] > 0.98  # unseen states have a small probability
    assert share[1] < 0.5


@pytest.mark.parametrize(("name", "head"), CASES)
def test_saved_model_loads_as_the_same_model(name: str, head: str, tmp_path: Path) -> None:
    x, _ = independent_counts(16)
    model = DiffusionModel.for_data(x, WORLDS[name], head=head, width=8, blocks=1)
    with torch.no_grad():
        for weight in model.predictor.parameters():
            weight += 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))
    loaded = bo.load(model.save(tmp_path))
    xt, t = x[:4], torch.full((4,), 2.0, dtype=torch.float64)
    found, expected = (
        each.rates() if head == "rates" else each.probs() for each in (m.posterior(xt, t) for m in (loaded, model))
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert loaded.config() == model.config()
    assert loaded.max_state == model.max_state == 3


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kind": "magic"}, "process must be one of pure-death, .*, got 'magic'"),
        ({"kind": "uniform", "num_states": 4, "speed": 2}, "process 'uniform': .* 'speed'"),
        ({"kind": "uniform", "num_states": 1}, "num_states must be at least 2, got 1"),
    ],
)
def test_invalid_description_of_a_process_is_rejected(change: dict[str, object], reason: str) -> None:
    config = DiffusionModel.for_data(pairs(8), bo.Uniform(4), width=8, blocks=1).config()
    with pytest.raises(ValueError, match=reason):
        DiffusionModel.from_config({**config, "process": change})


def test_arbitrary_schedule_can_be_trained_but_not_saved(tmp_path: Path) -> None:
    process = bo.Uniform(4, schedule=lambda t: 0.1 + 2.0 * t)
    model = DiffusionModel.for_data(pairs(64), process, width=8, blocks=1)
    model.fit(pairs(64), steps=2, batch_size=8)
    with pytest.raises(ValueError, match=r"schedule must be Schedule\.constant, linear, exponential or piecewise"):
        model.save(tmp_path / "here")
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize(
    "schedule", [Schedule.linear(0.1, 2.0), Schedule.constant(3.0), Schedule.exponential(0.5, 4.0)]
)
def test_named_schedules_are_saved(schedule: Schedule, tmp_path: Path) -> None:
    for process in (bo.Uniform(4, schedule=schedule), bo.FiniteState(random_generator(4), schedule=schedule)):
        model = DiffusionModel.for_data(pairs(64), process, width=8, blocks=1)
        loaded = bo.load(model.save(tmp_path / type(process).__name__)).process
        t = torch.linspace(0.1, 3, 5, dtype=torch.float64)
        torch.testing.assert_close(loaded.clock_time(t), process.clock_time(t), rtol=0, atol=0)


class Ring(GeneratorProcess):
    """A process of the user's own."""

    arguments = ("num_states",)

    def __init__(self, num_states: int, schedule: Schedule | None = None) -> None:
        step = torch.eye(num_states, dtype=torch.float64)
        super().__init__(step.roll(1, 1) + step.roll(-1, 1) - 2 * step, ordered=False, schedule=schedule)


def test_user_class_is_saved_under_its_registered_name(tmp_path: Path) -> None:
    model = DiffusionModel.for_data(pairs(64), Ring(4), width=8, blocks=1).fit(pairs(64), steps=2, batch_size=8)
    with pytest.raises(ValueError, match="Ring is not a registered process: add it, such as PROCESSES"):
        model.save(tmp_path)
    PROCESSES.add("ring", Ring, "one step forward or back on a ring")
    try:
        loaded = bo.load(model.save(tmp_path))
    finally:
        PROCESSES.remove("ring")
    assert type(loaded.process) is Ring
    assert torch.equal(loaded.sample(8, 5), model.sample(8, 5))


def test_halving_loses_the_last_binary_digit() -> None:
    process = Halving(256)
    x = torch.full((20_000,), 0b10110101)
    states, counts = process.sample(x, 1.0, torch.Generator().manual_seed(0)).unique(return_counts=True)
    assert set(states.tolist()) <= {0b10110101 >> k for k in range(9)}
    expected = [stats.poisson(1.0).pmf(k) for k in range(8)] + [stats.poisson(1.0).sf(7)]
    observed = [int(counts[states == (0b10110101 >> k)].sum()) for k in range(9)]
    assert stats.chisquare(observed, 20_000 * numpy.array(expected)).pvalue > 1e-4
    assert process.terminal_state == 0


def test_marginal_probs_count_states_and_exclude_the_mask() -> None:
    x = torch.tensor([[[[0, 1], [1, 1]]], [[[0, 0], [0, 2]]]])
    probs = marginal_probs(x, bo.Absorbing(5))
    torch.testing.assert_close(probs[0, :3], torch.tensor([0.5, 0.375, 0.125]), rtol=0, atol=1e-5)
    assert 0 < probs[0, 3] < 1e-5
    assert probs[0, 4] == 0


def test_features_of_vectors_have_their_own_marginal_distributions() -> None:
    """An untrained model has the mean of the entropies of the features, not that of all together."""
    rng = numpy.random.default_rng(0)
    each = [[0.97, 0.01, 0.01, 0.01], [0.01, 0.97, 0.01, 0.01], [0.01, 0.01, 0.01, 0.97]]
    x = torch.from_numpy(numpy.stack([rng.choice(4, 4000, p=probs) for probs in each], 1))
    found = marginal_probs(x, bo.Uniform(4)).double()
    torch.testing.assert_close(found, torch.tensor(each).double(), rtol=0, atol=0.02)
    entropy = float(stats.entropy(each, axis=1, base=2).mean())
    bits = DiffusionModel.for_data(x, bo.Uniform(4), width=8, blocks=1).bits_per_dim(x, num_times=16)
    assert abs(bits - entropy) < 4 * bits.standard_error + 0.01
    few = marginal_probs(x[:2], bo.Uniform(4))  # two data points: mostly the distribution over all features
    assert 0.01 < float(few[0, 1]) < 0.7


@pytest.mark.parametrize(("process", "channels"), [(bo.Uniform(16), 16), (bo.Uniform(17), 7), (bo.Absorbing(17), 8)])
def test_states_are_encoded_one_hot_or_as_levels(process: MarkovProcess, channels: int) -> None:
    x, t = torch.arange(16).reshape(2, 2, 2, 2), torch.ones(2, dtype=torch.float64)
    head = CategoricalHead(torch.ones(2, process.num_states))
    assert head.inputs(process) == channels
    assert head.encode(Observation(process, x, t)).shape == (2, 2 * channels, 2, 2)
    assert head.encode(Observation(process, x.reshape(2, 8), t)).shape == (2, 8 * channels)


@pytest.mark.parametrize("process", [bo.PureDeath(40), bo.Uniform(41), bo.Absorbing(42), chain_on_a_ring(41)], ids=repr)
def test_levels_are_encoded_with_their_standardised_posterior_mean(process: MarkovProcess) -> None:
    """E[X_0 | X_t] of one component, by Bayes' rule in numpy, with mean zero and variance one."""
    generator = numpy.random.default_rng(0)
    x = torch.from_numpy(generator.integers(0, 41, (3, 2, 4, 4)))
    prior = marginal_probs(x, process)
    head, tau = LevelHead(prior), torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)
    encoded = head.encode(Observation(process, x, tau))
    assert encoded.shape == (3, 2 * head.inputs(process), 4, 4)
    for k in range(3):
        P = process.transition_matrices(tau[k : k + 1])[0].numpy()
        for c in range(2):
            probs = prior[c].double().numpy()
            joint = probs[:, None] * P / numpy.maximum(probs @ P, 1e-300)
            mean, centre = numpy.arange(len(probs)) @ joint, probs @ numpy.arange(len(probs))
            std = math.sqrt((probs @ P) @ (mean - centre) ** 2)
            expected = ((mean - centre) / std).clip(-8, 8)[x[k, c].numpy()]
            assert numpy.allclose(encoded[k, c], expected, atol=1e-5)
    vectors = LevelHead(marginal_probs(x.flatten(1), process)).encode(Observation(process, x.flatten(1), tau))
    assert vectors.shape == (3, 32 * head.inputs(process))


def without_prior_share(head: DistributionHead, raw: Tensor) -> Tensor:
    """prior(o) e^{logits}, normalised: `weights` without its small share of the prior."""
    probs = torch.softmax(torch.log(head.prior[0]) + head.logits(raw), -1)
    torch.testing.assert_close(head.weights(raw), torch.lerp(probs, head.prior[0].expand_as(probs), 1e-5))
    return probs.flatten().double()


def test_window_over_levels_is_gaussian() -> None:
    head = LevelHead(torch.ones(1, 101))
    raw = torch.zeros(1, 1, 1, 103)
    assert torch.allclose(without_prior_share(head, raw), head.prior[0].double(), atol=1e-6)
    raw[..., 0], raw[..., 1] = 0.5, math.log(50.0)
    probs = without_prior_share(head, raw).numpy()
    # e^{2s² - 100 (s - 1/2)²} is a Gaussian of mean 50/98 and variance 1/196 in s, which is state / 50 - 1.
    assert probs @ numpy.arange(101) == pytest.approx(50 * (1 + 50 / 98), abs=0.01)
    assert probs @ numpy.arange(101) ** 2 - (probs @ numpy.arange(101)) ** 2 == pytest.approx(2500 / 196, rel=1e-3)


@pytest.mark.parametrize("head", ["categorical", "levels", "mixture"])
def test_bound_of_a_confident_wrong_network_is_finite(head: str) -> None:
    x = torch.cat([torch.zeros(8, 1, 4, 4), torch.full((8, 1, 4, 4), 127)]).long()
    model = DiffusionModel.for_data(x, bo.Absorbing(129), head=head, width=8, blocks=1)
    with torch.no_grad():
        for parameter in list(model.predictor.network.parameters())[-2:]:
            parameter.copy_(1e3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
        observation = Observation(model.process, torch.full_like(x, 128), torch.ones(16, dtype=torch.float64))
        u = model.predictor.head.weights(model.predictor(observation))
    prior = model.predictor.head.prior[0]
    assert (u >= 0.99e-5 * prior).all()
    torch.testing.assert_close(u.sum(-1), torch.ones(16, 1, 4, 4))
    # The largest possible cost of a component is that of the prior's share.
    assert 1 < model.bits_per_dim(x, num_times=8) < math.log2(1e5 / float(prior[[0, 127]].min())) * 1.5


def test_window_speeds_up_learning_of_levels() -> None:
    """Slopes of 64 levels, under pure death, after the same number of steps."""
    generator, (i, j) = numpy.random.default_rng(0), numpy.mgrid[0:8, 0:8] / 7 - 0.5
    along, across = generator.uniform(-0.4, 0.4, (2, 512, 1, 1))
    slopes = along * i + across * j + generator.uniform(0.3, 0.7, (512, 1, 1))
    x = torch.from_numpy((63 * slopes.clip(0, 1)).round().astype(int))[:, None]
    bits = {}
    for head in ("categorical", "levels"):
        model = DiffusionModel.for_data(x, bo.PureDeath(63), head=head, width=16, blocks=1)
        model.fit(x, steps=40, batch_size=16, learning_rate=5e-3, ema=0.95)
        bits[head] = model.bits_per_dim(x[:32], num_times=4)
    assert bits["levels"] < bits["categorical"] - 1


def test_default_head_depends_on_the_states() -> None:
    x = torch.arange(40).reshape(20, 2)
    for process, head in (
        (bo.BirthDeath(128, 1.0, 50.0), LevelHead),
        (bo.Uniform(128), CategoricalHead),
        (bo.BirthDeath(16, 1.0, 5.0), CategoricalHead),
    ):
        assert type(DiffusionModel.for_data(x % 16, process, width=8, blocks=1).predictor.head) is head


def test_mixture_starts_from_the_prior_and_can_be_as_narrow_as_one_state() -> None:
    head = MixtureHead(torch.ones(1, 256), members=2)
    raw = torch.zeros(1, 1, 6)
    torch.testing.assert_close(without_prior_share(head, raw).float(), torch.full((256,), 1 / 256))
    raw[..., 2:4] = torch.tensor([4 * (100.5 / 256 - 0.25), 0.0])  # the first member at state 100
    raw[..., :2], raw[..., 4] = torch.tensor([20.0, 0.0]), 12.0
    probs = without_prior_share(head, raw)
    assert probs.argmax() == 100
    assert probs.max() > 0.99
    assert torch.isfinite(head.logits(100 * torch.randn(3, 1, 6, generator=torch.Generator().manual_seed(0)))).all()


WITHOUT_LIMIT = {
    "still": (bo.Chain(numpy.eye(3)), "states 0 and 1 lie in different closed sets"),
    "round": (bo.Chain(numpy.roll(numpy.eye(3), 1, 1)), "every 3 steps"),
    "two sinks": (bo.FiniteState([[0, 0, 0], [1, -2, 1], [0, 0, 0]]), "states 0 and 2 lie in different closed sets"),
}


@pytest.mark.parametrize("name", WITHOUT_LIMIT)
@pytest.mark.parametrize("times", [None, bo.ObservationTimes(range(1, 20))])
def test_process_without_a_terminal_distribution_is_rejected(name: str, times: bo.ObservationTimes | None) -> None:
    process, reason = WITHOUT_LIMIT[name]
    with pytest.raises(ValueError, match=f"terminal distribution: .*{reason}"):
        DiffusionModel.for_data(torch.randint(0, 3, (50, 2)), process, times)


def test_times_of_a_chain_are_its_steps() -> None:
    chain = chain_on_a_ring(4)
    with pytest.raises(ValueError, match="times must be integers"):
        DiffusionModel.for_data(pairs(8), chain, bo.ObservationTimes.uniform(10, 3.5))
    with pytest.raises(ValueError, match="process must run in continuous time"):
        bo.ObservationTimes.equalize(chain)
    with pytest.raises(ValueError, match="within 1,000,000 steps"):
        bo.ObservationTimes.for_process(bo.Chain([[1 - 1e-7, 1e-7], [1e-7, 1 - 1e-7]]))
    with pytest.raises(ValueError, match="head 'rates' needs a process in continuous time"):
        DiffusionModel.for_data(pairs(8), chain, head="rates")


def test_data_that_hold_the_mask_are_rejected() -> None:
    with pytest.raises(ValueError, match="x must not hold 3, the mask of Absorbing"):
        DiffusionModel.for_data(pairs(8), bo.Absorbing(4))
    model = DiffusionModel.for_data(pairs(8), bo.Absorbing(5), width=8, blocks=1)
    masked = torch.full((8, 2), 4)
    for use in (lambda: model.fit(masked, steps=1), lambda: model.bits_per_dim(masked)):
        with pytest.raises(ValueError, match="x must not hold 4, the mask of Absorbing"):
            use()


def test_data_may_be_arrays_and_lists() -> None:
    x = pairs(32)
    model = DiffusionModel.for_data(x.tolist(), bo.Uniform(4), width=8, blocks=1)
    model.fit(x.numpy(), steps=1).fit(x.tolist(), steps=1)
    assert model.bits_per_dim(x.numpy()) == model.bits_per_dim(x)
    with pytest.raises(ValueError, match=r"x must have shape \(n, 2\), got \(5, 3\)"):
        model.bits_per_dim(torch.zeros(5, 3, dtype=torch.long))
    with pytest.raises(ValueError, match="x must hold integers"):
        model.fit([[0.5, 1.0]], steps=1)


def test_too_many_states_for_a_network_are_rejected() -> None:
    size = 2049
    rates = sparse.diags_array([numpy.ones(size - 1), -numpy.r_[0, numpy.ones(size - 1)]], offsets=[-1, 0])
    times = bo.ObservationTimes.uniform(4)
    with pytest.raises(ValueError, match="process must have at most 2048 states for a network"):
        DiffusionModel.for_data(torch.zeros(4, 2, dtype=torch.long), bo.FiniteState(rates), times)


@pytest.mark.parametrize("head", ["rates", "categorical"])
@pytest.mark.parametrize("steps", [2, 10])
def test_tau_leaping_leaves_nothing_masked(head: str, steps: int) -> None:
    """The last step unmasks everything: there is no mask at time zero."""
    model = DiffusionModel.for_data(pairs(64), bo.Absorbing(5), head=head, width=8, blocks=1)
    samples = model.sample(500, steps, "poisson")
    assert int(samples.max()) < 4
    share = torch.bincount(samples.flatten(), minlength=4) / samples.numel()
    torch.testing.assert_close(share, torch.full((4,), 0.25), rtol=0, atol=0.07)


def test_bound_of_a_slow_chain_by_a_subsample_of_its_steps() -> None:
    """64 of 1,500 steps give the entropy, as all of them would."""
    chain = bo.Chain([[0.995, 0.005], [0.005, 0.995]])
    x = (torch.rand(400, 3, generator=torch.Generator().manual_seed(0)) < 0.3).long()
    model = DiffusionModel.for_data(x, chain, width=8, blocks=1)
    assert len(model.times) > 1000
    share = x.double().mean(0)
    entropy = float(stats.entropy(torch.stack([share, 1 - share]).numpy()).sum())
    bounds = [
        bo.PosteriorBridge().bound(model.denoiser(), chain, model.times, x, seed, num_steps=64) for seed in range(3)
    ]
    error = float(torch.cat(bounds).std() / math.sqrt(1200))
    assert abs(float(torch.cat(bounds).mean()) - entropy) < 4 * error + 0.03
    assert len({float(bound[0]) for bound in bounds}) == 3


def test_incompatible_heads_processes_and_samplers_are_rejected() -> None:
    x = pairs(16)
    dataset = from_array(x, max_state=3)
    config = recipe("digits").replace(max_count=3, process="uniform")
    with pytest.raises(ValueError, match="process must be PureDeath for a head that predicts X_0 - X_t, got Uniform"):
        build_model(config, dataset)
    with pytest.raises(ValueError, match=r"process must be one of 'pure-death', .*, got 'magic'"):
        config.replace(process="magic")
    with pytest.raises(ValueError, match=r"head must be one of .*'mixture', .*'rates', .*got 'magic'"):
        config.replace(head="magic")
    with pytest.raises(ValueError, match=r"head must be one of .* mixture, .*rates, .*got 'magic'"):
        DiffusionModel.for_data(x, bo.Uniform(4), head="magic")
    with pytest.raises(ValueError, match="Uniform needs finitely many states: max_count must not be 0"):
        build_model(config.replace(max_count=0), dataset)
    for name in GIVEN_BY_MATRIX:
        with pytest.raises(ValueError, match="has no default: give"):
            build_model(config.replace(process=name), dataset)
    with pytest.raises(ValueError, match="finitely many states"):
        DiffusionModel.for_data(x, bo.PureDeath(), head="categorical")
    network = DiffusionModel.for_data(x, bo.Uniform(4)).predictor.network
    with pytest.raises(ValueError, match="for 5 states, those of the process, got 4"):
        DiffusionModel(bo.Uniform(5), bo.ObservationTimes.uniform(10), network, CategoricalHead(torch.ones(1, 4)))
    with pytest.raises(ValueError, match="prior must be a distribution for each channel"):
        CategoricalHead(torch.zeros(1, 4))
    for process, head, answers in ((bo.Uniform(4), "rates", "rates"), (bo.PureDeath(3), "auto", "mean")):
        model = DiffusionModel.for_data(x, process, head=head)
        for sampler in ("posterior", bo.PosteriorBridge()):
            with pytest.raises(
                ValueError, match=f"needs a head that gives a distribution over X_0, .* gives {answers}"
            ):
                model.sample(2, 2, sampler)
    with pytest.raises(ValueError, match="x must be at most 3, got 7"):
        DiffusionModel.for_data(x + 4, bo.Uniform(4))


def test_masked_data_may_be_bytes() -> None:
    """The mask is one state more than a byte holds; as a byte it would be 0, and cost nothing."""
    x = torch.randint(0, 256, (64, 1, 4, 4), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    model = DiffusionModel.for_data(x, bo.Absorbing(257), width=8, blocks=1)
    reports: list[float] = []
    model.fit(x, steps=4, batch_size=32, log_every=1, listener=lambda report, _: reports.append(report.bits_per_dim))
    assert 5 < numpy.mean(reports) < 12  # 8 bits, up to sampling noise


def test_chain_on_a_coarse_grid_is_trained_on_the_bound_of_that_grid() -> None:
    x, chain = pairs(2048), chain_on_a_ring(4)
    model = DiffusionModel.for_data(x, chain, bo.ObservationTimes.from_values([10, 20, 40]), width=8, blocks=1)
    reports: list[float] = []
    listener = lambda report, _: reports.append(report.bits_per_dim)  # noqa: E731
    model.fit(x, steps=20, batch_size=256, learning_rate=1e-9, log_every=1, listener=listener)
    bits = model.bits_per_dim(x)
    assert abs(numpy.mean(reports) - bits) < 0.1
    with pytest.raises(ValueError, match="time_density must be 'grid' for a chain"):
        model.fit(x, steps=1, time_density="logistic")


def test_default_sampler_of_rates_is_tau_leaping() -> None:
    model = DiffusionModel.for_data(pairs(64), bo.Uniform(4), head="rates", width=8, blocks=1)
    assert model.default_sampler(8) == model.default_sampler() == "poisson"
    assert model.sample(3, 4).shape == (3, 2)


@pytest.mark.parametrize(
    ("process", "head", "few", "many"),
    [
        (bo.Uniform(4), "categorical", "multistep", "posterior"),
        (bo.PureDeath(3), "bounded-logit", "bridge", "bridge"),
        (bo.PureDeath(1), "bounded-logit", "multistep", "bridge"),
        (chain_on_a_ring(4), "categorical", "multistep", "posterior"),
    ],
    ids=["categorical", "mean", "two levels", "chain"],
)
def test_few_steps_use_the_past_where_the_distribution_is_known(process, head, few, many) -> None:
    model = DiffusionModel.for_data(pairs(64).clamp(max=process.max_state), process, head=head, width=8, blocks=1)
    assert (model.default_sampler(8), model.default_sampler(65)) == (few, many)
    assert torch.equal(model.sample(3, 4), model.sample(3, 4, sampler=few))
    assert model.with_sampling(sampler=many).default_sampler(8) == many


def test_mean_of_two_levels_is_the_whole_posterior() -> None:
    process, data = bo.PureDeath(1), torch.tensor([[0, 1, 1], [1, 1, 0], [0, 0, 1]])
    exact, t = bo.ExactPosterior(process, data), torch.tensor([0.7], dtype=torch.float64)
    xt = torch.tensor([[0, 1, 0]])
    found = bo.MeanPosterior(process, xt, t, exact(xt, t).difference())
    torch.testing.assert_close(found.probs(), exact(xt, t).probs())


def test_checksum_depends_on_head_matrix_and_schedule() -> None:
    x = pairs(16)
    models = [
        DiffusionModel.for_data(x, process, head=head, width=8, blocks=1)
        for process, head in (
            (bo.PureDeath(3), "softplus"),
            (bo.PureDeath(3), "bounded-logit"),
            (bo.FiniteState(random_generator(4)), "categorical"),
            (bo.FiniteState(2 * random_generator(4)), "categorical"),
            (bo.Uniform(4, schedule=Schedule.linear(0.1, 2.0)), "categorical"),
            (bo.Uniform(4, schedule=Schedule.linear(0.2, 2.0)), "categorical"),
        )
    ]
    assert len({checksum(model) for model in models}) == len(models)
