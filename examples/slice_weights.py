"""Choose the weight with which the three slices through a voxel are combined: the table in docs/samplers.md.

    blackout train bentheimer
    python examples/slice_weights.py runs/bentheimer data

A share of the voxels of held-out cubes is observed, the others are masked. Prints the cross-entropy per masked voxel in
nats, for one slice and for all three combined with several weights.
"""

import math
import sys
from pathlib import Path

import numpy
import torch
from torch import Tensor

import blackout as bo
from blackout.data.volumes import find_bentheimer
from blackout.volumes import SliceDenoiser

SIDE, CUBES, HELD_OUT = 32, 3, 0.8  # training uses the slices before this share of the volume
SHARES = (0.02, 0.1, 0.3, 0.6, 0.9)
WEIGHTS = (1 / 3, 0.5, 0.6, 0.8, 1.0)


def held_out_cube(volume: Tensor, rng: numpy.random.Generator) -> Tensor:
    firsts = (round(HELD_OUT * len(volume)), 0, 0)
    i, j, k = (int(rng.integers(first, side - SIDE)) for first, side in zip(firsts, volume.shape, strict=True))
    return volume[i : i + SIDE, j : j + SIDE, k : k + SIDE].unsqueeze(0).long()


def cross_entropies(model: bo.DiffusionModel, x0: Tensor, share: float, rng: numpy.random.Generator) -> list[float]:
    masked = torch.from_numpy(rng.random(x0.shape) >= share)
    xt, t = torch.where(masked, model.process.mask_state, x0), torch.tensor([-math.log(share)], dtype=torch.float64)
    denoise, prior = model.denoiser(), model.predictor.head.prior[0]
    combined = [SliceDenoiser(denoise, model.process, prior, weight=weight, batch_size=SIDE) for weight in WEIGHTS]
    posteriors = [denoise(xt[0].unsqueeze(1), t.expand(SIDE)).probs().squeeze(1)]
    posteriors += [slices(xt, t).probs()[0] for slices in combined]
    truth = [p.double().gather(-1, x0[0].unsqueeze(-1)).squeeze(-1)[masked[0]] for p in posteriors]
    return [float(-torch.log(p.clamp(min=1e-12)).mean()) for p in truth]


def main() -> None:
    run, data = sys.argv[1:]
    model, rng = bo.load(run), numpy.random.default_rng(0)
    file = find_bentheimer(Path(data))
    if file is None:
        sys.exit(f"{data}: expected bentheimer.npz here or in bentheimer/")
    with numpy.load(file) as arrays:
        volume = torch.from_numpy(next(iter(arrays.values())).astype(numpy.uint8))
    print("share   one slice " + " ".join(f"w={weight:.2f}" for weight in WEIGHTS))
    for share in SHARES:
        table = numpy.array([cross_entropies(model, held_out_cube(volume, rng), share, rng) for _ in range(CUBES)])
        print(
            f"{share:<8}{table.mean(0)[0]:9.3f} " + " ".join(f"{value:6.3f}" for value in table.mean(0)[1:]), flush=True
        )


if __name__ == "__main__":
    main()
