"""Heads for any process with finitely many states: a distribution over X_0, or reverse rates. Not in the paper.

All are corrections to the answer for independent components, so that a new network starts from the data's marginal
distribution.
"""

from abc import ABC, abstractmethod
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from blackout import validate
from blackout.network.head import Head, Observation
from blackout.network.layers import waves
from blackout.posterior import CategoricalPosterior, RatePosterior
from blackout.process.base import MarkovProcess
from blackout.process.transitions import Transitions

_ONE_HOT_STATES = 16  # up to so many states are shown one by one
_PERIODS = (4.0, 16.0, 64.0)
_WIDTHS = (-6.0, 9.0)  # of log k: from no window to one of less than a grey level
_LARGEST_INPUT = 8.0  # standard deviations that a component is shown away from its mean
_LEAST = 1e-6  # probability of a state that is possible but does not occur in the data
_PRIOR_SHARE = 1e-5  # of the prior in every distribution
_MOST_STATES = 2048


class StateHead(Head, ABC):
    """A head over finitely many states.

    Parameters
    ----------
    prior
        The data's marginal distribution, shape (channels, S).
    """

    prior: Tensor

    def __init__(self, prior: Tensor) -> None:
        super().__init__()
        prior = torch.as_tensor(prior, dtype=torch.float32)
        if prior.dim() != 2 or not bool((prior >= 0).all() & (prior.sum(-1) > 0).all() & torch.isfinite(prior).all()):
            raise ValueError(f"prior must be a distribution for each channel, (channels, S), got {tuple(prior.shape)}")
        self.register_buffer("prior", prior / prior.sum(-1, keepdim=True))

    @property
    def num_states(self) -> int:
        return self.prior.shape[1]

    def inputs(self, process: MarkovProcess) -> int:
        if self.num_states <= _ONE_HOT_STATES:
            return self.num_states
        return 1 + 2 * len(_PERIODS) + (process.terminal_state is not None)

    def encode(self, observation: Observation) -> Tensor:
        """Few states one-hot; many as a level, its waves, and whether it is the terminal state."""
        xt = observation.xt
        if self.num_states <= _ONE_HOT_STATES:
            seen = F.one_hot(xt.long(), self.num_states).float()
            return seen.flatten(1) if xt.dim() == 2 else seen.movedim(-1, 2).flatten(1, 2)
        counts, terminal = xt.float(), observation.process.terminal_state
        parts = [counts * (2 / (self.num_states - 1)) - 1, waves(counts, _PERIODS)]
        if terminal is not None:
            parts.append((xt == terminal).float())
        return torch.cat(parts, 1)

    def config(self) -> dict[str, Any]:
        return {"prior": list(self.prior.shape)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        values = dict(config)
        return cls(torch.ones(values.pop("prior")), **values)

    @classmethod
    def for_data(cls, x: Tensor, process: MarkovProcess, periods: tuple[float, ...] = ()) -> Self:
        states = process.finite_states()
        if states > _MOST_STATES and not process.matrix_free:
            raise ValueError(f"process must have at most {_MOST_STATES} states for a network over them, got {states}")
        return cls(cls.data_prior(x, process))

    @staticmethod
    def data_prior(x: Tensor, process: MarkovProcess) -> Tensor:
        """The prior for data x, (n, ...)."""
        return marginal_probs(x, process)

    def check(self, process: MarkovProcess) -> None:
        if self.num_states != process.finite_states():
            raise ValueError(
                f"head must be for {process.num_states} states, those of the process, got {self.num_states}"
            )


class DistributionHead(StateHead, ABC):
    """A distribution over X_0 for each component."""

    answers = "categorical"

    @abstractmethod
    def logits(self, raw: Tensor) -> Tensor:
        """log u - log prior, shape (..., S)."""

    def weights(self, raw: Tensor) -> Tensor:
        """u, which sums to one, shape (..., S).

        A share of the prior keeps every bound finite. It costs 1.4e-5 bits a component at the most, and an unexpected
        state log2(1e5 / prior) of them.
        """
        prior = by_component(self.prior, raw[..., 0])
        logits = torch.log(prior.clamp(min=1e-30)) + self.logits(raw.float())
        return torch.lerp(torch.softmax(logits, -1), prior, _PRIOR_SHARE)

    def posterior(self, raw: Tensor, observation: Observation) -> CategoricalPosterior:
        xt = observation.xt.long()
        return CategoricalPosterior(
            observation.process, xt, observation.t, self.weights(raw), transitions=observation.transitions
        )


class CategoricalHead(DistributionHead):
    """u(o) = prior(o) e^{F_o}: one raw output for each state."""

    def outputs(self, process: MarkovProcess) -> int:
        return self.num_states

    def logits(self, raw: Tensor) -> Tensor:
        return raw


class LevelHead(DistributionHead):
    """u(o) = prior(o) e^{F_o} e^{2s² - 2k(s - c)²}, s the state scaled to [-1, 1]. For many states that are levels.

    Beside one raw output for each state there are two for a Gaussian window, its centre c and log k, so that two
    numbers move a distribution along the levels. A new network has k = 1 and c = 0, so u = prior. The network is also
    shown E[X_0 | X_t of this component], with mean zero and variance one at every time; otherwise the signal would fade
    into a small part of the range of levels.
    """

    def outputs(self, process: MarkovProcess) -> int:
        return self.num_states + 2

    def logits(self, raw: Tensor) -> Tensor:
        centre, width, rest = raw.split([1, 1, self.num_states], -1)
        level = torch.linspace(-1, 1, self.num_states, device=raw.device)
        return rest + 2 * level**2 - 2 * torch.exp(width.clamp(*_WIDTHS)) * (level - centre) ** 2

    def inputs(self, process: MarkovProcess) -> int:
        return super().inputs(process) + 1

    def encode(self, observation: Observation) -> Tensor:
        own = self._own_mean(observation.xt, observation.transitions)
        return torch.cat([own, super().encode(observation)], 1)

    def _own_mean(self, xt: Tensor, transitions: Transitions) -> Tensor:
        prior = self.prior.double()
        weighted = prior * torch.arange(self.num_states, device=xt.device)
        reached, mean = (transitions.push(v.expand(transitions.num_times, -1, -1)) for v in (prior, weighted))
        centred = mean / reached.clamp(min=1e-300) - weighted.sum(-1, keepdim=True)
        spread = (reached * centred**2).sum(-1, keepdim=True).sqrt()
        table = (centred / spread.clamp(min=1e-9)).clamp(-_LARGEST_INPUT, _LARGEST_INPUT).expand(len(xt), -1, -1)
        return table.gather(-1, xt.long().reshape(*xt.shape[:2], -1)).reshape(xt.shape).float()


class MixtureHead(DistributionHead):
    """u(o) = prior(o) M(o) / M°(o), M a mixture of discretised logistic distributions: three raw outputs a member.

    M° is the mixture of a new network, whose outputs are zero, so it begins with u = prior. For many states.
    """

    def __init__(self, prior: Tensor, members: int = 5) -> None:
        super().__init__(prior)
        self.members = validate.integer("members", members, 1)

    def config(self) -> dict[str, Any]:
        return {**super().config(), "members": self.members}

    def outputs(self, process: MarkovProcess) -> int:
        return 3 * self.members

    def logits(self, raw: Tensor) -> Tensor:
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
            if raw.requires_grad:  # recomputed for the gradient: memory for one distribution a member instead of ten
                total = checkpoint(_with_member, *member, use_reentrant=False)
            else:
                total = _with_member(*member)
        return total


class RatesHead(StateHead):
    """κ_r = κ°_r e^{F_r}: one raw output for each channel, Algorithm 3; κ° are the rates of independent components.

    For processes with few jumps. It gives no distribution over X_0, so samplers that draw X_0 cannot use it.
    """

    answers = "rates"

    def outputs(self, process: MarkovProcess) -> int:
        return len(process.jumps)

    def posterior(self, raw: Tensor, observation: Observation) -> RatePosterior:
        xt = observation.xt.long()
        prior = by_component(self.prior.double(), xt).expand(*xt.shape, self.num_states)
        process, t = observation.process, observation.t
        independent = CategoricalPosterior(process, xt, t, prior, transitions=observation.transitions).rates()
        return RatePosterior(process, xt, t, independent * torch.exp(raw.float()).double())

    def check(self, process: MarkovProcess) -> None:
        super().check(process)
        if process.discrete_time:
            raise ValueError(f"head 'rates' needs a process in continuous time, got {process!r}; use 'categorical'")


def by_component(prior: Tensor, x: Tensor) -> Tensor:
    """A distribution for each channel, (channels, S), shaped to broadcast with (..., S) of states x."""
    return prior.reshape(1, len(prior), *(1,) * (x.dim() - 2), prior.shape[1])


def marginal_probs(x: Tensor, process: MarkovProcess) -> Tensor:
    """How often each state occurs in each channel of images, or at each place of vectors, shape (channels, S).

    States that do not occur get a little; mask and padding get nothing. A place of vectors occurs in few data points,
    so one observation of each state of all places is added.
    """
    size = process.finite_states()
    counts = torch.stack([torch.bincount(row.long(), minlength=size) for row in x.transpose(0, 1).flatten(1)]).double()
    if x.dim() == 2:
        counts += size * counts.sum(0) / counts.sum()
    probs = counts / counts.sum(-1, keepdim=True) + _LEAST
    for state in (process.mask_state, process.pad_state):
        if state is not None:
            probs[:, state] = 0.0
    return (probs / probs.sum(-1, keepdim=True)).float()


def _with_member(total: Tensor, log_weight: Tensor, centre: Tensor, scale: Tensor, edges: Tensor) -> Tensor:
    """The logarithm of a mixture with one member more."""
    return torch.logaddexp(total, log_weight + _log_steps((edges - centre) / scale))


def _log_steps(below: Tensor) -> Tensor:
    """log of the increments of a logistic distribution function between neighbouring edges, the ends open."""
    first, last = F.logsigmoid(below[..., :1]), F.logsigmoid(-below[..., -1:])
    upper, lower = below[..., 1:], below[..., :-1]
    # σ(b) - σ(a) = σ(b) σ(-a) (1 - e^{a - b})
    middle = F.logsigmoid(upper) + F.logsigmoid(-lower) + torch.log(-torch.expm1((lower - upper).clamp(max=-1e-6)))
    return torch.cat([first, middle, last], -1)
