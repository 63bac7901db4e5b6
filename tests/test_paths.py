"""Paths in continuous time, of the forward and of the reverse process. Goodness-of-fit tests: one seed in 1e4."""

import numpy
import pytest
import torch
from scipy import stats

import blackout as bo
from blackout.process.paths import JumpPath, forward_paths

PROCESSES = {
    "pure death": bo.PureDeath(8),
    "birth and death": bo.BirthDeath(num_states=6, birth=0.5, death=1.0, immigration=0.7),
    "uniform": bo.Uniform(4),
}


def state_at(path: JumpPath, t: float) -> int:
    return int(path.states[int((path.times <= t).sum()) - 1])


@pytest.mark.parametrize("name", PROCESSES)
def test_forward_paths_have_the_distribution_of_the_process(name: str) -> None:
    process = PROCESSES[name]
    assert process.num_states is not None
    start, t, num = process.num_states - 1, 0.6, 2000
    paths = forward_paths(process, torch.full((num,), start), 2.0, seed=3)
    counts = numpy.bincount([state_at(path, t) for path in paths], minlength=process.num_states)
    expected = num * process.probs(torch.tensor([start]), t)[0].numpy()
    seen = expected > 1e-9
    assert counts[~seen].sum() == 0
    assert stats.chisquare(counts[seen], expected[seen]).pvalue > 1e-4


def test_forward_paths_have_the_jumps_of_the_process() -> None:
    for path in forward_paths(bo.PureDeath(8), torch.tensor([8, 5, 0]), 50.0):
        assert bool((path.states.diff() == -1).all())
        assert bool((path.times.diff() > 0).all())
        assert int(path.states[-1]) == 0
        assert float(path.times[0]) == 0


def test_path_depends_on_seed_and_index_alone() -> None:
    process = PROCESSES["birth and death"]
    alone, among = (forward_paths(process, torch.tensor(x0), 3.0, seed=1)[0] for x0 in ([4], [4, 0, 5, 1]))
    assert torch.equal(alone.times, among.times)
    assert torch.equal(alone.states, among.states)


def test_schedule_changes_the_times_of_jumps_alone() -> None:
    quick = bo.PureDeath(8, schedule=bo.Schedule.from_rate(lambda t: 2.0 + 0 * t))
    x0 = torch.tensor([8, 3])
    for one, other in zip(forward_paths(quick, x0, 1.0), forward_paths(bo.PureDeath(8), x0, 2.0), strict=True):
        assert torch.equal(one.states, other.states)
        assert torch.allclose(2 * one.times, other.times, atol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((bo.Chain(torch.tensor([[0.5, 0.5], [0.0, 1.0]])), torch.tensor([0]), 1.0), "process must run in continuous"),
        ((bo.PureDeath(8), torch.tensor([[1]]), 1.0), r"x0 must have shape \(n,\), got \(1, 1\)"),
        ((bo.PureDeath(8), torch.tensor([9]), 1.0), "x0 .* 9"),
        ((bo.PureDeath(8), torch.tensor([1]), 0.0), "t_end must be more than 0.0, got 0.0"),
    ],
)
def test_invalid_arguments_of_forward_paths_are_rejected(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        forward_paths(*arguments)


def test_reverse_paths_end_in_the_samples() -> None:
    process, states = bo.PureDeath(8), torch.arange(9).unsqueeze(1)
    denoise = bo.ExactPosterior(process, states, torch.arange(1, 10))
    paths = bo.Exact().paths(denoise, process, 15.0, (20, 1), seed=2)
    for path in paths:
        assert int(path.states[0]) == 0
        assert float(path.times[0]) == 15
        assert bool((path.times.diff() < 0).all())
        assert bool((path.states.diff(dim=0) == 1).all())
    samples = bo.Exact().sample(denoise, process, bo.ObservationTimes([15.0]), (20, 1), seed=2)
    assert torch.equal(torch.stack([path.states[-1] for path in paths]), samples)
    later = bo.Exact().paths(denoise, process, 15.0, (5, 1), seed=2, start_index=15)
    assert all(torch.equal(a.times, b.times) for a, b in zip(paths[15:], later, strict=True))


def test_reverse_paths_have_the_marginal_distribution_in_between() -> None:
    process, states = bo.PureDeath(8), torch.arange(9).unsqueeze(1)
    weights = torch.arange(1, 10).double() / 45
    paths = bo.Exact().paths(bo.ExactPosterior(process, states, weights), process, 15.0, (600, 1), seed=4)
    middle = [int(path.states[int((path.times > 0.5).sum()) - 1]) for path in paths]
    expected = 600 * (weights @ process.probs(torch.arange(9), 0.5)).numpy()
    assert stats.chisquare(numpy.bincount(middle, minlength=9), expected).pvalue > 1e-4


def test_invalid_arguments_of_reverse_paths_are_rejected() -> None:
    process = bo.PureDeath(8)
    denoise = bo.ExactPosterior(process, torch.arange(9).unsqueeze(1))
    with pytest.raises(ValueError, match="shape must begin with the number of paths"):
        bo.Exact().paths(denoise, process, 15.0, ())
    with pytest.raises(ValueError, match="values must be positive"):
        bo.Exact().paths(denoise, process, -1.0, (2, 1))
