"""What is known of X_0 when X_t is seen: the answer of a denoiser, in one of several amounts of detail.

Everything else follows from it: reverse rates, the divergence from the true reverse rates, draws of X_0. Times are
those of the process, states are integer tensors of shape (batch, ...). Derived in
docs/mathematics.md#marginal-reverse-rates.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from blackout import validate
from blackout.posterior.checks import check_finite, check_probs, check_tensor
from blackout.process.base import MarkovProcess
from blackout.process.data import check_process
from blackout.random import Source, categorical

_WORKSPACE = 1 << 22
_NEAR = 0.1  # relative difference of two rates below which their divergence is computed from it
_ROUNDING = 1e-3  # of the sum of probabilities in half precision


def rate_divergence(kappa: Tensor, rates: Tensor, log_ratio: Tensor | None = None) -> Tensor:
    """κ - λ + λ log(λ / κ), elementwise: Appendices F and G, with the terms that do not depend on the model.

    `log_ratio` is log(λ / κ) where the caller knows it more precisely; it must be finite where λ is zero. Where κ and λ
    are close, the three terms almost cancel, and the result is computed from their ratio: of fast rates it is a tiny
    share, which adds up over long times.
    """
    safe = torch.where(rates > 0, rates, 1.0)  # 0 log 0 = 0, with a gradient of zero
    if log_ratio is None:
        log_ratio = torch.log(safe) - torch.log(torch.where(rates > 0, kappa, 1.0))
        excess = (kappa - rates) / safe
        near = (rates > 0) & (excess.abs() < _NEAR)
        excess = torch.where(near, excess, 0.0)
        small = excess - torch.log1p(excess)
    else:
        near = (rates > 0) & (log_ratio.abs() < _NEAR)
        small_ratio = torch.where(near, log_ratio, 0.0)
        small = torch.expm1(-small_ratio) + small_ratio
    return torch.where(near, rates * small, kappa - rates + rates * log_ratio)


class Posterior(ABC):
    """The posterior of X_0 given X_t = xt at time t, component by component.

    Parameters
    ----------
    process
        The forward process.
    xt
        States, integers of shape (batch, ...).
    t
        Times, shape (batch,).
    """

    def __init__(self, process: MarkovProcess, xt: Tensor, t: Tensor) -> None:
        check_tensor("xt", xt)
        check_tensor("t", t)
        if xt.layout != torch.strided or t.shape not in ((), xt.shape[:1]):
            raise ValueError(f"xt must be dense and t of shape () or {tuple(xt.shape[:1])}, got t of {tuple(t.shape)}")
        self.process, self.xt, self.t = check_process(process), xt, t

    @abstractmethod
    def difference(self) -> Tensor:
        """E[X_0 - X_t | X_t], the shape of xt."""

    def with_difference(self, change: Callable[[Tensor], Tensor]) -> "Posterior":
        """The mean alone, with another `difference`: that which `change` returns for it."""
        return MeanPosterior(self.process, self.xt, self.t, change(self.difference()))

    @abstractmethod
    def rates(self) -> Tensor:
        """The reverse rates κ_r of every channel, shape (..., R)."""

    @abstractmethod
    def checked(self) -> "Posterior":
        """The same in float64, after a check that every number is finite and none is negative."""

    def mean(self) -> Tensor:
        """E[X_0 | X_t], the shape of xt."""
        return self.xt + self.difference()

    def probs(self) -> Tensor:
        """P(X_0 = o | X_t) for every state o, shape (..., S), float64."""
        raise ValueError(
            f"{type(self).__name__} does not know the distribution of X_0: use a head that gives one, such as "
            "'categorical', or a sampler that needs rates or means alone"
        )

    def sample(self, rng: Source = None) -> Tensor:
        """A draw of X_0 for each component, int64."""
        return categorical(self.probs(), rng)

    def divergence(self, x0: Tensor, s: Tensor | None = None) -> Tensor:
        """Σ_r κ_r - λ_r + λ_r log(λ_r / κ_r), the shape of xt: nats per unit of time, the integrand of the bound.

        For a chain: the Kullback-Leibler divergence of the step back to the times `s` (default: t - 1).
        """
        if self.process.discrete_time:
            raise ValueError(f"{type(self).__name__} has no divergence for a chain; CategoricalPosterior has")
        return rate_divergence(self.rates(), self._true_rates(x0)).sum(-1)

    def channel_divergence(self, x0: Tensor, channel: Tensor) -> Tensor:
        """R times the term of one channel for each row, drawn uniformly, (batch,): Algorithm 3.

        Its mean over the channels is `divergence`, and so is that of its gradient.
        """
        if self.process.discrete_time:
            raise ValueError(f"process must run in continuous time to have channels, got {self.process!r}")
        chosen = validate.expand(channel, self.xt).expand(self.xt.shape).unsqueeze(-1)
        kappa, rates = (v.gather(-1, chosen).squeeze(-1) for v in (self.rates(), self._true_rates(x0)))
        return len(self.process.jumps) * rate_divergence(kappa, rates)

    def carried(self, xs: Tensor, s: Tensor) -> "Posterior":
        """This posterior at an earlier time, shape (batch,), updated by the component's own new state xs alone.

        Differences lose the units that have appeared, under pure death; probabilities change by Bayes' rule,
        p(o) P_s(o, x_s) / P_t(o, x_t).
        """
        if self.process.mean_suffices:
            return MeanPosterior(self.process, xs, s, (self.difference() - (xs - self.xt)).clamp(min=0))
        probs = self.probs()
        every = torch.arange(probs.shape[-1], device=xs.device).expand_as(probs)
        logs = self.process.log_prob(xs.unsqueeze(-1).expand_as(probs), every, s)
        logs = logs - self.process.log_prob(self.xt.unsqueeze(-1).expand_as(probs), every, self.t)
        weights = torch.where(torch.isfinite(logs), torch.log(probs) + logs, -torch.inf)
        largest = weights.amax(-1, keepdim=True)
        return ListedPosterior(self.process, xs, s, torch.softmax(weights, -1).nan_to_num(0.0) * (largest > -torch.inf))

    def _true_rates(self, x0: Tensor) -> Tensor:
        """λ_r of the data points x0, shape (..., R)."""
        t = self.t.double()
        rates = self.process.reverse_rates_at(x0, self.xt, self.process.clock_time(t))
        return self.process.scale_rates(rates, self.xt, t)


class MeanPosterior(Posterior):
    """The mean alone: enough for pure death, the paper's case.

    Parameters
    ----------
    y
        E[X_0 - X_t | X_t], the shape of xt.

    Examples
    --------
    >>> import blackout as bo
    >>> xt, t = torch.tensor([[3]]), torch.tensor([0.5])
    >>> MeanPosterior(bo.PureDeath(9), xt, t, torch.tensor([[2.0]])).mean()
    tensor([[5.]])
    """

    def __init__(self, process: MarkovProcess, xt: Tensor, t: Tensor, y: Tensor) -> None:
        super().__init__(process, xt, t)
        self.y = y

    def difference(self) -> Tensor:
        return self.y

    def probs(self) -> Tensor:
        """Of two levels, the mean is the probability of the upper one; ValueError for more."""
        if self.process.max_state != 1:
            return super().probs()
        upper = self.mean().double()
        return torch.stack([1 - upper, upper], -1)

    def rates(self) -> Tensor:
        """κ = y e^{-t} / (1 - e^{-t}): Eq. (9) with y in the place of X_0 - X_t."""
        return (self.y * self.process.unit_rate(self.xt, self.t)).unsqueeze(-1)

    def divergence(self, x0: Tensor, s: Tensor | None = None) -> Tensor:
        """e^{-t} / (1 - e^{-t}) [y - Δ + Δ log(Δ / y)] with Δ = X_0 - X_t."""
        y = self.y.float() if self.y.dtype in (torch.float16, torch.bfloat16) else self.y
        unit = self.process.unit_rate(self.xt, self.t).to(y.dtype)
        return unit * rate_divergence(y, (x0 - self.xt).to(y.dtype))

    def checked(self) -> "MeanPosterior":
        """y clipped to [0, max_count - xt], as in Algorithm 2."""
        y = check_finite(self.y, self.xt, self.t).double()
        if y.shape != self.xt.shape:
            raise ValueError(f"denoise must return y of shape {tuple(self.xt.shape)}, got {tuple(self.y.shape)}")
        y = y.clamp(min=0)
        largest = self.process.max_state
        if largest is not None:
            y = torch.minimum(y, largest - self.xt.double())
        elif y.numel() and float(y.max()) > 2.0**53:
            raise ValueError(f"denoise must return counts that double precision holds, got {float(y.max())}")
        return MeanPosterior(self.process, self.xt, self.t, y)


class RatePosterior(Posterior):
    """Reverse rates alone: Algorithm 3.

    Parameters
    ----------
    kappa
        κ_r for each channel, shape (..., R).

    Examples
    --------
    >>> import blackout as bo
    >>> xt, t = torch.tensor([[3]]), torch.tensor([0.5])
    >>> RatePosterior(bo.Uniform(5), xt, t, torch.ones(1, 1, 8)).rates().sum()
    tensor(8.)
    """

    def __init__(self, process: MarkovProcess, xt: Tensor, t: Tensor, kappa: Tensor) -> None:
        super().__init__(process, xt, t)
        self.kappa = kappa

    def difference(self) -> Tensor:
        """κ (1 - e^{-t}) / e^{-t} for pure death; ValueError for other processes."""
        return self.kappa.squeeze(-1) / self.process.unit_rate(self.xt, self.t)

    def rates(self) -> Tensor:
        return self.kappa

    def carried(self, xs: Tensor, s: Tensor) -> "RatePosterior":
        """The same rates, as tau-leaping has them."""
        return RatePosterior(self.process, xs, s, self.kappa)

    def checked(self) -> "RatePosterior":
        """Rates of jumps out of the states are set to zero."""
        expected = (*self.xt.shape, len(self.process.jumps))
        kappa = check_finite(self.kappa, self.xt, self.t).double()
        if kappa.shape != expected:
            raise ValueError(f"denoise must return reverse rates of shape {expected}, got {tuple(kappa.shape)}")
        kappa = torch.where(self.process.has_preimage(self.xt), kappa, 0.0)
        if kappa.numel() and float(kappa.min()) < 0:
            raise ValueError(f"denoise must return rates that are not negative, got {float(kappa.min())}")
        return RatePosterior(self.process, self.xt, self.t, kappa)


class ListedPosterior(Posterior):
    """P(X_0 = states[l] | X_t) over a list of states: of an exact posterior, of guidance, of several slices.

    Parameters
    ----------
    probs
        Probabilities, shape (rows, ..., L), float64; all zero where X_t cannot be reached from any of the states.
    states
        The L states, increasing; default: all of the process.
    member
        For each row of xt its row of `probs`; default: one row for each.
    """

    def __init__(
        self,
        process: MarkovProcess,
        xt: Tensor,
        t: Tensor,
        probs: Tensor,
        states: Tensor | None = None,
        member: Tensor | None = None,
    ) -> None:
        super().__init__(process, xt, t)
        self.states = torch.arange(process.finite_states(), device=xt.device) if states is None else states
        check_tensor("probs", probs)
        if member is None and (probs.dim() != xt.dim() + 1 or len(probs) != len(xt)):
            raise ValueError(f"probs must have shape (*{tuple(xt.shape)}, L), got {tuple(probs.shape)}")
        self._probs, self._member = probs, torch.arange(len(xt), device=xt.device) if member is None else member
        # One row of xt for each row of probs: rows that share one have the same state and time.
        self._rows = torch.empty(len(probs), dtype=torch.int64, device=xt.device)
        self._rows[self._member] = torch.arange(len(xt), device=xt.device)

    def difference(self) -> Tensor:
        # Summed over the differences, not taken as the difference of two means: tiny values stay exact.
        offsets = (self.states - self.xt[self._rows].long().unsqueeze(-1)).double()
        return (self._probs * offsets).sum(-1)[self._member]

    def rates(self) -> Tensor:
        """E[λ_r(X_0, X_t, t) | X_t]."""
        if self.process.mean_suffices:
            return (self.difference() * self.process.unit_rate(self.xt, self.t)).unsqueeze(-1)
        xt, t = self.xt[self._rows], self.t.expand(len(self.xt))[self._rows]
        size = max(1, xt[:1].numel() * len(self.states) * len(self.process.jumps))
        parts = [
            self._expected(*part)
            for part in zip(*(v.split(max(1, _WORKSPACE // size)) for v in (xt, t, self._probs)), strict=True)
        ]
        empty = self._probs.new_zeros(*self.xt.shape, len(self.process.jumps))
        return torch.cat(parts)[self._member] if parts and len(xt) else empty

    def _expected(self, xt: Tensor, t: Tensor, probs: Tensor) -> Tensor:
        here = xt.unsqueeze(-1).expand_as(probs)
        rates = self.process.reverse_rates_at(self.states.expand_as(probs), here, self.process.clock_time(t.double()))
        return self.process.scale_rates((probs.unsqueeze(-1) * rates).sum(-2), xt, t)

    def probs(self) -> Tensor:
        """A state of X_t that cannot be reached keeps its value."""
        known = self._probs[self._member]
        every = known.new_zeros(*self.xt.shape, self.process.finite_states())
        every = every.index_copy(-1, self.states.long(), known)
        stays = torch.nn.functional.one_hot(self.xt.long(), every.shape[-1]).double()
        return torch.where(every.sum(-1, keepdim=True) > 0, every, stays)

    def checked(self) -> "ListedPosterior":
        shape, t = (len(self._rows), *self.xt.shape[1:], len(self.states)), self.t.expand(len(self.xt))[self._rows]
        probs = check_probs(self._probs, shape, self.xt, t)
        total = probs.sum(-1)
        wrong = ((total - 1).abs() > _ROUNDING) & (total > 0)
        if bool(wrong.any()):
            got = float(total[wrong][0])
            raise ValueError(f"denoise must return probabilities that sum to 1 over the last dimension, got {got}")
        return ListedPosterior(self.process, self.xt, self.t, probs, self.states, self._member)


Denoiser = Callable[[Tensor, Tensor], Posterior | Tensor]
"""denoise(xt, t), t of shape (batch,): a Posterior, or a tensor: y = E[X_0 - X_t | X_t] for pure death, reverse rates
(..., R) for the others. The rows of a call may be several copies of the batch, one after the other."""


def call(denoise: Denoiser, process: MarkovProcess, xt: Tensor, t: Tensor) -> Posterior:
    """The denoiser's posterior in float64, checked, with one time for each row of xt.

    Raises
    ------
    ValueError
        If the answer has the wrong shape or device, or holds NaN, infinities or negative rates.
    """
    t = t.expand(len(xt)) if t.dim() == 0 else t
    answer = denoise(xt, t)
    if isinstance(answer, Posterior):
        return answer.checked()
    wrap = MeanPosterior if process.mean_suffices else RatePosterior
    if not isinstance(answer, Tensor):
        raise ValueError(f"denoise must return a floating-point tensor or a Posterior, got {type(answer).__name__}")
    return wrap(process, xt, t, answer).checked()
