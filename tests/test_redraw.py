"""Masking and uniform redrawing in closed form, against the dense matrix exponentials of `FiniteState`."""

import pytest
import torch

import blackout as bo
from blackout.process.transitions import DenseTransitions
from worlds import LargestTensor, cube, entropy

PROCESSES = [bo.Absorbing(5), bo.Absorbing(5, mask_state=1), bo.Uniform(5)]
PADDED = [bo.Absorbing(6, pad_state=4), bo.Uniform(6, pad_state=5), bo.Uniform(5, pad_state=2)]
TIMES = torch.tensor([1e-4, 0.3, 2.0, 9.0], dtype=torch.float64)
CLOSE = {"rtol": 1e-10, "atol": 1e-12}


def dense(process: bo.MarkovProcess) -> bo.FiniteState:
    """The same process by its matrix."""
    return bo.FiniteState(process.generator, ordered=False, pad_state=process.pad_state)


def triples(size: int) -> tuple[torch.Tensor, ...]:
    """All (x_0, x_s, x_t) as components of a row for each of the times."""
    states = torch.cartesian_prod(*[torch.arange(size)] * 3)
    return tuple(states[:, k].expand(len(TIMES), -1) for k in range(3))


@pytest.mark.parametrize("process", [*PROCESSES, *PADDED], ids=repr)
def test_closed_forms_equal_the_matrix_exponential(process):
    other, (x0, xs, xt) = dense(process), triples(process.num_states)
    assert process.jumps == other.jumps
    for name, arguments in {
        "log_prob": (xt, x0, TIMES),
        "probs": (x0, TIMES),
        "forward_rates": (x0,),
        "reverse_rates": (x0, xt, TIMES),
        "score": (x0, xt, TIMES),
        "bridge_log_prob": (xs, x0, xt, TIMES / 3, TIMES),
        "terminal_log_prob": (x0,),
    }.items():
        got, expected = getattr(process, name)(*arguments), getattr(other, name)(*arguments)
        assert torch.allclose(got, expected, **CLOSE), name
    assert process.relaxation_rate == pytest.approx(other.relaxation_rate)
    for rule in ("length", "kl"):
        times, same = (bo.ObservationTimes.equalize(p, rule, 20, resolution=500).values for p in (process, other))
        assert torch.allclose(times, same, rtol=1e-6), rule
    again = type(process).from_config(process.config())
    assert again.config() == process.config()


@pytest.mark.parametrize("power", [1, 40], ids=["broad", "sharp"])
@pytest.mark.parametrize("process", [*PROCESSES, *PADDED], ids=repr)
def test_posteriors_equal_those_of_the_matrix_exponential(process, power):
    x0, _, xt = triples(process.num_states)
    u = torch.rand(*x0.shape, process.num_states, dtype=torch.float64, generator=torch.manual_seed(0)) ** power
    u[..., process.mask_state or 0] *= 0.5
    if process.pad_state is not None:
        u[..., process.pad_state] = 0.0  # as with every head
    reached = torch.isfinite(process.log_prob(xt, x0, TIMES))
    closed = bo.CategoricalPosterior(process, xt, TIMES, u)
    other = bo.CategoricalPosterior(dense(process), xt, TIMES, u)
    for got, expected in ((closed.probs(), other.probs()), (closed.rates(), other.rates())):
        assert torch.allclose(got, expected, **CLOSE)
    assert torch.allclose(closed.divergence(x0)[reached], other.divergence(x0)[reached], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("process", [*PROCESSES, *PADDED], ids=repr)
def test_draws_follow_the_probabilities(process):
    # Frequencies of 20,000 draws within 0.02 of each probability: more than five standard deviations.
    rng, size, num = torch.Generator().manual_seed(0), process.num_states, 20_000
    for start in range(size):
        x0 = torch.full((num, 1), start)
        xt = process.sample(x0, 0.7, rng)
        probs = process.probs(torch.tensor([start]), 0.7)[0]
        assert float((torch.bincount(xt.flatten(), minlength=size) / num - probs).abs().max()) < 0.02
        end = int(xt[0])
        xs = process.sample_bridge(x0, torch.full_like(x0, end), 0.3, 0.7, rng)
        states = torch.arange(size)
        bridge = process.bridge_log_prob(states, torch.full((size,), start), torch.full((size,), end), 0.3, 0.7).exp()
        assert float(bridge.sum()) == pytest.approx(1)
        assert float((torch.bincount(xs.flatten(), minlength=size) / num - bridge).abs().max()) < 0.02


@pytest.mark.parametrize("process", PADDED, ids=repr)
def test_operators_on_distributions_equal_the_matrices(process):
    size, tau = process.num_states, TIMES[:3]
    matrices = torch.linalg.matrix_exp(process.generator * tau.reshape(-1, 1, 1))
    closed, other = process.transitions(tau), DenseTransitions(matrices)
    x = torch.arange(size).expand(3, -1)
    u = torch.rand(3, 2, size, dtype=torch.float64, generator=torch.manual_seed(0))
    ends = torch.arange(size).expand(3, size, -1)
    assert torch.allclose(process.transition_matrices(tau), matrices, **CLOSE)
    assert torch.allclose(closed.columns(x), other.columns(x), **CLOSE)
    assert torch.allclose(closed.push(u), other.push(u), **CLOSE)
    assert torch.allclose(closed.at(x, ends), other.at(x, ends), **CLOSE)


@pytest.mark.parametrize(
    "process", [bo.Absorbing(6, pad_state=4), bo.Uniform(5, pad_state=4), dense(bo.Uniform(5, pad_state=4))], ids=repr
)
def test_padding_is_part_of_neither_the_bound_nor_the_samples(process):
    points, weights = cube(1)
    points, weights = points[(points < 4).all(1)], weights[(points < 4).all(1)]
    weights = weights / weights.sum()
    padded = torch.cat([points, torch.full((len(points), 1), 4)], 1)
    nats = bo.evidence_bound(
        bo.ExactPosterior(process, padded, weights), process, padded, method="exact", num_times=300
    )
    assert float(weights @ nats) == pytest.approx(entropy(weights), abs=1e-6)
    denoise = bo.ExactPosterior(process, padded, weights)
    sampler = bo.Inpainting(bo.PosteriorBridge(), padded[:1], torch.tensor([[False, True]]))
    times = bo.ObservationTimes.for_process(process, 30)
    x = sampler.sample(denoise, process, times, (50, 2))
    assert bool((x[:, 1] == 4).all())
    assert int(x[:, :1].max()) < 4
    head = bo.CategoricalPosterior(
        process,
        padded,
        torch.full((len(padded),), 0.5),
        torch.ones(len(padded), 2, 5 + (process.mask_state is not None)),
    )
    assert float(head.divergence(padded)[:, 1].abs().max()) == 0


@pytest.mark.parametrize("process", [bo.Absorbing(50_001), bo.Uniform(50_000)], ids=repr)
def test_a_large_vocabulary_needs_no_matrix(process):
    """One batch of 2 sequences of 3 labels: no tensor has more than a few times 2 x 3 x S numbers."""
    size = process.num_states
    x0 = torch.tensor([[0, 49_999, 7], [3, 2, 1]])
    t = torch.tensor([0.4, 2.0], dtype=torch.float64)
    with LargestTensor() as largest:
        xt = process.sample(x0, t, torch.Generator().manual_seed(0))
        process.log_prob(xt, x0, t)
        process.reverse_rates(x0, xt, t)
        process.sample_bridge(x0, xt, t / 2, t)
        process.terminal((2, 3))
        u = torch.softmax(torch.randn(2, 3, size, generator=torch.manual_seed(0)), -1)
        posterior = bo.CategoricalPosterior(process, xt, t, u)
        divergence = posterior.divergence(x0)
        posterior.sample(torch.Generator().manual_seed(0))
        bo.ObservationTimes.for_process(process, 50, x0=x0)
        bo.evidence_bound(
            lambda x, s: bo.CategoricalPosterior(process, x, s, u[:1].expand(len(x), -1, -1)),
            process,
            x0,
            2,
            method="monte-carlo",
            check=False,
        )
    assert largest.numel <= 2 * 2 * 3 * size
    with pytest.raises(ValueError, match="measure 'fisher' needs the rates of all"):
        bo.ObservationTimes.equalize(process, "fisher", 20)
    assert bool(torch.isfinite(divergence).all())
    if process.mask_state is not None:  # the weight e^{-t} / (1 - e^{-t}) on -log u(x_0), with weights that sum to one
        u[..., process.mask_state] = 0.0
        u /= u.sum(-1, keepdim=True)
        expected = -torch.log(u.gather(-1, x0.unsqueeze(-1)).squeeze(-1)).double() / torch.expm1(t).unsqueeze(-1)
        got = bo.CategoricalPosterior(process, torch.full_like(x0, size - 1), t, u).divergence(x0)
        assert torch.allclose(got, expected, rtol=1e-5)
