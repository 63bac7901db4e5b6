"""Models whose head gives a law over X_0, or rates, under every process: known entropies, training, saving."""

import dataclasses
import json
import math
import shutil
from pathlib import Path

import numpy
import pytest
import torch
from blackout.classes import ModelDenoiser
from blackout.law import transitions
from blackout.network.law import marginal_law, show, shown_channels
from blackout.process.description import describe_process, process_from
from blackout.training.build import PROCESSES
from blackout.training.objective import LawObjective
from scipy import sparse, stats
from torch import Tensor

import blackout as bo
from blackout.data import from_array
from blackout.io import checksum
from blackout.io.models import from_config, from_description, load
from blackout.model import DiffusionModel
from blackout.network import CategoricalHead, LawHead, LevelHead, MixtureHead
from blackout.process import Halving, MarkovProcess, Schedule
from blackout.recipes import recipe
from blackout.training.batches import Batch


def random_generator(size: int, seed: int = 0) -> Tensor:
    rates = torch.rand(size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    rates.fill_diagonal_(0)
    return rates - torch.diag(rates.sum(1))


def walk_on_a_ring(size: int) -> bo.Chain:
    steps = torch.eye(size, dtype=torch.float64)
    return bo.Chain(0.9 * steps + 0.05 * steps.roll(1, 1) + 0.05 * steps.roll(-1, 1))


WORLDS: dict[str, MarkovProcess] = {
    **{name: build(4) for name, build in PROCESSES.items()},
    "any generator": bo.FiniteState(random_generator(4)),
    "chain": walk_on_a_ring(4),
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
def test_a_new_network_knows_independent_components_under_every_process(name: str, head: str) -> None:
    """The bound is the cross-entropy with the marginal law, here nearly the entropy: within what drawn times add."""
    x, entropy = independent_counts(256)
    model = DiffusionModel.for_data(x, WORLDS[name], head=head, width=8, blocks=1)
    bits = model.bits_per_dim(x, num_times=16)
    assert abs(bits - entropy) < 4 * bits.standard_error + 2e-3  # fails once in 16,000 seeds
    assert bits.standard_error < 0.04


def test_a_new_network_knows_independent_components_under_a_chain() -> None:
    x, entropy = independent_counts(256)
    model = DiffusionModel.for_data(x, WORLDS["chain"], width=8, blocks=1)
    bits = model.bits_per_dim(x)
    assert abs(bits - entropy) < 4 * bits.standard_error + 2e-3
    assert bits.standard_error < 0.03


@pytest.mark.parametrize(("name", "head"), CASES)
def test_training_learns_what_binds_components(name: str, head: str) -> None:
    """Independent components would cost 2 bits each; bound together they cost 1 on average."""
    x = pairs(512)
    model = DiffusionModel.for_data(x, WORLDS[name], head=head, width=32, blocks=2)
    model.fit(x, steps=250 if name == "chain" else 150, batch_size=64, learning_rate=3e-3, ema=0.95)
    assert model.bits_per_dim(x[:256], num_times=16) < 1.7


@pytest.mark.skipif(shutil.which("g++") is None, reason="the compiler of torch needs one of C++")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")  # of its own parts
@pytest.mark.parametrize(
    ("name", "kind"), [("uniform", CategoricalHead), ("absorbing", CategoricalHead), ("birth-death", LevelHead)]
)
def test_a_compiled_objective_is_the_same_objective(name: str, kind: type[LawHead]) -> None:
    process, generator = PROCESSES[name](4), torch.Generator().manual_seed(0)
    x0 = torch.randint(0, 4, (6, 5), generator=generator)
    t = torch.linspace(0.1, 2.0, 6, dtype=torch.float64)
    batch = Batch(x0, process.sample(x0, t, generator), 0.5 * t, t, 0.5 * t, t, None)
    head = kind(marginal_law(x0, process))
    start = torch.randn(6, 5, head.outputs(process), generator=generator)
    found = []
    for compiled in (False, True):
        answer = start.clone().requires_grad_()
        loss, _ = LawObjective(process, head, compiled)(answer, batch)
        loss.backward()
        found.append((loss.detach(), answer.grad))
    torch.testing.assert_close(found[1], found[0])


def test_with_a_law_few_steps_are_enough_in_one_component() -> None:
    """Two modes, as far apart as they can be: a mean between them would draw neither."""
    x = torch.tensor([2, 18]).repeat(256).unsqueeze(1)
    model = DiffusionModel.for_data(x, bo.PureDeath(20), head="categorical", width=32, blocks=2)
    draws = {
        name: model.sample(400, 2, sampler)
        for name, sampler in (("law", bo.PosteriorBridge()), ("mean", bo.BinomialBridge()))
    }
    share = {name: ((x == 2) | (x == 18)).double().mean() for name, x in draws.items()}
    assert share["law"] > 0.98  # the marginal law is known, but for the little that unseen states get
    assert share["mean"] < 0.5


@pytest.mark.parametrize(("name", "head"), CASES)
def test_saved_and_loaded_it_answers_the_same(name: str, head: str, tmp_path: Path) -> None:
    x, _ = independent_counts(16)
    model = DiffusionModel.for_data(x, WORLDS[name], head=head, width=8, blocks=1)
    with torch.no_grad():
        for weight in model.predictor.parameters():
            weight += 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))
    again = load(model.save(tmp_path))
    xt, t = x[:4], torch.full((4,), 2.0, dtype=torch.float64)
    ask = "denoise" if name != "chain" else "law"
    torch.testing.assert_close(getattr(again, ask)(xt, t), getattr(model, ask)(xt, t), rtol=0, atol=0)
    assert again.describe() == model.describe()
    assert again.max_state == model.max_state == 3


@pytest.mark.parametrize("name", WORLDS)
def test_a_process_comes_back_from_plain_json(name: str) -> None:
    process = WORLDS[name]
    again = process_from(json.loads(json.dumps(describe_process(process))))
    assert type(again) is type(process)
    assert again.jumps == process.jumps
    x = torch.arange(4)
    assert torch.equal(again.log_prob(x, x.flip(0), 2.0), process.log_prob(x, x.flip(0), 2.0))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kind": "Magic"}, "'Magic' is not one of"),
        ({"kind": "Uniform", "num_states": 4, "speed": 2}, "has the fields num_states"),
        ({"kind": "Uniform", "num_states": 1}, "num_states"),
    ],
)
def test_a_model_of_another_process_is_refused(change: dict[str, object], reason: str) -> None:
    values = DiffusionModel.for_data(pairs(8), bo.Uniform(4), width=8, blocks=1).describe()
    with pytest.raises(ValueError, match=reason):
        from_description({**values, "process": change}, Path("model.json"))


def test_a_schedule_of_ones_own_cannot_be_saved_but_can_be_trained(tmp_path: Path) -> None:
    process = bo.Uniform(4, schedule=lambda t: 0.1 + 2.0 * t)
    model = DiffusionModel.for_data(pairs(64), process, width=8, blocks=1)
    model.fit(pairs(64), steps=2, batch_size=8)
    with pytest.raises(ValueError, match=r"schedule must be Schedule\.constant, linear or exponential"):
        model.save(tmp_path / "here")
    assert not (tmp_path / "here").exists()


SCHEDULES = [Schedule.linear(0.1, 2.0), Schedule.constant(3.0), Schedule.exponential(0.5, 4.0)]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_schedule_with_a_name_is_saved(schedule: Schedule, tmp_path: Path) -> None:
    for process in (bo.Uniform(4, schedule=schedule), bo.FiniteState(random_generator(4), schedule=schedule)):
        model = DiffusionModel.for_data(pairs(64), process, width=8, blocks=1)
        loaded = bo.load(model.save(tmp_path / type(process).__name__)).process
        t = torch.linspace(0.1, 3, 5, dtype=torch.float64)
        torch.testing.assert_close(loaded.clock_time(t), process.clock_time(t), rtol=0, atol=0)


class Ring(bo.FiniteState):
    """A class of the user's own."""

    def __init__(self, size: int) -> None:
        step = torch.eye(size, dtype=torch.float64)
        super().__init__(step.roll(1, 1) + step.roll(-1, 1) - 2 * step)


def test_a_class_of_ones_own_is_saved_by_its_matrix(tmp_path: Path) -> None:
    model = DiffusionModel.for_data(pairs(64), Ring(4), width=8, blocks=1)
    loaded = bo.load(model.save(tmp_path))
    assert type(loaded.process) is bo.FiniteState
    assert torch.equal(loaded.sample(8, 5), model.sample(8, 5))


def test_halving_loses_the_last_binary_digit() -> None:
    process = Halving(256)
    x = torch.full((20_000,), 0b10110101)
    shown, counts = process.sample(x, 1.0, torch.Generator().manual_seed(0)).unique(return_counts=True)
    assert set(shown.tolist()) <= {0b10110101 >> k for k in range(9)}
    expected = [stats.poisson(1.0).pmf(k) for k in range(8)] + [stats.poisson(1.0).sf(7)]
    observed = [int(counts[shown == (0b10110101 >> k)].sum()) for k in range(9)]
    assert stats.chisquare(observed, 20_000 * numpy.array(expected)).pvalue > 1e-4  # fails once in 10,000 seeds
    assert process.terminal_state == 0


def test_marginal_law_counts_states_and_leaves_the_mask_out() -> None:
    x = torch.tensor([[[[0, 1], [1, 1]]], [[[0, 0], [0, 2]]]])
    law = marginal_law(x, bo.Absorbing(5))
    torch.testing.assert_close(law[0, :3], torch.tensor([0.5, 0.375, 0.125]), rtol=0, atol=1e-5)
    assert 0 < law[0, 3] < 1e-5
    assert law[0, 4] == 0


def test_places_of_vectors_have_laws_of_their_own() -> None:
    """And a new network knows them: the entropy is that of each place, not of all together."""
    rng = numpy.random.default_rng(0)
    laws = [[0.97, 0.01, 0.01, 0.01], [0.01, 0.97, 0.01, 0.01], [0.01, 0.01, 0.01, 0.97]]
    x = torch.from_numpy(numpy.stack([rng.choice(4, 4000, p=law) for law in laws], 1))
    torch.testing.assert_close(marginal_law(x, bo.Uniform(4)).double(), torch.tensor(laws).double(), rtol=0, atol=0.02)
    entropy = float(stats.entropy(laws, axis=1, base=2).mean())
    bits = DiffusionModel.for_data(x, bo.Uniform(4), width=8, blocks=1).bits_per_dim(x, num_times=16)
    assert abs(bits - entropy) < 4 * bits.standard_error + 0.01
    few = marginal_law(x[:2], bo.Uniform(4))  # two data points say little: most is what all places have in common
    assert 0.01 < float(few[0, 1]) < 0.7


@pytest.mark.parametrize(("process", "channels"), [(bo.Uniform(16), 16), (bo.Uniform(17), 7), (bo.Absorbing(17), 8)])
def test_states_are_shown_one_by_one_or_as_levels(process: MarkovProcess, channels: int) -> None:
    x = torch.arange(16).reshape(2, 2, 2, 2)
    assert shown_channels(process) == channels
    assert show(process, x).shape == (2, 2 * channels, 2, 2)
    assert show(process, x.reshape(2, 8)).shape == (2, 8 * channels)


@pytest.mark.parametrize("process", [bo.PureDeath(40), bo.Uniform(41), bo.Absorbing(42), walk_on_a_ring(41)], ids=repr)
def test_a_level_is_shown_what_it_says_of_itself(process: MarkovProcess) -> None:
    """E[X_0 | X_t] of one component, by Bayes' rule in numpy, with mean zero and variance one; the shape of x stays."""
    generator = numpy.random.default_rng(0)
    x = torch.from_numpy(generator.integers(0, 41, (3, 2, 4, 4)))
    prior = marginal_law(x, process)
    head, tau = LevelHead(prior), torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)
    shown = head.show(process, x, lambda: transitions(process, tau))
    assert shown.shape == (3, 2 * head.inputs(process), 4, 4)
    for k in range(3):
        P = transitions(process, tau[k : k + 1])[0].numpy()
        for c in range(2):
            law = prior[c].double().numpy()
            joint = law[:, None] * P / numpy.maximum(law @ P, 1e-300)
            mean, centre = numpy.arange(len(law)) @ joint, law @ numpy.arange(len(law))
            std = math.sqrt((law @ P) @ (mean - centre) ** 2)
            expected = ((mean - centre) / std).clip(-8, 8)[x[k, c].numpy()]
            assert numpy.allclose(shown[k, c], expected, atol=1e-5)
    vectors = LevelHead(marginal_law(x.flatten(1), process)).show(
        process, x.flatten(1), lambda: transitions(process, tau)
    )
    assert vectors.shape == (3, 32 * head.inputs(process))


def test_a_window_over_levels_is_a_gaussian_of_its_centre_and_width() -> None:
    head = LevelHead(torch.ones(1, 101))
    raw = torch.zeros(1, 1, 1, 103)
    assert torch.allclose(torch.softmax(head.log_law(raw), -1), head.prior, atol=1e-6)
    raw[..., 0], raw[..., 1] = 0.5, math.log(50.0)
    law = torch.softmax(head.log_law(raw), -1).flatten().double().numpy()
    # e^{2s² - 100 (s - 1/2)²} is a Gaussian of mean 50/98 and variance 1/196 in s, which is state / 50 - 1.
    assert law @ numpy.arange(101) == pytest.approx(50 * (1 + 50 / 98), abs=0.01)
    assert law @ numpy.arange(101) ** 2 - (law @ numpy.arange(101)) ** 2 == pytest.approx(2500 / 196, rel=1e-3)


@pytest.mark.parametrize("head", ["categorical", "levels", "mixture"])
def test_a_network_that_is_sure_and_wrong_costs_many_bits_but_not_infinitely_many(head: str) -> None:
    x = torch.cat([torch.zeros(8, 1, 4, 4), torch.full((8, 1, 4, 4), 127)]).long()
    model = DiffusionModel.for_data(x, bo.Absorbing(129), head=head, width=8, blocks=1)
    with torch.no_grad():
        for parameter in list(model.predictor.network.parameters())[-2:]:
            parameter.copy_(1e3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
        law = model.predictor.head.law(model.predictor(torch.full_like(x, 128), torch.ones(16)))
    prior = model.predictor.head.prior[0]
    assert (law >= 0.99e-5 * prior).all()
    torch.testing.assert_close(law.sum(-1), torch.ones(16, 1, 4, 4))
    # Half of the components are black: the most that a surprise can cost is that of the prior's share.
    assert 1 < model.bits_per_dim(x, num_times=8) < math.log2(1e5 / float(prior[[0, 127]].min())) * 1.5


def test_levels_are_learnt_faster_through_a_window() -> None:
    """Slopes of 64 levels, under pure death: after as many steps the window is far ahead."""
    generator, (i, j) = numpy.random.default_rng(0), numpy.mgrid[0:8, 0:8] / 7 - 0.5
    along, across = generator.uniform(-0.4, 0.4, (2, 512, 1, 1))
    slopes = along * i + across * j + generator.uniform(0.3, 0.7, (512, 1, 1))
    x = torch.from_numpy((63 * slopes.clip(0, 1)).round().astype(int))[:, None]
    bits = {}
    for head in ("categorical", "levels"):
        model = DiffusionModel.for_data(x, bo.PureDeath(63), head=head, width=16, blocks=1)
        model.fit(x, steps=60, batch_size=32, learning_rate=3e-3, ema=0.95)
        bits[head] = model.bits_per_dim(x[:64], num_times=4)
    assert bits["levels"] < bits["categorical"] - 1


def test_the_head_follows_from_the_states() -> None:
    x = torch.arange(40).reshape(20, 2)
    for process, head in (
        (bo.BirthDeath(128, 1.0, 50.0), LevelHead),
        (bo.Uniform(128), CategoricalHead),
        (bo.BirthDeath(16, 1.0, 5.0), CategoricalHead),
    ):
        assert type(DiffusionModel.for_data(x % 16, process, width=8, blocks=1).predictor.head) is head


def test_a_mixture_begins_at_the_marginal_law_and_can_be_as_narrow_as_one_state() -> None:
    head = MixtureHead(torch.ones(1, 256), members=2)
    raw = torch.zeros(1, 1, 6)
    torch.testing.assert_close(torch.softmax(head.log_law(raw), -1)[0, 0], torch.full((256,), 1 / 256))
    raw[..., 2:4] = torch.tensor([4 * (100.5 / 256 - 0.25), 0.0])  # the first member at state 100
    raw[..., :2], raw[..., 4] = torch.tensor([20.0, 0.0]), 12.0
    law = torch.softmax(head.log_law(raw), -1)[0, 0]
    assert law.argmax() == 100
    assert law.max() > 0.99
    assert torch.isfinite(head.tilt(100 * torch.randn(3, 1, 6, generator=torch.Generator().manual_seed(0)))).all()


ENDLESS = {
    "still": (bo.Chain(numpy.eye(3)), "states 0 and 1 lie in different closed sets"),
    "round": (bo.Chain(numpy.roll(numpy.eye(3), 1, 1)), "every 3 steps"),
    "two sinks": (bo.FiniteState([[0, 0, 0], [1, -2, 1], [0, 0, 0]]), "states 0 and 2 lie in different closed sets"),
}


@pytest.mark.parametrize("name", ENDLESS)
@pytest.mark.parametrize("times", [None, bo.ObservationTimes(range(1, 20))])
def test_a_process_without_a_terminal_law_is_refused_before_training(
    name: str, times: bo.ObservationTimes | None
) -> None:
    process, reason = ENDLESS[name]
    with pytest.raises(ValueError, match=f"terminal law: .*{reason}"):
        DiffusionModel.for_data(torch.randint(0, 3, (50, 2)), process, times)


def test_times_of_a_chain_are_its_steps() -> None:
    chain = walk_on_a_ring(4)
    with pytest.raises(ValueError, match="times must be whole numbers"):
        DiffusionModel.for_data(pairs(8), chain, bo.ObservationTimes.uniform(10, 3.5))
    with pytest.raises(ValueError, match="process must run in continuous time"):
        bo.ObservationTimes.equalize(chain)
    with pytest.raises(ValueError, match="within 1,000,000 steps"):
        bo.ObservationTimes.for_process(bo.Chain([[1 - 1e-7, 1e-7], [1e-7, 1 - 1e-7]]))
    with pytest.raises(ValueError, match="head='rates' needs a process in continuous time"):
        DiffusionModel.for_data(pairs(8), chain, head="rates")


def test_data_that_hold_the_mask_are_refused() -> None:
    with pytest.raises(ValueError, match="x must not hold 3, the mask of Absorbing"):
        DiffusionModel.for_data(pairs(8), bo.Absorbing(4))
    model = DiffusionModel.for_data(pairs(8), bo.Absorbing(5), width=8, blocks=1)
    masked = torch.full((8, 2), 4)
    for use in (lambda: model.fit(masked, steps=1), lambda: model.bits_per_dim(masked)):
        with pytest.raises(ValueError, match="x must not hold 4, the mask of Absorbing"):
            use()


def test_arrays_and_lists_are_data_too() -> None:
    x = pairs(32)
    model = DiffusionModel.for_data(x.tolist(), bo.Uniform(4), width=8, blocks=1)
    model.fit(x.numpy(), steps=1).fit(x.tolist(), steps=1)
    assert model.bits_per_dim(x.numpy()) == model.bits_per_dim(x)
    with pytest.raises(ValueError, match=r"x must have shape \(n, 2\), got \(5, 3\)"):
        model.bits_per_dim(torch.zeros(5, 3, dtype=torch.long))
    with pytest.raises(ValueError, match="x must hold integers"):
        model.fit([[0.5, 1.0]], steps=1)


def test_a_state_space_too_large_for_a_network_is_refused() -> None:
    size = 2049
    rates = sparse.diags_array([numpy.ones(size - 1), -numpy.r_[0, numpy.ones(size - 1)]], offsets=[-1, 0])
    times = bo.ObservationTimes.uniform(4)
    with pytest.raises(ValueError, match="process must have at most 2048 states for a network"):
        DiffusionModel.for_data(torch.zeros(4, 2, dtype=torch.long), bo.FiniteState(rates), times)


@pytest.mark.parametrize("head", ["rates", "categorical"])
@pytest.mark.parametrize("steps", [2, 10])
def test_leaps_leave_nothing_masked(head: str, steps: int) -> None:
    """The last one takes place whatever its length: there is no mask at time zero."""
    model = DiffusionModel.for_data(pairs(64), bo.Absorbing(5), head=head, width=8, blocks=1)
    drawn = model.sample(500, steps, bo.TauLeaping())
    assert int(drawn.max()) < 4
    share = torch.bincount(drawn.flatten(), minlength=4) / drawn.numel()
    torch.testing.assert_close(share, torch.full((4,), 0.25), rtol=0, atol=0.07)


def test_a_slow_chain_is_measured_at_some_of_its_steps() -> None:
    """What is drawn of 1,500 steps gives the entropy, as all of them would."""
    chain = bo.Chain([[0.995, 0.005], [0.005, 0.995]])
    x = (torch.rand(400, 3, generator=torch.Generator().manual_seed(0)) < 0.3).long()
    model = DiffusionModel.for_data(x, chain, width=8, blocks=1)
    assert len(model.times) > 1000
    share = x.double().mean(0)
    entropy = float(stats.entropy(torch.stack([share, 1 - share]).numpy()).sum())
    bounds = [
        bo.PosteriorBridge().bound(ModelDenoiser(model, None), chain, model.times, x, seed, num_steps=64)
        for seed in range(3)
    ]
    error = float(torch.cat(bounds).std() / math.sqrt(1200))
    assert abs(float(torch.cat(bounds).mean()) - entropy) < 4 * error + 0.03
    assert len({float(bound[0]) for bound in bounds}) == 3


def test_what_does_not_go_together_is_refused() -> None:
    x = pairs(16)
    dataset = from_array(x, max_state=3)
    config = dataclasses.replace(recipe("digits"), max_count=3, process="uniform")
    with pytest.raises(ValueError, match=r"process='uniform' needs a law over X_0: head must be one of categorical"):
        from_config(config, dataset)
    with pytest.raises(ValueError, match="process must be one of"):
        from_config(dataclasses.replace(config, process="magic"), dataset)
    for build in (
        lambda: from_config(dataclasses.replace(config, head="magic"), dataset),
        lambda: DiffusionModel.for_data(x, bo.Uniform(4), head="magic"),
    ):
        with pytest.raises(
            ValueError, match=r"head must be one of .*'categorical', 'levels', 'mixture', 'rates', got 'magic'"
        ):
            build()
    with pytest.raises(ValueError, match="max_count is needed for process='uniform'"):
        from_config(dataclasses.replace(config, max_count=0), dataset)
    with pytest.raises(ValueError, match="finitely many states"):
        DiffusionModel.for_data(x, bo.PureDeath(), head="categorical")
    network = DiffusionModel.for_data(x, bo.Uniform(4)).predictor.network
    with pytest.raises(ValueError, match="for 5 states, those of the process, got 4"):
        DiffusionModel(bo.Uniform(5), bo.ObservationTimes.uniform(10), network, CategoricalHead(torch.ones(1, 4)))
    with pytest.raises(ValueError, match="prior must be a law"):
        CategoricalHead(torch.zeros(1, 4))
    with pytest.raises(ValueError, match="got RatesHead, which gives rates"):
        DiffusionModel.for_data(x, bo.Uniform(4), head="rates").sample(2, 2, bo.PosteriorBridge())
    with pytest.raises(ValueError, match="got BoundedLogitHead, a mean"):
        DiffusionModel.for_data(x, bo.PureDeath(3)).sample(2, 2, bo.PosteriorBridge())
    with pytest.raises(ValueError, match="x must"):
        DiffusionModel.for_data(x + 4, bo.Uniform(4))


def test_masks_are_learnt_from_bytes_too() -> None:
    """A mask is one state more than a byte holds; as a byte it would be black, and cost nothing."""
    x = torch.randint(0, 256, (64, 1, 4, 4), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    model = DiffusionModel.for_data(x, bo.Absorbing(257), width=8, blocks=1)
    reports: list[float] = []
    model.fit(x, steps=4, batch_size=32, log_every=1, listener=lambda report, _: reports.append(report.bits_per_dim))
    assert 5 < numpy.mean(reports) < 12  # 8 bits, give or take the draws


def test_a_chain_that_is_looked_at_seldom_is_trained_on_its_own_bound() -> None:
    x, chain = pairs(2048), walk_on_a_ring(4)
    model = DiffusionModel.for_data(x, chain, bo.ObservationTimes.from_values([10, 20, 40]), width=8, blocks=1)
    reports: list[float] = []
    listener = lambda report, _: reports.append(report.bits_per_dim)  # noqa: E731
    model.fit(x, steps=20, batch_size=256, learning_rate=1e-9, log_every=1, listener=listener)
    bits = model.bits_per_dim(x)
    assert abs(numpy.mean(reports) - bits) < 0.1
    with pytest.raises(ValueError, match="time_law must be 'grid' for a chain"):
        model.fit(x, steps=1, time_law="logistic")


def test_a_model_that_gives_rates_is_sampled_by_leaps() -> None:
    model = DiffusionModel.for_data(pairs(64), bo.Uniform(4), head="rates", width=8, blocks=1)
    assert model.sample(3, 4).shape == (3, 2)


def test_models_that_differ_in_head_or_matrix_have_other_checksums() -> None:
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
