"""Whether two sets of vectors have one law: squared MMD with a Gaussian kernel, and a vote of nearest neighbours."""

import numpy
import torch
from torch import Tensor

_BLOCK = 1024  # rows of a table of distances


def squared_mmd(x: Tensor, y: Tensor, bandwidth: float) -> tuple[float, float]:
    """Gretton et al. 2012, Eq. (4), for as many x as y: the mean of h_ij, i ≠ j, under exp(-|x - y|²/2σ²); its error.

    The error is the jackknife's: all subsets that leave out one pair (x_i, y_i). It takes the sums of rows only.
    """
    n = len(x)
    rows = torch.zeros(n, dtype=torch.float64)
    for sign, u, v in ((1, x, x), (1, y, y), (-1, x, y), (-1, y, x)):
        for i, part in enumerate(u.split(_BLOCK)):
            kernel = torch.cdist(part, v).square().div(-2 * bandwidth**2).exp()
            own = torch.arange(len(part))
            kernel[own, own + _BLOCK * i] = 0
            rows[own + _BLOCK * i] += sign * kernel.sum(1)
    without = (rows.sum() - 2 * rows) / ((n - 1) * (n - 2))
    error = ((n - 1) / n * (without - without.mean()).square().sum()).sqrt()
    return float(rows.sum() / (n * (n - 1))), float(error)


def neighbour_accuracy(x: Tensor, y: Tensor, rng: numpy.random.Generator, neighbours: int = 5) -> float:
    """Lopez-Paz and Oquab 2017, leaving one out: how often the nearest others, by majority, name the right set."""
    order = torch.from_numpy(rng.permutation(len(x) + len(y)))  # so that among equal distances neither set is first
    points, first = torch.cat([x, y])[order], order < len(x)
    right = 0
    for i, part in enumerate(points.split(_BLOCK)):
        distance = torch.cdist(part, points)
        own = torch.arange(len(part))
        distance[own, own + _BLOCK * i] = torch.inf
        votes = first[distance.topk(neighbours, largest=False).indices].sum(1)
        right += int(((2 * votes > neighbours) == first[own + _BLOCK * i]).sum())
    return right / len(points)
