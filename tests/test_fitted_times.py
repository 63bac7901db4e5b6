"""Observation times fitted to a model: losses of steps against brute force, and the times that follow from them."""

import itertools
import json
from pathlib import Path

import numpy
import pytest
import torch

import blackout as bo
import worlds
from blackout.data import make_seven_segment
from blackout.posterior import call
from blackout.sampling import fit_times
from blackout.sampling.fitting import step_losses
from blackout.times import FittedTimes
from test_cli import status

Times = bo.ObservationTimes


def hops(size: int = 5) -> numpy.ndarray:
    """One-step probabilities of a chain."""
    return numpy.full((size, size), 0.1 / size) + 0.9 * numpy.eye(size)


def piecewise() -> bo.PiecewiseGenerator:
    return bo.PiecewiseGenerator([worlds.random_generator(5, 0), worlds.random_generator(5, 1)], [0.2])


FINITE = [bo.Uniform(5), bo.BirthDeath(5, 0.3, 1, 1), bo.Absorbing(6), piecewise(), bo.Chain(hops())]


def lost(process: bo.MarkovProcess, points: torch.Tensor, weights: torch.Tensor, s: float, t: float) -> float:
    """KL of the true step from t to s from one that draws components independently, by sums over all joint states."""
    states = torch.arange(process.num_states)
    early = process.probs(states, s) if s > 0 else torch.eye(len(states), dtype=torch.float64)
    kernel = (early.unsqueeze(-1) * process.probs(states, t - s)).transpose(0, 1)  # p(y at s, x at t | start)
    a, b = (kernel[:, points[:, c], :] for c in (0, 1))
    joint = torch.einsum("n,ynx,znw->yxzw", weights, a, b)
    at = joint.sum((0, 2))
    first, second = joint.sum(2) / at.clamp(min=1e-300), joint.sum(0) / at.unsqueeze(1).clamp(min=1e-300)
    product = torch.einsum("yxw,xzw->yxzw", first, second)
    conditional = joint / at.unsqueeze(0).unsqueeze(2).clamp(min=1e-300)
    return float(torch.where(joint > 1e-15, joint * torch.log(conditional / product.clamp(min=1e-300)), 0.0).sum())


def path_divergence(process: bo.MarkovProcess, points: torch.Tensor, weights: torch.Tensor, times: Times) -> float:
    return sum(lost(process, points, weights, float(s), float(t)) for s, t in times.backwards())


@pytest.mark.parametrize("process", FINITE, ids=repr)
def test_a_posterior_of_one_component_is_carried_by_bayes_rule(process: bo.MarkovProcess) -> None:
    points, weights = worlds.line(5)
    exact = bo.ExactPosterior(process, points, weights)
    s, t = (2.0, 5.0) if process.discrete_time else (0.1, 0.5)
    x0 = points.repeat_interleave(50, 0)
    xt = process.sample(x0, t, torch.Generator().manual_seed(0))
    xs = process.sample_bridge(x0, xt, s, t, torch.Generator().manual_seed(1))
    late, early = (call(exact, process, x, torch.tensor(u, dtype=torch.float64)) for x, u in ((xt, t), (xs, s)))
    torch.testing.assert_close(late.carried(xs, early.t).probs(), early.probs())


def test_a_mean_is_carried_without_the_units_that_have_appeared() -> None:
    late = bo.MeanPosterior(bo.PureDeath(9), torch.tensor([[3]]), torch.ones(1), torch.tensor([[2.5]]))
    assert float(late.carried(torch.tensor([[5]]), torch.full((1,), 0.5)).mean()) == 5.5
    assert float(late.carried(torch.tensor([[6]]), torch.full((1,), 0.5)).difference()) == 0


@pytest.mark.parametrize("process", [bo.Uniform(5), bo.BirthDeath(5, 0.3, 1, 1), bo.Chain(hops())], ids=repr)
def test_losses_are_the_divergence_of_one_step_from_two(process: bo.MarkovProcess) -> None:
    points, weights = worlds.cube(2)
    values = [2.0, 4.0, 6.0, 9.0, 12.0] if process.discrete_time else [0.1, 0.13, 0.17, 0.22, 0.3]
    exact, times = bo.ExactPosterior(process, points, weights), Times(values)
    losses, nats = step_losses(exact, process, times, worlds.draw(points, weights, 16_000))
    edges = [0.0, *values]
    # The last part of the step from t_2 leads to time zero, where rates are no approximation: left out.
    for k in range(2, len(values)):
        s, m, t = edges[k - 1 : k + 2]
        one, two = lost(process, points, weights, s, t), [lost(process, points, weights, *p) for p in ((s, m), (m, t))]
        error = float(losses[:, k - 1].std() / len(losses) ** 0.5)
        assert float(losses[:, k - 1].mean()) == pytest.approx(one - sum(two), rel=0.25, abs=4 * error)
    assert bool((nats >= 0).all() & (losses >= 0).all())


@pytest.mark.parametrize(
    ("process", "sampler"),
    [
        (bo.PureDeath(4), bo.PosteriorBridge()),
        (bo.PureDeath(4), bo.BinomialBridge()),
        (bo.Uniform(5), bo.PosteriorBridge()),
        (bo.Absorbing(6), bo.PosteriorBridge()),
    ],
    ids=lambda part: type(part).__name__,
)
def test_fitted_times_lose_less_than_other_rules(process: bo.MarkovProcess, sampler: bo.Sampler) -> None:
    points, weights = worlds.cube(2)
    exact, end = bo.ExactPosterior(process, points, weights), Times.for_process(process, 8).t_end
    candidates = Times.by_rule("length", process, 64, end)
    fitted = fit_times(exact, process, candidates, worlds.draw(points, weights, 300), batch_size=150)
    data = worlds.on_lattice(points, weights, process.num_states)
    for num_steps in (4, 8, 16):
        error, divergence = {}, {}
        for rule in ("fitted", "fisher", "length"):
            own = rule == "fitted"
            times = (
                fitted.choose(process, num_steps) if own else Times.by_rule(rule, process, 1000, end).subset(num_steps)
            )
            assert len(times) == num_steps
            assert times.t_end == pytest.approx(end)
            error[rule] = worlds.total_variation(worlds.sampler_probs(sampler, exact, process, times, 2), data)
            divergence[rule] = path_divergence(process, points, weights, times)
        assert error["fitted"] < 0.8 * min(error["fisher"], error["length"])
        assert divergence["fitted"] < 0.8 * min(divergence["fisher"], divergence["length"])


def test_fitted_times_are_nearly_the_best_of_all_subsets() -> None:
    process, (points, weights) = bo.Uniform(5), worlds.cube(2)
    candidates = Times.by_rule("length", process, 12, 10.0)
    exact = bo.ExactPosterior(process, points, weights)
    fitted = fit_times(exact, process, candidates, worlds.draw(points, weights, 500), batch_size=500)
    edges = [0.0, *candidates.values.tolist()]
    table = {pair: lost(process, points, weights, *pair) for pair in itertools.combinations(edges, 2)}
    subsets = ((0.0, *chosen, edges[-1]) for chosen in itertools.combinations(edges[1:-1], 3))
    every = sorted(sum(table[pair] for pair in itertools.pairwise(subset)) for subset in subsets)
    found = path_divergence(process, points, weights, fitted.choose(process, 4))
    assert found < 1.1 * every[0]
    assert found < every[len(every) // 10]


def test_times_are_at_equal_steps_of_progress() -> None:
    process, candidates = bo.PureDeath(9), Times.fisher(65)
    nats, none = torch.zeros(65, dtype=torch.float64), torch.zeros(64, dtype=torch.float64)
    even = FittedTimes.from_losses(candidates, none + 1, nats)
    assert even == FittedTimes.from_losses(candidates, none, nats)  # nothing to lose: any times will do
    numpy.testing.assert_allclose(even.choose(process, 65).values, candidates.values, rtol=1e-6)
    numpy.testing.assert_allclose(even.choose(process, 13).values, candidates.values[4::5], rtol=1e-5)
    assert even.choose(process, 1).values.tolist() == [15.0]
    assert len(even.choose(process, 500)) == 500
    # Losses that are n² times as large in one half lead to n times as many steps there, less the smallest density.
    late = FittedTimes.from_losses(candidates, torch.where(torch.arange(64) < 32, 1.0, 9.0).double(), nats)
    assert late.progress[31] == pytest.approx(0.26, abs=0.01)
    # A loss counts relative to one nat and what has been decided before: here 99 nats in the first step from the end.
    nats[-1] = 99.0
    assert FittedTimes.from_losses(candidates, none + 1, nats) == even
    nats[32] = 300.0
    relative = FittedTimes.from_losses(candidates, none + 1, nats)
    assert relative.progress[31] == pytest.approx(0.33, abs=0.01)


def test_times_of_a_chain_are_different_integers() -> None:
    process, candidates = bo.Chain(hops()), Times(range(1, 41))
    losses = torch.exp(-torch.arange(39, dtype=torch.float64))
    fitted = FittedTimes.from_losses(candidates, losses, torch.ones(40, dtype=torch.float64))
    for num_steps in (1, 2, 7, 20, 39, 40):
        values = fitted.choose(process, num_steps).values
        assert values.tolist() == sorted(set(values.round().tolist()))
        assert len(values) == num_steps
        assert values[-1] == 40
    assert fitted.choose(process, 8).values[3] < 10
    with pytest.raises(ValueError, match=r"num_steps must be at most 40, .* got 41"):
        fitted.choose(process, 41)


@pytest.mark.parametrize(
    ("process", "head"),
    [(bo.PureDeath(), "auto"), (bo.PureDeath(5), "auto"), (bo.Uniform(6), "rates"), (piecewise(), "auto"),
     (bo.Chain(hops(6)), "auto"), (bo.Uniform(6, schedule=bo.Schedule.linear(0.3, 0.2)), "auto")],
    ids=repr,
)  # fmt: skip
def test_every_kind_of_model_has_fitted_times(process: bo.MarkovProcess, head: str, tmp_path: Path) -> None:
    x = torch.randint(0, 5, (6, 3), generator=torch.Generator().manual_seed(0))
    model = bo.DiffusionModel.for_data(x, process, head=head, width=16, blocks=1)
    with pytest.raises(ValueError, match="'fitted' needs a model with fitted times"):
        model.sampling_times(5, "fitted")
    fitted = model.fit_times(x, num_candidates=12, batch_size=4)
    assert model.record.fitted is None
    assert fitted.sampling_rule(5, "fitted") == "fitted"
    assert len(fitted.sampling_times(5, "fitted")) == 5
    assert fitted.sampling_times(5, "fitted").t_end == model.times.t_end
    fitted.save(tmp_path / "model")
    again = bo.load(tmp_path / "model")
    assert again.record == fitted.record
    samples = [m.sample(3, num_steps=5, times="fitted", seed=1) for m in (fitted, again)]
    assert torch.equal(*samples)
    # The paths of a data point depend on its number alone, not on the batch.
    other = model.fit_times(x, num_candidates=12, batch_size=6).record.fitted
    numpy.testing.assert_allclose(other.progress, fitted.record.fitted.progress, atol=1e-4)


def test_few_steps_are_at_fitted_times_until_the_model_is_trained_again() -> None:
    x = torch.randint(0, 5, (6, 3), generator=torch.Generator().manual_seed(0))
    model = bo.DiffusionModel.for_data(x, bo.PureDeath(5), width=16, blocks=1)
    fitted = model.fit_times(x, num_candidates=12)
    assert [m.sampling_rule(n) for m in (model, fitted) for n in (8, 64, 65)] == ["length"] * 3 + ["fitted"] * 2 + [
        "length"
    ]
    assert fitted.sampling_rule(8, "fisher") == "fisher"
    assert fitted.sampling_rule(8, Times.fisher(8)) == ""
    assert torch.equal(fitted.sampling_times(8).values, fitted.sampling_times(8, "fitted").values)
    assert fitted.fit_times(x, num_candidates=12).record == fitted.record  # not from its own fitted times
    assert fitted.fit(x, steps=1, batch_size=2).record.fitted is None


def test_invalid_arguments_are_rejected() -> None:
    process = bo.PureDeath(4)
    exact = bo.ExactPosterior(process, torch.tensor([[1, 2], [3, 4]]))
    with pytest.raises(ValueError, match=r"hold some data, got \(0, 2\)"):
        fit_times(exact, process, Times.fisher(8), torch.zeros(0, 2, dtype=torch.long))
    with pytest.raises(ValueError, match="batch_size"):
        fit_times(exact, process, Times.fisher(8), torch.tensor([[1, 2]]), batch_size=0)
    with pytest.raises(ValueError, match="progress must have 2 numbers, one for each time, got 1"):
        FittedTimes((1.0, 2.0), (1.0,))
    with pytest.raises(ValueError, match=r"progress must end at 1, got 0\.9"):
        FittedTimes((1.0, 2.0), (0.5, 0.9))
    with pytest.raises(ValueError, match="increasing"):
        FittedTimes((1.0, 2.0, 3.0), (0.5, 0.4, 1.0))
    with pytest.raises(ValueError, match="losses and nats must be finite"):
        FittedTimes.from_losses(Times([1.0, 2.0]), torch.tensor([torch.nan]), torch.zeros(2))
    with pytest.raises(ValueError, match="num_steps"):
        FittedTimes((1.0,), (1.0,)).choose(process, 0)


def test_the_command_saves_times_with_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    train = "train digits --width 8 --blocks 1 --batch-size 8 --steps 2 --out run"
    assert status(train.split(), monkeypatch) == 0
    quick = ["--num-data", "3", "--num-candidates", "6", "--device", "cpu"]
    assert status(["times", "run", *quick], monkeypatch) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "run/model.json"
    assert len(json.loads(Path("run/model.json").read_text())["fitted"]["progress"]) == 6
    sample = ["sample", "run", "--num", "2", "--steps", "4", "--times", "fitted", "--out", "two.npz", "--device", "cpu"]
    assert status(sample, monkeypatch) == 0
    numpy.save("mine.npy", make_seven_segment().x[:5].numpy())
    assert status(["times", "seven-segment", "--data", "mine.npy", *quick], monkeypatch) == 2
    assert "out must be a folder for a copy of the pretrained model" in capsys.readouterr().err
    assert status(["times", "seven-segment", "--data", "mine.npy", "--out", "copy", *quick], monkeypatch) == 0
    assert len(bo.load("copy").sampling_times(4, "fitted")) == 4


def print_table() -> None:
    """The table of docs/samplers.md: total variation from the data, three correlated components of five levels."""
    points, weights = worlds.cube()
    bridges = [(process, bo.PosteriorBridge()) for process in (bo.PureDeath(4), *FINITE[:3])]
    for process, sampler in [(bo.PureDeath(4), bo.BinomialBridge()), *bridges]:
        exact, end = bo.ExactPosterior(process, points, weights), Times.for_process(process, 8).t_end
        candidates = Times.by_rule("length", process, 64, end)
        fitted = fit_times(exact, process, candidates, worlds.draw(points, weights, 1000), batch_size=1000)
        data = worlds.on_lattice(points, weights, process.num_states)
        for rule in ("fisher", "length", "kl", "fitted"):
            errors = []
            for num_steps in (4, 8, 16, 32):
                times = Times.by_rule(rule, process, 1000, end).subset(num_steps) if rule != "fitted" else None
                probs = worlds.sampler_probs(sampler, exact, process, times or fitted.choose(process, num_steps), 3)
                errors.append(worlds.total_variation(probs, data))
            print(process, type(sampler).__name__, rule, *(f"{error:.3f}" for error in errors))


if __name__ == "__main__":
    print_table()
