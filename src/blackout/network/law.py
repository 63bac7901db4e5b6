"""LawPredictor: from a state and a time to a law over X_0 for each component, or to reverse rates; for any process.

Both are corrections to what independent components would give, so that a new network already knows the data's marginal
law: not in the paper.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from blackout import validate
from blackout.law import law_rates, posterior_law, transitions
from blackout.network.layers import waves
from blackout.process import Absorbing, MarkovProcess, PureDeath

_SPAN = 15.0  # |log time| that positions 0 to 1000 cover
_SHOWN_WHOLE = 16  # up to so many states are shown one by one
_WIDTHS = (-6.0, 9.0)  # of log k: from no window to one of less than a grey level
_FURTHEST = 8.0  # standard deviations that a component is shown away from its mean
_LEAST = 1e-6  # probability of a state that is possible but was never seen
_DOUBT = 1e-5  # share of the prior in every law


class StateHead(nn.Module, ABC):
    """What the raw output means, for finitely many states. `prior`, (channels, S), is the data's marginal law."""

    prior: Tensor

    def __init__(self, prior: Tensor) -> None:
        super().__init__()
        prior = torch.as_tensor(prior, dtype=torch.float32)
        if prior.dim() != 2 or not bool((prior >= 0).all() & (prior.sum(-1) > 0).all() & torch.isfinite(prior).all()):
            raise ValueError(f"prior must be a law for each channel, (channels, states), got {tuple(prior.shape)}")
        self.register_buffer("prior", prior / prior.sum(-1, keepdim=True))

    @property
    def num_states(self) -> int:
        return self.prior.shape[1]

    @abstractmethod
    def outputs(self, process: MarkovProcess) -> int:
        """How many numbers the network gives for each component."""

    def inputs(self, process: MarkovProcess) -> int:
        """How many numbers the network is shown of each component."""
        return shown_channels(process)

    def show(self, process: MarkovProcess, xt: Tensor, matrices: Callable[[], Tensor]) -> Tensor:
        """What the network is shown of a state, (batch, inputs * channels, ...); `matrices` gives P_t, if asked."""
        return show(process, xt)


class LawHead(StateHead, ABC):
    """A law over X_0 for each component."""

    @abstractmethod
    def tilt(self, raw: Tensor) -> Tensor:
        """log u - log prior, shape (..., S)."""

    def log_law(self, raw: Tensor) -> Tensor:
        """log u, unnormalised, shape (batch, channels, ..., S); `raw` is (batch, channels, ..., outputs)."""
        return by_component(torch.log(self.prior.clamp(min=1e-30)), raw[..., 0]) + self.tilt(raw.float())

    def law(self, raw: Tensor) -> Tensor:
        """u, which sums to one. No network is surer than this: if it were wrong, it would cost infinitely many bits.

        The share of the prior costs 1.4e-5 bits a component at the most, and a surprise log2(1e5 / prior) of them.
        """
        return torch.lerp(torch.softmax(self.log_law(raw), -1), by_component(self.prior, raw[..., 0]), _DOUBT)


class CategoricalHead(LawHead):
    """u(o) = prior(o) e^{F_o}: one raw output for each state."""

    def outputs(self, process: MarkovProcess) -> int:
        return self.num_states

    def tilt(self, raw: Tensor) -> Tensor:
        return raw


class LevelHead(CategoricalHead):
    """u(o) = prior(o) e^{F_o} e^{2s² - 2k(s - c)²}, s the state scaled to [-1, 1]. For many states that are levels.

    Beside one raw output for each state there are two for a Gaussian window, its centre c and log k: two numbers move a
    law along the levels then, not all of them. A new network has k = 1 and c = 0, so u = prior. The network is also
    shown what a component says of itself, E[X_0 | X_t of this component], with mean zero and variance one at every
    time: as it comes, the signal would fade into a small part of the range of levels.
    """

    def outputs(self, process: MarkovProcess) -> int:
        return self.num_states + 2

    def tilt(self, raw: Tensor) -> Tensor:
        centre, width, rest = raw.split([1, 1, self.num_states], -1)
        level = torch.linspace(-1, 1, self.num_states, device=raw.device)
        return rest + 2 * level**2 - 2 * torch.exp(width.clamp(*_WIDTHS)) * (level - centre) ** 2

    def inputs(self, process: MarkovProcess) -> int:
        return super().inputs(process) + 1

    def show(self, process: MarkovProcess, xt: Tensor, matrices: Callable[[], Tensor]) -> Tensor:
        return torch.cat([self._own(xt, matrices()), super().show(process, xt, matrices)], 1)

    def _own(self, xt: Tensor, matrices: Tensor) -> Tensor:
        prior = self.prior.double()
        weighted = prior * torch.arange(self.num_states, device=xt.device)
        reached = prior @ matrices  # (times, channels, S)
        centred = weighted @ matrices / reached.clamp(min=1e-300) - weighted.sum(-1, keepdim=True)
        spread = (reached * centred**2).sum(-1, keepdim=True).sqrt()
        table = (centred / spread.clamp(min=1e-9)).clamp(-_FURTHEST, _FURTHEST).expand(len(xt), -1, -1)
        return table.gather(-1, xt.long().reshape(*xt.shape[:2], -1)).reshape(xt.shape).float()


class MixtureHead(LawHead):
    """u(o) = prior(o) M(o) / M°(o), M a mixture of discretised logistic laws: three raw outputs a member.

    M° is the mixture of a new network, whose outputs are zero: it begins with u = prior. For many states.
    """

    def __init__(self, prior: Tensor, members: int = 5) -> None:
        super().__init__(prior)
        self.members = validate.integer("members", members, 1)

    def outputs(self, process: MarkovProcess) -> int:
        return 3 * self.members

    def tilt(self, raw: Tensor) -> Tensor:
        return self._log_mixture(raw) - self._log_mixture(raw.new_zeros(raw.shape[-1]))

    def _log_mixture(self, raw: Tensor) -> Tensor:
        weight, place, width = raw.unflatten(-1, (3, self.members)).unbind(-2)
        size = self.num_states
        centre = (torch.arange(self.members, device=raw.device) + 0.5) / self.members + 0.25 * place  # of [0, 1]
        scale = torch.exp(-width.clamp(-3, 12)) / 2
        edges = (torch.arange(size + 1, device=raw.device, dtype=raw.dtype) / size)[1:-1]
        total = torch.full((*raw.shape[:-1], size), -torch.inf, dtype=raw.dtype, device=raw.device)
        log_weight = F.log_softmax(weight, -1)
        for k in range(self.members):
            member = total, log_weight[..., k, None], centre[..., k, None], scale[..., k, None], edges
            if raw.requires_grad:  # computed again for the gradient: memory for one law a member, not for ten
                total = checkpoint(_with_member, *member, use_reentrant=False)
            else:
                total = _with_member(*member)
        return total


class RatesHead(StateHead):
    """κ_r = κ°_r e^{F_r}: one raw output for each channel, Algorithm 3; κ° are the rates of independent components.

    For processes with few jumps. There is no law over X_0 in it, so samplers that draw X_0 cannot use it.
    """

    def outputs(self, process: MarkovProcess) -> int:
        return len(process.jumps)

    def independent_rates(self, process: MarkovProcess, xt: Tensor, matrices: Tensor, t: Tensor) -> Tensor:
        """κ°, shape (..., R), float64; for pure death the mean difference, with a last dimension of one."""
        law = by_component(self.prior.double(), xt).expand(*xt.shape, self.num_states)
        rates = law_rates(process, law, xt, matrices, t)
        return rates.unsqueeze(-1) if rates.dim() == xt.dim() else rates


def _with_member(total: Tensor, log_weight: Tensor, centre: Tensor, scale: Tensor, edges: Tensor) -> Tensor:
    """The logarithm of a mixture with one member more."""
    return torch.logaddexp(total, log_weight + _log_steps((edges - centre) / scale))


def by_component(prior: Tensor, x: Tensor) -> Tensor:
    """A law for each channel, (channels, S), so that it broadcasts with (..., S) of states x."""
    return prior.reshape(1, len(prior), *(1,) * (x.dim() - 2), prior.shape[1])


def _log_steps(below: Tensor) -> Tensor:
    """log of the increments of a logistic distribution function between neighbouring edges, the ends open."""
    first, last = F.logsigmoid(below[..., :1]), F.logsigmoid(-below[..., -1:])
    upper, lower = below[..., 1:], below[..., :-1]
    # σ(b) - σ(a) = σ(b) σ(-a) (1 - e^{a - b})
    middle = F.logsigmoid(upper) + F.logsigmoid(-lower) + torch.log(-torch.expm1((lower - upper).clamp(max=-1e-6)))
    return torch.cat([first, middle, last], -1)


class LawPredictor(nn.Module):
    """(xt, t) -> the raw outputs of each component, shape (..., outputs); `law` and `rates` follow by the head."""

    grid: Tensor

    def __init__(self, network: nn.Module, head: StateHead, process: MarkovProcess) -> None:
        super().__init__()
        if process.num_states is None:
            raise ValueError(f"process must have finitely many states for a law over them, got {process!r}")
        if head.num_states != process.num_states:
            raise ValueError(
                f"head must be for {process.num_states} states, those of the process, got {head.num_states}"
            )
        self.network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.head, self.process = head, process
        self.register_buffer("grid", torch.zeros(0), persistent=False)
        self.dtype = torch.float32
        """What the network computes in; weights and heads stay in float32."""

    def forward(self, xt: Tensor, t: Tensor, label: Tensor | None = None, matrices: Tensor | None = None) -> Tensor:
        """`matrices` are those of t, from a caller that has them."""
        tau = self.process.clock_time(t.double().expand(len(xt)))
        position = (500 / _SPAN) * (_SPAN + self.process.log_time(tau.clamp(min=1e-13)))
        solve = functools.partial(_at_times, self.process, tau)
        shown = self.head.show(self.process, xt, solve if matrices is None else lambda: matrices).to(self.dtype)
        if shown.dim() == 4:
            shown = shown.contiguous(memory_format=torch.channels_last)
        raw: Tensor = self.network(shown, position.float(), label)
        return raw.unflatten(1, (xt.shape[1], -1)).movedim(2, -1)

    def law(self, xt: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
        """p(o | x_t) for each component, shape (..., S)."""
        if not isinstance(self.head, LawHead):
            raise ValueError("head must give a law over X_0 here, got RatesHead, which gives rates")
        matrices = self._matrices(xt, t)
        return posterior_law(self.head.law(self(xt, t, label, matrices)), xt.long(), matrices)

    def rates(self, xt: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
        """What the process asks of a denoiser: reverse rates (..., R), or y for pure death."""
        xt, matrices = xt.long(), self._matrices(xt, t)
        raw = self(xt, t, label, matrices)
        if isinstance(self.head, LawHead):
            return law_rates(self.process, self.head.law(raw), xt, matrices, t)
        assert isinstance(self.head, RatesHead)
        rates = self.head.independent_rates(self.process, xt, matrices, t) * torch.exp(raw.float()).double()
        return rates.squeeze(-1) if isinstance(self.process, PureDeath) else rates

    def _matrices(self, xt: Tensor, t: Tensor) -> Tensor:
        return _at_times(self.process, self.process.clock_time(t.double().expand(len(xt))))


def _at_times(process: MarkovProcess, tau: Tensor) -> Tensor:
    """The matrices of all times, shape (batch, S, S), or (1, S, S) where the times are one.

    In training they are not, and to compare them would wait for the device.
    """
    same = len(tau) > 0 and not torch.is_grad_enabled() and bool((tau == tau[0]).all())
    return transitions(process, tau[:1] if same else tau)


def shown_channels(process: MarkovProcess) -> int:
    """How many numbers the network is shown of each component."""
    assert process.num_states is not None
    if process.num_states <= _SHOWN_WHOLE:
        return process.num_states
    return 1 + 2 * len(_PERIODS) + (process.terminal_state is not None)


_PERIODS = (4.0, 16.0, 64.0)


def show(process: MarkovProcess, xt: Tensor) -> Tensor:
    """A state as the network sees it: few states one by one; many as a level, waves, and whether it is the last one."""
    assert process.num_states is not None
    if process.num_states <= _SHOWN_WHOLE:
        seen = F.one_hot(xt.long(), process.num_states).float()
        return seen.flatten(1) if xt.dim() == 2 else seen.movedim(-1, 2).flatten(1, 2)
    counts = xt.float()
    parts = [counts * (2 / (process.num_states - 1)) - 1, waves(counts, _PERIODS)]
    if process.terminal_state is not None:
        parts.append((xt == process.terminal_state).float())
    return torch.cat(parts, 1)


def marginal_law(x: Tensor, process: MarkovProcess) -> Tensor:
    """How often each state occurs in each channel of images, or at each place of vectors, shape (channels, S).

    States that were never seen get a little; a mask, which is a state of the process but not of data, gets nothing. A
    place of vectors is seen in few data points, so to what it shows, one observation of each state of all places is
    added.
    """
    assert process.num_states is not None
    counts = torch.stack(
        [torch.bincount(row.long(), minlength=process.num_states) for row in x.transpose(0, 1).flatten(1)]
    ).double()
    if x.dim() == 2:
        counts += process.num_states * counts.sum(0) / counts.sum()
    law = counts / counts.sum(-1, keepdim=True) + _LEAST
    if isinstance(process, Absorbing):
        law[:, process.mask_state] = 0.0
    return (law / law.sum(-1, keepdim=True)).float()


def law_head(process: MarkovProcess) -> str:
    """The name of the head that gives laws over the states of a process, by what is known of them."""
    many = process.num_states is not None and process.num_states > _SHOWN_WHOLE
    return "levels" if process.ordered and many else "categorical"


LAW_HEADS: dict[str, type[StateHead]] = {
    "categorical": CategoricalHead,
    "levels": LevelHead,
    "mixture": MixtureHead,
    "rates": RatesHead,
}
