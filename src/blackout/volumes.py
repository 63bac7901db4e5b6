"""Volumes from a model of slices: not in the paper."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from blackout import validate
from blackout.model import DiffusionModel
from blackout.posterior import CategoricalPosterior, Denoiser, ListedPosterior, call
from blackout.process.base import MarkovProcess
from blackout.sampling import PosteriorBridge
from blackout.times import ObservationTimes

_FEW = 100.0  # voxels whose mean is noise
_ITERATIONS = 8


def sample_volume(
    model: DiffusionModel,
    num: int,
    num_steps: int | str | None = "auto",
    seed: int = 0,
    *,
    size: Any = None,
    weight: float = 0.5,
    times: ObservationTimes | str | None = None,
    start_index: int = 0,
    batch_size: int = 256,
    callback: Callable[[int, int, Tensor], None] | None = None,
) -> Tensor:
    """Volumes from a model of slices that may lie across any axis.

    Parameters
    ----------
    num
        Number of volumes.
    num_steps, times, seed, start_index
        As in `DiffusionModel.sample`.
    size
        The three sides, or one for all; default: the side of the slices.
    weight
        How much the evidence of each of the three slices of a voxel counts, docs/samplers.md#volumes-from-slices.
    batch_size
        Slices in one call of the network.

    Returns
    -------
    Tensor
        Integers of shape (num, depth, height, width).
    """
    shape = (validate.integer("num", num, 0), *volume_sides(model, size))
    grid, batch = model.sampling_times(num_steps, times), validate.integer("batch_size", batch_size, 1)
    prior: Any = model.predictor.head.prior
    slices = SliceDenoiser(model.denoiser(), model.process, prior[0], weight=weight, batch_size=batch)
    return PosteriorBridge().sample(
        slices, model.process, grid, shape, seed, start_index=start_index, device=model.device, callback=callback
    )


def volume_sides(model: DiffusionModel, size: Any = None) -> tuple[int, ...]:
    """The three sides that `size` means; ValueError if the model cannot make volumes."""
    if model.shape is None or len(model.shape) != 3 or model.shape[0] != 1:
        raise ValueError(f"volumes need a model of slices, shape (1, height, width), got {model.shape}")
    if model.predictor.head.answers != "categorical":
        name = type(model.predictor.head).__name__
        raise ValueError(f"volumes need a head with a distribution over X_0, such as 'categorical', got {name}")
    sides = (size,) * 3 if isinstance(size, int) else tuple(model.shape[2:] * 3 if size is None else size)
    unit = model.predictor.size_unit
    if len(sides) != 3 or any(validate.integer("size", side, 1) % unit for side in sides):
        raise ValueError(f"size must be one side or three, multiples of {unit}, got {size!r}")
    return sides


class SliceDenoiser:
    """A denoiser of slices applied to volumes (batch, depth, height, width).

    A voxel lies in three slices, one across each axis, and each gives a distribution over its X_0. All three contain
    the evidence of the voxel itself, p_own ∝ prior(o) P_t(o, x_t); each adds p_k / p_own, and together they give
    p(o | x_t) ∝ p_own Π_k (p_k / p_own)^w. Independent evidence would have w = 1, three times the same evidence
    w = 1/3; slices of one neighbourhood are between the two, and docs/samplers.md#volumes-from-slices measures where.
    The combination is surer than one slice and would make rare states rarer with every step, so one factor for each
    state keeps its mean over the volume at that of the slices. Slices of all axes must have the same distribution, as
    those of a rock do.
    """

    def __init__(
        self, denoise: Denoiser, process: MarkovProcess, prior: Tensor, *, weight: float = 0.5, batch_size: int = 256
    ) -> None:
        self.denoise, self.process, self.batch_size = denoise, process, batch_size
        self.prior = prior.double() / prior.sum()
        self.weight = validate.real("weight", weight, 0.0, strict=True)

    def __call__(self, xt: Tensor, t: Tensor) -> ListedPosterior:
        """p(o | x_t) for every voxel and state; the distribution of one slice where the three contradict each other."""
        prior = self.prior.to(xt.device).expand(*xt.shape, -1)
        transitions = self.process.transitions(self.process.clock_time(t.double().reshape(-1)[:1]))
        own = CategoricalPosterior(self.process, xt, t, prior, transitions).probs()
        parts = [self.slices(xt, t, across) for across in (1, 2, 3)]
        logs = self.weight * (torch.log(parts[0]) + torch.log(parts[1]) + torch.log(parts[2]))
        joint = torch.where(own > 0, torch.exp(logs) * own.clamp(min=1e-300) ** (1 - 3 * self.weight), 0.0)
        total = joint.sum(-1, keepdim=True)
        together = torch.where(total > 0, joint / total.clamp(min=1e-300), parts[0])
        probs = _with_mean(together, (parts[0] + parts[1] + parts[2]) / 3, own.amax(-1) < 1)
        return ListedPosterior(self.process, xt, t, probs)

    def slices(self, xt: Tensor, t: Tensor, across: int) -> Tensor:
        """The distributions that the slices across one axis give, shape (batch, depth, height, width, S)."""
        cut = xt.movedim(across, 1)
        slices, time = cut.flatten(0, 1).unsqueeze(1), t.reshape(-1)[:1]
        parts = [
            call(self.denoise, self.process, part, time.expand(len(part))).probs()
            for part in slices.split(self.batch_size)
        ]
        probs: Tensor = torch.cat(parts).squeeze(1).unflatten(0, cut.shape[:2]).movedim(1, across)
        return probs


def _with_mean(probs: Tensor, like: Tensor, unknown: Tensor) -> Tensor:
    """`probs` times a factor e^{a_s} for each state s, the same for all unknown voxels of a volume, normalised.

    Its mean over these voxels is then that of `like`. Newton's method finds a, the maximum of a · Σ like - Σ log Σ_s
    e^{a_s} p_s - |a|² few / 2: the mean of a few voxels is left alone.
    """
    free = unknown.flatten(1).unsqueeze(-1)
    log_probs, wanted = torch.log(probs.flatten(1, 3).clamp(min=1e-300)), (like.flatten(1, 3) * free).sum(1)
    a = torch.zeros_like(wanted)
    bend = _FEW * torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    for _ in range(_ITERATIONS):
        tilted = torch.softmax(log_probs + a.unsqueeze(1), -1) * free
        found = tilted.sum(1)
        curvature = torch.diag_embed(found) - tilted.mT @ tilted + bend
        a = a + torch.linalg.solve(curvature, wanted - found - _FEW * a).clamp(-2, 2)
    tilted = torch.softmax(log_probs + a.unsqueeze(1), -1).reshape(probs.shape)
    return torch.where(unknown.unsqueeze(-1), tilted, probs)
