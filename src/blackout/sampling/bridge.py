"""The binomial bridge."""

import torch
from torch import Tensor

from blackout import validate
from blackout.denoiser import Denoiser, ask
from blackout.process.base import MarkovProcess
from blackout.process.binomial import binomial_log_pmf
from blackout.process.pure_death import PureDeath
from blackout.random import binomial, uniform
from blackout.sampling.base import Sampler
from blackout.streams import Streams


class BinomialBridge(Sampler):
    """X_s = X_t + Binomial(y, r): Algorithm 2, binomial branch, with Eq. (10).

    y is a mean and seldom an integer. `stochastic` rounding, floor(y) + Bernoulli(y - floor(y)), keeps it; `nearest` is
    the authors' rounding, which loses every y below one half. Pure death only.
    """

    def __init__(self, rounding: str = "stochastic", corrector_steps: int = 0, corrector_size: float = 0.1) -> None:
        super().__init__(corrector_steps, corrector_size)
        self.rounding = validate.choice("rounding", rounding, ("stochastic", "nearest"))

    def check(self, process: MarkovProcess) -> None:
        if not isinstance(process, PureDeath):
            end = "one state, but from other rates" if process.terminal_state is not None else "a law, not in one state"
            raise ValueError(
                f"process must be PureDeath for the binomial bridge, which starts from black, got {process!r}, which "
                f"ends in {end}; PosteriorBridge, TauLeaping and Exact walk any process back"
            )

    def step(
        self, denoise: Denoiser, process: MarkovProcess, xt: Tensor, s: Tensor, t: Tensor, source: Streams
    ) -> Tensor:
        assert isinstance(process, PureDeath)
        y = process.difference(ask(denoise, xt, t), xt)
        if self.rounding == "nearest":
            count = torch.round(y)
        else:
            floor = torch.floor(y)
            count = floor + (uniform(tuple(xt.shape), xt.device, source) < y - floor)
        r, rest = process.bridge_law(s, t, xt)
        # y is finite and not negative, and r a probability: a second look would only wait for the device.
        return xt + binomial(count.long(), r, source, complement=rest, largest=process.max_count or 2**53)

    def step_log_prob(
        self, denoise: Denoiser, process: MarkovProcess, xs: Tensor, xt: Tensor, s: Tensor, t: Tensor
    ) -> Tensor:
        assert isinstance(process, PureDeath)
        y, births = process.difference(ask(denoise, xt, t), xt), xs - xt
        r, rest = process.bridge_law(s, t, xt)
        if self.rounding == "nearest":
            return binomial_log_pmf(births, torch.round(y), r, rest)
        floor = torch.floor(y)
        down = torch.log1p(floor - y) + binomial_log_pmf(births, floor, r, rest)
        up = torch.log(y - floor) + binomial_log_pmf(births, floor + 1, r, rest)
        return torch.logaddexp(down, up)
