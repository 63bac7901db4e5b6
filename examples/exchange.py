"""Exchange between neighbouring cells of a grid: train on bars, sample bars, and draw the trajectories.

Units move to neighbouring cells until they are spread evenly; their number never changes. No conditional distribution
is used: training needs simulated states and the forward rates alone.
"""

import argparse
import math
from pathlib import Path

import torch

import blackout as bo

LEVELS = (4, 6, 8)


def all_bars(side: int) -> torch.Tensor:
    """Rows and columns at three levels, shape (6 side, side ** 2)."""
    lines = torch.eye(side, dtype=torch.int64)
    bars = torch.cat([lines.unsqueeze(-1).expand(-1, -1, side), lines.unsqueeze(1).expand(-1, side, -1)])
    return torch.cat([level * bars for level in LEVELS]).flatten(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="output folder (default: demo)")
    parser.add_argument("--side", type=int, default=4, help="side of the grid (default: 4)")
    parser.add_argument("--steps", type=int, default=3000, help="number of training steps (default: 3000)")
    parser.add_argument("--num", type=int, default=200, help="number of samples (default: 200)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    arguments = parser.parse_args()

    side = arguments.side
    bars, process = all_bars(side), bo.Exchange((side, side))
    model = bo.ReactionModel.for_data(bars, process, seed=arguments.seed)
    needed = math.log2(2 * side) / side**2
    print(f"bits per cell before training: {model.bits_per_dim(bars.repeat(4, 1))}; {needed:.4f} are needed")
    model.fit(bars, steps=arguments.steps, seed=arguments.seed)
    print(f"bits per cell after {arguments.steps} steps: {model.bits_per_dim(bars.repeat(4, 1))}")
    for method, num_steps in (("leaps", 200), ("events", 32)):
        path = model.sample(arguments.num, num_steps, arguments.seed, method=method, trajectory=True)
        moved = (path[-1].unsqueeze(1) - bars).abs().sum(-1).amin(1) / 2  # units out of place, at the nearest bar
        print(
            f"{method}, {num_steps} steps: {int((moved == 0).sum())} of {arguments.num} samples are bars; "
            f"{float(moved.mean()):.2f} units out of place on average"
        )
    frames = torch.linspace(0, len(path) - 1, 9).round().long()
    arguments.out.mkdir(parents=True, exist_ok=True)
    target = arguments.out / "exchange.png"
    images = path[frames, :6].transpose(0, 1).reshape(-1, side, side)
    bo.figures.samples(images, columns=len(frames)).savefig(target)
    print(f"Trajectories: {target}")


if __name__ == "__main__":
    main()
