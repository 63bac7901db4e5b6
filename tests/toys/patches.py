"""A data set: constant patches."""

import torch

from blackout.data import DATASETS, Dataset, Source


def read_patches(folder: object = None, *, split: str = "train") -> Dataset:
    """200 images of 4x4 pixels, each with one of four levels."""
    generator = torch.Generator().manual_seed(0 if split == "train" else 1)
    level = torch.randint(0, 4, (200, 1, 1, 1), generator=generator)
    return Dataset(x=level.expand(200, 1, 4, 4).contiguous(), name="patches", max_state=3, named=True)


DATASETS.add("patches", Source(read=read_patches), "constant patches of four levels, 4x4")
