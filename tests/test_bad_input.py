"""Bad input is rejected with a ValueError that names the argument and shows what it was; good input gives numbers."""

import math
import re

import numpy
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import sparse

import blackout as bo
from blackout.posterior import ListedPosterior
from worlds import random_generator

search = settings(derandomize=True, deadline=None, max_examples=100)

MAX = 8
SCHEDULE = bo.Schedule.linear(0.1, 1.0)
DEATH, TIMES = bo.PureDeath(MAX), bo.ObservationTimes.fisher(3)
CHAIN = bo.Chain(numpy.full((MAX + 1, MAX + 1), 1 / (MAX + 1)))
PROCESSES = [
    DEATH,
    bo.PureDeath(),
    bo.Uniform(MAX + 1),
    bo.BirthDeath(MAX + 1, birth=0.2, death=1.0, immigration=1.0),
    bo.DiscretizedGaussian(MAX + 1, schedule=SCHEDULE),
    bo.FiniteState(random_generator(MAX + 1)),
    CHAIN,
]
ONE, ZERO = torch.ones(3, 2, dtype=torch.long), torch.zeros(3, 2, dtype=torch.long)
METHODS = {
    "sample": (lambda p, x0, t: p.sample(x0, t), ("x0", "t")),
    "log_prob": (lambda p, xt, x0, t: p.log_prob(xt, x0, t), ("xt", "x0", "t")),
    "probs": (lambda p, x0, t: p.probs(x0, t), ("x0", "t")),
    "forward_rates": (lambda p, x, t: p.forward_rates(x, t), ("x", "t")),
    "reverse_rates": (lambda p, x0, xt, t: p.reverse_rates(x0, xt, t), ("x0", "xt", "t")),
    "score": (lambda p, x0, xt, t: p.score(x0, xt, t), ("x0", "xt", "t")),
    "sample_bridge": (lambda p, x0, xt, s, t: p.sample_bridge(x0, xt, s, t), ("x0", "xt", "s", "t")),
    "bridge_log_prob": (lambda p, **a: p.bridge_log_prob(**a), ("xs", "x0", "xt", "s", "t")),
    "terminal_log_prob": (lambda p, x: p.terminal_log_prob(x), ("x",)),
    "FiniteTimeLoss": (lambda p, **a: bo.FiniteTimeLoss()(torch.ones(3, 2), **a), ("x0", "xt", "s", "t")),
    "RateLoss": (lambda p, **a: bo.RateLoss(p)(torch.ones(3, 2, len(p.jumps)), **a), ("x0", "xt", "s", "t")),
    "evidence_bound": (lambda p, x0: bo.evidence_bound(one(p), p, x0, 2), ("x0",)),
    "bound": (lambda p, x0: bo.TauLeaping().bound(one(p), p, TIMES, x0), ("x0",)),
}
GOOD = {"x0": ONE, "xt": ZERO, "xs": ZERO, "x": ONE, "s": 1.0, "t": 2.0}


def one(process):
    channels = () if process.mean_suffices else (len(process.jumps),)
    return lambda xt, t: torch.ones(*xt.shape, *channels)


def rejected(call, name, *shown):
    """The call raises ValueError, and nothing else, with a message that names the argument and shows the value."""
    with pytest.raises(ValueError, match=rf"(?<!\w){re.escape(name)}(?!\w)") as caught:
        call()
    assert type(caught.value) is ValueError
    assert all(str(part) in str(caught.value) for part in shown), caught.value


def arguments(kinds):
    return [
        pytest.param(process, method, name, id=f"{process!r}-{method}-{name}")
        for process in PROCESSES
        for method, (_, names) in METHODS.items()
        for name in names
        if name in kinds
        and (process is DEATH or method != "FiniteTimeLoss")
        and not (process is CHAIN and method in ("evidence_bound", "bound"))
    ]


def call(process, method, **bad):
    function, names = METHODS[method]
    return lambda: function(process, **{name: bad.get(name, GOOD[name]) for name in names})


BAD_STATES = [
    (ONE.float(), "float32"),
    (ONE > 0, "bool"),
    (ONE + 0j, "complex64"),
    (ONE.to(torch.uint64), "uint64"),
    (-ONE, "-1"),
    ("abc", "str"),
    (None, "None"),
    ([2**70], "list"),
]
BAD_TIMES = [
    (math.nan, "nan"),
    (math.inf, "inf"),
    (-1.0, "-1.0"),
    (torch.tensor([1.0, math.nan, 1.0]), "nan"),
    (torch.tensor([1.0, 1.0, -3.0]), "-3.0"),
    (torch.ones(2), "(2,)"),
    (torch.ones(3, 2), "(3, 2)"),
    ([1.0, 1.0], "(2,)"),
    (True, "bool"),
    (1j, "complex"),
    ("a", "str"),
    (torch.ones(3, device="meta"), "meta"),
]


@pytest.mark.parametrize(("process", "method", "name"), arguments(("x0", "xt", "xs", "x")))
def test_bad_states_are_rejected(process, method, name):
    for value, shown in BAD_STATES:
        rejected(call(process, method, **{name: value}), name, shown)
    if process.num_states is not None and method != "FiniteTimeLoss":
        rejected(call(process, method, **{name: ONE * (MAX + 1)}), name, MAX + 1)
    if len(METHODS[method][1]) > 2:
        rejected(call(process, method, **{name: ONE[:2]}), name, "(2, 2)")


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32])
def test_unsigned_states_are_states(dtype):
    x = torch.arange(MAX + 1).reshape(-1, 1)
    assert torch.equal(DEATH.log_prob(x.to(dtype), x.to(dtype), 1.0), DEATH.log_prob(x, x, 1.0))


@pytest.mark.parametrize(("process", "method", "name"), arguments(("s", "t")))
def test_bad_times_are_rejected(process, method, name):
    for value, shown in BAD_TIMES:
        rejected(call(process, method, **{name: value}), name, shown)
    if "s" in METHODS[method][1]:
        rejected(call(process, method, s=2.0), "s must be less than t", "s=2.0", "t=2.0")
        rejected(call(process, method, s=torch.tensor([1.0, 1.0, 3.0])), "s must be less than t", "s=3.0", "t=2.0")
    if process is CHAIN and not method.endswith("Loss"):
        rejected(call(process, method, **{name: 1.5}), name, "1.5")


@pytest.mark.parametrize("process", [DEATH, CHAIN], ids=repr)
def test_tensors_without_data_or_on_two_devices_are_rejected(process):
    nowhere = ONE.to("meta")
    rejected(lambda: process.log_prob(nowhere, ONE, 1.0), "xt", "meta")
    rejected(lambda: process.sample_bridge(ONE, nowhere, 1.0, 2.0), "xt", "meta")
    rejected(lambda: process.sample(nowhere, 1.0), "x0", "meta")
    rejected(lambda: process.sample(ONE, torch.ones((), device="meta")), "t", "meta")


@search
@given(st.data())
def test_a_single_bad_entry_is_rejected(data):
    process = data.draw(st.sampled_from(PROCESSES))
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    x = torch.from_numpy(numpy.random.default_rng(0).integers(0, MAX + 1, shape))
    bad = data.draw(st.integers(-(2**40), -1) | st.integers(MAX + 1, 2**40))
    assume(bad < 0 or process.num_states is not None)
    worse = x.clone()
    worse.view(-1)[data.draw(st.integers(0, x.numel() - 1))] = bad
    rejected(lambda: process.sample(worse, 1.0), "x0", bad)
    rejected(lambda: process.log_prob(worse, x, 1.0), "xt", bad)
    t = torch.ones(shape[0], dtype=torch.float64)
    t[data.draw(st.integers(0, shape[0] - 1))] = data.draw(
        st.sampled_from([math.nan, math.inf, -math.inf]) | st.floats(max_value=-1e-300)
    )
    rejected(lambda: process.probs(x, t), "t")
    rejected(lambda: process.sample_bridge(x, 0 * x, t, 3.0), "s")


@search
@given(st.data())
def test_good_input_gives_finite_numbers(data):
    process = data.draw(st.sampled_from(PROCESSES))
    shape = tuple(data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=3)))
    rng = numpy.random.default_rng(data.draw(st.integers(0, 2**32)))
    x0 = torch.from_numpy(rng.integers(0, MAX + 1, shape)).to(data.draw(st.sampled_from([torch.uint8, torch.int64])))
    s, t = sorted(data.draw(st.floats(1e-12, 40.0)) for _ in range(2))
    s, t = (0.0, float(round(t)) + 1) if process is CHAIN else (s, t)
    assume(s < t)
    if data.draw(st.booleans()):
        t = torch.full(shape[:1], t, dtype=torch.float64)
    xt = process.sample(x0, t)
    xs = process.sample_bridge(x0, xt, s, t)
    for x in (xt, xs):
        assert x.shape == x0.shape
        assert x.numel() == 0 or (int(x.min()) >= 0 and int(x.max()) <= MAX)
    for log_prob in (process.log_prob(xt, x0, t), process.bridge_log_prob(xs, x0, xt, s, t)):
        assert bool(((log_prob <= 1e-12) & (log_prob > -math.inf)).all())
    anywhere = torch.from_numpy(rng.integers(0, MAX + 1, shape))
    assert not bool(torch.isnan(process.log_prob(anywhere, x0.long(), t)).any())
    rates = (process.forward_rates(x0, t), process.reverse_rates(x0.long(), anywhere, t), process.probs(x0, t))
    assert all(bool(((r >= 0) & torch.isfinite(r)).all()) for r in rates if r.numel())
    assert bool(torch.isfinite(process.score(x0.long(), anywhere, t)).all())


@search
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=5))
def test_times_increase_or_are_rejected(values):
    good = bool(values) and all(0 < b < math.inf and a < b for a, b in zip([0.0, *values], values, strict=False))
    if good:
        assert bo.ObservationTimes.from_values(values).values.tolist() == values
    else:
        rejected(lambda: bo.ObservationTimes.from_values(values), "values")


Q = numpy.array([[-1.0, 1.0], [2.0, -2.0]])
HALF = numpy.full((2, 2), 0.5)
MATRICES = {
    "rows": ([[-1.0, 1.25], [2.0, -2.0]], [[0.5, 0.75], [0.5, 0.5]], ("25", "row 0")),
    "nearly": ([[-1.0, 1.0], [2.0, -2.000001]], [[0.5, 0.5], [0.5, 0.500001]], ("row 1",)),
    "negative": (-Q, [[1.5, -0.5], [0.5, 0.5]], ("[0, ", "-")),
    "nan": (Q * math.nan, HALF * math.nan, ("nan",)),
    "flat": (Q[:1], HALF[:1], ("(1, 2)",)),
    "empty": ([], [], ("(1, 0)",)),
    "string": ("abc", "abc", ("abc",)),
    "complex": (Q + 1j, HALF + 1j, ("complex",)),
    "sparse": (sparse.csr_array(-Q), sparse.csr_array(-HALF), ("-",)),
    "sparse tensor": (torch.tensor(-Q).to_sparse(), torch.tensor(-HALF).to_sparse(), ()),
    "nowhere": (torch.tensor(Q).to("meta"), torch.tensor(HALF).to("meta"), ()),
}


@pytest.mark.parametrize(("generator", "transition", "shown"), MATRICES.values(), ids=MATRICES.keys())
def test_bad_matrices_are_rejected(generator, transition, shown):
    rejected(lambda: bo.FiniteState(generator), "generator", *shown)
    rejected(lambda: bo.Chain(transition), "transition", *shown)


def test_matrices_that_are_no_generators_are_rejected_however_small_their_rates():
    rejected(lambda: bo.FiniteState([[5e-10, 0], [0, -5e-10]]), "generator", "row 0")
    rejected(lambda: bo.FiniteState([[0, 1e-10], [1e-10, 0]]), "generator", "row 0")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("form", [lambda m: m, lambda m: m.tolist(), lambda m: m.double()])
def test_rows_may_be_off_by_rounding(dtype, form):
    rates = 50 * torch.rand(20, 20, generator=torch.Generator().manual_seed(0)).to(dtype)
    rates.fill_diagonal_(0)
    generator = rates - torch.diag(rates.sum(1))
    coarse = dtype in (torch.bfloat16, torch.float16)
    if coarse and form(generator) is not generator:  # a list does not show that it was rounded
        return
    sums = bo.FiniteState(form(generator)).generator.sum(1)
    torch.testing.assert_close(sums, torch.zeros_like(sums), rtol=0, atol=1e-10)


RATE = bo.RateLoss(bo.Uniform(3))
BAD_CALLS = {
    "terminal": (lambda: DEATH.terminal((-1,)), "shape", "-1"),
    "terminal of a number": (lambda: DEATH.terminal(5), "shape", "5"),
    "generator": (lambda: DEATH.sample(ONE, 1.0, generator="a"), "generator", "'a'"),
    "unreachable": (lambda: DEATH.sample_bridge(ZERO, ONE, 1.0, 2.0), "xt", "1"),
    "no terminal distribution": (
        lambda: bo.FiniteState(numpy.zeros((2, 2))).terminal((2,)),
        "terminal distribution",
        "0 and 1",
    ),
    "max_count": (lambda: bo.PureDeath(0), "max_count", "0"),
    "birth": (lambda: bo.BirthDeath(5, birth=-1), "birth", "-1"),
    "birth huge": (lambda: bo.BirthDeath(5, birth=10**400), "birth"),
    "immigration": (lambda: bo.BirthDeath(5, immigration=math.nan), "immigration", "nan"),
    "mask_state": (lambda: bo.Absorbing(5, mask_state=5), "mask_state", "5"),
    "bandwidth": (lambda: bo.DiscretizedGaussian(5, bandwidth=0), "bandwidth", "0"),
    "schedule": (lambda: bo.PureDeath(5, schedule="cosine"), "schedule", "cosine"),
    "no time": (lambda: bo.Uniform(3, schedule=SCHEDULE).forward_rates(ONE), "t", "None"),
    "num_steps": (lambda: bo.ObservationTimes.fisher(0), "num_steps", "0"),
    "t_end": (lambda: bo.ObservationTimes.fisher(9, 0.5), "t_end", "0.5"),
    "draw": (lambda: TIMES.draw(-1), "size", "-1"),
    "values string": (lambda: bo.ObservationTimes.from_values("abc"), "values", "abc"),
    "y shape": (lambda: bo.LikelihoodLoss()(torch.ones(3), ONE, ZERO, 1.0, 2.0), "y", "(3,)"),
    "y list": (lambda: bo.LikelihoodLoss()([1.0], ONE, ZERO, 1.0, 2.0), "y", "list"),
    "y nowhere": (lambda: bo.LikelihoodLoss()(torch.ones(3, 2, device="meta"), ONE, ZERO, 1.0, 2.0), "y", "meta"),
    "grown": (lambda: bo.LikelihoodLoss()(torch.ones(3, 2), ZERO, ONE, 1.0, 2.0), "xt", "1"),
    "channel": (lambda: RATE(ONE.double(), ONE, ONE, 1.0, 2.0, 4), "channel", "4"),
    "channels": (lambda: RATE(ONE.double(), ONE, ONE, 1.0, 2.0, torch.tensor([0, 1])), "channel", "(2,)"),
    "channel string": (lambda: RATE(ONE.double(), ONE, ONE, 1.0, 2.0, "a"), "channel", "'a'"),
    "rounding": (lambda: bo.BinomialBridge(rounding="up"), "rounding", "'up'"),
    "events": (lambda: bo.TauLeaping(events="normal"), "events", "'normal'"),
    "corrector_steps": (lambda: bo.TauLeaping(corrector_steps=-1), "corrector_steps", "-1"),
    "corrector_size": (lambda: bo.Exact(corrector_size=0), "corrector_size", "0"),
    "piece": (lambda: bo.Exact(piece=0), "piece", "0"),
    "piece string": (lambda: bo.Exact(piece="a"), "piece", "'a'"),
    "binomial on N": (lambda: bo.TauLeaping(events="binomial").check(bo.PureDeath()), "events='binomial'", "None"),
    "binomial on labels": (lambda: bo.TauLeaping(events="binomial").check(UNIFORM), "events='binomial'", "Uniform"),
    "bound num_times": (lambda: bo.evidence_bound(one(DEATH), DEATH, ONE, 0), "num_times", "0"),
    "bound method": (lambda: bo.evidence_bound(one(DEATH), DEATH, ONE, method="sum"), "method", "'sum'"),
    "bound t_end": (lambda: bo.evidence_bound(one(DEATH), DEATH, ONE, t_end=0.0), "t_end", "0.0"),
    "tilt t": (lambda: bo.remaining_tilt(DEATH, ONE, 0.0), "t", "0.0"),
    "tilt x0": (lambda: bo.remaining_tilt(DEATH, ONE[0, 0], 5.0), "x0", "shape"),
    "bound one state": (lambda: bo.evidence_bound(one(DEATH), DEATH, ONE[0, 0]), "x0", "shape"),
    "bound one state, steps": (lambda: bo.TauLeaping().bound(one(DEATH), DEATH, TIMES, ONE[0, 0]), "x0", "shape"),
    "bound chain": (lambda: bo.evidence_bound(one(CHAIN), CHAIN, ONE, 2), "process", "Chain"),
}


@pytest.mark.parametrize("bad", BAD_CALLS.values(), ids=BAD_CALLS.keys())
def test_bad_calls_are_rejected(bad):
    rejected(*bad)


UNIFORM = bo.Uniform(3)
SAMPLES = {
    "shape": ({"shape": ()}, "shape", "()"),
    "shape number": ({"shape": 5}, "shape", "5"),
    "seed": ({"seed": -1}, "seed", "-1"),
    "start_index huge": ({"start_index": 2**32}, "start_index", 2**32),
    "times": ({"times": [1.0, 2.0]}, "times", "[1.0, 2.0]"),
    "device": ({"device": "abacus"}, "device", "abacus"),
    "chain": ({"process": CHAIN, "denoise": one(CHAIN)}, "process", "Chain"),
    "NaN": ({"denoise": lambda xt, t: torch.full(xt.shape, math.nan)}, "denoise", "NaN"),
    "infinite": ({"denoise": lambda xt, t: torch.full(xt.shape, math.inf)}, "denoise", "inf"),
    "huge": ({"denoise": lambda xt, t: torch.full(xt.shape, 1e30), "process": bo.PureDeath()}, "denoise"),
    "answer shape": ({"denoise": lambda xt, t: torch.zeros(2)}, "denoise", "(2,)"),
    "answer none": ({"denoise": lambda xt, t: None}, "denoise", "None"),
    "complex": ({"denoise": lambda xt, t: torch.zeros(xt.shape) + 1j}, "denoise", "complex"),
    "negative rates": ({"process": UNIFORM, "denoise": lambda xt, t: -one(UNIFORM)(xt, t)}, "denoise", "-"),
    "rates shape": ({"process": UNIFORM, "denoise": one(DEATH)}, "denoise", "(2, 2)"),
}


@pytest.mark.parametrize("sampler", [bo.BinomialBridge(), bo.TauLeaping(), bo.Exact()], ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("bad", SAMPLES.values(), ids=SAMPLES.keys())
def test_bad_arguments_of_samplers_are_rejected(sampler, bad):
    options, name, *shown = bad
    if isinstance(sampler, bo.BinomialBridge) and options.get("process") is UNIFORM:
        name, shown = "process", ["Uniform"]
    if isinstance(sampler, bo.Exact) and shown == ["(2, 2)"]:  # which calls the denoiser at five times at once
        shown = ["(10, 2)"]
    good = {"denoise": one(DEATH), "process": DEATH, "times": TIMES, "shape": (2, 2)}
    rejected(lambda: sampler.sample(**good | options), name, *shown)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: bo.Uniform(10**9), "num_states=1,000,000,000"),
        (lambda: bo.Absorbing(10**10), "num_states=10,000,000,000"),
        (lambda: bo.DiscretizedGaussian(10**12), "num_states"),
        (lambda: bo.BirthDeath(10**15), "num_states"),
        (lambda: bo.PureDeath(10**6).transition_matrices(torch.ones(9)), "1,000,001 states at 9 times"),
    ],
)
def test_states_that_do_not_fit_into_memory_are_rejected_with_their_size(make, said):
    with pytest.raises(ValueError, match=rf"{said}.* needs? about .*iB of memory, but .* are free"):
        make()


@pytest.mark.parametrize("value", ["a", None, torch.ones(3)], ids=repr)
def test_rates_of_a_schedule_that_are_no_numbers_are_rejected(value):
    rejected(lambda: bo.PureDeath(3, schedule=lambda t: value).sample([[1]], 1.0), "schedule", value)


@pytest.mark.parametrize("value", [torch.tensor([1j, 2.0]), numpy.array([1.0, 2.0 + 1j]), torch.eye(2).to_sparse()])
def test_numbers_that_are_not_real_are_rejected(value):
    rejected(lambda: bo.ObservationTimes.from_values(value), "values")
    rejected(lambda: bo.ExactPosterior(DEATH, torch.ones(2, 1, dtype=torch.long), value), "weights")


def test_a_sparse_matrix_in_the_place_of_several_generators_is_rejected():
    rejected(lambda: bo.PiecewiseGenerator(sparse.csr_matrix(numpy.eye(3)), [1.0]), "generators", "csr_matrix")


@pytest.mark.parametrize("value", [None, "a", 3, torch.full((5, 2, 9), 1 / 9), torch.ones(3, 2)], ids="nasrd")
def test_probabilities_of_the_wrong_type_or_shape_are_rejected(value):
    shown = tuple(value.shape) if isinstance(value, torch.Tensor) else repr(value)
    rejected(lambda: ListedPosterior(DEATH, ONE, torch.ones(3), value), "probs", shown)


def test_probabilities_that_are_not_numbers_are_rejected_where_rows_share_them():
    xt, nothing = torch.zeros(4, 1, dtype=torch.long), torch.full((2, 1, 9), math.nan, dtype=torch.float64)
    shared = ListedPosterior(DEATH, xt, torch.tensor([1.0, 1.0, 2.0, 2.0]), nothing, member=torch.tensor([0, 0, 1, 1]))
    rejected(shared.checked, "finite numbers", "NaN at t=1.0")


def test_repetitions_beyond_sense_are_rejected():
    rejected(lambda: bo.TauLeaping(corrector_steps=10**9), "corrector_steps", 10**9)
    rejected(lambda: bo.Inpainting(bo.TauLeaping(), [1], [False], resample=10**9), "resample", 10**9)


@pytest.mark.parametrize("largest", [2**31, 2**40])
def test_the_largest_count_takes_no_memory_and_is_exact(largest):
    process = bo.PureDeath(largest)
    x = torch.tensor([[0, largest], [1, largest - 1]])
    model = bo.DiffusionModel.for_data(x, process, width=8, blocks=1)  # 16 GiB for 2^31 states, if they were listed
    assert model.times.t_end > math.log(largest / 1e-3)
    bridged = process.sample_bridge(x, torch.zeros_like(x), 1e-18, 1.0)
    assert bool(((bridged >= 0) & (bridged <= x)).all())
    with pytest.raises(ValueError, match="max_count must be at most 9007199254740992, got"):
        bo.PureDeath(largest * 2**40)


def test_a_grid_that_does_not_fit_into_memory_is_rejected():
    from blackout.reactions import Exchange

    with pytest.raises(ValueError, match=r"exchange on a grid of \(97, 98, 99\) needs about .* of memory"):
        Exchange((97, 98, 99))
