"""Heads for pure death: the network predicts y = E[X_0 - X_t | X_t]."""

from abc import ABC, abstractmethod
from dataclasses import asdict
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from blackout import validate
from blackout.labels import Conditions
from blackout.network.head import Head, Observation
from blackout.network.layers import waves
from blackout.posterior import MeanPosterior
from blackout.process.base import MarkovProcess

_LEAST_MEAN = 1e-4  # of a component that is almost always zero
_LARGEST_CHANGE = 12.0  # of a logarithm by the network: tails are heavy, but e^12 does not overflow


class MeanHead(Head, ABC):
    """The statistics of the data, per channel, and the maps between states and the network.

    Parameters
    ----------
    mean, std
        Mean and standard deviation of the data, shape (channels, 1, 1) or (features,).
    max_count
        The largest count; None: counts have no bound.
    periods
        Each count is also shown as sine and cosine with these periods, so that single units are resolved.
    """

    answers = "mean"
    mean: Tensor
    std: Tensor
    num_outputs = 1

    def __init__(
        self, mean: Tensor, std: Tensor, max_count: int | None = None, periods: tuple[float, ...] = ()
    ) -> None:
        super().__init__()
        self.max_count = None if max_count is None else validate.integer("max_count", max_count, 1)
        self.periods = tuple(float(period) for period in periods)
        # Copies: the same tensor may be passed as both arguments.
        self.register_buffer("mean", torch.as_tensor(mean, dtype=torch.float32).clone())
        self.register_buffer("std", torch.as_tensor(std, dtype=torch.float32).clone())

    @abstractmethod
    def scale(self, xt: Tensor, logit_p: Tensor, label: Tensor | None = None) -> Tensor:
        """The network's main input, of the order of one."""

    @abstractmethod
    def predict(self, raw: Tensor, xt: Tensor, logit_p: Tensor, label: Tensor | None = None) -> Tensor:
        """y, the prediction of X_0 - X_t; raw has shape (..., outputs)."""

    def inputs(self, process: MarkovProcess) -> int:
        return 1 + 2 * len(self.periods)

    def outputs(self, process: MarkovProcess) -> int:
        return self.num_outputs

    def encode(self, observation: Observation) -> Tensor:
        state = observation.xt.float()
        scaled = self.scale(state, observation.logit_p, observation.label)
        return torch.cat([scaled, waves(state, self.periods)], 1) if self.periods else scaled

    def posterior(self, raw: Tensor, observation: Observation) -> MeanPosterior:
        y = self.predict(raw.float(), observation.xt.float(), observation.logit_p, observation.label)
        return MeanPosterior(observation.process, observation.xt, observation.t, y)

    def config(self) -> dict[str, Any]:
        return {"statistics": list(self.mean.shape), "max_count": self.max_count, "periods": list(self.periods)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        empty = torch.zeros(config["statistics"])
        return cls(empty, empty, config["max_count"], config["periods"])

    @classmethod
    def for_data(cls, x: Tensor, process: MarkovProcess, periods: tuple[float, ...] = ()) -> Self:
        return cls(*data_statistics(x), process.max_state, periods)

    def check(self, process: MarkovProcess) -> None:
        if not process.mean_suffices:
            raise ValueError(f"process must be PureDeath for a head that predicts X_0 - X_t, got {process!r}")

    @property
    def pyramid_inputs(self) -> int:
        return 1 if self.periods else 0

    def _standardised(self, xt: Tensor, logit_p: Tensor) -> Tensor:
        """(X_t - pμ) / sqrt(p²σ² + p(1-p)μ): mean zero and variance one at every time."""
        p, q = torch.sigmoid(logit_p), torch.sigmoid(-logit_p)
        variance = p * (p * self.std**2 + q * self.mean)
        return (xt - p * self.mean) * torch.rsqrt(variance.clamp(min=1e-12))


class SoftplusHead(MeanHead):
    """The paper's: y = softplus(F), with input X_t - (M/2) e^{-t} (Section 3, and the authors' code).

    y stays above zero as t → 0, so its evidence bound in continuous time is infinite; that of T steps is finite.
    """

    finite_bound = False

    def scale(self, xt: Tensor, logit_p: Tensor, label: Tensor | None = None) -> Tensor:
        return xt - 0.5 * (self.max_count or float(2 * self.mean.mean())) * torch.sigmoid(logit_p)

    def predict(self, raw: Tensor, xt: Tensor, logit_p: Tensor, label: Tensor | None = None) -> Tensor:
        return F.softplus(raw.squeeze(-1))


class BoundedLogitHead(MeanHead):
    """y = (M - X_t) sigmoid(logit q + log(1 - p) + F), q = μ/M. Not in the paper.

    Each of the M - X_t units that are dark now was lit at time zero with some probability; F = 0 is the answer for
    independent units at every time, and y cannot leave [0, M - X_t].
    """

    def __init__(
        self, mean: Tensor, std: Tensor, max_count: int | None = None, periods: tuple[float, ...] = ()
    ) -> None:
        if max_count is None:
            raise ValueError("max_count is needed for the bounded logit head, got None")
        super().__init__(mean, std, max_count, periods)

    def scale(self, xt: Tensor, logit_p: Tensor, label: Tensor | None = None) -> Tensor:
        return self._standardised(xt, logit_p)

    def predict(self, raw: Tensor, xt: Tensor, logit_p: Tensor, label: Tensor | None = None) -> Tensor:
        assert self.max_count is not None
        q = (self.mean / self.max_count).clamp(1e-6, 1 - 1e-6)
        return (self.max_count - xt) * torch.sigmoid(torch.logit(q) + F.logsigmoid(-logit_p) + raw.squeeze(-1))


class GammaPoissonHead(MeanHead):
    """y = (1 - p)(a + X_t) / (a/μ + p): the posterior mean under X_0 ~ NB(mean μ, shape a). Not in the paper.

    For counts without a bound. The data give each component a mean and a shape; the network's two raw outputs are the
    logarithms by which the other components change them. The component's own count enters by Bayes' rule, so that a
    network narrower than the data need not carry every count through. Labels may change the mean: see
    docs/mathematics.md#effects-of-labels.

    Parameters
    ----------
    effects
        What each entry of `Conditions.design` adds to the logarithm of the mean, shape (entries, features).
    conditions
        The form of the labels; None: they do not change the mean.
    """

    num_outputs = 2
    effects: Tensor

    def __init__(
        self,
        mean: Tensor,
        std: Tensor,
        max_count: int | None = None,
        periods: tuple[float, ...] = (),
        effects: Tensor | None = None,
        conditions: Conditions | None = None,
    ) -> None:
        super().__init__(mean, std, max_count, periods)
        self.conditions = conditions
        if effects is not None:
            self.register_buffer("effects", torch.as_tensor(effects, dtype=torch.float32).clone())

    def config(self) -> dict[str, Any]:
        return super().config() | ({"conditions": asdict(self.conditions)} if self.conditions is not None else {})

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        empty, given = torch.zeros(config["statistics"]), config.get("conditions")
        if given is None:
            return super().from_config(config)
        conditions = Conditions(**given)
        effects = torch.zeros(sum(conditions.columns) + conditions.numbers, *empty.shape)
        return cls(empty, empty, config["max_count"], config["periods"], effects, conditions)

    def scale(self, xt: Tensor, logit_p: Tensor, label: Tensor | None = None) -> Tensor:
        p = torch.sigmoid(logit_p)
        return torch.log1p(xt) - torch.log1p(p * self._mean_given(label))

    def predict(self, raw: Tensor, xt: Tensor, logit_p: Tensor, label: Tensor | None = None) -> Tensor:
        of_all = self.mean.clamp(min=_LEAST_MEAN)
        shape = of_all**2 / (self.std**2 - of_all).clamp(min=1e-2 * of_all)
        change = raw.clamp(-_LARGEST_CHANGE, _LARGEST_CHANGE)
        given = self._mean_given(label).clamp(min=_LEAST_MEAN)
        mean, shape = given * torch.exp(change[..., 0]), shape * torch.exp(change[..., 1])
        p, q = torch.sigmoid(logit_p), torch.sigmoid(-logit_p)
        return q * (shape + xt) / (shape / mean + p)

    def _mean_given(self, label: Tensor | None) -> Tensor:
        """The mean with the effects of the label; what is unknown has none."""
        if label is None or self.conditions is None:
            return self.mean
        return self.mean * torch.exp(self.conditions.design(label) @ self.effects)


def data_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel, shape (channels, 1, 1), or of each feature, shape (features,)."""
    dims = (0, *range(2, x.dim()))
    count = x.numel() / x.shape[1]
    total = x.sum(dims, keepdim=True, dtype=torch.float64)
    square = sum((part.double() ** 2).sum(dims, keepdim=True) for part in x.split(4096))
    mean = total / count
    std = torch.sqrt((square / count - mean**2).clamp(min=1e-12))
    return mean[0].float(), std[0].float()
