"""Sample a small data set with its exact posterior, and draw the sampling trajectories.

The data are all images of one of the eight letters of "BLACKOUT" at any position in a 12 x 12 frame and at one of three
brightnesses. They can be enumerated, so Bayes' rule gives the posterior and no network is needed.
"""

import argparse
import math
from pathlib import Path

import torch

import blackout as bo

LETTERS = {
    "B": "1110 1001 1110 1001 1110",
    "L": "1000 1000 1000 1000 1111",
    "A": "0110 1001 1111 1001 1001",
    "C": "0111 1000 1000 1000 0111",
    "K": "1001 1010 1100 1010 1001",
    "O": "0110 1001 1001 1001 0110",
    "U": "1001 1001 1001 1001 0110",
    "T": "1111 0110 0110 0110 0110",
}
SIZE = 12
BRIGHTNESS = (14, 22, 32)


def all_images() -> torch.Tensor:
    """Every image of the data set, shape (n, 12, 12)."""
    images = []
    for rows in LETTERS.values():
        letter = torch.tensor([[int(bit) for bit in row] for row in rows.split()])
        height, width = letter.shape
        for top in range(1, SIZE - height):
            for left in range(1, SIZE - width):
                for level in BRIGHTNESS:
                    image = torch.zeros(SIZE, SIZE, dtype=torch.int64)
                    image[top : top + height, left : left + width] = level * letter
                    images.append(image)
    return torch.stack(images)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="output folder (default: demo)")
    parser.add_argument("--num", type=int, default=8, help="number of samples (default: 8)")
    parser.add_argument("--steps", type=int, default=250, help="number of sampling steps (default: 250)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    arguments = parser.parse_args()

    images = all_images()
    process = bo.PureDeath(max_count=max(BRIGHTNESS))
    times = bo.ObservationTimes.fisher(arguments.steps)
    posterior = bo.ExactPosterior(process, images)
    trajectory = bo.BinomialBridge().sample(
        posterior, process, times, (arguments.num, SIZE, SIZE), seed=arguments.seed, trajectory=True
    )
    data = {tuple(image.flatten().tolist()) for image in images}
    found = sum(tuple(sample.flatten().tolist()) in data for sample in trajectory[-1])
    subset = images[:: len(images) // 16]
    bits = bo.evidence_bound(posterior, process, subset, num_times=128).mean() / math.log(2)

    arguments.out.mkdir(parents=True, exist_ok=True)
    target = arguments.out / "trajectory.png"
    bo.figures.trajectory(trajectory, times.values).savefig(target)
    print(
        f"{arguments.num} samples in {arguments.steps} steps; {found} are among the {len(images)} images of the data."
    )
    print(f"Evidence bound: {bits:.2f} bits per image; log2 {len(images)} = {math.log2(len(images)):.2f}.")
    print(f"Trajectories: {target}")


if __name__ == "__main__":
    main()
