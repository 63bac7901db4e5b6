"""The end of the forward process at a finite time: what remains of the data there, and what that does to samples."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from blackout import validate
from blackout.process.base import MarkovProcess
from blackout.process.data import check_data
from blackout.random import Source, categorical

_SMALL = 0.01  # change of a probability that is not worth stating


@dataclass(frozen=True, kw_only=True)
class Tilt:
    """What starting from the terminal distribution at `t_end`, and not from that of X_T, does to samples.

    Examples
    --------
    >>> import blackout as bo
    >>> print(bo.remaining_tilt(bo.PureDeath(), torch.tensor([[370_000], [100_000]]), 15.0))
    6.9% of data points not in the terminal state; probabilities in samples x 0.96 to 1.04
    """

    t_end: float
    """The last time, at which sampling starts."""
    remaining: float
    """Mean over data points of the total-variation distance of X_T from the terminal distribution, or an upper bound.

    Where the process ends in one state: the expected share of data points that are not in it.
    """
    factors: tuple[float, float] | None
    """Smallest and largest factor by which the probability of a data point differs in samples of a perfect denoiser.

    None for a process that does not end in one state.
    """
    nats: float | None
    """The divergence of such samples from the data, the mean prior term of the bound; None as above."""

    def config(self) -> dict[str, Any]:
        """The values as plain JSON."""
        return asdict(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Tilt":
        """The object that `config` described."""
        factors = config["factors"]
        return cls(**{**config, "factors": None if factors is None else tuple(factors)})

    def __str__(self) -> str:
        if self.factors is None:
            return f"within {_share(self.remaining)} of the terminal distribution, in total variation"
        text = f"{_share(self.remaining)} of data points not in the terminal state"
        if max(1 - self.factors[0], self.factors[1] - 1) < _SMALL:
            return text
        return f"{text}; probabilities in samples x {self.factors[0]:.2g} to {self.factors[1]:.3g}"


def remaining_tilt(process: MarkovProcess, x0: Any, t: float) -> Tilt:
    """How far data points x0, integers of shape (n, ...), are from the terminal distribution at time t.

    Samples of a perfect denoiser that start in the terminal state have the probability of x0 times
    P(X_T = terminal state | x0), normalised; for pure death that factor is about exp(-S e^{-t}) with S the total count.
    Not in the paper: docs/mathematics.md#the-last-time.

    Examples
    --------
    >>> import blackout as bo
    >>> tilt = bo.remaining_tilt(bo.PureDeath(), torch.tensor([[1_000_000], [10_000_000]]), 15.0)
    >>> [round(factor, 3) for factor in tilt.factors]  # of the larger and of the smaller total
    [0.12, 1.88]
    """
    x0 = check_data(x0, process, name="x0")
    (tau,) = process.checked_clock(x0, t=validate.real("t", t, 0.0, strict=True))
    logs = process.log_overlap_at(x0, tau).double()
    remaining = float(-torch.expm1(logs).mean())
    if process.terminal_state is None:
        return Tilt(t_end=float(t), remaining=remaining, factors=None, nats=None)
    total = float(torch.logsumexp(logs, 0)) - math.log(len(logs))  # log Z, the mean probability to have ended
    low, high = (math.exp(float(v) - total) for v in torch.aminmax(logs))
    nats = max(0.0, total - float(logs.mean()))
    return Tilt(t_end=float(t), remaining=remaining, factors=(low, high), nats=nats)


def leaves_states(process: MarkovProcess) -> bool:
    """Whether the terminal distribution misses some states, so that only an infinite time surely leads to it."""
    return process.terminal_state is not None or not bool(_terminal_states(process).all())


def log_end_prob(process: MarkovProcess, x: Tensor, tau: Tensor, since: Tensor | None = None) -> Tensor:
    """log P(X_tau is a state of the terminal distribution | X_since = x), elementwise; `since` is zero by default."""
    start = torch.zeros_like(tau) if since is None else torch.minimum(since, tau)
    if process.terminal_state is not None and not process.breaks:
        return process.log_prob_at(_ends(process, x), x, tau - start)
    if not leaves_states(process):
        return torch.zeros_like(x, dtype=torch.float64)
    starts, member = torch.unique(x, return_inverse=True)
    probs = process.step_probs_at(starts, start, tau) * _terminal_states(process).to(x.device)
    return torch.log(probs.sum(-1).clamp(max=1.0))[member]


def ending_points(process: MarkovProcess, x0: Tensor, tau: Tensor | None) -> tuple[Tensor, Tensor]:
    """x0, (n, ...), with a terminal state for data points that cannot have ended by tau; and which can, shape (n,)."""
    possible = torch.ones(len(x0), dtype=torch.bool, device=x0.device)
    if tau is not None:
        possible = torch.isfinite(log_end_prob(process, x0, tau)).reshape(len(x0), -1).all(-1)
    if bool(possible.all()):
        return x0, possible
    end = process.terminal_state
    end = int(_terminal_states(process).long().argmax()) if end is None else end
    return torch.where(validate.expand(possible, x0), x0, end), possible


def sample_end(process: MarkovProcess, x0: Tensor, tau: Tensor, source: Source) -> Tensor:
    """A draw of X_tau given x0, and given that it is a state of the terminal distribution."""
    if process.terminal_state is not None:
        return _ends(process, x0)
    if not leaves_states(process):
        return process.sample_at(x0, tau, source)
    return categorical(process.probs_at(x0, tau) * _terminal_states(process).to(x0.device), source)


def _ends(process: MarkovProcess, x: Tensor) -> Tensor:
    """The one terminal state in the shape of x; padding stays."""
    assert process.terminal_state is not None
    end = torch.full_like(x, process.terminal_state)
    return end if process.pad_state is None else torch.where(x == process.pad_state, x, end)


def _terminal_states(process: MarkovProcess) -> Tensor:
    """Which states the terminal distribution has, shape (S,)."""
    return torch.isfinite(process.terminal_log_prob(torch.arange(process.finite_states())))


def _share(value: float) -> str:
    return f"{100 * value:.2g}%"
