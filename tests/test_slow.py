"""The warning for slow work, with a processor clock that is set by hand."""

import warnings

import pytest
import torch

import blackout as bo
from blackout import slow


@pytest.fixture
def clock(monkeypatch):
    """A clock that advances by `clock.step` at each reading."""

    class Clock:
        now, step = 0.0, 0.0

        def __call__(self):
            self.now += self.step
            return self.now

    clock = Clock()
    monkeypatch.setattr(slow.time, "process_time", clock)
    return clock


def test_slow_work_warns_once_with_an_estimate(clock):
    work = slow.SlowWork("counting", "count less")
    clock.now = 4.0
    work.done(0.01)
    clock.now = 6.0
    work.done(0.9)  # less than a second to go
    with pytest.warns(RuntimeWarning, match="counting takes about 60 s: count less"):
        work.done(0.1)
    work.done(0.2)  # a second warning would be an error


def test_slow_observation_times_and_slow_exact_sampling_warn(clock):
    clock.step = 1.0
    with pytest.warns(
        RuntimeWarning, match=r"placing observation times for BirthDeath.* takes about 1024 s: .*resolution"
    ):
        bo.ObservationTimes.for_process(bo.BirthDeath(9, immigration=3.0), 20)
    process = bo.PureDeath(9)
    denoise = bo.ExactPosterior(process, torch.tensor([[9]]))
    with pytest.warns(RuntimeWarning, match="exact sampling, .* other samplers"):
        bo.Exact().sample(denoise, process, bo.ObservationTimes.from_values([15.0]), (2, 1))
    clock.step = 0.4  # no single step is slow
    with pytest.warns(RuntimeWarning, match="exact sampling, .* other samplers"):
        bo.Exact().sample(denoise, process, bo.ObservationTimes.fisher(100), (2, 1))


def test_quick_work_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bo.ObservationTimes.for_process(bo.BirthDeath(9, immigration=3.0), 20)
