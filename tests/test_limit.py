"""The continuum limit of Appendix C: reversal and limit commute, up to an error that vanishes with the system size."""

import functools
import math

import numpy
import pytest
import torch

import blackout as bo
from blackout.process.limit import anderson_moments, forward_moments, reverse_moments

LOG2 = math.log(2)


def pure_death(size):
    """From x = 1, at t = log 2: mean 1/2, standard deviation sqrt(V)/2 in units of 1/V."""
    return bo.PureDeath(), size, size // 2, math.isqrt(size) // 2


@functools.cache
def immigration_death(size):
    """From x = 1 with immigration V/2, at t = log 2: mean 3/4, standard deviation sqrt(V/2) in units of 1/V."""
    process = bo.BirthDeath(2 * size + 40, death=1.0, immigration=size / 2)
    return process, size, 3 * size // 4, math.isqrt(size // 2)


WORLDS = [(pure_death, [64, 256, 1024, 4096]), (immigration_death, [32, 72, 128, 200])]


def errors(world, size, z):
    """The differences of the two drifts and of the two diffusions, z standard deviations from the mean."""
    process, start, mean, deviation = world(size)
    x0, m = torch.tensor([start]), torch.tensor([mean + z * deviation])
    (v, d), (w, e) = (f(process, x0, m, size, LOG2) for f in (reverse_moments, anderson_moments))
    return abs(float(v - w)), abs(float(d - e))


def order(sizes, values):
    return -numpy.polyfit(numpy.log(sizes), numpy.log(values), 1)[0]


@pytest.mark.parametrize(("world", "sizes"), WORLDS)
@pytest.mark.parametrize("z", [-2, 0, 2])
def test_reverse_drifts_differ_by_order_one_over_size(world, sizes, z):
    assert 0.8 < order(sizes, [errors(world, size, z)[0] for size in sizes]) < 1.2


@pytest.mark.parametrize(("world", "sizes"), WORLDS)
@pytest.mark.parametrize("z", [-2, 2])
def test_diffusions_differ_by_order_three_halves(world, sizes, z):
    # D itself is of order 1/V; off the mean its reversal differs by z / sqrt(V) of it: order 3/2 in all.
    assert 1.3 < order(sizes, [errors(world, size, z)[1] for size in sizes]) < 1.7


def test_diffusions_are_equal_at_the_mean_of_pure_death():
    assert errors(pure_death, 1024, 0)[1] < 1e-18


def test_forward_moments_of_pure_death():
    x = torch.arange(200, dtype=torch.float64) / 50
    v, d = forward_moments(bo.PureDeath(), torch.arange(200), 50)
    torch.testing.assert_close(v, -x)
    torch.testing.assert_close(d, x / 50)


def test_forward_moments_of_birth_and_death():
    size, m = 40, torch.arange(79)
    process = bo.BirthDeath(80, birth=0.3, death=1.2, immigration=0.5 * size)
    v, d = forward_moments(process, m, size)
    x = m.double() / size
    torch.testing.assert_close(v, 0.5 - 0.9 * x)
    torch.testing.assert_close(d, (0.5 + 1.5 * x) / size)


def test_forward_moments_follow_the_schedule():
    m, plain, fast = torch.arange(9), bo.PureDeath(9), bo.PureDeath(9, schedule=bo.Schedule.linear(1.0, 2.0))
    for slow, quick in zip(forward_moments(plain, m, 9), forward_moments(fast, m, 9, t=0.5), strict=True):
        torch.testing.assert_close(quick, 2 * slow)
