"""MarkovProcess: the forward process that destroys the data, component by component."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from blackout import validate
from blackout.memory import check_memory
from blackout.process import overlap
from blackout.process.schedule import Function, Schedule
from blackout.process.transitions import DenseTransitions, Transitions
from blackout.random import Source, source_device

SPAN = 9.0  # log of the ratio of the fastest to the slowest rate that the default integration range covers
_LARGE = 1 << 28  # bytes beyond which free memory is looked up


class MarkovProcess(ABC):
    """A Markov process on integer states, applied to every component on its own: Eq. (2), `eq:cforward`.

    States are integer tensors of shape (batch, ...); a time is a float or a tensor of shape () or (batch,). Results are
    float64, or float32 where the time is a float32 tensor. Methods that end in `_at` do the work: they take `tau`, the
    time on the clock of the homogeneous process, and do not check their arguments; the others check and call them.
    Derived in docs/mathematics.md#the-forward-equation.
    """

    num_states: int | None
    """States are 0, ..., num_states - 1; None: all of N."""
    jumps: tuple[int, ...]
    """The R displacements of the forward process."""
    ordered: bool
    """Whether neighbouring labels are neighbouring states, so that several jumps may be added up."""
    terminal_state: int | None
    """The state that the process ends in, where that is a single one."""
    relaxation_rate: float
    """How fast the process mixes: the smallest non-zero decay rate, on the homogeneous clock."""
    discrete_time: ClassVar[bool] = False
    """Whether times are integers: a chain."""
    mean_suffices: ClassVar[bool] = False
    """Whether the posterior mean of X_0 determines the reverse rates, as it does for pure death."""
    breaks: tuple[float, ...] = ()
    """Times on the homogeneous clock at which the rates change otherwise than by β(t); the earlier ones hold there."""
    divergence_form: str = "jumps"
    """How `CategoricalPosterior` sums: over "jumps", over "states", or in closed form ("mask", "uniform")."""
    mask_state: int | None = None
    """The state that stands for "masked", which no data point has; None: there is none."""
    pad_state: int | None = None
    """The state that fills sequences up to one length. It never changes; None: there is none."""
    matrix_free: ClassVar[bool] = False
    """Whether `transitions` has a closed form, so that there may be any number of states."""
    time_rule: ClassVar[str] = "length"
    """Name of the rule for its default observation times: see `blackout.times.TIME_RULES`."""
    arguments: ClassVar[tuple[str, ...]] = ()
    """The constructor's arguments besides the schedule, each also an attribute: what `config` returns."""

    def __init__(self, schedule: Schedule | Function | None = None) -> None:
        if schedule is not None and not isinstance(schedule, Schedule) and not callable(schedule):
            raise ValueError(f"schedule must be a Schedule or a function of time, got {schedule!r}")
        self.schedule = Schedule.from_rate(schedule) if callable(schedule) else schedule

    def __repr__(self) -> str:
        values = {name: getattr(self, name) for name in (*self.arguments, "schedule")}
        shown = (f"{name}={v}" for name, v in values.items() if v is not None or name not in ("pad_state", "schedule"))
        return f"{type(self).__name__}({', '.join(shown)})"

    def config(self) -> dict[str, Any]:
        """The constructor's arguments, as plain JSON; ValueError for a schedule that is an arbitrary function."""
        schedule = {} if self.schedule is None else {"schedule": self.schedule.config()}
        return {**{name: getattr(self, name) for name in self.arguments}, **schedule}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The process that `config` described."""
        schedule = {"schedule": Schedule.from_config(config["schedule"])} if "schedule" in config else {}
        return cls(**{**config, **schedule})

    @classmethod
    def for_levels(cls, levels: int | None) -> "MarkovProcess":
        """The process with its default rates for states 0, ..., levels - 1 of data (None: counts without a bound)."""
        return cls(cls.finite_levels(levels))  # type: ignore[arg-type]

    @classmethod
    def finite_levels(cls, levels: int | None) -> int:
        """The number of levels; ValueError for counts without a bound."""
        if levels is None:
            raise ValueError(f"{cls.__name__} needs finitely many states: max_count must not be 0")
        return levels

    def with_padding(self) -> "MarkovProcess":
        """The same process with one state more, the padding of sequences, after the labels.

        A mask in the last state moves up by one.
        """
        if self.pad_state is not None:
            raise ValueError(f"process must not have padding yet, got {self!r}")
        return self._with_padding()

    def _with_padding(self) -> "MarkovProcess":
        needed = "process must be Absorbing, Uniform or FiniteState for sequences of different lengths"
        raise ValueError(f"{needed}, got {self!r}")

    @property
    def max_state(self) -> int | None:
        """The largest state that data can have; None: there is none."""
        if self.num_states is None:
            return None
        return self.num_states - (2 if self.mask_state == self.num_states - 1 else 1)

    def sample(self, x0: Tensor, t: Any, generator: Source = None) -> Tensor:
        """A draw of X_t given X_0 = x0, in the dtype of x0 (int64 where that dtype cannot hold every state)."""
        (x0,) = validate.states(self.num_states, x0=x0)
        (tau,) = self.checked_clock(x0, t=t)
        return self.sample_at(x0, tau, generator).to(self.state_dtype(x0))

    def log_prob(self, xt: Tensor, x0: Tensor, t: Any) -> Tensor:
        """log p_{(xt,t)|(x0,0)}, elementwise; -inf where xt cannot be reached."""
        xt, x0 = validate.states(self.num_states, xt=xt, x0=x0)
        return self.log_prob_at(xt, x0, *self.checked_clock(x0, t=t)).to(validate.result_dtype(t))

    def probs(self, x0: Tensor, t: Any) -> Tensor:
        """p_{(m,t)|(x0,0)} for every state m, in a last dimension (for a process on N: up to the largest x0)."""
        (x0,) = validate.states(self.num_states, x0=x0)
        states = self.num_states or (int(x0.max()) + 1 if x0.numel() else 1)
        if (needed := 32 * x0.numel() * states) > _LARGE:
            check_memory(f"the distribution of x0 over {states} states", needed, "use smaller counts", x0.device)
        return self.probs_at(x0, *self.checked_clock(x0, t=t)).to(validate.result_dtype(t))

    def forward_rates(self, x: Tensor, t: Any = None) -> Tensor:
        """ν_r(x), the rate of the jump x -> x + jumps[r], in a last dimension of size R."""
        (x,) = validate.states(self.num_states, x=x)
        if t is None and (self.breaks or self.schedule is not None):
            raise ValueError("t is needed: the rates of this process depend on time, got t=None")
        time = 0.0 if t is None else t
        return self.scale_rates(self.forward_rates_at(x, *self.checked_clock(x, t=time)), x, time)

    def reverse_rates(self, x0: Tensor, xt: Tensor, t: Any) -> Tensor:
        """λ_r = ν_r(m') p_{(m',t)|(x0,0)} / p_{(xt,t)|(x0,0)} with m' = xt - jumps[r]: Eq. (5) and `eq:reverseRate`.

        Channel r of the reverse process leads from xt to xt - jumps[r]. Zero where xt cannot be reached from x0. Why:
        docs/mathematics.md#conditional-reverse-rates.
        """
        x0, xt = validate.states(self.num_states, x0=x0, xt=xt)
        return self.scale_rates(self.reverse_rates_at(x0, xt, *self.checked_clock(x0, t=t)), x0, t)

    def score(self, x0: Tensor, xt: Tensor, t: Any) -> Tensor:
        """The discrete-state score ν_r(m') (p_{(m',t)} - p_{(xt,t)}) / p_{(xt,t)}: Eq. (6), `eq:dis-score`.

        It equals λ_r - ν_r(m'). Zero where xt cannot be reached from x0 and where there is no state m'. See
        docs/mathematics.md#the-score.
        """
        x0, xt = validate.states(self.num_states, x0=x0, xt=xt)
        (tau,) = self.checked_clock(x0, t=t)
        difference = self.reverse_rates_at(x0, xt, tau) - self.arrival_rates(xt, tau)
        reachable = torch.isfinite(self.log_prob_at(xt, x0, tau)).unsqueeze(-1)
        return self.scale_rates(torch.where(reachable, difference, 0.0), x0, t)

    def sample_bridge(self, x0: Tensor, xt: Tensor, s: Any, t: Any, generator: Source = None) -> Tensor:
        """A draw of X_s given X_t = xt and X_0 = x0, for s < t: docs/mathematics.md#the-backward-equation."""
        x0, xt = validate.states(self.num_states, x0=x0, xt=xt)
        tau_s, tau_t = self.checked_clock(x0, s=s, t=t)
        lost = torch.isneginf(self.log_prob_at(xt, x0, tau_t))
        if bool(lost.any()):
            which = f"xt={int(xt[lost][0])} cannot be reached from x0={int(x0[lost][0])}"
            raise ValueError(f"{which}, or with a probability that is rounded to zero")
        return self.sample_bridge_at(x0, xt, tau_s, tau_t, generator).to(self.state_dtype(x0))

    def bridge_log_prob(self, xs: Tensor, x0: Tensor, xt: Tensor, s: Any, t: Any) -> Tensor:
        """log p_{(xs,s)|(xt,t),(x0,0)}, elementwise; -inf where xs, or xt itself, cannot be reached."""
        xs, x0, xt = validate.states(self.num_states, xs=xs, x0=x0, xt=xt)
        return self.bridge_log_prob_at(xs, x0, xt, *self.checked_clock(x0, s=s, t=t)).to(validate.result_dtype(t))

    def terminal(self, shape: tuple[int, ...], generator: Source = None, device: Any = None) -> Tensor:
        """A draw of X_T for T -> infinity, int64."""
        device = validate.device(source_device(generator) if device is None else device)
        shape = validate.shape(shape)
        if (needed := 8 * math.prod(shape)) > _LARGE:
            check_memory(f"shape={shape}", needed, "draw fewer at once", device)
        return self._terminal(shape, device, generator)

    def terminal_log_prob(self, x: Tensor) -> Tensor:
        """The logarithm of the terminal distribution, elementwise."""
        (x,) = validate.states(self.num_states, x=x)
        return self._terminal_log_prob(x)

    def real_time(self, tau: Tensor) -> Tensor:
        """The time t at which the homogeneous clock shows tau."""
        return tau if self.schedule is None else self.schedule.inverse(tau)

    def clock_time(self, t: Tensor) -> Tensor:
        """What the homogeneous clock shows at time t: the inverse of `real_time`."""
        return t if self.schedule is None else self.schedule.integral(t)

    def log_time(self, tau: Tensor) -> Tensor:
        """g = log(e^{γτ} - 1), with γ the relaxation rate: for pure death minus logit(e^{-t}), uniform on its grid."""
        scaled = self.relaxation_rate * tau
        return torch.where(scaled > 40, scaled, torch.log(torch.expm1(scaled.clamp(max=40))))

    def at_log_time(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """t and dt/dg at g: the inverse of `log_time`, back on the real clock."""
        # log(1 + e^g) and e^g / (1 + e^g), so written that rounding does not depend on the place of g in a tensor.
        small = torch.exp(-g.abs())
        t = self.real_time((g.clamp(min=0) + torch.log1p(small)) / self.relaxation_rate)
        stretch = torch.where(g > 0, 1.0, small) / (1 + small) / self.relaxation_rate
        return t, stretch if self.schedule is None else self.schedule.on_real_clock(stretch, t)

    def log_time_edges(self, low: float, high: float, levels: int) -> Tensor:
        """Where integrals over `log_time` from low to high are divided; [low, high] for rates that never jump.

        At each of the `breaks`, and above it at distances 1/2, 1/4, ..., 2^-levels: a state that was rare before has
        reverse rates there that are as steep as at time zero, for which `log_time` itself is a logarithm.
        """
        breaks = self.log_time(torch.tensor(self.breaks, dtype=torch.float64)).unsqueeze(-1)
        above = torch.cat([torch.zeros(1), 2.0 ** -torch.arange(1, levels + 1)]).double()
        ends = torch.tensor([low, high], dtype=torch.float64)
        return torch.unique(torch.cat([ends, (breaks + above).flatten().clamp(low, high)]))  # type: ignore[no-any-return]

    def transition_matrices(self, tau: Tensor) -> Tensor:
        """P_tau(o, m) = p_{(m,tau)|(o,0)} for each time on the homogeneous clock, (len(tau), S, S), float64."""
        states = torch.arange(self.finite_states(), device=tau.device)
        return self.probs_at(states.expand(tau.numel(), -1), tau.double().reshape(-1))

    def transitions(self, tau: Tensor) -> Transitions:
        """The same as an operator, for tau of shape (batch,) or (1,)."""
        return DenseTransitions(self.transition_matrices(tau))

    def representatives(self, x0: Tensor) -> tuple[Tensor, Tensor]:
        """States that stand for all of x0, shape (k,), and for each of x0 the index of its own."""
        return torch.unique(x0, return_inverse=True)  # type: ignore[no-any-return]

    def finite_states(self) -> int:
        """The number of states; ValueError for a process on all of N."""
        if self.num_states is None:
            raise ValueError(f"process must have finitely many states for a distribution over them, got {self!r}")
        return self.num_states

    def num_reachable(self, x0: Tensor) -> int:
        """The number of states that the process can visit from any of x0."""
        return self.num_states or 0

    log_overlap_at, slowest_starts = overlap.log_overlap_at, overlap.slowest_starts

    def log_overlap_along(self, x0: Tensor, taus: Tensor) -> Iterator[Tensor]:
        """`log_overlap_at` of data points of one component for each of the increasing taus, one after the other."""
        return (self.log_overlap_at(x0, tau) for tau in taus)

    def unit_rate(self, x: Tensor, t: Tensor) -> Tensor:
        """κ / (X_0 - X_t), where the reverse rate is proportional to that difference: `mean_suffices`."""
        raise ValueError(f"the mean of X_0 does not determine the reverse rates of {self!r}")

    def bridge_probability(self, s: Tensor, t: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """r and 1 - r of the binomial bridge, Eq. (10), shaped to broadcast with x: pure death only."""
        raise ValueError(f"{self!r} has no binomial bridge")

    def step_length(self, s: Tensor, t: Tensor, x: Tensor, rule: str) -> Tensor:
        """The factor from a rate at t to the mean number of events between t and s, shaped to broadcast with x."""
        return validate.expand(t - s, x)

    def length_density(self, tau: Tensor) -> Tensor | None:
        """The Fisher-Rao length per unit of tau in closed form, up to a factor; None: it has to be computed."""
        return None

    def stiffness(self, num_states: int) -> float:
        """How much earlier integrals over g = log(e^{γτ} - 1) must start because some jumps are much faster than γ."""
        states, ends = torch.arange(num_states), torch.tensor([*self.breaks, math.inf], dtype=torch.float64)
        fastest = max(1e-300, *(float(self.forward_rates_at(states, end).sum(-1).max()) for end in ends))
        return max(0.0, math.log(fastest / self.relaxation_rate) - SPAN)

    def checked_clock(self, x: Tensor, **named: Any) -> tuple[Tensor, ...]:
        """Times on the homogeneous clock, after a check; each of shape () or (batch,)."""
        checked = validate.times(x, **named)
        if self.schedule is None:
            return checked
        clock = tuple(self.clock_time(t) for t in checked)
        for name, t, tau in zip(named, checked, clock, strict=True):
            if not bool(torch.isfinite(tau).all()):
                late = float(t.reshape(-1)[~torch.isfinite(tau).reshape(-1)][0])
                raise ValueError(f"{name} is too late for the schedule, whose integral is not finite there, got {late}")
        return clock

    def scale_rates(self, rates: Tensor, x: Tensor, t: Any) -> Tensor:
        """Rates of the homogeneous process, times β(t)."""
        if self.schedule is None:
            return rates.to(validate.result_dtype(t))
        (time,) = validate.times(x, t=t)
        return (rates * validate.expand(self.schedule.rate(time), x).unsqueeze(-1)).to(validate.result_dtype(t))

    def state_dtype(self, x: Tensor) -> torch.dtype:
        return x.dtype if (self.num_states or 0) - 1 <= torch.iinfo(x.dtype).max else torch.int64

    def has_preimage(self, x: Tensor) -> Tensor:
        """Whether x - jumps[r] is a state, shape (..., R)."""
        preimage = x.unsqueeze(-1) - torch.tensor(self.jumps, dtype=torch.int64, device=x.device)
        return (preimage >= 0) & (preimage < (math.inf if self.num_states is None else self.num_states))

    @abstractmethod
    def sample_at(self, x0: Tensor, tau: Tensor, source: Source) -> Tensor: ...

    @abstractmethod
    def log_prob_at(self, xt: Tensor, x0: Tensor, tau: Tensor) -> Tensor: ...

    @abstractmethod
    def probs_at(self, x0: Tensor, tau: Tensor) -> Tensor: ...

    def sample_step_at(self, xs: Tensor, tau_s: Tensor, tau_t: Tensor, source: Source) -> Tensor:
        """A draw of X_t given X_s = xs alone."""
        return self.sample_at(xs, tau_t - tau_s, source)

    def step_probs_at(self, xs: Tensor, tau_s: Tensor, tau_t: Tensor) -> Tensor:
        """The distribution of X_t given X_s = xs alone, for one pair of times, shape (..., S)."""
        return self.probs_at(xs, tau_t - tau_s)

    def probs_along(self, x0: Tensor, taus: Tensor) -> Iterator[Tensor]:
        """`probs_at` of a list of states for each of the increasing taus, one after the other."""
        return (self.probs_at(x0, tau) for tau in taus)

    @abstractmethod
    def forward_rates_at(self, x: Tensor, tau: Tensor) -> Tensor: ...

    @abstractmethod
    def arrival_rates(self, x: Tensor, tau: Tensor) -> Tensor:
        """ν_r(x - jumps[r]): the rate at which channel r arrives in x from its preimage."""

    @abstractmethod
    def reverse_rates_at(self, x0: Tensor, xt: Tensor, tau: Tensor) -> Tensor: ...

    @abstractmethod
    def sample_bridge_at(self, x0: Tensor, xt: Tensor, tau_s: Tensor, tau_t: Tensor, source: Source) -> Tensor: ...

    @abstractmethod
    def bridge_log_prob_at(self, xs: Tensor, x0: Tensor, xt: Tensor, tau_s: Tensor, tau_t: Tensor) -> Tensor: ...

    @abstractmethod
    def _terminal(self, shape: tuple[int, ...], device: torch.device, source: Source) -> Tensor: ...

    @abstractmethod
    def _terminal_log_prob(self, x: Tensor) -> Tensor: ...
