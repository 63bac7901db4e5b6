"""Samples of which some entries are observed: inpainting and imputation."""

import copy
from typing import Any

import torch
from torch import Tensor

from blackout import validate
from blackout.process.base import MarkovProcess
from blackout.random import Streams
from blackout.sampling import MAX_REPEATS
from blackout.sampling.base import Sampler, check_sampler
from blackout.sampling.step import Back, Past, Step
from blackout.times import ObservationTimes

ROUNDS = 7
"""How often a step is repeated by default: see the table in docs/samplers.md."""


class Inpainting(Sampler):
    """Another sampler, given some entries of X_0. Not in the paper.

    Observed entries follow the exact bridge to their values, the others follow the sampler, with a denoiser that sees
    both. Each step is repeated `resample` times, from where the forward process leads from its end, as in RePaint
    (2022), so that sampled entries agree with observed ones. Masked labels need no repetition: under `Absorbing`
    observed labels are there from the start, and sampling is exact. See docs/mathematics.md#inpainting-and-guidance.

    Parameters
    ----------
    sampler
        How the entries that are not observed are sampled.
    observed
        States, integers; the shape of a sample or of all samples.
    mask
        Booleans, true where `observed` holds.
    resample
        How often each step is repeated; default: 7, or 0 for masked labels.

    Examples
    --------
    >>> import blackout as bo
    >>> process, times = bo.PureDeath(9), bo.ObservationTimes.fisher(20)
    >>> denoise = bo.ExactPosterior(process, torch.tensor([[2, 3], [8, 7]]))
    >>> sampler = bo.Inpainting(bo.PosteriorBridge(), observed=[8, 0], mask=[True, False])
    >>> sampler.sample(denoise, process, times, (50, 2), seed=0).unique(dim=0)
    tensor([[8, 7]])
    """

    def __init__(self, sampler: Sampler, observed: Any, mask: Any, resample: int | None = None) -> None:
        check_sampler(sampler)
        super().__init__(sampler.corrector_steps, sampler.corrector_size)
        self.sampler = sampler
        self.resample = None if resample is None else validate.integer("resample", resample, 0, MAX_REPEATS)
        states, where = validate.integers("observed", observed), check_mask(mask)
        try:
            states, self.mask = torch.broadcast_tensors(states, where.to(states.device))
        except RuntimeError:
            shapes = f"{tuple(states.shape)}, the shape of observed, got {tuple(where.shape)}"
            raise ValueError(f"mask must have a shape that goes with {shapes}") from None
        if states.numel() and bool(self.mask.all()):
            raise ValueError(f"mask must leave entries to sample, got all {states.numel()} entries observed")
        (self.observed,) = validate.states(None, observed=torch.where(self.mask, states.long(), 0))

    def rows(self, rows: slice) -> "Inpainting":
        """The same for some of the samples; `observed` has shape (num, ...)."""
        part = copy.copy(self)
        part.observed, part.mask = self.observed[rows], self.mask[rows]
        return part

    def check(self, process: MarkovProcess) -> None:
        self.sampler.check(process)
        validate.states(process.num_states, observed=self.observed)
        if process.mask_state is not None:
            masked = self.mask & (self.observed == process.mask_state)
            if bool(masked.any()):
                raise ValueError(f"observed must not hold the mask itself, got {process.mask_state}")

    def start(self, process: MarkovProcess, times: ObservationTimes, shape: tuple[int, ...], rng: Streams) -> Tensor:
        x = self.sampler.start(process, times, shape, rng)
        observed, mask = self._like(x)
        if process.mask_state is None:
            observed = process.sample(observed, times.t_end, rng)
        return torch.where(mask, observed, x)

    def step(self, at: Step, xt: Tensor, rng: Streams) -> Tensor:
        return self.next_step(at, xt, rng, None)[0]

    def next_step(self, at: Step, xt: Tensor, rng: Streams, past: Past | None) -> tuple[Tensor, Past | None]:
        process, rounds = at.process, self.resample
        if rounds is None:
            rounds = 0 if process.mask_state is not None else ROUNDS
        xs, left = self._once(at, xt, rng, past)
        for _ in range(rounds):  # a state that the forward process led to is not the end of a step: without a past
            xt = process.sample_step_at(xs, process.clock_time(at.s), process.clock_time(at.t), rng)
            xs, left = self._once(at, xt, rng, None)
        return xs, left

    def step_log_prob(self, at: Step, xs: Tensor, xt: Tensor) -> Tensor:
        raise ValueError("Inpainting has no steps to bound: a repeated step has no probability of its own")

    def single_step(self, at: Step, xt: Tensor, rng: Streams) -> Tensor:
        return self._once(at, xt, rng, None)[0]

    def corrector_step(self, at: Step, x: Tensor, back: Back, rng: Streams, observed: Tensor | None) -> Tensor:
        return self.sampler.corrector_step(at, x, back, rng, self._like(x)[1])

    def _once(self, at: Step, xt: Tensor, rng: Streams, past: Past | None) -> tuple[Tensor, Past | None]:
        """One step of the sampler; observed entries follow the bridge of the forward process to their X_0."""
        observed, mask = self._like(xt)
        masking = at.process.mask_state is not None
        if masking:  # observed labels are never masked
            xt = torch.where(mask, observed, xt)
        xs, left = self.sampler.next_step(at, xt, rng, past)
        if not masking:
            observed = at.bridge(torch.where(mask, observed, xt), xt, rng)
        return torch.where(mask, observed, xs), left

    def _like(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The observed entries and the mask for each row of x."""
        try:
            return self.observed.to(x.device).expand(x.shape), self.mask.to(x.device).expand(x.shape)
        except RuntimeError:
            shape = tuple(self.observed.shape)
            raise ValueError(
                f"observed must have a shape that goes with samples {tuple(x.shape)}, got {shape}"
            ) from None


def inpainting(
    sampler: Sampler, process: MarkovProcess, shape: tuple[int, ...], observed: Any, mask: Any, resample: int | None
) -> Sampler:
    """The sampler for samples of this shape (num, ...), of which some entries may be observed."""
    if observed is None or mask is None:
        given = [n for n, v in (("observed", observed), ("mask", mask), ("resample", resample)) if v is not None]
        if given:
            raise ValueError(f"observed and mask go together, got {' and '.join(given)} alone")
        return sampler
    states, where = validate.integers("observed", observed), check_mask(mask)
    if states.shape not in (shape, shape[1:], (1, *shape[1:])):
        raise ValueError(f"observed must have shape {shape[1:]} or {shape}, got {tuple(states.shape)}")
    try:
        where = where.expand(shape)
    except RuntimeError:
        raise ValueError(f"mask must have shape {shape[1:]} or {shape}, got {tuple(where.shape)}") from None
    if where.numel() == 0 or not bool(where.any()):
        return sampler
    method = Inpainting(sampler, states.expand(shape), where, resample)
    method.check(process)
    return method


def check_mask(mask: Any) -> Tensor:
    """A mask as a tensor of booleans."""
    try:
        tensor = torch.as_tensor(mask)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"mask must be a tensor of booleans, got {type(mask).__name__}") from None
    if tensor.dtype != torch.bool:
        raise ValueError(f"mask must hold booleans, got dtype {tensor.dtype}")
    return tensor
