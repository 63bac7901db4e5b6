"""CategoricalPosterior: a distribution over X_0 for each component, from a network. Not in the paper.

A network gives unnormalised weights u(o) >= 0 over the S states o of each component, and the posterior is
p(o | x_t) ∝ u(o) P_t(o, x_t), with P_t(o, m) = p_{(m,t)|(o,0)}: the exact one where components are independent and u is
the distribution of the data. The reverse rates are those of the process started from u: with
m_t(y) = Σ_o u(o) P_t(o, y), κ_r(x) = ν_r(x') m_t(x') / m_t(x) where x' = x - jumps[r]: this is
Σ_o p(o | x) λ_r(o, x, t).
Derived in docs/mathematics.md#any-generator.
Sums are taken in float64 whatever the dtype of u: at early times neighbouring terms differ by many powers of ten.
"""

import torch
from torch import Tensor

from blackout import validate
from blackout.posterior.base import Posterior, rate_divergence
from blackout.posterior.checks import check_probs, check_tensor
from blackout.process.base import MarkovProcess
from blackout.process.transitions import DenseTransitions, Transitions

_TINY = 1e-300  # a probability below this is taken as zero
_FLOOR = 1e-25  # added to m_t(y) in the divergence, in units of Σ u max_o P_t(o, y): float32 gradients stay finite


class CategoricalPosterior(Posterior):
    """Probabilities over all states.

    Parameters
    ----------
    u
        Weights of the states at time zero before X_t is seen, not negative, shape (..., S).
    transitions
        P_t of the times t, or of one time if all are equal; computed if not given.

    Examples
    --------
    >>> import blackout as bo
    >>> xt, t = torch.tensor([[1]]), torch.tensor([0.5], dtype=torch.float64)
    >>> CategoricalPosterior(bo.PureDeath(3), xt, t, torch.ones(1, 1, 4)).probs()  # uniform before X_t is seen
    tensor([[[0.0000, 0.4442, 0.3495, 0.2063]]], dtype=torch.float64)
    """

    def __init__(
        self, process: MarkovProcess, xt: Tensor, t: Tensor, u: Tensor, transitions: Transitions | None = None
    ) -> None:
        super().__init__(process, xt, t)
        check_tensor("u", u)
        self.u = u
        self._transitions = process.transitions(process.clock_time(t.double())) if transitions is None else transitions
        self._check()

    def probs(self) -> Tensor:
        """u(o) P_t(o, x_t) / m_t(x_t): Bayes' rule.

        Where no state that u allows leads to x_t, u is taken as flat; where no state at all does, the result is zero.
        """
        joint, likelihood = self._joint()
        total = joint.sum(-1, keepdim=True)
        if bool((total <= _TINY).any()):
            joint = torch.where(total > _TINY, joint, likelihood)
            total = joint.sum(-1, keepdim=True)
        return joint / total.clamp(min=_TINY)

    def difference(self) -> Tensor:
        joint, _ = self._joint()
        states = torch.arange(self.u.shape[-1], device=self.xt.device)
        # Summed over the differences, not taken as the difference of two means: tiny values stay exact.
        difference = (joint * (states - self.xt.long().unsqueeze(-1))).sum(-1)
        return difference / joint.sum(-1).clamp(min=_TINY)

    def rates(self) -> Tensor:
        """κ_r = ν_r(x') m_t(x') / m_t(x): the reverse rates (5) of the process started from u."""
        if self.process.mean_suffices:
            return (self.difference() * self.process.unit_rate(self.xt, self.t)).unsqueeze(-1)
        arrival, states = channels(self.process, self.xt, self.t)
        before, here = self._marginals().gather(-1, states).split([len(self.process.jumps), 1], -1)
        return self.process.scale_rates(arrival * before / here.clamp(min=_TINY), self.xt, self.t)

    def divergence(self, x0: Tensor, s: Tensor | None = None) -> Tensor:
        if self.process.discrete_time:
            return self._step_divergence(x0, self.t - 1 if s is None else s)
        form = {
            "jumps": self._by_jumps, "states": self._by_states, "mask": self._of_mask, "uniform": self._of_uniform
        }  # fmt: skip
        per_tau = form[self.process.divergence_form](x0.long())
        return self.process.scale_rates(per_tau.unsqueeze(-1), self.xt, self.t).squeeze(-1)

    def checked(self) -> "CategoricalPosterior":
        size = self.process.finite_states()
        u = check_probs(self.u, (*self.xt.shape, size), self.xt, self.t)
        return CategoricalPosterior(self.process, self.xt, self.t, u, self._transitions)

    def _by_jumps(self, x0: Tensor) -> Tensor:
        """The sum over channels r, with λ_r = ν_r(x') P_t(x_0, x') / P_t(x_0, x) from the same matrices."""
        arrival, states = channels(self.process, self.xt, self.t)
        true = self._transitions.at(x0, states)
        largest = self._transitions.largest(states.dim()).expand(*self.xt.shape, -1).gather(-1, states)
        model = self._marginals().gather(-1, states) + self._floor(largest)
        (before, here), (true_before, true_here) = (v.split([len(self.process.jumps), 1], -1) for v in (model, true))
        ratio = torch.where(true_here > _TINY, true_before / true_here.clamp(min=_TINY), 0.0)  # λ_r / ν_r
        return _sum_of_channels(arrival, before / here, torch.log(before) - torch.log(here), ratio)

    def _by_states(self, x0: Tensor) -> Tensor:
        """The same sum over the states y that lead to x_t rather than over jumps, where there are fewer of them."""
        here = self.xt.long().unsqueeze(-1)
        tau = self.process.clock_time(self.t.double())
        arrival = self.process.arrivals_by_state(self.xt, tau)  # type: ignore[attr-defined]
        every = torch.arange(self.u.shape[-1], device=self.xt.device).expand(self.u.shape)
        model = self._marginals() + self._floor(self._transitions.largest(self.u.dim()))
        true = self._transitions.at(x0, every)
        reached = true.gather(-1, here)
        ratio = torch.where(reached > _TINY, true / reached.clamp(min=_TINY), 0.0)
        now = model.gather(-1, here)
        return _sum_of_channels(arrival, model / now, torch.log(model) - torch.log(now), ratio)

    def _of_mask(self, x0: Tensor) -> Tensor:
        """The same sum for masked diffusion, without its S terms: λ (-log u(x_0)) of a masked state, where Σ u = 1.

        λ = a / (1 - a) with a the probability of not being masked yet. Weight of u on the mask is accounted for. Only
        the channel of x_0 has a λ; all others add their κ.
        """
        mask = self.process.mask_state
        assert mask is not None
        kept, gone = self._shares()
        already, total = self.u[..., mask].double(), self._label_weight(self.u)
        start = torch.where(x0 == mask, 0.0, self.u.gather(-1, x0.unsqueeze(-1)).squeeze(-1).double())
        floor, gone_at_least = (_FLOOR * total.detach()).clamp(min=_TINY), gone.clamp(min=_TINY)
        here = already + (total - already) * gone + floor
        rate = torch.where(x0 == mask, 0.0, kept / gone_at_least)
        log_ratio = torch.log(here / gone_at_least) - torch.log(start + floor)
        of_start = rate_divergence((start + floor) * kept / here, rate, log_ratio)
        others = (total - already - start).clamp(min=0) * kept / here
        return torch.where(self.xt == mask, of_start + others, 0.0)

    def _of_uniform(self, x0: Tensor) -> Tensor:
        """The same sum for uniform redrawing, without a matrix: ν Σ_y P(y) h(d_y) / P(x_t), h(d) = e^{-d} - 1 + d.

        ν is one over the number of labels, P the row of x_0, m that of u, and d_y = log(P(y) m(x_t) / (m(y) P(x_t))).
        """
        process, start, here = self.process, x0.unsqueeze(-1), self.xt.long().unsqueeze(-1)
        kept, gone = (v.unsqueeze(-1) for v in self._shares())
        labels = process.finite_states() - (process.pad_state is not None)
        even = (gone / labels).clamp(min=_TINY)
        u = self.u.double()  # once, so that the gradients of both of its parts are added in double precision
        weight = self._label_weight(u).unsqueeze(-1)
        weight = torch.where(weight > _TINY, weight, 1.0)
        logs = torch.log1p(kept / even / weight * u)  # log m(y) - log even
        top = torch.log1p(kept / even)  # log P(x_0) - log even
        same = start == here
        d = logs.gather(-1, here) - torch.where(same, top, 0.0) - logs
        d = d.scatter_add(-1, start, top.expand(start.shape))
        if process.pad_state is not None:
            states = torch.arange(d.shape[-1], device=d.device)
            d = torch.where((states == process.pad_state) | (here == process.pad_state), 0.0, d)
        h = torch.expm1(-d) + d
        total = even * h.sum(-1, keepdim=True) + kept * h.gather(-1, start)
        return (total / (torch.where(same, kept, 0.0) + even) / labels).squeeze(-1)

    def _step_divergence(self, x0: Tensor, s: Tensor) -> Tensor:
        """KL(q(. | x_k, x_0) ‖ p_u(. | x_k)) of one step of a chain back to s: Appendix A, with u for the start.

        q(y) = T(y, x) P_s(x_0, y) / P_k(x_0, x), `eq:cBayes`, and p_u the same with m for P(x_0, .). T is in both and
        leaves the logarithm. From s = 0 it is -log p_u(x_0 | x_k).
        """
        before, step = (self.process.transition_matrices(k) for k in (s, self.t - s))
        here, size = self.xt.long().unsqueeze(-1), self.u.shape[-1]
        every = torch.arange(size, device=self.xt.device).expand(*self.xt.shape, size)
        floor = self._floor(torch.ones(1, dtype=torch.float64, device=self.xt.device))
        model = DenseTransitions(before).push(self.u) + floor
        total = self._marginals().gather(-1, here) + floor
        start = x0.long()
        true = DenseTransitions(before).at(start, every) / self._transitions.at(start, here)
        q = DenseTransitions(step).columns(self.xt) * true
        return (torch.xlogy(q, true) - q * (torch.log(model) - torch.log(total))).sum(-1)

    def _joint(self) -> tuple[Tensor, Tensor]:
        """u(o) P_t(o, x_t) and P_t(o, x_t) for every state o: shape (..., S)."""
        likelihood = self._transitions.columns(self.xt)
        return self.u * likelihood, likelihood

    def _marginals(self) -> Tensor:
        """m_t at every state, shape (..., S)."""
        return self._transitions.push(self.u)

    def _floor(self, scale: Tensor) -> Tensor:
        return (_FLOOR * self.u.detach().sum(-1, keepdim=True, dtype=torch.float64) * scale).clamp(min=_TINY)

    def _shares(self) -> tuple[Tensor, Tensor]:
        """e^{-τ} and 1 - e^{-τ}, shaped to broadcast with xt, of a process that redraws states at rate one."""
        tau = validate.expand(self.process.clock_time(self.t.double()), self.xt)
        return torch.exp(-tau), -torch.expm1(-tau)

    def _label_weight(self, u: Tensor) -> Tensor:
        """Σ u over all states but padding."""
        total = u.sum(-1, dtype=torch.float64)
        return total if self.process.pad_state is None else total - u[..., self.process.pad_state]

    def _check(self) -> None:
        size, num = self.u.shape[-1], len(self.xt) if self.xt.dim() else 0
        if self.u.shape != (*self.xt.shape, size) or self.xt.dim() == 0:
            raise ValueError(f"u must have shape (*{tuple(self.xt.shape)}, S), got {tuple(self.u.shape)}")
        got = self._transitions.num_times, self._transitions.num_states
        if got not in ((num, size), (1, size)):
            expected = f"of {size} states at {num} times, or at one"
            raise ValueError(f"transitions must be {expected}, got {got[1]} states at {got[0]} times")


def channels(process: MarkovProcess, xt: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """ν_r(x'), zero where x' is no state, shape (..., R); and the states x' of each channel, with x as the last."""
    if process.discrete_time:
        raise ValueError(f"process must run in continuous time to have rates, got {process!r}")
    here = xt.long().unsqueeze(-1)
    jumps = torch.tensor(process.jumps, dtype=torch.int64, device=xt.device)
    rates = process.arrival_rates(xt, process.clock_time(t.double()))
    arrival = torch.where(process.has_preimage(xt), rates, 0.0)
    return arrival, torch.cat([(here - jumps).clamp(0, process.finite_states() - 1), here], -1)


def _sum_of_channels(arrival: Tensor, model: Tensor, log_model: Tensor, true: Tensor) -> Tensor:
    """The divergence of rates κ = ν model and λ = ν true. ν is in both and leaves the logarithm."""
    log_ratio = torch.log(torch.where(true > 0, true, 1.0)) - log_model
    return rate_divergence(arrival * model, arrival * true, log_ratio).sum(-1)
