"""Draws against the distributions of scipy. Seeds are fixed; goodness-of-fit tests fail for one seed in 1e6."""

import math

import numpy
import pytest
import torch
from scipy import stats

from blackout.random import Streams, binomial, categorical, poisson, uniform
from blackout.random.draws import _invert
from blackout.random.streams import philox

SHAPE = (200, 250)
NAN, INF = float("nan"), float("inf")


def generator(seed=1):
    return torch.Generator().manual_seed(seed)


SOURCES = pytest.mark.parametrize("source", [generator, lambda: Streams(1, SHAPE[0])], ids=["generator", "streams"])


def fit(draws, pmf, mean, deviation):
    """The chi-square p-value; neighbouring states are pooled until 20 draws are expected in each bin."""
    first = max(0, int(mean - 9 * deviation - 20))
    last = int(mean + 9 * deviation + 20)
    draws = draws.flatten().numpy()
    assert draws.min() >= first
    assert draws.max() <= last
    seen, expected = numpy.bincount(draws - first, minlength=last - first + 1), pmf(numpy.arange(first, last + 1))
    assert not seen[expected == 0].any()
    bins, start, total = [], 0, 0.0
    for k, e in enumerate(expected * len(draws)):
        total += e
        if total >= 20:
            bins.append(start)
            start, total = k + 1, 0.0
    seen, expected = (numpy.add.reduceat(a, bins) for a in (seen, expected * len(draws)))
    return stats.chisquare(seen, expected * seen.sum() / expected.sum()).pvalue


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_equals_the_test_vectors_of_random123(counter, key, expected):
    words = philox([torch.tensor([c]) for c in counter], key)
    assert tuple(int(w) for w in words) == expected


@SOURCES
def test_uniform_numbers_are_uniform(source):
    u = uniform((SHAPE[0], 999), torch.device("cpu"), source()).flatten().numpy()
    assert u.min() >= 0
    assert u.max() < 1
    assert stats.kstest(u, "uniform").pvalue > 1e-6


@SOURCES
@pytest.mark.parametrize(
    ("count", "prob"),
    [
        (1, 0.3),
        (20, 0.02),
        (30, 0.5),
        (255, 0.03),
        (255, 0.4),
        (255, 0.999),
        (4096, 0.3),
        (1_000_000, 2e-6),
        (1_000_000, 0.37),
        (1_000_000, 1 - 2e-6),
        (1_000_000, 1 - 1e-4),
    ],
)
def test_binomial_draws_fit_the_binomial_distribution(source, count, prob):
    draws = binomial(torch.full(SHAPE, count), torch.tensor(prob, dtype=torch.float64), source())
    exact = stats.binom(count, prob)
    assert fit(draws, exact.pmf, exact.mean(), exact.std()) > 1e-6


@SOURCES
def test_binomial_uses_the_complement_where_the_probability_rounds_to_one(source):
    one, tiny = torch.tensor(1.0, dtype=torch.float64), torch.tensor(1e-17, dtype=torch.float64)
    count = torch.full(SHAPE, 10**17)
    missing = count - binomial(count, one, source(), complement=tiny)
    assert fit(missing, stats.poisson(1.0).pmf, 1.0, 1.0) > 1e-6


@SOURCES
@pytest.mark.parametrize("mean", [0.01, 0.7, 9.9, 10.1, 75.0, 1e4, 1e6])
def test_poisson_draws_fit_the_poisson_distribution(source, mean):
    draws = poisson(torch.full(SHAPE, mean, dtype=torch.float64), source())
    assert draws.dtype == torch.int64
    assert fit(draws, stats.poisson(mean).pmf, mean, mean**0.5) > 1e-6


@SOURCES
@pytest.mark.parametrize("weights", [[1.0, 3.0], [0.0, 2.0, 0.0, 5.0, 1e-3, 0.0], list(range(100))])
def test_categorical_draws_fit_their_weights_and_never_have_weight_zero(source, weights):
    probs = numpy.array(weights) / sum(weights)
    draws = categorical(torch.tensor(weights).expand(*SHAPE, -1), source())
    padded = numpy.append(probs, numpy.zeros(1000))
    assert fit(draws, lambda k: padded[k], len(weights) / 2, len(weights)) > 1e-6


@SOURCES
def test_draws_of_probability_zero_and_one_are_deterministic(source):
    count = torch.arange(SHAPE[0]).unsqueeze(-1)
    for prob, expected in ((0.0, 0 * count), (1.0, count)):
        assert torch.equal(binomial(count, torch.tensor(prob), source()), expected)
    assert not poisson(torch.zeros(SHAPE), source()).any()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_binomial_keeps_the_dtype_of_the_counts(dtype):
    count = torch.full((50,), 100, dtype=dtype)
    draws = binomial(count, torch.tensor(0.9), generator())
    assert draws.dtype == dtype
    assert bool(((draws > 50) & (draws <= 100)).all())


def every_kind_of_draw(streams):
    size = len(streams.samples)
    mean = torch.tensor([0.3, 8.0, 40.0, 1e5], dtype=torch.float64).expand(size, 4)
    return [
        uniform((size, 3), torch.device("cpu"), streams),
        poisson(mean, streams),
        binomial(torch.full((size, 7), 300), torch.tensor(0.4), streams),
        binomial(torch.full((size, 2, 2), 1000), torch.tensor(0.999), streams),
        categorical(torch.ones(size, 5, 9), streams),
    ]


@pytest.mark.parametrize(("first", "size"), [(0, 1), (3, 1), (2, 5), (7, 1)])
def test_draws_of_a_stream_do_not_depend_on_its_batch(first, size):
    full, part = every_kind_of_draw(Streams(5, 8)), every_kind_of_draw(Streams(5, size, start_index=first))
    assert all(torch.equal(a[first : first + size], b) for a, b in zip(full, part, strict=True))


def test_streams_differ_between_samples_draws_and_seeds():
    streams = Streams(5, 2)
    first, second = streams.uniform((2, 4)), streams.uniform((2, 4))
    other = Streams(6, 2).uniform((2, 4))
    everything = torch.cat([first, second, other]).flatten()
    assert len(everything.unique()) == everything.numel()


@pytest.mark.parametrize("size", [1000, 200_000])
def test_draws_do_not_depend_on_the_number_of_threads(size):
    threads, results = torch.get_num_threads(), []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            source = generator()
            count, mean = torch.full((size,), 255), torch.full((size,), 12.5)
            results.append(torch.stack([binomial(count, torch.tensor(0.3), source), poisson(mean, source)]))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("size", [1000, 200_000])
def test_generator_advances_from_draw_to_draw(size):
    source, count = generator(), torch.full((size,), 255)
    first, second = (binomial(count, torch.tensor(0.3), source) for _ in range(2))
    assert not torch.equal(first, second)
    assert torch.equal(first, binomial(count, torch.tensor(0.3), generator()))


@pytest.mark.parametrize("bad", [NAN, INF, -INF, -0.1, 1.1])
def test_binomial_rejects_invalid_probabilities(bad):
    count, half = torch.tensor([3, 3]), torch.tensor([0.5, 0.5])
    with pytest.raises(ValueError, match="prob"):
        binomial(count, torch.tensor([0.5, bad]), generator())
    with pytest.raises(ValueError, match="complement"):
        binomial(count, half, generator(), complement=torch.tensor([0.5, bad]))


def test_binomial_rejects_negative_counts():
    with pytest.raises(ValueError, match="count must not be negative, got -2"):
        binomial(torch.tensor([3, -2]), torch.tensor(0.5), generator())


@pytest.mark.parametrize("bad", [NAN, INF, -1.0])
def test_poisson_rejects_invalid_means(bad):
    with pytest.raises(ValueError, match="mean"):
        poisson(torch.tensor([1.0, bad]), generator())


@pytest.mark.parametrize(
    "draw",
    [
        lambda source: uniform((4,), torch.device("cpu"), source),
        lambda source: binomial(torch.tensor([3] * 4), torch.tensor(0.5), source),
        lambda source: poisson(torch.ones(4), source),
        lambda source: categorical(torch.ones(4, 2), source),
    ],
)
def test_streams_of_another_device_or_size_are_rejected(draw):
    with pytest.raises(ValueError, match="meta"):
        draw(Streams(0, 4, device="meta"))
    with pytest.raises(ValueError, match="one row for each stream"):
        draw(Streams(0, 3))


def test_streams_reject_sample_numbers_outside_32_bits():
    for first in (-1, 2**32 - 3):
        with pytest.raises(ValueError, match="start_index must keep the samples within"):
            Streams(0, 4, start_index=first)


@pytest.mark.parametrize("every", [2, 4, 7])
def test_inversion_does_not_depend_on_how_often_finished_elements_are_removed(every):
    u = uniform((5000,), torch.device("cpu"), torch.Generator().manual_seed(3))
    mean = torch.linspace(1e-9, 10, 5000, dtype=torch.float64)

    def ratio(k, at):
        return mean[at] / (k + 1)

    k = _invert(u, torch.exp(-mean), ratio, every)
    assert torch.equal(k, _invert(u, torch.exp(-mean), ratio, 1))
    assert (k.numpy() == stats.poisson.ppf(u.numpy(), mean.numpy()).clip(min=0)).all()


@pytest.mark.gpu
@pytest.mark.parametrize(("seed", "first", "shape"), [(0, 0, (3, 5)), (2**61 + 7, 4_000_000_000, (2, 3, 41, 7))])
def test_streams_on_a_gpu_give_the_same_bits(seed, first, shape):
    here, there = (Streams(seed, shape[0], first, device) for device in ("cpu", "cuda"))
    for _ in range(3):
        assert torch.equal(here.uniform(shape), there.uniform(shape).cpu())
    sample, component = here.locate(torch.Size(shape))
    for a, b in zip(here.pair(sample, component, 9, 2), there.pair(sample.cuda(), component.cuda(), 9, 2), strict=True):
        assert torch.equal(a, b.cpu())
    mean = torch.linspace(0, 60, math.prod(shape), dtype=torch.float64).reshape(shape)
    assert torch.equal(poisson(mean, here), poisson(mean.cuda(), there).cpu())
