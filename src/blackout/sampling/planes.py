"""Volumes from a model of slices."""

import torch
from torch import Tensor

from blackout.law import LawDenoiser, ask_law, posterior_law, transitions
from blackout.process.base import MarkovProcess


class Planes:
    """A denoiser of slices, asked about volumes (batch, depth, height, width): not in the paper.

    A voxel lies in three slices, one across each axis, and each says a law over its X_0. Taken as independent witnesses
    they give p(o | x_t) ∝ p_1 p_2 p_3 / p_own², where p_own ∝ prior(o) P_t(o, x_t) is what all three know: the voxel
    itself. They are not quite independent, since two slices share a line. That slices of all axes follow one law, as
    those of a rock do, is up to the data.
    """

    def __init__(self, denoise: LawDenoiser, process: MarkovProcess, prior: Tensor, batch_size: int = 256) -> None:
        self.denoise, self.process, self.batch_size = denoise, process, batch_size
        self.prior = prior.double() / prior.sum()

    def law(self, xt: Tensor, t: Tensor) -> Tensor:
        """p(o | x_t) for every voxel and state, shape (..., S); a law of one slice where the three contradict."""
        matrices = transitions(self.process, self.process.clock_time(t.double().reshape(-1)[:1]))
        own = posterior_law(self.prior.to(xt.device).expand(*xt.shape, -1), xt, matrices)
        laws = [self._slices(xt, t, across) for across in (1, 2, 3)]
        joint = torch.where(own > 0, laws[0] * laws[1] * laws[2] / own.clamp(min=1e-300) ** 2, 0.0)
        total = joint.sum(-1, keepdim=True)
        return torch.where(total > 0, joint / total.clamp(min=1e-300), laws[0])

    def __call__(self, xt: Tensor, t: Tensor) -> Tensor:
        raise ValueError("volumes from slices have a law over X_0 and no rates: PosteriorBridge() draws them")

    def _slices(self, xt: Tensor, t: Tensor, across: int) -> Tensor:
        cut = xt.movedim(across, 1)
        slices, time = cut.flatten(0, 1).unsqueeze(1), t.reshape(-1)[:1]
        parts = [
            ask_law(self.denoise, self.process, part, time.expand(len(part))) for part in slices.split(self.batch_size)
        ]
        whole: Tensor = torch.cat(parts).squeeze(1).unflatten(0, cut.shape[:2]).movedim(1, across)
        return whole
