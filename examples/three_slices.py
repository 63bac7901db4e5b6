"""The weight of the three slices of a voxel: the table of docs/samplers.md.

    blackout train bentheimer
    python examples/three_slices.py runs/bentheimer data

Held-out cubes are masked but for a share of their voxels. The script prints the nats per masked voxel, for one slice
and for all three with several weights.
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

SIDE, CUBES, HELD_OUT = 32, 3, 0.8  # slices beyond this share are not in the training data
SHARES = (0.02, 0.1, 0.3, 0.6, 0.9)
WEIGHTS = (1 / 3, 0.5, 0.6, 0.8, 1.0)


def held_out_cube(volume: Tensor, rng: numpy.random.Generator) -> Tensor:
    firsts = (round(HELD_OUT * len(volume)), 0, 0)
    i, j, k = (int(rng.integers(first, side - SIDE)) for first, side in zip(firsts, volume.shape, strict=True))
    return volume[i : i + SIDE, j : j + SIDE, k : k + SIDE].unsqueeze(0).long()


def costs(model: bo.DiffusionModel, x0: Tensor, share: float, rng: numpy.random.Generator) -> list[float]:
    hidden = torch.from_numpy(rng.random(x0.shape) >= share)
    xt, t = torch.where(hidden, model.process.mask_state, x0), torch.tensor([-math.log(share)], dtype=torch.float64)
    denoise, prior = model.denoiser(), model.predictor.head.prior[0]
    each = [denoise(xt[0].unsqueeze(1), t.expand(SIDE)).probs().squeeze(1)]
    for weight in WEIGHTS:
        slices = SliceDenoiser(denoise, model.process, prior, weight=weight, batch_size=SIDE)
        each.append(slices(xt, t).probs()[0])
    right = [probs.gather(-1, x0[0].unsqueeze(-1)).squeeze(-1)[hidden[0]] for probs in each]
    return [float(-torch.log(p.clamp(min=1e-12)).mean()) for p in right]


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
        table = numpy.array([costs(model, held_out_cube(volume, rng), share, rng) for _ in range(CUBES)])
        print(
            f"{share:<8}{table.mean(0)[0]:9.3f} " + " ".join(f"{cost:6.3f}" for cost in table.mean(0)[1:]), flush=True
        )


if __name__ == "__main__":
    main()
