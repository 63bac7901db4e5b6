"""Random draws of processes and samplers: validated, on the device of their arguments, from a given source.

A source is a `torch.Generator`, `Streams` (one stream for each sample, used by the samplers) or None: torch's default
generator of that device.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from blackout.random.streams import Streams

Source = torch.Generator | Streams | None

_CHUNK = 1 << 15  # elements that one CPU generator fills; fixed, so that draws do not depend on the number of threads
_TOGETHER = 4  # steps of an inversion between two checks of which elements are done, each of which waits for the device
_SWITCH = 10.0  # mean above which rejection is cheaper than inversion


def uniform(shape: tuple[int, ...], device: torch.device, source: Source = None) -> Tensor:
    """Float64 numbers in [0, 1)."""
    _same_device(source, device)
    if isinstance(source, Streams):
        return source.uniform(tuple(shape))
    return torch.rand(shape, dtype=torch.float64, device=device, generator=source)


def normal(shape: tuple[int, ...], device: torch.device, source: Source = None) -> Tensor:
    """Standard normal numbers in float64, by inversion."""
    u = uniform(shape, device, source)
    z: Tensor = torch.special.ndtri(u.clamp(min=2.0**-54))  # a zero would be sent to minus infinity
    return z


def round_stochastic(values: Tensor, source: Source = None) -> Tensor:
    """floor(v) + Bernoulli(v - floor(v)), as int64: an integer whose mean is v."""
    floor = torch.floor(values)
    return floor.long() + (uniform(tuple(values.shape), values.device, source) < values - floor)


def binomial(
    count: Tensor,
    prob: Tensor,
    source: Source = None,
    complement: Tensor | None = None,
    max_count: int | None = None,
) -> Tensor:
    """Binomial(count, prob), in the integer dtype of `count`.

    `complement` is 1 - prob where the caller knows it better than a subtraction would: the draw is always made with
    the smaller of the two, so that a probability within 1e-300 of one is as good as one within 1e-300 of zero.
    `max_count` bounds the counts for a caller that has checked all arguments: nothing is read back from a device then.
    Counts above 1e13 lose digits in logarithms of factorials: at 1e15 the variance is 5 % off.
    """
    _same_device(source, count.device)
    if max_count is None:
        max_count = _checked(count, prob, complement)
    complement = 1 - prob if complement is None else complement
    small = torch.minimum(prob, complement).expand(count.shape)
    if isinstance(source, Streams):
        drawn = _stream_binomial(count.double(), small.double(), source)
    else:
        # float32 holds the counts exactly and the mean to 6e-8; larger counts get double precision.
        dtype = torch.float64 if max_count > 4096 else torch.float32
        drawn = _parallel(torch.binomial, (count.to(dtype), small.to(dtype)), source)
    drawn = drawn.to(count.dtype)
    return torch.where(prob > complement, count - drawn, drawn)


def poisson(mean: Tensor, source: Source = None) -> Tensor:
    """Poisson(mean), as int64; means above 1e13 lose digits in logarithms of factorials, as counts of `binomial` do."""
    _same_device(source, mean.device)
    fine = (mean >= 0) & (mean <= 2.0**53)
    if not bool(fine.all()):
        raise ValueError(f"mean must be finite and not negative, got {_worst(mean, fine)}")
    if isinstance(source, Streams):
        return _stream_poisson(mean.double(), source).long()
    return _parallel(torch.poisson, (mean.double(),), source).long()


def categorical(weights: Tensor, source: Source = None) -> Tensor:
    """An index of the last dimension, drawn in proportion to the weights there, which are not checked."""
    return pick(weights, uniform(tuple(weights.shape[:-1]), weights.device, source))


def pick(weights: Tensor, u: Tensor) -> Tensor:
    """The index of the last dimension that a number u in [0, 1) falls on, the weights laid end to end."""
    cumulative = weights.cumsum(-1, dtype=torch.float64)
    total = cumulative[..., -1:].contiguous()
    index = torch.searchsorted(cumulative, u.unsqueeze(-1) * total, right=True)
    last = torch.searchsorted(cumulative, total)  # rounding must not pass the last index that has a weight
    return torch.minimum(index, last).squeeze(-1)


def source_device(source: Source) -> torch.device:
    """The device that a source draws on; ValueError for anything else."""
    if source is None:
        return torch.device("cpu")
    if not isinstance(source, torch.Generator | Streams):
        raise ValueError(f"generator must be a torch.Generator, got {source!r}")
    return source.device


def _checked(count: Tensor, prob: Tensor, complement: Tensor | None) -> int:
    """The largest count, after a check of all arguments."""
    for name, value in (("prob", prob), ("complement", complement)):
        if value is not None:
            fine = (value >= 0) & (value <= 1)
            if not bool(fine.all()):
                raise ValueError(f"{name} must lie in [0, 1], got {_worst(value, fine)}")
    if count.is_floating_point() or count.dtype == torch.bool:
        raise ValueError(f"count must hold integers, got dtype {count.dtype}")
    if not count.numel():
        return 0
    low, high = (int(v) for v in torch.aminmax(count))
    if low < 0:
        raise ValueError(f"count must not be negative, got {low}")
    return high


def _same_device(source: Source, device: torch.device) -> None:
    if source is not None and source_device(source).type != device.type:
        raise ValueError(f"generator is on {source_device(source)}, but the draw is on {device}")


def _worst(values: Tensor, fine: Tensor) -> object:
    return values[~fine].reshape(-1)[0].item() if fine.shape == values.shape else values[~fine][0].tolist()


def _parallel(draw: Callable[..., Tensor], arguments: tuple[Tensor, ...], source: torch.Generator | None) -> Tensor:
    """`draw` over all elements. torch draws on one CPU core; here chunks of fixed size go to all of them."""
    first = arguments[0]
    if first.device.type != "cpu" or first.numel() <= _CHUNK:
        return draw(*(a.contiguous() for a in arguments), generator=source)
    chunks = list(zip(*(a.reshape(-1).split(_CHUNK) for a in arguments), strict=True))
    seeds = torch.randint(2**63 - 1, (len(chunks),), generator=source).tolist()

    def fill(chunk: tuple[Tensor, ...], seed: int) -> Tensor:
        return draw(*chunk, generator=torch.Generator().manual_seed(seed))

    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        return torch.cat(list(pool.map(fill, chunks, seeds))).reshape(first.shape)


def _stream_binomial(count: Tensor, prob: Tensor, streams: Streams) -> Tensor:
    """Sequential inversion where the mean is small, Hörmann's BTRS (1993) elsewhere. `prob` is at most 1/2."""
    ratio = (prob / (1 - prob)).reshape(-1)
    n, p = count.reshape(-1), prob.reshape(-1)

    def invert(rows: Tensor, u: Tensor) -> Tensor:
        n_, ratio_ = n[rows], ratio[rows]
        return _invert(u, torch.exp(n_ * torch.log1p(-p[rows])), lambda k, at: (n_[at] - k) / (k + 1) * ratio_[at])

    def propose(rows: Tensor) -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
        n_, p_, log_ratio = n[rows], p[rows], torch.log(ratio[rows])
        deviation = torch.sqrt(n_ * p_ * (1 - p_))
        b = 1.15 + 2.53 * deviation
        a = -0.0873 + 0.0248 * b + 0.01 * p_
        alpha = (2.83 + 5.1 / b) * deviation
        mode = torch.floor((n_ + 1) * p_)
        peak = torch.lgamma(mode + 1) + torch.lgamma(n_ - mode + 1)

        def attempt(at: Tensor, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            u = u - 0.5
            us = 0.5 - u.abs()
            k = torch.floor((2 * a[at] / us + b[at]) * u + n_[at] * p_[at] + 0.5)
            inside = (k >= 0) & (k <= n_[at])
            k = torch.minimum(k.clamp(min=0), n_[at])
            target = peak[at] - torch.lgamma(k + 1) - torch.lgamma(n_[at] - k + 1) + (k - mode[at]) * log_ratio[at]
            squeeze = (us >= 0.07) & (v <= 0.92 - 4.2 / b[at])
            return k, inside & (squeeze | (torch.log(v * alpha[at] / (a[at] / us**2 + b[at])) <= target))

        return attempt

    return _invert_or_reject(n * p, count.shape, streams, invert, propose)


def _stream_poisson(mean: Tensor, streams: Streams) -> Tensor:
    """Sequential inversion where the mean is small, Hörmann's PTRS (1993) elsewhere."""
    mu = mean.reshape(-1)

    def invert(rows: Tensor, u: Tensor) -> Tensor:
        m = mu[rows]
        return _invert(u, torch.exp(-m), lambda k, at: m[at] / (k + 1))

    def propose(rows: Tensor) -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
        m = mu[rows]
        b = 0.931 + 2.53 * torch.sqrt(m)
        a = -0.059 + 0.02483 * b
        inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)

        def attempt(at: Tensor, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            u = u - 0.5
            us = 0.5 - u.abs()
            k = torch.floor((2 * a[at] / us + b[at]) * u + m[at] + 0.43)
            inside = (k >= 0) & ~((us < 0.013) & (v > us))
            k = k.clamp(min=0)
            target = k * torch.log(m[at]) - m[at] - torch.lgamma(k + 1)
            squeeze = (us >= 0.07) & (v <= 0.9277 - 3.6224 / (b[at] - 2))
            return k, inside & (squeeze | (torch.log(v * inverse_alpha[at] / (a[at] / us**2 + b[at])) <= target))

        return attempt

    return _invert_or_reject(mu, mean.shape, streams, invert, propose)


def _invert_or_reject(
    mean: Tensor,
    shape: torch.Size,
    streams: Streams,
    invert: Callable[[Tensor, Tensor], Tensor],
    propose: Callable[[Tensor], Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]],
) -> Tensor:
    """Each element is drawn by the method that suits its mean, from random numbers of its own."""
    out = torch.zeros_like(mean)
    u = streams.uniform(tuple(shape)).reshape(-1)
    rows = ((mean > 0) & (mean < _SWITCH)).nonzero().squeeze(-1)
    if rows.numel():
        out[rows] = invert(rows, u[rows])
    rows = (mean >= _SWITCH).nonzero().squeeze(-1)
    if rows.numel():
        sample, component = (index[rows] for index in streams.locate(shape))
        attempt, pending, tries = propose(rows), torch.arange(rows.numel(), device=mean.device), 0
        while pending.numel():
            tries += 1
            k, accepted = attempt(pending, *streams.pair(sample[pending], component[pending], streams.draws, tries))
            done, rest = (which.nonzero().squeeze(-1) for which in (accepted, ~accepted))
            out[rows[pending[done]]] = k[done]
            pending = pending[rest]
    return out.reshape(shape)


def _invert(u: Tensor, mass: Tensor, ratio: Callable[[int, Tensor], Tensor], every: int = 0) -> Tensor:
    """The smallest k whose cumulative probability exceeds u, given P(0) and P(k + 1) / P(k).

    Finished elements are removed after each `every` steps (0: a default for the device).
    """
    out = torch.zeros_like(u)
    at = torch.arange(u.numel(), device=u.device)
    every = every or (1 if u.device.type == "cpu" else _TOGETHER)
    k = 0
    while True:
        if k % every == 0:
            left = _going(u, mass).nonzero().squeeze(-1)
            at, u, mass = at[left], u[left], mass[left]
            if not at.numel():
                return out
        going = _going(u, mass)
        u = torch.where(going, u - mass, u)
        mass = torch.where(going, (mass * ratio(k, at)).clamp(min=0), 0.0)
        k += 1
        out[at] = torch.where(mass > 0, float(k), out[at])


def _going(u: Tensor, mass: Tensor) -> Tensor:
    """Mass that has run out in double precision ends the search too: nothing is left to the right."""
    return (u >= mass) & (mass > 0)
