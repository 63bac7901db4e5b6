"""ExactPosterior: the perfect denoiser of a world small enough to be listed."""

from typing import Any

import torch
from torch import Tensor

from blackout import validate
from blackout.process.base import MarkovProcess
from blackout.process.pure_death import PureDeath

_WORKSPACE = 1 << 22
_IMPOSSIBLE = -1e30  # stands for log 0 where a matrix product must not meet an infinity


class ExactPosterior:
    """A denoiser that answers by Bayes' rule over all data points. Not in the paper; it stands in for a network.

    `points` has shape (n, ...), one data point a row, and `weights` their probabilities (default: equal). Called with
    (xt, t) it returns E[X_0 - X_t | X_t = xt] for pure death and E[λ_r(X_0, xt, t) | X_t = xt] for other processes:
    the best answers that there are, by docs/mathematics.md#back-from-an-unknown-origin.
    """

    def __init__(self, process: MarkovProcess, points: Tensor, weights: Any = None) -> None:
        (points,) = validate.states(process.num_states, points=points)
        if points.dim() < 2 or len(points) == 0:
            raise ValueError(f"points must have shape (n, ...), got {tuple(points.shape)}")
        size = len(points)
        try:
            law = torch.full((size,), 1 / size) if weights is None else torch.as_tensor(weights, dtype=torch.float64)
            law = law.double().to(points.device)
        except (TypeError, ValueError, RuntimeError, NotImplementedError):
            raise ValueError(f"weights must be {size} numbers, got {weights!r}") from None
        if law.shape != (size,) or not bool(torch.isfinite(law).all() & (law >= 0).all() & (law.sum() > 0)):
            raise ValueError(f"weights must be {size} numbers, finite and not negative, got {weights!r}")
        self.process = process
        self.shape = points.shape[1:]
        self.log_weights = torch.log(law / law.sum())
        self.levels, index = torch.unique(points.flatten(1), return_inverse=True)
        # One row for each (component, level), one column for each data point that has it.
        self.membership = torch.nn.functional.one_hot(index, len(self.levels)).flatten(1).double().T.contiguous()

    def weights(self, xt: Tensor, t: Any) -> Tensor:
        """P(X_0 = points[j] | X_t = xt), shape (batch, n)."""
        xt, tau = self._ready(xt, t)
        return self._weights(xt.flatten(1), tau)

    def level_law(self, xt: Tensor, t: Any) -> Tensor:
        """P(X_0 = levels[l] | X_t = xt) for each component, shape (batch, ..., levels)."""
        xt, tau = self._ready(xt, t)
        return self._level_law(xt.flatten(1), tau).reshape(*xt.shape, -1)

    def law(self, xt: Tensor, t: Any) -> Tensor:
        """P(X_0 = o | X_t = xt) for every state o and each component, shape (batch, ..., num_states).

        A state that no data point leads to stays as it is.
        """
        if self.process.num_states is None:
            raise ValueError(f"process must have finitely many states for a law over them, got {self.process!r}")
        xt, tau = self._ready(xt, t)
        rows, member = _distinct(xt, tau)
        known = self._level_law(xt[rows].flatten(1), tau[rows])[member].reshape(*xt.shape, len(self.levels))
        law = known.new_zeros(*xt.shape, self.process.num_states).index_copy(-1, self.levels.long(), known)
        stays = torch.nn.functional.one_hot(xt.long(), self.process.num_states)
        return torch.where(law.sum(-1, keepdim=True) > 0, law, stays.double())

    def __call__(self, xt: Tensor, t: Any) -> Tensor:
        xt, tau = self._ready(xt, t)
        rows, member = _distinct(xt, tau)
        answer = self._answers(xt[rows], tau[rows])[member]
        if isinstance(self.process, PureDeath):
            return answer
        return self.process.scale_rates(answer, xt, torch.as_tensor(t, dtype=torch.float64, device=xt.device))

    def _ready(self, xt: Tensor, t: Any) -> tuple[Tensor, Tensor]:
        (xt,) = validate.states(self.process.num_states, xt=xt)
        if xt.shape[1:] != self.shape:
            raise ValueError(f"xt must have shape (batch, *{tuple(self.shape)}), got {tuple(xt.shape)}")
        (tau,) = self.process.checked_clock(xt, t=t)
        return xt, tau.expand(len(xt))

    def _answers(self, xt: Tensor, tau: Tensor) -> Tensor:
        widest = max(self.shape.numel() * len(self.levels) * len(self.process.jumps), self.membership.shape[1])
        chunk = max(1, _WORKSPACE // widest)
        parts = zip(xt.flatten(1).split(chunk), tau.split(chunk), strict=True)
        answer = torch.cat([self._answer(x, u) for x, u in parts]) if len(xt) else xt.flatten(1).double()
        channels = () if isinstance(self.process, PureDeath) else (len(self.process.jumps),)
        return answer.reshape(*xt.shape, *channels)

    def _answer(self, xt: Tensor, tau: Tensor) -> Tensor:
        law = self._level_law(xt, tau)
        if isinstance(self.process, PureDeath):
            # Summed over the differences, not taken as the difference of two means: tiny answers stay exact.
            return torch.einsum("bcl,bcl->bc", law, (self.levels - xt.unsqueeze(-1)).clamp(min=0).double())
        rates = self.process.reverse_rates_at(*self._against_levels(xt), tau)
        return (law.unsqueeze(-1) * rates).sum(-2)

    def _level_law(self, xt: Tensor, tau: Tensor) -> Tensor:
        return (self._weights(xt, tau) @ self.membership.T).reshape(*xt.shape, len(self.levels))

    def _weights(self, xt: Tensor, tau: Tensor) -> Tensor:
        levels, here = self._against_levels(xt)
        log_likelihood = self.process.log_prob_at(here, levels, tau).clamp(min=_IMPOSSIBLE)
        joint = log_likelihood.flatten(1) @ self.membership + self.log_weights
        possible = joint > _IMPOSSIBLE / 2
        # A state that no point leads to has no posterior: all weights are zero there.
        return torch.softmax(joint, -1) * possible

    def _against_levels(self, xt: Tensor) -> tuple[Tensor, Tensor]:
        """Every level against every component of xt: two tensors of shape (batch, components, levels)."""
        shape = (*xt.shape, len(self.levels))
        return self.levels.expand(shape), xt.unsqueeze(-1).expand(shape)


def _distinct(xt: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
    """Rows that differ, and for each row which of them it equals: where time is one for all and states are few."""
    everything = torch.arange(len(xt), device=xt.device)
    base = int(xt.max()) + 1 if xt.numel() else 1
    if len(xt) == 0 or base ** xt[0].numel() >= 1 << 62 or bool((tau != tau[0]).any()):
        return everything, everything
    places = base ** torch.arange(xt[0].numel(), device=xt.device)
    codes, member = torch.unique((xt.flatten(1).long() * places).sum(-1), return_inverse=True)
    first = torch.empty_like(codes).scatter_(0, member, everything)
    return first, member
