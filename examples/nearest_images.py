"""Show samples above the training images that are nearest to them: has the model copied?

    blackout sample cifar10 --class each --num 10 --steps 16 --guidance 2 --out samples.npz
    python examples/nearest_images.py samples.npz cifar10 data nearest.png

Prints the distances of all samples, and of as many test images, to their nearest training images: root mean squares
over the pixels. The picture has the first ten samples, one per column, and their five nearest training images.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor

from blackout.data import open_dataset
from blackout.data.arrays import load_arrays
from blackout.io.images import write_grid

SHOWN, NEAREST = 10, 5


def nearest(x: Tensor, train: Tensor) -> tuple[Tensor, Tensor]:
    """Distances to the nearest training images, and their indices, shape (n, NEAREST)."""
    found = torch.cdist(x.flatten(1).float(), train.flatten(1).float()).topk(NEAREST, largest=False)
    return found.values / x[0].numel() ** 0.5, found.indices


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("samples", "dataset", "data", "out"):
        parser.add_argument(name)
    given = parser.parse_args()
    train, test = (open_dataset(given.dataset, split, folder=given.data).x for split in ("train", "test"))
    x = torch.as_tensor(load_arrays(Path(given.samples))["x"])
    distances, indices = nearest(x, train)
    for name, found in (("samples", distances), ("test images", nearest(test[: len(x)], train)[0])):
        closest = found[:, 0]
        print(f"{name}: {closest.min():.1f} at least, {closest.median():.1f} in the median")
    rows = torch.cat([x[:SHOWN, None].long(), train[indices[:SHOWN]].long()], dim=1)
    write_grid(Path(given.out), rows.transpose(0, 1).flatten(0, 1).numpy(), 255, columns=len(rows))


if __name__ == "__main__":
    main()
