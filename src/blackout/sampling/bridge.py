"""The binomial bridge."""

import torch
from torch import Tensor

from blackout import validate
from blackout.process.base import MarkovProcess
from blackout.process.binomial import binomial_log_pmf
from blackout.random import Streams, binomial, round_stochastic
from blackout.sampling.base import Sampler
from blackout.sampling.step import Step


class BinomialBridge(Sampler):
    """X_s = X_t + Binomial(y, r): Algorithm 2, binomial branch, with Eq. (10).

    y is a mean and seldom an integer. `stochastic` rounding, floor(y) + Bernoulli(y - floor(y)), keeps it; `nearest` is
    the authors' rounding, which loses every y below one half. Pure death only.

    Examples
    --------
    >>> import blackout as bo
    >>> process, times = bo.PureDeath(9), bo.ObservationTimes.fisher(500)
    >>> denoise = bo.ExactPosterior(process, torch.tensor([[2], [8]]))
    >>> samples = bo.BinomialBridge().sample(denoise, process, times, (100, 1), seed=0)
    >>> samples.unique()
    tensor([2, 8])
    """

    def __init__(self, rounding: str = "stochastic", corrector_steps: int = 0, corrector_size: float = 0.1) -> None:
        super().__init__(corrector_steps, corrector_size)
        self.rounding = validate.choice("rounding", rounding, ("stochastic", "nearest"))

    def check(self, process: MarkovProcess) -> None:
        if not process.mean_suffices:
            raise ValueError(
                f"process must be PureDeath for the binomial bridge, got {process!r}; PosteriorBridge, TauLeaping and "
                "Exact reverse any process"
            )

    def step(self, at: Step, xt: Tensor, rng: Streams) -> Tensor:
        return self._births(at, xt, at.posterior(xt).difference(), rng)

    def step_log_prob(self, at: Step, xs: Tensor, xt: Tensor) -> Tensor:
        return self._births_log_prob(at, xs, xt, at.posterior(xt).difference())

    def _births(self, at: Step, xt: Tensor, y: Tensor, rng: Streams) -> Tensor:
        """X_s for a mean y of X_0 - X_t."""
        process, count = at.process, torch.round(y).long() if self.rounding == "nearest" else round_stochastic(y, rng)
        r, rest = process.bridge_probability(at.s, at.t, xt)
        # y is checked and r is a probability: checking again would only wait for the device.
        return xt + binomial(count, r, rng, complement=rest, max_count=process.max_state or 2**53)

    def _births_log_prob(self, at: Step, xs: Tensor, xt: Tensor, y: Tensor) -> Tensor:
        births, (r, rest) = xs - xt, at.process.bridge_probability(at.s, at.t, xt)
        if self.rounding == "nearest":
            return binomial_log_pmf(births, torch.round(y), r, rest)
        floor = torch.floor(y)
        down = torch.log1p(floor - y) + binomial_log_pmf(births, floor, r, rest)
        up = torch.log(y - floor) + binomial_log_pmf(births, floor + 1, r, rest)
        return torch.logaddexp(down, up)
