"""Compare observation times and samplers of a model of images at few steps: tables in docs/samplers.md.

    python examples/few_steps.py cifar10 cifar10 data runs/few-steps --steps 8 16 --samplers bridge bridge-multistep

Arguments: the model, its data set, the folder of the data, and one for the samples. Prints, for each cell, the kernel
distance of the samples of each seed to test images, in the features of `blackout evaluate`; the Fréchet distance of all
of them together; mean and standard deviation of their levels. The samples and a grid of them are kept, so the same
command resumes. Needs the extra `evaluation`.
"""

import argparse
import itertools
from pathlib import Path
from typing import Any

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


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("dataset")
    parser.add_argument("data")
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, nargs="+", default=[8, 16, 32, 64])
    parser.add_argument("--times", nargs="+", default=["length", "fitted"])
    parser.add_argument("--samplers", nargs="+", default=["auto"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--num", type=int, default=50, help="samples of each seed")
    parser.add_argument("--test", type=int, default=400, help="test images that they are compared with")
    return parser.parse_args()


def sampled(model: bo.DiffusionModel, file: Path, num: int, **options: Any) -> Tensor:
    """The samples of a cell and a seed, from their file if there is one."""
    if not file.exists():
        x = model.sample(num, batch_size=25, **options).numpy().astype(numpy.uint8)
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
    cells = list(itertools.product(given.steps, given.times, given.samplers))
    found: dict[tuple[int, str, str], list[Tensor]] = {cell: [] for cell in cells}
    for seed, cell in itertools.product(given.seeds, cells):
        steps, rule, sampler = cell
        file = given.out / f"{sampler}-{rule}-{steps}-{seed}-{given.num}.npy"
        options = {"num_steps": steps, "times": rule, "sampler": sampler, "seed": seed}
        found[cell].append(sampled(model, file, given.num, **options))
    network, largest = feature_network(), model.max_state or 255
    images = open_dataset(given.dataset, "test", folder=given.data).x.long()
    compared, others = images[: given.test], images[given.test :][: given.num * len(given.seeds)]
    test = SampleSet(x=compared, statistics=collect(network, compared, max_count=largest))
    print("test images:", line(network, test, list(others.split(given.num)), largest))
    for (steps, rule, sampler), samples in found.items():
        print(f"{steps} steps, {rule}, {sampler}:", line(network, test, samples, largest), flush=True)


if __name__ == "__main__":
    main()
