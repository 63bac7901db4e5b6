"""Small worlds whose distributions are computed exactly, and distances between distributions."""

import numpy
import torch
from scipy import stats
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import blackout as bo
from blackout.posterior import Denoiser
from blackout.sampling import Past, Step


def line(size: int = 9, seed: int = 0) -> tuple[Tensor, Tensor]:
    """One component: the points 0, ..., size - 1, shape (size, 1), and random weights for them."""
    weights = numpy.random.default_rng(seed).dirichlet(numpy.ones(size))
    return torch.arange(size).unsqueeze(-1), torch.from_numpy(weights)


def cube(components: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Correlated components of five levels each: all points, and uneven weights for them."""
    points = lattice(5, components)
    weights = numpy.random.default_rng(seed).dirichlet(numpy.full(len(points), 0.3))
    return points, torch.from_numpy(weights)


def random_generator(size: int = 9, seed: int = 0) -> numpy.ndarray:
    rates = numpy.random.default_rng(seed).exponential(size=(size, size))
    numpy.fill_diagonal(rates, 0.0)
    return rates - numpy.diag(rates.sum(1))


def lattice(num_states: int, components: int) -> Tensor:
    """All joint states in lexicographic order, shape (num_states ** components, components)."""
    return torch.cartesian_prod(*[torch.arange(num_states)] * components).reshape(-1, components)


def frequencies(samples: Tensor, num_states: int) -> Tensor:
    """How often each state of the lattice occurs."""
    assert int(samples.min()) >= 0
    assert int(samples.max()) < num_states
    components = samples.shape[1]
    places = num_states ** torch.arange(components - 1, -1, -1)
    return torch.bincount((samples * places).sum(-1), minlength=num_states**components).double()


def on_lattice(points: Tensor, weights: Tensor, num_states: int) -> Tensor:
    """The distribution of weighted points on the lattice of a process with that many states."""
    places = num_states ** torch.arange(points.shape[1] - 1, -1, -1)
    probs = torch.zeros(num_states ** points.shape[1], dtype=torch.float64)
    return probs.index_add(0, (points * places).sum(-1), weights)


def marginal(process: bo.MarkovProcess, points: Tensor, weights: Tensor, t: float) -> Tensor:
    """The distribution of X_t on the lattice."""
    each = process.probs(points, t)
    probs = each[:, 0]
    for component in range(1, points.shape[1]):
        probs = (probs.unsqueeze(-1) * each[:, component].unsqueeze(1)).flatten(1)
    return weights @ probs


def sampler_probs(
    sampler: bo.Sampler, denoise: Denoiser, process: bo.MarkovProcess, times: bo.ObservationTimes, components: int
) -> Tensor:
    """The exact distribution of a sampler's output on the lattice, from the probabilities of its steps."""
    num_states = process.num_states
    states = lattice(num_states, components)
    probs = torch.exp(process.terminal_log_prob(states)).prod(-1)
    xs = torch.arange(num_states).reshape(-1, 1, 1).expand(-1, len(states), components).reshape(-1, components)
    xt = states.repeat(num_states, 1)
    for s, t in times.backwards():
        log_prob = sampler.step_log_prob(Step.of(denoise, process, s, t), xs, xt).reshape(
            num_states, len(states), components
        )
        step = torch.ones(len(states), len(states), dtype=torch.float64)
        for c in range(components):
            step *= torch.exp(log_prob[states[:, c], :, c]).T
        probs = probs @ step
    return probs


def multistep_probs(
    sampler: bo.Sampler,
    denoise: Denoiser,
    process: bo.MarkovProcess,
    times: bo.ObservationTimes,
    components: int,
    stages: int | None = None,
) -> Tensor:
    """The same for a sampler with memory, from the joint distribution of two neighbouring states.

    With `stages` the past is forgotten whenever so many steps have been taken.
    """
    num_states, past = process.num_states, None
    states = lattice(num_states, components)
    size, terminal = len(states), torch.exp(process.terminal_log_prob(states)).prod(-1)
    joint = torch.diag(terminal)  # (the state before, the state now)
    xs = torch.arange(num_states).repeat_interleave(size * size).unsqueeze(-1).expand(-1, components)
    before, now = states.repeat_interleave(size, 0).repeat(num_states, 1), states.repeat(num_states * size, 1)
    for k, (s, t) in enumerate(times.backwards()):
        if past is None or (stages and k % stages == 0):
            rows = None
        else:
            rows = Past(before, past.t, past.origin[:size].repeat_interleave(size, 0).repeat(num_states, 1, 1))
        log_prob, past = sampler.next_log_prob(Step.of(denoise, process, s, t), xs, now, rows)
        step, each = 1.0, torch.exp(log_prob).reshape(num_states, size, size, components)
        for c in range(components):
            step = step * each[states[:, c], :, :, c]  # (the state after, before, now)
        joint = torch.einsum("bn,abn->na", joint, step)
    return joint.sum(0)


def ridge(levels: int, width: float = 1.0) -> tuple[Tensor, Tensor]:
    """Two components that are nearly equal, with probabilities that vary smoothly."""
    points = lattice(levels, 2)
    apart, middle = points[:, 0] - points[:, 1], points.double().mean(1) - levels / 2
    weights = torch.exp(-(apart**2) / (2 * width**2) - 4.5 * (middle / levels * 2) ** 2)
    return points, weights / weights.sum()


def draw(points: Tensor, weights: Tensor, size: int, seed: int = 0) -> Tensor:
    index = numpy.random.default_rng(seed).choice(len(points), size=size, p=weights.numpy())
    return points[torch.from_numpy(index)]


def entropy(weights: Tensor) -> float:
    """In nats."""
    return float(-torch.xlogy(weights, weights).sum())


def total_variation(probs: Tensor, other: Tensor) -> float:
    return float((probs - other).abs().sum() / 2)


def noise(probs: Tensor, size: int) -> float:
    """The mean total variation between a distribution and the frequencies of `size` independent draws from it."""
    return float(torch.sqrt(2 * probs * (1 - probs) / (numpy.pi * size)).sum() / 2)


def p_value(counts: Tensor, probs: Tensor) -> float:
    """Pearson's chi-square test; states with fewer than five expected draws are pooled."""
    observed, expected = counts.numpy(), probs.numpy() * float(counts.sum())
    if observed[expected == 0].any():
        return 0.0
    rare = expected < 5
    observed = numpy.append(observed[~rare], observed[rare].sum())
    expected = numpy.append(expected[~rare], expected[rare].sum())
    keep = expected > 0
    statistic = ((observed[keep] - expected[keep]) ** 2 / expected[keep]).sum()
    return float(stats.chi2.sf(statistic, max(1, int(keep.sum()) - 1)))


def fit(draws: Tensor, probs: object) -> float:
    """The p-value of single states that should follow `probs`."""
    return p_value(torch.bincount(draws.flatten(), minlength=len(probs)), torch.as_tensor(probs))


def grid(process: bo.MarkovProcess, steps: int) -> bo.ObservationTimes:
    """The Fisher times in units of the relaxation time of the process."""
    return bo.ObservationTimes.from_values(bo.ObservationTimes.fisher(steps).values / process.relaxation_rate)


def sampler_name(sampler: bo.Sampler) -> str:
    options = [value for value in vars(sampler).values() if isinstance(value, str)]
    return "-".join([type(sampler).__name__, *options])


class LargestTensor(TorchDispatchMode):
    """Records the number of elements of the largest tensor that any operation makes."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.numel = max(
            [self.numel, *(v.numel() for v in (out if isinstance(out, tuple) else (out,)) if hasattr(v, "numel"))]
        )
        return out
