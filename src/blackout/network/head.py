"""Head: what the network is shown of X_t, and the posterior that its raw output stands for."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

from torch import Tensor, nn

from blackout.observation import Observation
from blackout.posterior import Posterior
from blackout.process.base import MarkovProcess


class Head(nn.Module, ABC):
    """A parametrisation: two maps, observation -> network input and raw output -> posterior.

    A head holds statistics of the data as buffers, which are saved with the weights. A new one is a subclass and a line
    in `HEADS`: see docs/extending.md.
    """

    answers: ClassVar[str]
    """What its posteriors know: "mean", "categorical" (a distribution over all states) or "rates"."""

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
