"""The forward solution of a finite process, P(tau) = exp(Q tau) or T^k: interface, and the dense implementations.

Only sums and products of non-negative numbers are taken, so probabilities are right to relative, not just absolute,
precision: ratios of tiny ones, which the reverse rates are, can be trusted. The limits of that are double precision's
own 1e-308, and, at the very earliest times, states more jumps away than the series has terms (at least 64 up to 512
states, 9 at 2048): their probability, far below 1e-16, is rounded to zero. Nothing is tabulated over times.
"""

import functools
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from blackout.process.uniformise import Alternative, jump_chain, rows_along
from blackout.random import Source, pick, uniform

_WORKSPACE = 1 << 22  # entries of the largest intermediate array
_FILLING = threading.RLock()  # held by the one thread that adds powers; what is there is read without it


class Propagator(ABC):
    """Transition probabilities for flat tensors of elements; `which` gives for each element its entry in `taus`."""

    num_states: int

    @abstractmethod
    def prob(self, start: Tensor, end: Tensor, taus: Tensor, which: Tensor) -> Tensor:
        """P(taus[which])[start, end] for several ends of each start: `end` and the result are (elements, ends)."""

    @abstractmethod
    def rows(self, start: Tensor, taus: Tensor, which: Tensor) -> Tensor:
        """P(taus[which])[start, :], shape (elements, num_states)."""

    @abstractmethod
    def columns(self, end: Tensor, taus: Tensor, which: Tensor) -> Tensor:
        """P(taus[which])[:, end], shape (elements, num_states)."""

    def along(self, start: Tensor, taus: Tensor) -> Iterator[Tensor]:
        """P(tau)[start, :] for each of the increasing taus, one after the other, each (len(start), num_states)."""
        here = torch.zeros_like(start)
        return (self.rows(start, tau.reshape(1), here) for tau in taus)

    def sample(self, start: Tensor, taus: Tensor, which: Tensor, source: Source, shape: torch.Size) -> Tensor:
        """A draw for each element; `shape` is that of the batch, for sources with a stream for each sample."""
        u = uniform(tuple(shape), start.device, source).reshape(-1)
        out = torch.empty_like(start, dtype=torch.int64)
        for part in torch.arange(len(start), device=start.device).split(max(1, _WORKSPACE // self.num_states)):
            out[part] = pick(self.rows(start[part], taus, which[part]), u[part])
        return out


class Dense(Propagator):
    """A propagator with dense matrices."""

    @abstractmethod
    def matrices(self, taus: Tensor) -> Tensor:
        """P(tau) for each tau, shape (len(taus), num_states, num_states)."""

    def prob(self, start: Tensor, end: Tensor, taus: Tensor, which: Tensor) -> Tensor:
        out = torch.empty(end.shape, dtype=torch.float64, device=start.device)
        for matrices, rows, local in self._chunks(taus, which, _WORKSPACE):
            out[rows] = matrices[local.unsqueeze(-1), start[rows].unsqueeze(-1), end[rows]]
        return out

    def rows(self, start: Tensor, taus: Tensor, which: Tensor) -> Tensor:
        out = torch.empty(len(start), self.num_states, dtype=torch.float64, device=start.device)
        for matrices, rows, local in self._chunks(taus, which, _WORKSPACE):
            out[rows] = matrices[local, start[rows]]
        return out

    def columns(self, end: Tensor, taus: Tensor, which: Tensor) -> Tensor:
        out = torch.empty(len(end), self.num_states, dtype=torch.float64, device=end.device)
        for matrices, rows, local in self._chunks(taus, which, _WORKSPACE):
            out[rows] = matrices[local, :, end[rows]]
        return out

    def sample(self, start: Tensor, taus: Tensor, which: Tensor, source: Source, shape: torch.Size) -> Tensor:
        """The cumulative distributions of all rows are concatenated, so one search serves every element."""
        # With this factor, row + u stays below row + 1 in float64.
        u = (1 - 2.0**-33) * uniform(tuple(shape), start.device, source).reshape(-1)
        out = torch.empty_like(start, dtype=torch.int64)
        # Few matrices at a time on a CPU: the search is fastest while they stay in the cache.
        for matrices, rows, local in self._chunks(taus, which, _WORKSPACE if u.is_cuda else 1 << 18):
            cumulative = matrices.cumsum_(-1).reshape(-1, self.num_states)
            cumulative /= cumulative[:, -1:].clone()
            cumulative += torch.arange(len(cumulative), device=u.device).unsqueeze(-1)
            row = local * self.num_states + start[rows]
            index = torch.searchsorted(cumulative.reshape(-1), row + u[rows], right=True)
            out[rows] = index - row * self.num_states
        return out

    def _chunks(self, taus: Tensor, which: Tensor, budget: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Matrices of a few times, the elements that need them, and which of the matrices each of these needs."""
        used, which = torch.unique(which, return_inverse=True)
        taus = taus[used]
        step = max(1, budget // self.num_states**2)
        order = torch.argsort(which, stable=True) if len(taus) > 1 else torch.arange(len(which), device=which.device)
        counts = torch.bincount(which, minlength=len(taus)).cumsum(0).tolist() if len(taus) else []
        for first in range(0, len(taus), step):
            last = min(first + step, len(taus))
            rows = order[(counts[first - 1] if first else 0) : counts[last - 1]]
            if len(rows):
                yield self.matrices(taus[first:last]), rows, which[rows] - first


class Exponential(Dense):
    """exp(Q tau) for any generator matrix that fits in memory.

    tau is written as digits in a base, and P(tau) is the product of a few stored powers P(d unit base^j) with one short
    Taylor series for what is left below `unit`: as exact as scaling and squaring, with fewer products for a new time.
    Q, a scipy CSR array, is shifted by its largest exit rate (uniformisation) so that no term is negative.
    """

    _SMALL = 1 / 16  # largest exponent of the series; its ninth term is below 1e-16
    _LEAST, _MOST = 9, 80  # terms of the series

    def __init__(self, generator: Any, device: torch.device) -> None:
        self.num_states = generator.shape[0]
        self.rate = max(float(-generator.diagonal().min()), 1e-300)
        self._generator, self._device = generator, device
        self._unit = self._SMALL / self.rate
        # More digits to a place mean fewer products and more stored matrices: at most some 200 MB of them.
        self._base = 64 if self.num_states <= 256 else 16 if self.num_states <= 512 else 4
        self._levels: list[list[Tensor]] = []
        self._tables: list[Tensor] = []

    @functools.cached_property
    def _powers(self) -> Tensor:
        """The powers of the jump chain of the uniformised process, shape (terms, num_states, num_states)."""
        eye = torch.eye(self.num_states, dtype=torch.float64, device=self._device)
        step = (eye + torch.from_numpy(self._generator.toarray()).to(self._device) / self.rate).clamp(min=0)
        # Nine terms suffice for absolute precision; for relative precision, nine after the last state is reached.
        most = max(self._LEAST, min(self._MOST, (1 << 24) // self.num_states**2))
        powers, reached, since = [eye], eye > 0, 0
        while len(powers) < most and since < self._LEAST - 1:
            powers.append(powers[-1] @ step)
            before, reached = reached, reached | (powers[-1] > 0)
            since = since + 1 if torch.equal(before, reached) else 0
        return torch.stack(powers)

    def along(self, start: Tensor, taus: Tensor) -> Iterator[Tensor]:
        # A time has about four digits; filling their places takes as many products of matrices as there are digits.
        size = float(self.num_states)
        other = Alternative(lambda tau: self._few_rows(start, tau), 4 * len(start) * size**2, self._base * size**3)
        return rows_along(jump_chain(self._generator.T.tocsr(), self.rate), self.rate, start, taus, other)

    def _few_rows(self, start: Tensor, tau: Tensor) -> Tensor:
        """Rows of P(tau) for one time, without the others."""
        units = (tau / self._unit).clamp(max=2.0**53)
        integer = torch.floor(units)
        terms = self._terms((units - integer) * self._SMALL)
        rows = torch.einsum("tk,kmn->mn", terms, self._powers[:, start])
        level, left = 0, int(integer)
        while left:
            if digit := left % self._base:
                rows = rows @ self._power(level, digit)
            left, level = left // self._base, level + 1
        return rows

    def matrices(self, taus: Tensor) -> Tensor:
        units = (taus / self._unit).clamp(max=2.0**53)  # by then all that decays has decayed
        integer = torch.floor(units)
        result = self._series((units - integer) * self._SMALL)
        level = 0
        while bool((integer > 0).any()):
            digits = integer % self._base
            if self.num_states <= (256 if taus.is_cuda else 64):  # small matrices: all times in one batched product
                result = torch.bmm(result, self._table(level)[digits.long()])
            else:
                for k, digit in enumerate(int(d) for d in digits.tolist()):
                    if digit:
                        result[k] = result[k] @ self._power(level, digit)
            integer, level = torch.floor(integer / self._base), level + 1
        return result

    def _series(self, exponent: Tensor) -> Tensor:
        """exp(exponent (U - 1)), with U the jump chain of the uniformised process."""
        return (self._terms(exponent) @ self._powers.flatten(1)).reshape(-1, *self._powers.shape[1:])

    def _terms(self, exponent: Tensor) -> Tensor:
        """The Poisson probabilities of the exponents, for each of the powers."""
        terms = [torch.exp(-exponent)]
        for k in range(1, len(self._powers)):
            terms.append(terms[-1] * exponent / k)
        return torch.stack(terms, -1)

    def _table(self, level: int) -> Tensor:
        """P(d unit base^level) for every digit d, zero included."""
        if level >= len(self._tables):
            with _FILLING:
                while len(self._tables) <= level:
                    self._power(len(self._tables), self._base - 1)
                    self._tables.append(torch.stack([self._powers[0], *self._levels[len(self._tables)]]))
        return self._tables[level]

    def _power(self, level: int, digit: int) -> Tensor:
        """P(digit unit base^level), computed at first use."""
        if level >= len(self._levels) or digit > len(self._levels[level]):
            with _FILLING:
                self._fill(level, digit)
        return self._levels[level][digit - 1]

    def _fill(self, level: int, digit: int) -> None:
        while len(self._levels) <= level:
            if not self._levels:
                first = self._series(torch.tensor([self._SMALL], dtype=torch.float64, device=self._powers.device))[0]
            else:
                below = self._levels[-1][0]
                first = _stochastic(self._power(len(self._levels) - 1, self._base - 1) @ below)
            self._levels.append([first])
        stored = self._levels[level]
        while len(stored) < digit:
            stored.append(_stochastic(stored[-1] @ stored[0]))


class MatrixPower(Dense):
    """T^k for the transition matrix of a chain, by its binary powers."""

    def __init__(self, transition: Tensor) -> None:
        self.num_states = len(transition)
        self._squares = [transition]

    def matrices(self, taus: Tensor) -> Tensor:
        eye = torch.eye(self.num_states, dtype=torch.float64, device=taus.device)
        result = eye.repeat(len(taus), 1, 1)
        counts = taus.long()
        for bit in range(int(counts.max()).bit_length() if len(counts) else 0):
            if len(self._squares) <= bit:
                with _FILLING:
                    while len(self._squares) <= bit:
                        self._squares.append(_stochastic(self._squares[-1] @ self._squares[-1]))
            rows = (counts >> bit & 1).nonzero().squeeze(-1)
            result[rows] = result[rows] @ self._squares[bit]
        return result


def _stochastic(matrix: Tensor) -> Tensor:
    """Rows that sum to one: rounding would otherwise grow with every product."""
    return matrix / matrix.sum(-1, keepdim=True)
