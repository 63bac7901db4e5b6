"""Bits per dimension of data under a model: by the continuous-time bound, or by that of the steps of a sampler."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from blackout import validate
from blackout.likelihood import evidence_bound, warn_infinite
from blackout.network import Head
from blackout.posterior import Denoiser
from blackout.process.base import MarkovProcess
from blackout.sampling import SAMPLERS, Sampler
from blackout.sampling.choice import bound_sampler, default_sampler
from blackout.times import ObservationTimes

BOUNDS = ("auto", "continuous", "steps")
_CHAIN_STEPS = 256  # of a chain, up to which its bound is summed over all of them


class BitsPerDim(float):
    """Bits per dimension with their standard error, and the name of the bound: "continuous" or "steps"."""

    standard_error: float
    bound: str

    def __new__(cls, value: float, standard_error: float, bound: str = "continuous") -> "BitsPerDim":
        number = super().__new__(cls, value)
        number.standard_error, number.bound = standard_error, bound
        return number

    def __getnewargs__(self) -> tuple[float, float, str]:  # type: ignore[override]
        return float(self), self.standard_error, self.bound

    def __str__(self) -> str:
        return f"{float(self):.4f} ± {self.standard_error:.4f}" if math.isfinite(self) else f"{float(self)}"

    @staticmethod
    def mean_of(bits: Tensor, bound: str = "continuous") -> "BitsPerDim":
        """The mean over data points, and the standard error of that mean."""
        error = float(bits.std() / math.sqrt(len(bits))) if len(bits) > 1 else math.nan
        return BitsPerDim(float(bits.mean()), error, bound)


def mean_bits(
    each: Callable[[slice], Tensor],
    number: int,
    bound: str,
    batch_size: int = 256,
    callback: Callable[[int, int], None] | None = None,
) -> BitsPerDim:
    """The mean over `number` data points of `each(rows)`, in batches; callback(done, number) follows each of them."""
    size, parts = validate.integer("batch_size", batch_size, 1), []
    validate.function("callback", callback, optional=True)
    for start in range(0, number, size):
        rows = slice(start, min(start + size, number))
        parts.append(each(rows))
        if callback is not None:
            callback(rows.stop, number)
    return BitsPerDim.mean_of(torch.cat(parts), bound)


def choose_bound(bound: str, process: MarkovProcess, head: Head) -> str:
    """The bound in effect, "continuous" or "steps".

    "auto" is "continuous" where there is a finite one: not for chains, and not for a head such as softplus, whose
    prediction stays above zero as t → 0.
    """
    validate.choice("bound", bound, BOUNDS)
    if process.discrete_time and bound == "continuous":
        raise ValueError("bound must be 'steps' for a chain in discrete time, got 'continuous'")
    if bound == "auto":
        return "steps" if process.discrete_time or not head.finite_bound else "continuous"
    return bound


def steps_sampler(process: MarkovProcess, head: Head) -> Sampler:
    """The sampler whose steps are bounded: the model's default, or leaps in the place of a bridge."""
    name = "posterior" if process.discrete_time else default_sampler(process, head.answers)
    return SAMPLERS.make(bound_sampler(name, process, head.finite_bound))  # type: ignore[no-any-return]


def num_entries(process: MarkovProcess, x: Tensor) -> Tensor:
    """The number of components of each data point, padding not counted, shape (n,)."""
    if process.pad_state is None:
        return torch.full((len(x),), x[0].numel())
    return (x != process.pad_state).flatten(1).sum(-1)


def bits_of_each(
    denoise: Denoiser,
    process: MarkovProcess,
    times: ObservationTimes,
    head: Head,
    x: Tensor,
    seed: int = 0,
    *,
    num_times: int = 32,
    start_index: int = 0,
    bound: str = "auto",
) -> Tensor:
    """Bits per dimension of each data point, shape (n,), on the CPU, from `num_times` times or steps of each.

    "continuous" is `evidence_bound`; "steps" is `Sampler.bound` of all T `times`, estimated without bias from
    `num_times` of the steps, drawn for each data point.
    """
    kind, options = choose_bound(bound, process, head), {"start_index": start_index}
    num_times = validate.integer("num_times", num_times, 1)
    if kind == "steps":
        steps = max(num_times, _CHAIN_STEPS) if process.discrete_time else num_times
        nats = steps_sampler(process, head).bound(denoise, process, times, x, seed, num_steps=steps, **options)
    elif head.finite_bound:
        nats = evidence_bound(denoise, process, x, num_times, seed, method="monte-carlo", check=False, **options)
    else:
        warn_infinite(len(x), len(x))
        nats = torch.full((len(x),), torch.inf, dtype=torch.float64)
    return nats.cpu() / (math.log(2) * num_entries(process, x).cpu())
