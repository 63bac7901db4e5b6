"""Copying: whether samples repeat training images, by nearest neighbours in pixels."""

import math
from typing import Any

import torch
from torch import Tensor

_BLOCK = 1024  # rows and columns of a distance matrix computed at a time
_SHOWN = 10


def nearest(x: Tensor, data: Tensor, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """Find the nearest data point of each point, the first one of equally near ones.

    Parameters
    ----------
    x, data
        Integers of shapes (n, ...) and (m, ...).
    device
        Where distances are computed, a block at a time.

    Returns
    -------
    distance, index
        Root of the mean squared difference of the components, float64, and which data point; both of shape (n,).
    """
    size = math.prod(x.shape[1:])
    found = []
    for part in x.split(_BLOCK):
        # Sums of integers in float64 are exact below 2⁵³, so the result depends neither on blocks nor on the device.
        rows = part.flatten(1).to(device).double()
        best = torch.full((len(rows),), torch.inf, dtype=torch.float64, device=device)
        index = torch.zeros(len(rows), dtype=torch.long, device=device)
        for start in range(0, len(data), _BLOCK):
            columns = data[start : start + _BLOCK].flatten(1).to(device).double()
            squared = rows.square().sum(1)[:, None] + columns.square().sum(1) - 2 * rows @ columns.T
            low, at = squared.min(1)
            closer = low < best
            best, index = torch.where(closer, low, best), torch.where(closer, start + at, index)
        found.append((best.cpu(), index.cpu()))
    squared, index = (torch.cat(parts) for parts in zip(*found, strict=True))
    return (squared / size).sqrt(), index


def copying(samples: Tensor, train: Tensor, test: Tensor, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Compare samples with the training images they may have been copied from.

    Parameters
    ----------
    samples, train, test
        Integers of shapes (n, ...): samples, training data and held-out data.

    Returns
    -------
    dict
        `distance` and `held_out_distance`, the median distance of samples and of as many held-out images to the nearest
        training image; `nearer_to_training`, the share of samples with a training image nearer than any held-out one,
        and `expected`, that share without copying; `pairs`, the samples with the smallest distances and their nearest
        training images, both by index.
    """
    (to_train, index), (to_test, _) = nearest(samples, train, device), nearest(samples, test, device)
    held_out, _ = nearest(test[: len(samples)], train, device)
    share = (to_train < to_test).double() + 0.5 * (to_train == to_test).double()
    closest = to_train.argsort(stable=True)[:_SHOWN]
    return {
        "distance": float(to_train.quantile(0.5)),
        "held_out_distance": float(held_out.quantile(0.5)),
        "nearer_to_training": float(share.mean()),
        # A sample that is independent of both sets is equally likely to be nearest to each of their images.
        "expected": len(train) / (len(train) + len(test)),
        "pairs": [[int(k), int(index[k])] for k in closest],
    }
