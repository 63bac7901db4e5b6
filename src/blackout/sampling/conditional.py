"""Samples of which some components are given: imputation and inpainting."""

import copy
from typing import Any

import torch
from torch import Tensor

from blackout import validate
from blackout.denoiser import Denoiser
from blackout.process.base import MarkovProcess
from blackout.process.categorical import Absorbing
from blackout.sampling.base import Sampler
from blackout.streams import Streams
from blackout.times import ObservationTimes

ROUNDS = 7
"""How often a step is taken again by default: see the table in docs/samplers.md."""


class Conditioned(Sampler):
    """Another sampler, some components of X_0 being known: those where `mask` is true. Not in the paper.

    The known components walk back along the exact bridge to their values, the others as the sampler moves them, with a
    denoiser that sees both. What has been drawn does not yet agree with what is known later: so each step is taken
    again `resample` times, from where the forward process leads to from its end, as in RePaint (2022). Labels that are
    masked need none of this: under `Absorbing` known ones stand there from the start, and the walk is exact. See
    docs/mathematics.md#what-is-known-and-what-is-meant.
    """

    def __init__(self, sampler: Sampler, known: Any, mask: Any, resample: int | None = None) -> None:
        super().__init__(sampler.corrector_steps, sampler.corrector_size)
        self.sampler = sampler
        self.resample = None if resample is None else validate.integer("resample", resample, 0)
        states, where = validate.integers("known", known), check_mask(mask)
        try:
            states, self.mask = torch.broadcast_tensors(states, where.to(states.device))
        except RuntimeError:
            shapes = f"{tuple(states.shape)}, the shape of known, got {tuple(where.shape)}"
            raise ValueError(f"mask must have a shape that goes with {shapes}") from None
        if states.numel() and bool(self.mask.all()):
            raise ValueError(f"mask must leave something to be drawn, got all {states.numel()} entries known")
        (self.known,) = validate.states(None, known=torch.where(self.mask, states.long(), 0))

    def rows(self, rows: slice) -> "Conditioned":
        """The same for some of the samples, where each has its own: `known` of shape (num, ...)."""
        part = copy.copy(self)
        part.known, part.mask = self.known[rows], self.mask[rows]
        return part

    def check(self, process: MarkovProcess) -> None:
        self.sampler.check(process)
        validate.states(process.num_states, known=self.known)
        if isinstance(process, Absorbing):
            masked = self.mask & (self.known == process.mask_state)
            if bool(masked.any()):
                raise ValueError(f"known must not hold the mask itself, got {process.mask_state}")

    def start(self, process: MarkovProcess, times: ObservationTimes, shape: tuple[int, ...], source: Streams) -> Tensor:
        x = self.sampler.start(process, times, shape, source)
        known, mask = self._like(x)
        if not isinstance(process, Absorbing):
            known = process.sample(known, times.t_end, source)
        return torch.where(mask, known, x)

    def step(
        self, denoise: Denoiser, process: MarkovProcess, xt: Tensor, s: Tensor, t: Tensor, source: Streams
    ) -> Tensor:
        rounds = self.resample
        if rounds is None:
            rounds = 0 if isinstance(process, Absorbing) else ROUNDS
        xs = self._once(denoise, process, xt, s, t, source)
        for _ in range(rounds):
            xt = process.sample_at(xs, process.clock_time(t) - process.clock_time(s), source)
            xs = self._once(denoise, process, xt, s, t, source)
        return xs

    def step_log_prob(
        self, denoise: Denoiser, process: MarkovProcess, xs: Tensor, xt: Tensor, s: Tensor, t: Tensor
    ) -> Tensor:
        raise ValueError(
            "Conditioned has no steps to bound: what is taken again and again has no probability of its own"
        )

    def _once(
        self, denoise: Denoiser, process: MarkovProcess, xt: Tensor, s: Tensor, t: Tensor, source: Streams
    ) -> Tensor:
        """One step of the sampler; what is known follows the law of the forward process given its end, X_0."""
        known, mask = self._like(xt)
        if isinstance(process, Absorbing):  # where what is known is never masked
            xt = torch.where(mask, known, xt)
        xs = self.sampler.step(denoise, process, xt, s, t, source)
        if float(s) > 0 and not isinstance(process, Absorbing):
            tau_s, tau_t = process.checked_clock(xt, s=s, t=t)
            known = process.sample_bridge_at(torch.where(mask, known, xt), xt, tau_s, tau_t, source)
        return torch.where(mask, known, xs)

    def _like(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What is known of each row of x, and where."""
        try:
            return self.known.to(x.device).expand(x.shape), self.mask.to(x.device).expand(x.shape)
        except RuntimeError:
            shape = tuple(self.known.shape)
            raise ValueError(f"known must have a shape that goes with samples {tuple(x.shape)}, got {shape}") from None


def condition(
    sampler: Sampler, process: MarkovProcess, shape: tuple[int, ...], known: Any, mask: Any, resample: int | None
) -> Sampler:
    """The sampler for samples of this shape (num, ...), of which some components may be known."""
    if known is None or mask is None:
        given = [n for n, v in (("known", known), ("mask", mask), ("resample", resample)) if v is not None]
        if given:
            raise ValueError(f"known and mask go together, got {' and '.join(given)} alone")
        return sampler
    states, where = validate.integers("known", known), check_mask(mask)
    if states.shape not in (shape, shape[1:], (1, *shape[1:])):
        raise ValueError(f"known must have shape {shape[1:]} or {shape}, got {tuple(states.shape)}")
    try:
        where = where.expand(shape)
    except RuntimeError:
        raise ValueError(f"mask must have shape {shape[1:]} or {shape}, got {tuple(where.shape)}") from None
    if where.numel() == 0 or not bool(where.any()):
        return sampler
    conditioned = Conditioned(sampler, states.expand(shape), where, resample)
    conditioned.check(process)
    return conditioned


def check_mask(mask: Any) -> Tensor:
    """A mask as a tensor of booleans."""
    try:
        tensor = torch.as_tensor(mask)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"mask must be a tensor of booleans, got {type(mask).__name__}") from None
    if tensor.dtype != torch.bool:
        raise ValueError(f"mask must hold booleans, got dtype {tensor.dtype}")
    return tensor
