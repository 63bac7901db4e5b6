"""Remasking: the posterior bridge for masked labels, corrected by masking some labels again. Not in the paper."""

from dataclasses import replace

import torch
from torch import Tensor

from blackout import validate
from blackout.process.base import MarkovProcess
from blackout.random import Streams, categorical, uniform
from blackout.sampling.posterior_bridge import PosteriorBridge, origin_weights
from blackout.sampling.step import Back, Step


class Remasking(PosteriorBridge):
    """`PosteriorBridge` under masking, with corrector steps that mask labels again. Not in the paper.

    Under masking a label that has been drawn never changes. A corrector step masks `entries` labels of each sample,
    chosen at random from those that are not observed, and draws them from their posterior given all others. With one
    label at a time that is Gibbs sampling, and with the exact posterior it leaves the distribution of X_s unchanged:
    which labels are masked does not depend on what they are. Several at a time are drawn independently of each other,
    which is faster and has an error. The idea is that of remasking samplers (ReMDM, 2025): docs/sequences.md#samplers.

    Parameters
    ----------
    entries
        Labels of a sample that a corrector step redraws.

    Examples
    --------
    >>> import blackout as bo
    >>> process = bo.Absorbing(4)
    >>> denoise = bo.ExactPosterior(process, torch.tensor([[0, 0], [1, 1], [2, 2]]))
    >>> times = bo.ObservationTimes.for_process(process, 4)
    >>> samples = Remasking(corrector_steps=2).sample(denoise, process, times, (100, 2), seed=0)
    >>> samples.shape
    torch.Size([100, 2])
    """

    def __init__(self, entries: int = 1, corrector_steps: int = 1, corrector_size: float = 0.1) -> None:
        super().__init__(corrector_steps, corrector_size)
        self.entries = validate.integer("entries", entries, 1)

    def check(self, process: MarkovProcess) -> None:
        super().check(process)
        if process.mask_state is None:
            raise ValueError(f"process must have a mask for remasking, such as Absorbing, got {process!r}")

    def corrector_step(self, at: Step, x: Tensor, back: Back, rng: Streams, observed: Tensor | None) -> Tensor:
        process = at.process
        assert process.mask_state is not None
        fixed = x == process.mask_state
        if process.pad_state is not None:
            fixed = fixed | (x == process.pad_state)
        if observed is not None:
            fixed = fixed | observed
        order = torch.where(fixed, 2.0, uniform(tuple(x.shape), x.device, rng)).flatten(1)
        last = order.kthvalue(min(self.entries, order.shape[1]), -1, keepdim=True).values
        chosen = ((order <= last) & (order < 2)).reshape(x.shape)
        masked = torch.where(chosen, process.mask_state, x)
        drawn = categorical(origin_weights(replace(at, t=at.s), masked), rng)
        return torch.where(chosen, drawn, x)
