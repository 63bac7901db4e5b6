"""exp(Q tau) for a generator too large for a dense matrix: its action on single states.

Uniformisation while the number of jumps is moderate (all terms positive, error known in advance), Arnoldi's Krylov
method beyond (Saad 1992, which the paper's discussion points to). Probabilities are right to 1e-12; unlike those of
dense matrices, smaller ones may come out as zero.
"""

from collections.abc import Iterator
from typing import Any

import numpy
import torch
from torch import Tensor

from blackout.process.propagator import Propagator
from blackout.process.uniformise import Alternative, Vector, jump_chain, mixtures, rows_along

_MOST_JUMPS = 5_000.0  # mean number of jumps up to which uniformisation is used
_KRYLOV = 40
_TOLERANCE = 1e-12


class SparseExponential(Propagator):
    """Rows and columns of exp(Q tau), one (state, time) pair at a time. `generator` is a scipy CSR array."""

    def __init__(self, generator: Any) -> None:
        self.num_states = generator.shape[0]
        self.rate = max(float(-generator.diagonal().min()), 1e-300)
        self._backward = _Matrix(generator, self.rate)  # acts on functions of the state: columns
        self._forward = _Matrix(generator.T.tocsr(), self.rate)  # acts on distributions: rows

    def prob(self, start: Tensor, end: Tensor, taus: Tensor, which: Tensor) -> Tensor:
        return self._each(self._forward, start, taus, which, end)

    def rows(self, start: Tensor, taus: Tensor, which: Tensor) -> Tensor:
        return self._each(self._forward, start, taus, which, None)

    def columns(self, end: Tensor, taus: Tensor, which: Tensor) -> Tensor:
        return self._each(self._backward, end, taus, which, None)

    def along(self, start: Tensor, taus: Tensor) -> Iterator[Tensor]:
        here = torch.zeros_like(start)
        # Krylov's method takes the starts one by one; together they reach further for the same price.
        price = 20 * _MOST_JUMPS * self._forward.chain.size * len(start)
        other = Alternative(lambda tau: self.rows(start, tau, here), price)
        return rows_along(self._forward.chain, self.rate, start, taus, other)

    def _each(self, matrix: "_Matrix", state: Tensor, taus: Tensor, which: Tensor, entry: Tensor | None) -> Tensor:
        """exp(matrix tau) applied to each distinct (state, time), all entries or some."""
        pairs, member = torch.unique(torch.stack([state.cpu(), which.cpu()]), dim=1, return_inverse=True)
        size = (len(state), self.num_states) if entry is None else entry.shape
        out = torch.empty(size, dtype=torch.float64)
        for index, (x, w) in enumerate(pairs.T.tolist()):
            unit = numpy.zeros(self.num_states)
            unit[x] = 1.0
            vector = torch.from_numpy(matrix.act(unit, float(taus[w])))
            chosen = member == index
            out[chosen] = vector if entry is None else vector[entry.cpu()[chosen]]
        return out.to(state.device)


class _Matrix:
    """A generator, or its transpose, with exit rates up to `rate`."""

    def __init__(self, matrix: Any, rate: float) -> None:
        self.matrix, self.rate, self.chain = matrix, rate, jump_chain(matrix, rate)

    def act(self, vector: Vector, tau: float) -> Vector:
        """exp(matrix tau) vector."""
        if self.rate * tau <= _MOST_JUMPS:
            return numpy.asarray(mixtures(self.chain, vector, numpy.array([self.rate * tau]))[0])
        found = _krylov(self.matrix, vector, tau)
        return numpy.where(found > _TOLERANCE, found, 0.0)


def _krylov(matrix: Any, vector: Vector, tau: float) -> Vector:
    """Steps of adaptive length, each in a Krylov space of at most 40 dimensions."""
    from scipy.linalg import expm

    done, step = 0.0, min(tau, 10.0 / abs(matrix).max())
    while done < tau:
        size = float(numpy.linalg.norm(vector))
        basis, hessenberg, dimension = _arnoldi(matrix, vector / size)
        speed = float(numpy.linalg.norm(matrix @ basis[dimension]))
        while True:
            step = min(step, tau - done)
            # One more row than the space gives the size of the first neglected term (Saad 1992, section 5).
            small = numpy.zeros((dimension + 2, dimension + 2))
            small[: dimension + 1, :dimension] = hessenberg[: dimension + 1, :dimension]
            small[dimension + 1, dimension] = 1.0
            small = expm(step * small)
            error = size * abs(small[dimension + 1, 0]) * speed if hessenberg[dimension, dimension - 1] else 0.0
            allowed = _TOLERANCE * step / tau
            if error <= allowed or step < 1e-14 * tau:
                break
            step *= max(0.2, 0.9 * (allowed / error) ** (1 / dimension))
        vector = size * (basis[: dimension + 1].T @ small[: dimension + 1, 0])
        done += step
        step *= min(5.0, 0.9 * (allowed / max(error, 1e-300)) ** (1 / dimension))
    return vector


def _arnoldi(matrix: Any, vector: Vector) -> tuple[Vector, Vector, int]:
    """An orthonormal basis of the Krylov space of a unit vector, and the matrix in that basis."""
    basis = numpy.zeros((_KRYLOV + 1, len(vector)))
    hessenberg = numpy.zeros((_KRYLOV + 1, _KRYLOV))
    basis[0] = vector
    for j in range(_KRYLOV):
        image = matrix @ basis[j]
        for _ in range(2):  # a second pass restores the orthogonality that rounding takes
            overlap = basis[: j + 1] @ image
            hessenberg[: j + 1, j] += overlap
            image = image - overlap @ basis[: j + 1]
        length = float(numpy.linalg.norm(image))
        if length < 1e-14:
            return basis, hessenberg, j + 1
        hessenberg[j + 1, j] = length
        basis[j + 1] = image / length
    return basis, hessenberg, _KRYLOV
