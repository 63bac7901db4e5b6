"""Observation and Head: what the network is shown of X_t, and the posterior that its raw output stands for."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from blackout import validate
from blackout.posterior import Posterior
from blackout.process.base import MarkovProcess
from blackout.process.transitions import Transitions

_NEVER = -40.0  # the logit of a survival probability that is zero


class Observation:
    """What a head is given: the states, their times, and quantities of the process at these times.

    Parameters
    ----------
    process
        The forward process.
    xt
        States, integers of shape (batch, ...).
    t
        Times, shape () or (batch,).
    hidden
        Components of which nothing is known, as if their time were infinite: booleans, the shape of xt, which is zero
        there. For pure death.
    label
        What the network is conditioned on: classes, shape (batch,), or rows of `Conditions`; None: nothing.

    Attributes
    ----------
    t, tau
        The times in float64, shape (batch,); `tau` on the clock of the homogeneous process.
    log_time
        log(e^{γτ} - 1), with γ the relaxation rate, shape (batch,): what a network is conditioned on.
    noise
        Standard normal numbers of the shape of xt, for a head that turns them into a draw of X_0; None for the others.
    """

    def __init__(
        self,
        process: MarkovProcess,
        xt: Tensor,
        t: Tensor,
        noise: Tensor | None = None,
        hidden: Tensor | None = None,
        label: Tensor | None = None,
    ) -> None:
        self.process, self.xt, self.noise, self.hidden, self.label = process, xt, noise, hidden, label
        self.t = t.double().expand(len(xt))
        self.tau = process.clock_time(self.t)
        self.log_time = process.log_time(self.tau.clamp(min=1e-13))
        self._transitions: Transitions | None = None

    @property
    def logit_p(self) -> Tensor:
        """The logit of the survival probability e^{-γτ}, float32, shaped to broadcast with xt.

        p and 1 - p both follow from it without cancellation.
        """
        logit_p = validate.expand(-self.log_time.float(), self.xt)
        return logit_p if self.hidden is None else torch.where(self.hidden, _NEVER, logit_p)

    @property
    def transitions(self) -> Transitions:
        """P_t of each time, or of one where all times are equal."""
        if self._transitions is None:
            # In training times differ, and comparing them would wait for the device.
            same = len(self.tau) > 0 and not torch.is_grad_enabled() and bool((self.tau == self.tau[0]).all())
            self._transitions = self.process.transitions(self.tau[:1] if same else self.tau)
        return self._transitions


class Head(nn.Module, ABC):
    """A parametrisation: two maps, observation -> network input and raw output -> posterior.

    A head holds statistics of the data as buffers, which are saved with the weights. A new one is a subclass and a line
    in `HEADS`: see docs/extending.md.
    """

    answers: ClassVar[str]
    """What its posteriors know: "mean", "categorical" (a distribution over all states), "rates" or "draws"."""
    finite_bound: ClassVar[bool] = True
    """Whether the evidence bound in continuous time is finite: see docs/mathematics.md#where-the-bound-is-infinite."""
    network: ClassVar[str] = ""
    """The name in `NETWORKS` of the network that it is made for; empty: by the shape of the data."""
    labels: int = 0
    """How many labels the network's inputs are digits of; 0: they are numbers."""

    @property
    def has_bound(self) -> bool:
        """Whether it gives probabilities, and so a bound: draws have none."""
        return self.answers != "draws"

    @abstractmethod
    def inputs(self, process: MarkovProcess) -> int:
        """How many numbers the network is shown of each component."""

    @abstractmethod
    def outputs(self, process: MarkovProcess) -> int:
        """How many raw outputs the network has for each component."""

    @abstractmethod
    def encode(self, observation: Observation) -> Tensor:
        """The network's input, shape (batch, inputs * channels, ...), the first `channels` the most important."""

    @abstractmethod
    def posterior(self, raw: Tensor, observation: Observation) -> Posterior:
        """The posterior for raw outputs of shape (batch, channels, ..., outputs)."""

    def denoise(self, evaluate: Callable[[Observation], Tensor], observation: Observation) -> Posterior:
        """The posterior at an observation; `evaluate` calls the network."""
        return self.posterior(evaluate(observation), observation)

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The constructor's arguments as plain JSON, tensors by their shapes: their values are saved as weights."""

    @classmethod
    @abstractmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The head that `config` described, its statistics still to be loaded."""

    @classmethod
    @abstractmethod
    def for_data(cls, x: Tensor, process: MarkovProcess, periods: tuple[float, ...] = ()) -> Self:
        """The head for data x, (n, ...), under a process. `periods` are those of the network's preset."""

    def check(self, process: MarkovProcess) -> None:
        """Raise ValueError for a process that the head cannot be used with."""

    @property
    def pyramid_inputs(self) -> int:
        """How many inputs of each component enter a U-Net again at lower resolutions; 0: all."""
        return 0
