"""Uniformisation: exp(Q tau) as a Poisson mixture of the powers of a jump chain, for a few rows and many times.

Only products of the chain with a few rows are taken, each of which serves several times, so that the cost is the number
of jumps until the last time. No term is negative.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

Vector = NDArray[numpy.float64]

_NEGLECTED = 1e-17  # probability of more jumps than are taken into account
_SHARED = 256.0  # mean number of jumps up to which times share the same powers
_TOGETHER = 8  # powers and times in one product: few, so that they stay in the cache


@dataclass(frozen=True)
class Alternative:
    """Another way to compute the rows at a time, and what it costs in multiplications: each time, and at first use."""

    rows_at: Callable[[Tensor], Tensor]
    each: float
    once: float = 0.0


def jump_chain(generator: Any, rate: float) -> Any:
    """1 + generator / rate, without negative entries; sparse or dense, whichever is faster to multiply with."""
    from scipy import sparse

    chain = sparse.csr_array(sparse.eye_array(generator.shape[0]) + generator / rate)
    chain.data = numpy.maximum(chain.data, 0.0)
    return chain if 4 * chain.nnz < chain.shape[0] ** 2 else chain.toarray()


def mixtures(chain: Any, block: Vector, means: Vector) -> Vector:
    """Σ_k Poisson(k; mean) chain^k block for each of the increasing means, shape (len(means), *block.shape)."""
    weights = _poisson_weights(means)
    total = numpy.zeros((len(means), block.size))
    for first in range(0, weights.shape[1], _TOGETHER):
        part = weights[:, first : first + _TOGETHER]
        powers = numpy.empty((part.shape[1], *block.shape))
        for power in powers:
            power[...] = block
            block = chain @ block
        if part.any():
            total += part @ powers.reshape(len(powers), -1)
    return total.reshape(len(means), *block.shape)


def rows_along(chain: Any, rate: float, start: Tensor, taus: Tensor, other: Alternative) -> Iterator[Tensor]:
    """Rows `start` of exp(Q tau) at each of the increasing taus, one after the other, each from the last.

    `chain` is the jump chain of the transpose of Q, with `rate` the largest exit rate.

    Where some jumps are much faster than the times are long, the alternative takes over once uniformisation has cost as
    much as its first use, so that the whole costs at most twice as much as the better of the two.
    """
    product = float(chain.size * len(start))  # multiplications; a sparse matrix counts its entries
    block = numpy.zeros((chain.shape[0], len(start)))
    block[start.cpu().numpy(), numpy.arange(len(start))] = 1.0
    clock = taus.cpu().double().numpy()
    now, at, spent = 0.0, 0, 0.0
    while at < len(clock):
        means = rate * (clock[at : at + _TOGETHER] - now)
        count = max(1, int(numpy.searchsorted(means, _SHARED, side="right")))
        price = product * _most_jumps(float(means[count - 1]))
        if price <= count * other.each or spent + price <= other.once:
            spent += price
            blocks = mixtures(chain, block, means[:count])
            for each in blocks:
                yield torch.from_numpy(each.T.copy()).to(start.device)
            block = blocks[-1]
        else:
            count = 1
            rows = other.rows_at(taus[at : at + 1])
            block = rows.T.cpu().contiguous().numpy()
            yield rows
        now, at = float(clock[at + count - 1]), at + count


def _most_jumps(mean: float) -> int:
    """A number of jumps that is exceeded with a probability below 1e-18: ten deviations above the mean."""
    return int(mean + 10 * numpy.sqrt(mean) + 20)


def _poisson_weights(means: Vector) -> Vector:
    """Poisson probabilities, a row for each mean, up to the number of jumps beyond which all are negligible."""
    from scipy.special import gammaln, xlogy

    k = numpy.arange(_most_jumps(float(means[-1])) + 1)
    weights: Vector = numpy.exp(xlogy(k, means[:, None]) - means[:, None] - gammaln(k + 1))
    beyond = numpy.cumsum(weights[-1, ::-1])[::-1]
    return weights[:, : max(1, int(numpy.searchsorted(-beyond, -_NEGLECTED)))]
