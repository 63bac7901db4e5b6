"""Schedules that are smooth but for kinks and steps: clocks, their inverses, and processes on them."""

import json
import math
from itertools import pairwise

import numpy
import pytest
import torch
from scipy.integrate import quad, solve_ivp
from torch import Tensor

import blackout as bo
from blackout.model import DiffusionModel
from blackout.process import PROCESSES
from worlds import line, random_generator

STEP = math.pi / 3  # an edge that no halving meets
RATES = {
    "step": (lambda t: torch.where(t < STEP, 1.0, 3.0), lambda t: t + 2 * numpy.maximum(t - STEP, 0)),
    "kink": (
        lambda t: 0.1 + (t - STEP).abs(),
        lambda t: 0.1 * t + numpy.where(t < STEP, t * (STEP - t / 2), STEP**2 / 2 + (t - STEP) ** 2 / 2),
    ),
    "saw": (lambda t: 1 + t % 1, lambda t: t + numpy.floor(t) / 2 + (t % 1) ** 2 / 2),
    "stairs": (lambda t: 1 + torch.floor(1.3 * t), None),
    "still for a while": (
        lambda t: torch.where((t > STEP) & (t < 2), 0.0, 2.0),
        lambda t: 2 * (numpy.minimum(t, STEP) + numpy.maximum(t - 2, 0)),
    ),
    "root": (lambda t: torch.sqrt(t), lambda t: 2 / 3 * t**1.5),
    "singular at zero": (lambda t: t**-0.5, lambda t: 2 * numpy.sqrt(t)),
    "growing": (torch.exp, numpy.expm1),
    "falling": (lambda t: 1 / (1 + t), numpy.log1p),
}


@pytest.mark.parametrize("name", RATES)
def test_clock_is_the_integral_and_its_inverse_goes_back(name: str) -> None:
    rate, integral = RATES[name]
    if integral is None:  # by scipy, from step to step
        edges = numpy.arange(0, 40) / 1.3
        integral = numpy.vectorize(
            lambda t: sum(quad(lambda u: 1 + math.floor(1.3 * u), a, min(b, t))[0] for a, b in pairwise(edges) if a < t)
        )
    schedule = bo.Schedule.from_rate(rate)
    t = torch.cat([torch.logspace(-12, 1.3, 80, dtype=torch.float64), torch.linspace(0.5, 3, 60, dtype=torch.float64)])
    clock = schedule.integral(t)
    numpy.testing.assert_allclose(clock, integral(t.numpy()), rtol=1e-9)
    again = schedule.integral(schedule.inverse(clock))
    torch.testing.assert_close(again, clock, rtol=1e-9, atol=0)
    moving = schedule.rate(t) > 0
    torch.testing.assert_close(schedule.inverse(clock)[moving], t[moving], rtol=1e-8, atol=0)


def test_clock_does_not_depend_on_what_was_called_before() -> None:
    rate, t = RATES["kink"][0], torch.linspace(0.01, 9, 50, dtype=torch.float64)
    fresh, used = bo.Schedule.from_rate(rate), bo.Schedule.from_rate(rate)
    used.integral(torch.tensor([0.3, 700.0], dtype=torch.float64))
    used.inverse(torch.tensor(0.2, dtype=torch.float64))
    assert torch.equal(fresh.integral(t), used.integral(t))
    assert torch.equal(fresh.inverse(t), used.inverse(t))


def test_a_short_pulse_is_found_where_it_is_named() -> None:
    def rate(t: Tensor) -> Tensor:
        return torch.where((t > 4) & (t < 4 + 1e-4), 1e5, 1.0)

    schedule = bo.Schedule.from_rate(rate, breaks=[4.0, 4 + 1e-4])
    assert float(schedule.integral(torch.tensor(8.0).double())) == pytest.approx(8 + 10 - 1e-4, rel=1e-9)


def test_piecewise_constant_rates() -> None:
    named = bo.Schedule.piecewise([0.5, 3.0, 0.0, 1.0], breaks=[0.4, STEP, 2.0])
    general = bo.Schedule.from_rate(named.rate)
    t = torch.linspace(0.01, 6, 200, dtype=torch.float64)
    torch.testing.assert_close(named.integral(t), general.integral(t), rtol=1e-9, atol=0)
    at = torch.tensor([0.0, 0.4, 0.41, STEP, 1.5, 2.0, 2.1], dtype=torch.float64)
    assert named.rate(at).tolist() == [0.5, 0.5, 3, 3, 0, 0, 1]
    clock = named.integral(t)
    moving = named.rate(t) > 0
    torch.testing.assert_close(named.inverse(clock)[moving], general.inverse(clock)[moving], rtol=1e-9, atol=0)
    level = named.integral(torch.tensor(1.5).double())
    for b in (level, torch.nextafter(level, level + 1), torch.nextafter(level, level - 1)):
        assert float(named.rate(named.inverse(b))) > 0  # never inside the piece that stands still
    again = bo.Schedule.from_config(json.loads(json.dumps(named.config())))
    assert torch.equal(again.integral(t), clock)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bo.Schedule.piecewise([1.0], [1.0]), "rates must be one more than breaks, got 1 and 1"),
        (lambda: bo.Schedule.piecewise([0.0, 1.0], [1.0]), r"rates\[0\] must be more than 0.0, got 0.0"),
        (lambda: bo.Schedule.piecewise([1.0, 0.0], [1.0]), r"rates\[-1\] must be more than 0.0, got 0.0"),
        (lambda: bo.Schedule.piecewise([1.0, -1.0, 1.0], [1.0, 2.0]), "rates must be at least 0.0, got -1.0"),
        (lambda: bo.Schedule.piecewise([1.0, 1.0, 1.0], [2.0, 1.0]), "breaks must be increasing"),
        (lambda: bo.Schedule.from_rate(torch.exp, breaks=1.0), "breaks must be a list of numbers, got 1.0"),
    ],
)
def test_bad_pieces_are_named(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_clock_that_stops_is_rejected() -> None:
    schedule = bo.Schedule.from_rate(lambda t: torch.exp(-t))
    assert float(schedule.integral(torch.tensor(3.0).double())) == pytest.approx(1 - math.exp(-3), rel=1e-9)
    with pytest.raises(ValueError, match="schedule must have an integral that grows without end, got 1 up to t="):
        schedule.inverse(torch.tensor(2.0).double())


def test_step_solves_the_master_equation() -> None:
    matrix, p = random_generator(5), numpy.eye(5)[2]
    process = bo.FiniteState(matrix, schedule=RATES["step"][0])
    for s, t, beta in ((0.0, STEP, 1.0), (STEP, 1.5, 3.0)):
        p = solve_ivp(lambda _, q, beta=beta: beta * q @ matrix, (s, t), p, rtol=1e-11, atol=1e-13).y[:, -1]
        numpy.testing.assert_allclose(process.probs(torch.tensor([2]), t)[0], p, atol=1e-9)


SCHEDULES = [
    bo.Schedule.from_rate(RATES["step"][0]),
    bo.Schedule.from_rate(RATES["kink"][0]),
    bo.Schedule.from_rate(RATES["still for a while"][0]),
    bo.Schedule.piecewise([0.5, 0.0, 4.0], [0.3, 0.6]),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=["step", "kink", "still", "piecewise"])
@pytest.mark.parametrize("kind", [bo.PureDeath, bo.Uniform])
def test_bound_and_samplers_on_a_clock_with_kinks_and_steps(kind: type, schedule: bo.Schedule) -> None:
    points, weights = line(5)
    process = kind(4 if kind is bo.PureDeath else 5, schedule=schedule)
    denoise = bo.ExactPosterior(process, points, weights)
    bound = bo.evidence_bound(denoise, process, points, 256)
    torch.testing.assert_close(bound, -torch.log(weights), rtol=0, atol=1e-6)
    times = bo.ObservationTimes.for_process(process, 20)
    for sampler in (bo.TauLeaping(), bo.PosteriorBridge()):
        assert sampler.sample(denoise, process, times, (64, 1)).shape == (64, 1)


def test_nothing_happens_while_the_clock_stands_still() -> None:
    process = bo.PureDeath(9, schedule=bo.Schedule.piecewise([1.0, 0.0, 1.0], [0.5, 2.0]))
    x0 = torch.full((64, 1), 9)
    xt = process.sample(x0, 1.8, torch.Generator().manual_seed(0))
    assert torch.equal(process.sample_bridge(x0, xt, 0.6, 1.8), xt)
    assert not process.reverse_rates(x0, xt, 1.8).any()
    inside = bo.ObservationTimes.from_values([0.4, 1.0, 1.8, 15.0])  # two of them while it stands still
    denoise = bo.ExactPosterior(process, torch.tensor([[2], [9]]))
    for sampler in (bo.BinomialBridge(), bo.TauLeaping(), bo.TauLeaping(step="instantaneous")):
        assert int(sampler.sample(denoise, process, inside, (64, 1)).max()) <= 9
    x = torch.randint(0, 10, (64, 2), generator=torch.Generator().manual_seed(0))
    model = DiffusionModel.for_data(x, process, inside, width=8, blocks=1)
    model.fit(x, steps=3, batch_size=16, time_density="grid")
    assert all(bool(torch.isfinite(p).all()) for p in model.predictor.parameters())


def test_piecewise_schedules_are_saved_with_a_process() -> None:
    process = bo.Uniform(4, schedule=bo.Schedule.piecewise([1.0, 0.0, 2.0], [0.5, 1.0]))
    again = PROCESSES.from_config(json.loads(json.dumps(PROCESSES.to_config(process))))
    x, t = torch.arange(4), torch.tensor(1.2, dtype=torch.float64)
    assert torch.equal(again.probs(x, t), process.probs(x, t))
