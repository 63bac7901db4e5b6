"""Pure death, the paper's process: every unit of intensity decays at rate one, until everything is black."""

import math

import torch
from torch import Tensor

from blackout import validate
from blackout.memory import check_memory
from blackout.process.base import SPAN, MarkovProcess
from blackout.process.binomial import binomial_log_pmf
from blackout.process.schedule import Function, Schedule
from blackout.random import Source, binomial

_LARGE = 2048  # states above which a matrix of them may not fit into memory
_MOST = 2**53  # integers up to here are exact in float64


class PureDeath(MarkovProcess):
    """m -> m - 1 at rate m: Eq. (7), `eq:pureDeath`. Everything is in closed form, from Eqs. (8), (9) and (10).

    `max_count` is the largest count in the data; None: all of N. States are 0, ..., max_count: above max_count there is
    none, so its reverse rate and its score are zero, as for the generator on these states. A denoiser for this process
    returns y = E[X_0 - X_t | X_t], with the shape of xt. Derived in docs/mathematics.md#pure-death.

    Examples
    --------
    >>> import blackout as bo
    >>> process = bo.PureDeath(max_count=9)
    >>> x0 = torch.tensor([[5, 9]])
    >>> process.sample(x0, 0.5, torch.Generator().manual_seed(0)).shape
    torch.Size([1, 2])
    >>> process.reverse_rates(x0, x0 - 2, 0.5).squeeze(-1)  # 2 / (e^0.5 - 1) for each
    tensor([[3.0830, 3.0830]], dtype=torch.float64)
    """

    jumps = (-1,)
    ordered = True
    terminal_state = 0
    relaxation_rate = 1.0
    mean_suffices = True
    time_rule = "fisher"
    arguments = ("max_count",)

    def __init__(self, max_count: int | None = None, schedule: Schedule | Function | None = None) -> None:
        super().__init__(schedule)
        self.max_count = None if max_count is None else validate.integer("max_count", max_count, 1, _MOST)
        self.num_states = None if self.max_count is None else self.max_count + 1

    @classmethod
    def for_levels(cls, levels: int | None) -> "PureDeath":
        return cls(None if levels is None else levels - 1)

    def unit_rate(self, x: Tensor, t: Tensor) -> Tensor:
        """e^{-t} / (1 - e^{-t}), Eq. (9), times β(t)."""
        unit = validate.expand(_odds(self.clock_time(t)), x)
        return unit if self.schedule is None else unit * validate.expand(self.schedule.rate(t), x)

    def bridge_probability(self, s: Tensor, t: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        r, rest = _bridge_probability(self.clock_time(s), self.clock_time(t))
        return validate.expand(r, x), validate.expand(rest, x)

    def step_length(self, s: Tensor, t: Tensor, x: Tensor, rule: str) -> Tensor:
        """`finite`: e^{t-s} - 1, so that the mean is y r, as on the binomial bridge. `instantaneous`: t - s."""
        if rule == "instantaneous":
            return validate.expand(t - s, x)
        length = torch.expm1(self.clock_time(t) - self.clock_time(s))
        return validate.expand(length if self.schedule is None else self.schedule.on_real_clock(length, t), x)

    def transition_matrices(self, tau: Tensor) -> Tensor:
        # Eq. (8), `eq:fowardSol`: C(o, m) p^m (1 - p)^{o - m} with p = e^{-tau}. The clamp makes 0^0 one at time zero.
        tau, size = tau.double().reshape(-1, 1, 1), self.finite_states()
        if size > _LARGE:
            what = f"the transition probabilities of {size:,} states at {len(tau):,} times"
            check_memory(what, 32.0 * len(tau) * size * size, "use a smaller max_count", tau.device)
        m = torch.arange(size, device=tau.device, dtype=torch.float64)
        o = m.unsqueeze(-1)
        log_choose = torch.lgamma(o + 1) - torch.lgamma(m + 1) - torch.lgamma((o - m).clamp(min=0) + 1)
        logs = torch.log(-torch.expm1(-tau)).clamp(min=-1e300) * (o - m).clamp(min=0)
        logs -= tau * m
        logs += torch.where(m <= o, log_choose, -torch.inf)
        return logs.exp_()

    def num_reachable(self, x0: Tensor) -> int:
        return int(x0.max()) + 1

    def stiffness(self, num_states: int) -> float:
        return max(0.0, math.log(max(1, num_states - 1)) - SPAN)  # counts without a bound can be too many to list

    def length_density(self, tau: Tensor) -> Tensor:
        # The length from any start o is 2 √o arccos(√p): the same density for all starts but for the factor √o.
        return torch.rsqrt(torch.expm1(tau))

    def log_overlap_at(self, x0: Tensor, tau: Tensor) -> Tensor:
        # P(X_t = 0 | X_0) = (1 - e^{-t})^S with S the total count of a data point.
        return x0.reshape(len(x0), -1).sum(-1).double() * torch.log(-torch.expm1(-tau))

    def slowest_starts(self, x0: Tensor) -> tuple[Tensor, int]:
        return x0.reshape(len(x0), -1).sum(-1).max().reshape(1, 1), 1

    def sample_at(self, x0: Tensor, tau: Tensor, source: Source) -> Tensor:
        p, q = (validate.expand(v, x0) for v in (torch.exp(-tau), -torch.expm1(-tau)))
        if x0.device.type == "cpu" and isinstance(source, torch.Generator) and 2 * int(x0.count_nonzero()) < x0.numel():
            # Zeros stay zero, so sparse counts need only a few draws.
            flat = x0.flatten()
            lit = flat.nonzero().squeeze(-1)
            of = lit // (flat.numel() // tau.numel()) if tau.numel() > 1 else torch.zeros_like(lit)
            alive, dead = (v.flatten().index_select(0, of) for v in (p, q))
            drawn = binomial(flat.index_select(0, lit), alive, source, dead, self.max_count)
            return torch.zeros_like(flat).index_copy_(0, lit, drawn).reshape(x0.shape)
        return binomial(x0, p, source, complement=q, max_count=self.max_count)

    def log_prob_at(self, xt: Tensor, x0: Tensor, tau: Tensor) -> Tensor:
        # Eq. (8), `eq:fowardSol`: X_t | X_0 ~ Binomial(X_0, e^{-t}).
        p, q = (validate.expand(v, x0) for v in (torch.exp(-tau), -torch.expm1(-tau)))
        return binomial_log_pmf(xt, x0, p, q)

    def probs_at(self, x0: Tensor, tau: Tensor) -> Tensor:
        largest = int(x0.max()) if x0.numel() else 0
        states = torch.arange(self.num_states or largest + 1, device=x0.device)
        tau = validate.expand(tau, x0).unsqueeze(-1)
        return torch.exp(binomial_log_pmf(states, x0.unsqueeze(-1), torch.exp(-tau), -torch.expm1(-tau)))

    def forward_rates_at(self, x: Tensor, tau: Tensor) -> Tensor:
        return x.double().unsqueeze(-1)

    def arrival_rates(self, x: Tensor, tau: Tensor) -> Tensor:
        # Above max_count there is no state, so nothing arrives there: the process is the one on {0, ..., max_count}.
        return torch.where(self.has_preimage(x), x.double().unsqueeze(-1) + 1, 0.0)

    def reverse_rates_at(self, x0: Tensor, xt: Tensor, tau: Tensor) -> Tensor:
        # Eq. (9), `eq:rRates`: (X_0 - X_t) e^{-t} / (1 - e^{-t}).
        difference = (x0.long() - xt.long()).clamp(min=0).double()
        return (difference * validate.expand(_odds(tau), x0)).unsqueeze(-1)

    def sample_bridge_at(self, x0: Tensor, xt: Tensor, tau_s: Tensor, tau_t: Tensor, source: Source) -> Tensor:
        # Eq. (10), `eq:binomialBridge`: X_s - X_t ~ Binomial(X_0 - X_t, r).
        r, rest = (validate.expand(v, x0) for v in _bridge_probability(tau_s, tau_t))
        return xt + binomial(x0.long() - xt.long(), r, source, complement=rest)

    def bridge_log_prob_at(self, xs: Tensor, x0: Tensor, xt: Tensor, tau_s: Tensor, tau_t: Tensor) -> Tensor:
        r, rest = (validate.expand(v, x0) for v in _bridge_probability(tau_s, tau_t))
        xs, x0, xt = xs.long(), x0.long(), xt.long()
        return binomial_log_pmf(xs - xt, x0 - xt, r, rest)

    def _terminal(self, shape: tuple[int, ...], device: torch.device, source: Source) -> Tensor:
        return torch.zeros(shape, dtype=torch.int64, device=device)

    def _terminal_log_prob(self, x: Tensor) -> Tensor:
        return torch.where(x == 0, 0.0, -torch.inf).double()

    def has_preimage(self, x: Tensor) -> Tensor:
        return (torch.ones_like(x) if self.max_count is None else x < self.max_count).bool().unsqueeze(-1)


def _bridge_probability(tau_s: Tensor, tau_t: Tensor) -> tuple[Tensor, Tensor]:
    """r = (e^{-s} - e^{-t}) / (1 - e^{-t}) of Eq. (10), and 1 - r, each without cancellation.

    See docs/mathematics.md#the-binomial-bridge.
    """
    dead_by_t = torch.expm1(-tau_t)
    r = torch.exp(-tau_s) * torch.expm1(tau_s - tau_t) / dead_by_t
    return r.clamp(max=1.0), torch.expm1(-tau_s) / dead_by_t


def _odds(tau: Tensor) -> Tensor:
    """e^{-t} / (1 - e^{-t}); 0 at t = 0, where nothing has died and so nothing returns."""
    return torch.where(tau > 0, 1 / torch.expm1(tau).clamp(min=1e-300), 0.0)  # 0 times the result is a number
