"""Sample a small built-in world with its exact posterior, and draw the walk from black to sample.

The world is the eight letters of the word, at any place in a small frame and at three brightnesses. It is small enough
to be listed, so the denoiser needs no network: Bayes' rule gives the posterior over all of it.
"""

import argparse
import math
from pathlib import Path

import torch

import blackout as bo
from blackout import figures

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


def world() -> torch.Tensor:
    """Every picture there is, shape (n, 12, 12)."""
    pictures = []
    for rows in LETTERS.values():
        letter = torch.tensor([[int(bit) for bit in row] for row in rows.split()])
        height, width = letter.shape
        for top in range(1, SIZE - height):
            for left in range(1, SIZE - width):
                for level in BRIGHTNESS:
                    picture = torch.zeros(SIZE, SIZE, dtype=torch.int64)
                    picture[top : top + height, left : left + width] = level * letter
                    pictures.append(picture)
    return torch.stack(pictures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the picture (default: demo)")
    parser.add_argument("--num", type=int, default=8, help="number of samples (default: 8)")
    parser.add_argument("--steps", type=int, default=250, help="number of steps (default: 250)")
    parser.add_argument("--seed", type=int, default=0, help="seed (default: 0)")
    arguments = parser.parse_args()

    pictures = world()
    process = bo.PureDeath(max_count=max(BRIGHTNESS))
    times = bo.ObservationTimes.fisher(arguments.steps)
    denoise = bo.ExactPosterior(process, pictures)
    path = bo.BinomialBridge().sample(
        denoise, process, times, (arguments.num, SIZE, SIZE), seed=arguments.seed, trajectory=True
    )
    known = {tuple(picture.flatten().tolist()) for picture in pictures}
    found = sum(tuple(sample.flatten().tolist()) in known for sample in path[-1])
    some = pictures[:: len(pictures) // 16]
    bits = bo.evidence_bound(denoise, process, some, num_times=128).mean() / math.log(2)

    arguments.out.mkdir(parents=True, exist_ok=True)
    target = arguments.out / "walk.png"
    figures.walk(path, times.values).savefig(target)
    print(f"{arguments.num} samples in {arguments.steps} steps; {found} are pictures of the world of {len(pictures)}.")
    print(f"Evidence bound: {bits:.2f} bits a picture; log2 {len(pictures)} = {math.log2(len(pictures)):.2f}.")
    print(f"The walk from black: {target}")


if __name__ == "__main__":
    main()
