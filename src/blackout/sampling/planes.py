"""Volumes from a model of slices."""

import torch
from torch import Tensor

from blackout import validate
from blackout.law import LawDenoiser, ask_law, posterior_law, transitions
from blackout.process.base import MarkovProcess

_FEW = 100.0  # voxels whose mean is noise
_ITERATIONS = 8


class Planes:
    """A denoiser of slices, asked about volumes (batch, depth, height, width): not in the paper.

    A voxel lies in three slices, one across each axis, and each says a law over its X_0. What all three know is the
    voxel itself, p_own ∝ prior(o) P_t(o, x_t); what each adds is p_k / p_own, and together they are taken to say
    p(o | x_t) ∝ p_own Π_k (p_k / p_own)^w. Independent witnesses would have w = 1, three that say the same w = 1/3;
    slices of one neighbourhood are between the two, and docs/samplers.md#volumes-from-slices measures where. Surer than
    one slice, all three would make what is rare rarer with every step, so one factor for each state keeps its mean over
    the volume where slices see it. That slices of all axes follow one law, as those of a rock do, is up to the data.
    """

    def __init__(
        self,
        denoise: LawDenoiser,
        process: MarkovProcess,
        prior: Tensor,
        *,
        weight: float = 0.5,
        batch_size: int = 256,
    ) -> None:
        self.denoise, self.process, self.batch_size = denoise, process, batch_size
        self.prior = prior.double() / prior.sum()
        self.weight = validate.real("weight", weight, 0.0, strict=True)

    def law(self, xt: Tensor, t: Tensor) -> Tensor:
        """p(o | x_t) for every voxel and state, shape (..., S); a law of one slice where the three contradict."""
        matrices = transitions(self.process, self.process.clock_time(t.double().reshape(-1)[:1]))
        own = posterior_law(self.prior.to(xt.device).expand(*xt.shape, -1), xt, matrices)
        laws = [self._slices(xt, t, across) for across in (1, 2, 3)]
        tilt = self.weight * (torch.log(laws[0]) + torch.log(laws[1]) + torch.log(laws[2]))
        joint = torch.where(own > 0, torch.exp(tilt) * own.clamp(min=1e-300) ** (1 - 3 * self.weight), 0.0)
        total = joint.sum(-1, keepdim=True)
        together = torch.where(total > 0, joint / total.clamp(min=1e-300), laws[0])
        return _with_mean(together, (laws[0] + laws[1] + laws[2]) / 3, own.amax(-1) < 1)

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


def _with_mean(law: Tensor, like: Tensor, unknown: Tensor) -> Tensor:
    """`law` times a factor e^{a_s} for each state s, the same for all unknown voxels of a volume, and normalised.

    Over these voxels its mean is that of `like` then. Newton's method finds a, the maximum of a · Σ like - Σ log Σ_s
    e^{a_s} law_s - |a|² few / 2: the mean of a few voxels is left alone.
    """
    free = unknown.flatten(1).unsqueeze(-1)
    log_law, wanted = torch.log(law.flatten(1, 3).clamp(min=1e-300)), (like.flatten(1, 3) * free).sum(1)
    a = torch.zeros_like(wanted)
    bend = _FEW * torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    for _ in range(_ITERATIONS):
        tilted = torch.softmax(log_law + a.unsqueeze(1), -1) * free
        found = tilted.sum(1)
        curvature = torch.diag_embed(found) - tilted.mT @ tilted + bend
        a = a + torch.linalg.solve(curvature, wanted - found - _FEW * a).clamp(-2, 2)
    tilted = torch.softmax(log_law + a.unsqueeze(1), -1).reshape(law.shape)
    return torch.where(unknown.unsqueeze(-1), tilted, law)
