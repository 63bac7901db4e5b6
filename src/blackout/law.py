"""Denoisers that answer with a law over X_0 for each component: its posterior, its reverse rates, its divergence.

Not in the paper. A network gives an unnormalised law u(o) >= 0 over the S states o of each component, and the posterior
is p(o | x_t) ∝ u(o) P_t(o, x_t), with P_t(o, m) = p_{(m,t)|(o,0)}: the exact one where components are independent and u
is the law of the data. The reverse rates are those of the process started from u: with m_t(y) = Σ_o u(o) P_t(o, y),
κ_r(x) = ν_r(x') m_t(x') / m_t(x) where x' = x - jumps[r], and this is Σ_o p(o | x) λ_r(o, x, t).
Derived in docs/mathematics.md#any-generator.
Sums are taken in float64 whatever the dtype of u: at early times neighbouring terms differ by many powers of ten.
"""

from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from blackout.denoiser import Denoiser, ask
from blackout.process.base import MarkovProcess
from blackout.process.categorical import Absorbing
from blackout.process.chain import Chain
from blackout.process.matrix import GeneratorProcess
from blackout.process.pure_death import PureDeath

_TINY = 1e-300  # a probability below this is taken as zero
_FLOOR = 1e-25  # added to m_t(y) in the divergence, in units of Σ u max_o P_t(o, y): float32 gradients stay finite


@runtime_checkable
class LawDenoiser(Protocol):
    """A denoiser that knows more than a mean: p(o | x_t) over all S states o of each component, shape (..., S)."""

    def law(self, xt: Tensor, t: Tensor) -> Tensor: ...

    def __call__(self, xt: Tensor, t: Tensor) -> Tensor: ...


def ask_law(denoise: Denoiser, process: MarkovProcess, xt: Tensor, t: Tensor) -> Tensor:
    """The law that a denoiser answers with, float64 and normalised, after a look at it."""
    if not isinstance(denoise, LawDenoiser):
        raise ValueError(
            "denoise must have a method law(xt, t) that returns p(x_0 | x_t) over all states of each component, "
            f"got {type(denoise).__name__} without one"
        )
    law, expected = ask(denoise.law, xt, t), (*xt.shape, finite(process))
    if law.shape != expected:
        raise ValueError(f"denoise.law must return shape {expected}, got {tuple(law.shape)}")
    if law.numel() and float(least := law.min()) < 0:
        raise ValueError(f"denoise.law must not be negative, got {float(least)}")
    total = law.sum(-1, keepdim=True, dtype=torch.float64)
    wrong = (total - 1).abs() > 1e-3
    if bool(wrong.any()):
        raise ValueError(f"denoise.law must sum to 1 over the last dimension, got {float(total[wrong][0])}")
    return law / total


def finite(process: MarkovProcess) -> int:
    """The number of states, where there is one."""
    if process.num_states is None:
        raise ValueError(f"process must have finitely many states for a law over them, got {process!r}")
    return process.num_states


def transitions(process: MarkovProcess, tau: Tensor) -> Tensor:
    """P_tau(o, m) for each time on the homogeneous clock, shape (len(tau), S, S), float64; one for a single time."""
    tau, states = tau.double().reshape(-1), torch.arange(finite(process), device=tau.device)
    if not isinstance(process, PureDeath):
        return process.probs_at(states.expand(len(tau), -1), tau)
    # Eq. (8), `eq:fowardSol`: C(o, m) p^m (1 - p)^{o - m} with p = e^{-tau}. The clamp makes 0^0 one at time zero.
    o, m = states.double().unsqueeze(-1), states.double()
    log_choose = torch.lgamma(o + 1) - torch.lgamma(m + 1) - torch.lgamma((o - m).clamp(min=0) + 1)
    log_q = torch.log(-torch.expm1(-tau)).clamp(min=-1e300).reshape(-1, 1, 1)
    logs = log_q * (o - m).clamp(min=0)
    logs -= tau.reshape(-1, 1, 1) * m
    logs += torch.where(m <= o, log_choose, -torch.inf)
    return logs.exp_()


def posterior_law(u: Tensor, xt: Tensor, matrices: Tensor) -> Tensor:
    """p(o | x_t) = u(o) P_t(o, x_t) / m_t(x_t), shape (..., S), in the dtype of u. Not in the paper: Bayes' rule.

    Where no state that u allows leads to x_t, u is taken as flat; where no state at all does, the answer is zero.
    """
    joint, likelihood = _joint(u, xt, matrices)
    total = joint.sum(-1, keepdim=True)
    if bool((total <= _TINY).any()):
        joint = torch.where(total > _TINY, joint, likelihood)
        total = joint.sum(-1, keepdim=True)
    return (joint / total.clamp(min=_TINY)).to(u.dtype)


def law_rates(process: MarkovProcess, u: Tensor, xt: Tensor, matrices: Tensor, t: Any) -> Tensor:
    """What a denoiser of this process answers with: κ_r at time t, shape (..., R); y = E[X_0 - X_t] for pure death.

    Not in the paper: κ_r = ν_r(x') m_t(x') / m_t(x), the reverse rates (5) of the process started from u.
    """
    if isinstance(process, PureDeath):
        joint, _ = _joint(u, xt, matrices)
        states = torch.arange(u.shape[-1], device=xt.device)
        # Summed over the differences, not taken as the difference of two means: tiny answers stay exact.
        difference = (joint * (states - xt.long().unsqueeze(-1)).clamp(min=0)).sum(-1)
        return difference / joint.sum(-1).clamp(min=_TINY)
    arrival, states = _channels(process, u, xt, matrices)
    before, here = _marginal(u, states, matrices).split([len(process.jumps), 1], -1)
    return process.scale_rates(arrival * before / here.clamp(min=_TINY), xt, t)


def law_divergence(process: MarkovProcess, u: Tensor, x0: Tensor, xt: Tensor, matrices: Tensor, t: Any) -> Tensor:
    """Σ_r κ_r - λ_r + λ_r log(λ_r / κ_r) at time t, elementwise, in nats per unit of time: the bound's integrand.

    Appendices F and G with κ of `law_rates`, and λ_r = ν_r(x') P_t(x_0, x') / P_t(x_0, x) from the same matrices. It is
    differentiable in u. Zero rates λ where x_t cannot be reached from x_0.
    """
    if isinstance(process, Absorbing):
        each = _divergence_of_masks(process.mask_state, u, x0, xt, matrices)
    elif isinstance(process, GeneratorProcess) and 2 * len(process.jumps) >= process.num_states:
        each = _divergence_by_states(process.arrival_matrix(xt.device), u, x0, xt, matrices)
    else:
        each = _divergence_by_jumps(process, u, x0, xt, matrices)
    return process.scale_rates(each.unsqueeze(-1), xt, t).squeeze(-1)


def _divergence_by_jumps(process: MarkovProcess, u: Tensor, x0: Tensor, xt: Tensor, matrices: Tensor) -> Tensor:
    arrival, states = _channels(process, u, xt, matrices)
    rows = torch.arange(len(xt), device=xt.device).reshape(-1, *(1,) * xt.dim())
    true = matrices.expand(len(xt), -1, -1)[rows, x0.long().unsqueeze(-1), states]
    largest = matrices.amax(-2).expand(len(xt), -1)[rows, states]
    floor = _FLOOR * u.detach().sum(-1, keepdim=True, dtype=torch.float64) * largest
    model = _marginal(u, states, matrices) + floor.clamp(min=_TINY)
    (before, here), (true_before, true_here) = (v.split([len(process.jumps), 1], -1) for v in (model, true))
    ratio = torch.where(true_here > _TINY, true_before / true_here.clamp(min=_TINY), 0.0)  # λ_r / ν_r
    kappa, lamda = arrival * before / here, arrival * ratio
    # ν_r is in both rates and leaves the logarithm: no channel takes the logarithm of zero.
    each = kappa - lamda + torch.xlogy(lamda, ratio) - lamda * (torch.log(before) - torch.log(here))
    total: Tensor = each.sum(-1)
    return total


def _divergence_of_masks(mask: int, u: Tensor, x0: Tensor, xt: Tensor, matrices: Tensor) -> Tensor:
    """The same sum for masked diffusion, without its S terms: of a masked state λ (-log u(x_0)), where Σ u = 1.

    λ = a / (1 - a) with a the probability of no mask yet. A mask in u, which no data have, is reckoned with as well.
    """
    _check(u, xt, matrices)
    known = 0 if mask else 1
    per_row = (len(matrices), *(1,) * (xt.dim() - 1))
    kept, gone = (matrices[:, known, state].reshape(per_row) for state in (known, mask))
    total, already = u.sum(-1).double(), u[..., mask].double()
    start = u.gather(-1, x0.long().unsqueeze(-1)).squeeze(-1).double()
    floor, gone_at_least = (_FLOOR * total.detach()).clamp(min=_TINY), gone.clamp(min=_TINY)
    here = already + (total - already) * gone + floor
    rate = torch.where(x0 == mask, 0.0, kept / gone_at_least)
    surprise = torch.log(here / gone_at_least) - torch.log(start + floor)
    return torch.where(xt == mask, (total - already) * kept / here - rate + rate * surprise, 0.0)


def _divergence_by_states(arrivals: Tensor, u: Tensor, x0: Tensor, xt: Tensor, matrices: Tensor) -> Tensor:
    """The same sum, over the states y that lead to x_t rather than over jumps: for when there are fewer of them."""
    _check(u, xt, matrices)
    here = xt.long().unsqueeze(-1)
    rates = arrivals[xt.long()]  # ν(y -> x_t), (..., S)
    largest = matrices.amax(-2).reshape(len(matrices), *(1,) * (xt.dim() - 1), -1)
    floor = _FLOOR * u.detach().sum(-1, keepdim=True, dtype=torch.float64) * largest
    model = _marginals(u, matrices) + floor.clamp(min=_TINY)
    rows = torch.arange(len(xt), device=xt.device).reshape(-1, *(1,) * (xt.dim() - 1))
    true = matrices.expand(len(xt), -1, -1)[rows, x0.long()]
    reached = true.gather(-1, here)
    ratio = torch.where(reached > _TINY, true / reached.clamp(min=_TINY), 0.0)
    now = model.gather(-1, here)
    return (
        rates * (model / now - ratio + torch.xlogy(ratio, ratio) - ratio * (torch.log(model) - torch.log(now)))
    ).sum(-1)


def chain_divergence(u: Tensor, x0: Tensor, xt: Tensor, before: Tensor, step: Tensor, matrices: Tensor) -> Tensor:
    """KL(q(. | x_k, x_0) ‖ p_u(. | x_k)) of one step back, elementwise, in nats: Appendix A, with u for the start.

    q(y) = T(y, x) P_s(x_0, y) / P_k(x_0, x), `eq:cBayes`, and p_u the same with m for P(x_0, .). T is in both and
    leaves the logarithm. `before` are the matrices P_s, `step` those from s to k, `matrices` those of k; s is k - 1 or
    earlier. From s = 0 it is -log p_u(x_0 | x_k).
    """
    _check(u, xt, matrices)
    here, size = xt.long().unsqueeze(-1), u.shape[-1]
    every = torch.arange(size, device=xt.device).expand(*xt.shape, size)
    floor = (_FLOOR * u.detach().sum(-1, keepdim=True, dtype=torch.float64)).clamp(min=_TINY)
    model, total = _marginal(u, every, before) + floor, _marginal(u, here, matrices) + floor
    rows = torch.arange(len(xt), device=xt.device).reshape(-1, *(1,) * xt.dim())
    start = x0.long().unsqueeze(-1)
    true = before.expand(len(xt), -1, -1)[rows, start, every] / matrices.expand(len(xt), -1, -1)[rows, start, here]
    q = step.expand(len(xt), -1, -1)[rows, every, here] * true
    return (torch.xlogy(q, true) - q * (torch.log(model) - torch.log(total))).sum(-1)


def _joint(u: Tensor, xt: Tensor, matrices: Tensor) -> tuple[Tensor, Tensor]:
    """u(o) P_t(o, x_t) and P_t(o, x_t) for every state o: the columns of the matrices, shape (..., S)."""
    _check(u, xt, matrices)
    rows = torch.arange(len(xt), device=xt.device).reshape(-1, *(1,) * (xt.dim() - 1))
    likelihood = matrices.mT.contiguous().expand(len(xt), -1, -1)[rows, xt.long()]
    return u * likelihood, likelihood


def _marginal(u: Tensor, states: Tensor, matrices: Tensor) -> Tensor:
    """m_t at the given states, shape (..., R + 1)."""
    return _marginals(u, matrices).gather(-1, states)


def _marginals(u: Tensor, matrices: Tensor) -> Tensor:
    """m_t at every state, shape (..., S). A product of matrices keeps nothing of size S for the gradient."""
    flat = u.double().reshape(len(u), u.shape[1:-1].numel(), u.shape[-1])
    return (flat @ (matrices[0] if len(matrices) == 1 else matrices)).reshape(u.shape)


def _channels(process: MarkovProcess, u: Tensor, xt: Tensor, matrices: Tensor) -> tuple[Tensor, Tensor]:
    """ν_r(x'), zero where x' is no state, shape (..., R); and the states x' of each channel, with x as the last."""
    _check(u, xt, matrices)
    if isinstance(process, Chain):
        raise ValueError(f"process must run in continuous time to have rates, got {process!r}")
    here = xt.long().unsqueeze(-1)
    preimage = (here - torch.tensor(process.jumps, dtype=torch.int64, device=xt.device)).clamp(0, finite(process) - 1)
    arrival = torch.where(process.has_preimage(xt), process.arrival_rates(xt), 0.0)
    return arrival, torch.cat([preimage, here], -1)


def _check(u: Tensor, xt: Tensor, matrices: Tensor) -> None:
    size = u.shape[-1]
    if u.shape != (*xt.shape, size) or xt.dim() == 0:
        raise ValueError(f"u must have shape (*{tuple(xt.shape)}, S), got {tuple(u.shape)}")
    if matrices.shape not in ((len(xt), size, size), (1, size, size)):
        expected = f"({len(xt)}, {size}, {size}) or (1, {size}, {size})"
        raise ValueError(f"matrices must have shape {expected}, got {tuple(matrices.shape)}")
