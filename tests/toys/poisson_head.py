"""A head for counts under pure death, written after docs/extending.md alone."""

from typing import Any

import torch
from torch import Tensor

from blackout.network import HEADS, Head
from blackout.network.head import Observation
from blackout.posterior import MeanPosterior
from blackout.process import MarkovProcess


class ExpHead(Head):
    """y = mu (1 - p) exp(F), with p = e^{-t} and mu the mean of the channel.

    F = 0 is the answer for independent Poisson data: E[X_0 - X_t | X_t] = mu (1 - p), whatever X_t is. The network is
    shown X_t, centred and scaled with the mean and variance of the channel at time t.
    """

    answers = "mean"
    mean: Tensor
    variance: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.ones(channels))
        self.register_buffer("variance", torch.ones(channels))

    def check(self, process: MarkovProcess) -> None:
        if not process.mean_suffices or process.max_state is not None:
            raise ValueError(f"the head is for pure death of counts without a bound, got {process}")

    def inputs(self, process: MarkovProcess) -> int:
        return 1

    def outputs(self, process: MarkovProcess) -> int:
        return 1

    def encode(self, observation: Observation) -> Tensor:
        x, p = observation.xt.float(), torch.sigmoid(observation.logit_p).float()
        mean, variance = self._per_channel(self.mean, x), self._per_channel(self.variance, x)
        return (x - p * mean) / torch.sqrt(p**2 * variance + p * (1 - p) * mean + 0.25)  # 0.25: late, where X_t is 0

    def posterior(self, raw: Tensor, observation: Observation) -> MeanPosterior:
        raw = raw[..., 0].float()
        died = torch.sigmoid(-observation.logit_p).float()  # 1 - p, without loss of digits at small t
        y = self._per_channel(self.mean, raw) * died * torch.exp(raw)
        return MeanPosterior(observation.process, observation.xt.long(), observation.t, y)

    def config(self) -> dict[str, Any]:
        return {"channels": len(self.mean)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "ExpHead":
        return cls(**config)

    @classmethod
    def for_data(cls, x: Tensor, process: MarkovProcess, periods: tuple[float, ...] = ()) -> "ExpHead":
        head = cls(x.shape[1])
        values = x.transpose(0, 1).flatten(1).double()
        head.mean.copy_(values.mean(1).clamp(min=1 / values.shape[1]))  # positive where all counts are zero
        head.variance.copy_(values.var(1, correction=0))
        return head

    @staticmethod
    def _per_channel(statistic: Tensor, x: Tensor) -> Tensor:
        """A statistic of each channel, in a shape that broadcasts with x, (batch, channels, ...)."""
        return statistic.reshape(-1, *[1] * (x.dim() - 2))


HEADS.add("poisson-mean", ExpHead, "y = mu (1 - p) exp(F): difference for counts, times that of Poisson data")
