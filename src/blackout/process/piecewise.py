"""PiecewiseGenerator: a generator that changes at given times, and not by a factor alone."""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from blackout import validate
from blackout.process.generator import as_csr, displacements, rate_tables, relaxation_rate
from blackout.process.matrix import DENSE_STATES, GeneratorProcess, matrix_config, matrix_from_config
from blackout.process.propagator import Dense, Exponential, Propagator
from blackout.random import Source

_UNITS = 15.0  # relaxation times that the paper's observation times last


class PiecewiseGenerator(GeneratorProcess):
    """A generator Q(t) that is constant between given times: Eq. (2), `eq:cforward`, with rates that depend on time.

    Transition probabilities are products of matrix exponentials and depend on both times; the last generator determines
    the terminal distribution. See docs/mathematics.md#generators-that-change-in-time.

    Parameters
    ----------
    generators
        Matrices as for `FiniteState`, one more than `breaks`: generators[k] holds for breaks[k - 1] < t <= breaks[k],
        the first from time zero, the last for all later times. At most 2,048 states.
    breaks
        Increasing positive times.
    ordered
        Whether the order of the states has a meaning, as for counts. Default: if all jumps are by one.

    Examples
    --------
    >>> import blackout as bo, torch
    >>> up, down = [[-1.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [1.0, -1.0]]
    >>> process = bo.PiecewiseGenerator([up, down], breaks=[2.0])
    >>> process.probs(torch.tensor([0]), torch.tensor([2.0], dtype=torch.float64))
    tensor([[0.1353, 0.8647]], dtype=torch.float64)
    >>> process.terminal_state
    0
    """

    def __init__(self, generators: Sequence[Any], breaks: Sequence[float], *, ordered: bool | None = None) -> None:
        self.breaks = _check_breaks(breaks, generators)
        super().__init__(generators[-1], ordered)
        self.pieces = tuple(as_csr(f"generators[{k}]", matrix, total=0.0) for k, matrix in enumerate(generators))
        """The generator of each piece, scipy CSR arrays; the last one is `csr`."""
        for k, piece in enumerate(self.pieces):
            if piece.shape != self.csr.shape:
                raise ValueError(f"generators must have one shape, got {piece.shape} at {k} and {self.csr.shape} last")
        if self.num_states > DENSE_STATES:
            raise ValueError(f"generators must have at most {DENSE_STATES} states, got {self.num_states}")
        self.jumps = tuple(sorted({jump for piece in self.pieces for jump in displacements(piece)}))
        self.ordered = set(self.jumps) <= {-1, 1} if ordered is None else ordered

    @classmethod
    def for_levels(cls, levels: int | None) -> "PiecewiseGenerator":
        raise ValueError("PiecewiseGenerator has no default: give generator matrices, in Python or as a file")

    def config(self) -> dict[str, Any]:
        pieces = [matrix_config(piece) for piece in self.pieces]
        return {"pieces": pieces, "breaks": list(self.breaks), "ordered": self.ordered}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "PiecewiseGenerator":
        pieces = [matrix_from_config(piece) for piece in config["pieces"]]
        return cls(pieces, config["breaks"], ordered=config["ordered"])

    def __repr__(self) -> str:
        return f"PiecewiseGenerator({self.num_states} states, {len(self.jumps)} jumps, breaks={list(self.breaks)})"

    @cached_property
    def relaxation_rate(self) -> float:  # type: ignore[override]
        """γ with 15 / γ = last break + 15 / γ_last, γ_last the relaxation rate of the last generator."""
        return _UNITS / (self.breaks[-1] + _UNITS / relaxation_rate(self.csr))

    def sample_step_at(self, xs: Tensor, tau_s: Tensor, tau_t: Tensor, source: Source) -> Tensor:
        flat, times = xs.reshape(-1).long(), self._step_times(tau_s, tau_t, xs)
        return self._propagator(xs.device).sample(flat, *times, source, xs.shape).reshape(xs.shape)

    def step_probs_at(self, xs: Tensor, tau_s: Tensor, tau_t: Tensor) -> Tensor:
        flat, times = xs.reshape(-1).long(), self._step_times(tau_s, tau_t, xs)
        return self._propagator(xs.device).rows(flat, *times).reshape(*xs.shape, self.num_states)

    def forward_rates_at(self, x: Tensor, tau: Tensor) -> Tensor:
        return self._rate_tables[0].to(x.device)[self._piece(tau, x), x.long()]

    def arrival_rates(self, x: Tensor, tau: Tensor) -> Tensor:
        return self._rate_tables[1].to(x.device)[self._piece(tau, x), x.long()]

    def arrivals_by_state(self, x: Tensor, tau: Tensor) -> Tensor:
        if x.device not in self._arrival_tables:
            dense = [torch.from_numpy(piece.toarray()).fill_diagonal_(0.0).T for piece in self.pieces]
            self._arrival_tables[x.device] = torch.stack(dense).to(x.device)
        return self._arrival_tables[x.device][self._piece(tau, x), x.long()]

    @cached_property
    def _rate_tables(self) -> tuple[Tensor, Tensor]:
        """ν_r(m) and ν_r(m - jumps[r]) in each piece, shape (pieces, states, channels)."""
        forward, arrival = zip(*(rate_tables(piece, self.jumps) for piece in self.pieces), strict=True)
        return torch.stack(forward), torch.stack(arrival)

    def _piece(self, tau: Tensor, x: Tensor) -> Tensor:
        """The number of the piece that tau lies in, shaped to broadcast with x."""
        edges = torch.tensor(self.breaks, dtype=torch.float64, device=x.device)
        return validate.expand(torch.bucketize(tau.to(x.device).contiguous(), edges), x)

    def _step_times(self, tau_s: Tensor, tau_t: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        pairs = torch.stack(torch.broadcast_tensors(tau_s, tau_t), -1)
        if pairs.dim() == 1:
            return pairs.unsqueeze(0), torch.zeros(x.numel(), dtype=torch.int64, device=x.device)
        distinct, which = torch.unique(pairs, dim=0, return_inverse=True)
        return distinct, which.repeat_interleave(x[0].numel() if len(x) else 0)

    def _new_propagator(self, device: torch.device) -> Propagator:
        return PiecewiseExponential([Exponential(piece, device) for piece in self.pieces], self.breaks)


class PiecewiseExponential(Dense):
    """P(s -> t) = exp(Q_i d_i) ... exp(Q_k d_k), with d the time that s to t spends in each piece.

    Times are numbers t, from s = 0 on, or rows (s, t).
    """

    def __init__(self, pieces: list[Exponential], breaks: tuple[float, ...]) -> None:
        self.num_states = pieces[0].num_states
        self._pieces = pieces
        self._edges = (0.0, *breaks, math.inf)

    def matrices(self, taus: Tensor) -> Tensor:
        start, end = (torch.zeros_like(taus), taus) if taus.dim() == 1 else taus.unbind(-1)
        result = torch.eye(self.num_states, dtype=torch.float64, device=taus.device).repeat(len(taus), 1, 1)
        for piece, low, high in zip(self._pieces, self._edges[:-1], self._edges[1:], strict=True):
            spent = (end.clamp(max=high) - start.clamp(min=low)).clamp(min=0)
            rows = (spent > 0).nonzero().squeeze(-1)
            if len(rows):  # most times spend all of the piece, or nothing
                distinct, which = torch.unique(spent[rows], return_inverse=True)
                result[rows] = result[rows] @ piece.matrices(distinct)[which]
        return result


def _check_breaks(breaks: Any, matrices: Any) -> tuple[float, ...]:
    values = validate.numbers("breaks", breaks, 0.0, increasing=True)
    try:
        number = len(matrices)
    except TypeError:  # a sparse matrix has a length, but does not know it
        raise ValueError(f"generators must be a list of matrices, got {type(matrices).__name__}") from None
    if not values or number != len(values) + 1:
        raise ValueError(f"generators must be one more than breaks, and at least two, got {number} and {len(values)}")
    return values
