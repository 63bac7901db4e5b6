"""Two-sample tests of vectors: squared MMD with a Gaussian kernel, and nearest-neighbour two-sample accuracy (C2ST)."""

import numpy
import torch
from torch import Tensor

_BLOCK = 1024  # rows of a distance matrix computed at a time


def squared_mmd(x: Tensor, y: Tensor, bandwidth: float) -> tuple[float, float]:
    """Compute the unbiased squared MMD under exp(-‖x - y‖²/2σ²), Gretton et al. 2012, Eq. (4).

    Parameters
    ----------
    x, y
        Vectors, both of shape (n, d).
    bandwidth
        σ of the kernel.

    Returns
    -------
    mmd, error
        The mean of h_ij over i ≠ j, and its jackknife standard error, which leaves out one pair (x_i, y_i) at a time.
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
    """Compute the leave-one-out accuracy of a nearest-neighbour classifier of x against y, Lopez-Paz and Oquab 2017.

    Parameters
    ----------
    x, y
        Vectors of shapes (n, d) and (m, d).
    rng
        Shuffles the points, so that ties between equal distances favour neither set.
    neighbours
        Number of neighbours that vote.

    Returns
    -------
    float
        0.5 for two sets of the same distribution and size, 1 for sets that are completely separate.
    """
    order = torch.from_numpy(rng.permutation(len(x) + len(y)))
    points, from_x = torch.cat([x, y])[order], order < len(x)
    correct = 0
    for i, part in enumerate(points.split(_BLOCK)):
        distance = torch.cdist(part, points)
        own = torch.arange(len(part))
        distance[own, own + _BLOCK * i] = torch.inf
        votes = from_x[distance.topk(neighbours, largest=False).indices].sum(1)
        correct += int(((2 * votes > neighbours) == from_x[own + _BLOCK * i]).sum())
    return correct / len(points)
