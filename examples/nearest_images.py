"""Show samples above the training images that are nearest to them: does the model copy?

    blackout sample cifar10 --class each --num 10 --steps 16 --guidance 2 --out samples.npz
    python examples/nearest_images.py samples.npz cifar10 data nearest.png

Prints the distances of all samples, and of as many test images, to their nearest training images: root mean squares
over the pixels. The picture has the first ten samples above, and the nearest training image of each below.
"""

import argparse
from pathlib import Path

import torch

from blackout.data import open_dataset
from blackout.data.arrays import load_arrays
from blackout.evaluation.copying import nearest
from blackout.io.images import write_grid

SHOWN = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("samples", "dataset", "data", "out"):
        parser.add_argument(name)
    given = parser.parse_args()
    train, test = (open_dataset(given.dataset, split, folder=given.data).x for split in ("train", "test"))
    x = torch.as_tensor(load_arrays(Path(given.samples))["x"])
    (distance, index), (of_test, _) = nearest(x, train), nearest(test[: len(x)], train)
    for name, found in (("samples", distance), ("test images", of_test)):
        print(f"{name}: {found.min():.1f} at least, {found.median():.1f} in the median")
    shown = torch.cat([x[:SHOWN].long(), train[index[:SHOWN]].long()])
    write_grid(Path(given.out), shown.numpy(), 255, columns=len(shown) // 2)


if __name__ == "__main__":
    main()
