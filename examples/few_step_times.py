"""Compare observation times of a model of images at few steps: a table in docs/samplers.md.

    blackout times cifar10 --data data --out runs/fitted
    python examples/few_step_times.py runs/fitted cifar10 data runs/few-times --steps 8 16 32 64 --times length fitted

Prints, for each cell, the kernel distance of the samples of each seed to test images, in the features of `blackout
evaluate`; the Fréchet distance of all of them together; mean and standard deviation of their levels. The folder keeps
the samples and a grid of them, so the same command resumes. Needs the extra `evaluation`.
"""

import argparse
from pathlib import Path

import numpy
import torch
from torch import Tensor

import blackout as bo
from blackout.data import open_dataset
from blackout.evaluation.distances import FrechetDistance, kernel_distance
from blackout.evaluation.features import FeatureNetwork, feature_network
from blackout.evaluation.metric import SampleSet
from blackout.evaluation.statistics import collect
from blackout.io.images import write_grid

TEST = 400  # images that the samples are compared with


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("dataset")
    parser.add_argument("data")
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, nargs="+", default=[8, 16, 32, 64])
    parser.add_argument("--times", nargs="+", default=["length", "fitted"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--num", type=int, default=50)
    return parser.parse_args()


def sampled(model: bo.DiffusionModel, file: Path, num: int, steps: int, rule: str, seed: int) -> Tensor:
    """The samples of a cell and a seed, from their file if there is one."""
    if not file.exists():
        x = model.sample(num, num_steps=steps, times=rule, seed=seed, batch_size=10).numpy().astype(numpy.uint8)
        write_grid(file.with_suffix(".png"), x, model.max_state or 255)
        numpy.save(file, x)
    return torch.from_numpy(numpy.load(file)).long()


def line(network: FeatureNetwork, test: SampleSet, samples: list[Tensor], max_state: int) -> str:
    data = test.features.features
    kernels = [kernel_distance(data, collect(network, x, max_count=max_state).features) for x in samples]
    every = torch.cat(samples)
    distance = FrechetDistance()(SampleSet(x=every, statistics=collect(network, every, max_count=max_state)), test)
    levels = f"mean {every.double().mean():.4g}, sd {every.double().std():.4g}"
    shown = ", ".join(f"{value:.4f} ± {error:.4f}" for value, error in kernels)
    return f"kernel {shown}; Fréchet {distance['frechet']:.1f}; {levels}"


def main() -> None:
    given = arguments()
    model = bo.load(given.model).to("cpu", "bfloat16")
    given.out.mkdir(parents=True, exist_ok=True)
    cells = [(rule, steps) for steps in given.steps for rule in given.times]
    found: dict[tuple[str, int], list[Tensor]] = {cell: [] for cell in cells}
    for seed in given.seeds:
        for rule, steps in cells:
            file = given.out / f"{rule}-{steps}-{seed}.npy"
            found[rule, steps].append(sampled(model, file, given.num, steps, rule, seed))
    network, largest = feature_network(), model.max_state or 255
    images = open_dataset(given.dataset, "test", folder=given.data).x[: TEST + given.num * len(given.seeds)].long()
    test = SampleSet(x=images[:TEST], statistics=collect(network, images[:TEST], max_count=largest))
    print("test images:", line(network, test, list(images[TEST:].split(given.num)), largest))
    for (rule, steps), samples in found.items():
        print(f"{steps} steps, {rule}:", line(network, test, samples, largest), flush=True)


if __name__ == "__main__":
    main()
