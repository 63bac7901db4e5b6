"""Transitions: P_t(o, m) = p_{(m,t)|(o,0)} of the times of a batch, as an operator on distributions over states."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor


class Transitions(ABC):
    """What a posterior needs of P_t. States have shape (batch, ...); there is one time for each row, or one for all."""

    num_times: int
    """The size of the batch, or 1 if all times are equal."""
    num_states: int

    @abstractmethod
    def columns(self, x: Tensor) -> Tensor:
        """P_t(o, x) for every state o, shape (..., S), float64."""

    @abstractmethod
    def push(self, u: Tensor) -> Tensor:
        """Σ_o u(o) P_t(o, y) for every state y, for weights u of shape (batch, ..., S), float64."""

    @abstractmethod
    def at(self, start: Tensor, end: Tensor) -> Tensor:
        """P_t(start, end) for several ends of each start: `end` and the result have shape (..., ends)."""

    @abstractmethod
    def largest(self, dims: int) -> Tensor:
        """max_o P_t(o, y) for every state y, shaped to broadcast with weights of so many dimensions."""


class DenseTransitions(Transitions):
    """The same from matrices, shape (batch, S, S) or (1, S, S)."""

    def __init__(self, matrices: Tensor) -> None:
        self.matrices = matrices
        self.num_times, self.num_states = len(matrices), matrices.shape[-1]

    def columns(self, x: Tensor) -> Tensor:
        return self.matrices.mT.contiguous().expand(len(x), -1, -1)[_rows(x), x.long()]

    def push(self, u: Tensor) -> Tensor:
        # A product of matrices keeps nothing of size S for the gradient.
        flat = u.double().reshape(len(u), u.shape[1:-1].numel(), u.shape[-1])
        return (flat @ (self.matrices[0] if self.num_times == 1 else self.matrices)).reshape(u.shape)

    def at(self, start: Tensor, end: Tensor) -> Tensor:
        each = self.matrices.expand(len(start), -1, -1)
        return each[_rows(start).unsqueeze(-1), start.long().unsqueeze(-1), end]

    def largest(self, dims: int) -> Tensor:
        return self.matrices.amax(-2).reshape(self.num_times, *(1,) * (dims - 2), -1)


class RedrawTransitions(Transitions):
    """P_t(o, m) = e^{-τ} [o = m] + (1 - e^{-τ}) target(m) without a matrix; `pad_state` stays where it is.

    Parameters
    ----------
    tau
        Times on the homogeneous clock, shape (batch,) or (1,).
    target
        The distribution that states are redrawn from, shape (S,), zero for `pad_state`.
    """

    def __init__(self, tau: Tensor, target: Tensor, pad_state: int | None = None) -> None:
        self.keep, self.redraw = torch.exp(-tau), -torch.expm1(-tau)
        self.target, self.pad_state = target, pad_state
        self.num_times, self.num_states = len(tau), len(target)

    def columns(self, x: Tensor) -> Tensor:
        here = x.long().unsqueeze(-1)
        keep, redraw = (v.expand(x.shape).unsqueeze(-1) for v in self.shares(x.dim()))
        out = (redraw * self.target[here]).repeat(*(1,) * x.dim(), self.num_states)
        if self.pad_state is not None:
            out[..., self.pad_state] = 0.0
            keep = torch.where(here == self.pad_state, 1.0, keep)
        return out.scatter_add(-1, here, keep)

    def push(self, u: Tensor) -> Tensor:
        keep, redraw = self.shares(u.dim())
        u = u.double()
        moving = u.sum(-1, keepdim=True)
        if self.pad_state is None:
            return keep * u + redraw * moving * self.target
        stays = torch.nn.functional.one_hot(torch.tensor(self.pad_state), self.num_states).to(u.device)
        moving = moving - u[..., self.pad_state, None]
        return torch.where(stays == 1, u, keep * u + redraw * moving * self.target)

    def at(self, start: Tensor, end: Tensor) -> Tensor:
        same = start.long().unsqueeze(-1) == end
        keep, redraw = self.shares(end.dim())
        out = torch.where(same, keep, 0.0) + redraw * self.target[end]
        return out if self.pad_state is None else torch.where(start.unsqueeze(-1) == self.pad_state, same.double(), out)

    def largest(self, dims: int) -> Tensor:
        keep, redraw = self.shares(dims)
        return keep + redraw * self.target

    def shares(self, dims: int) -> tuple[Tensor, Tensor]:
        """e^{-τ} and 1 - e^{-τ}, shaped to broadcast with a batch of so many dimensions."""
        shape = (self.num_times, *(1,) * (dims - 1))
        return self.keep.reshape(shape), self.redraw.reshape(shape)


def _rows(x: Tensor) -> Tensor:
    """The number of the row of each component, shape (batch, 1, ...)."""
    return torch.arange(len(x), device=x.device).reshape(-1, *(1,) * (x.dim() - 1))
