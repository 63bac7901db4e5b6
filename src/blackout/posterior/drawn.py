"""DrawnPosterior: a posterior of X_0 that can be sampled, but not evaluated."""

from collections.abc import Callable
from typing import NoReturn

import torch
from torch import Tensor

from blackout.posterior.base import MeanPosterior, Posterior
from blackout.process.base import MarkovProcess
from blackout.random import Source, normal, round_stochastic


class DrawnPosterior(Posterior):
    """Draws of all components of X_0 at once, each from noise of its own: the answer of a distilled model.

    Parameters
    ----------
    generate
        Maps standard normal numbers of the shape of xt to y = X_0 - X_t, of the same shape; y is rounded
        stochastically, which keeps its mean.

    Examples
    --------
    >>> import blackout as bo
    >>> xt, t = torch.tensor([[3]]), torch.tensor([0.5])
    >>> posterior = DrawnPosterior(bo.PureDeath(9), xt, t, lambda noise: torch.full_like(noise, 2.0))
    >>> posterior.sample()
    tensor([[5]])
    """

    def __init__(self, process: MarkovProcess, xt: Tensor, t: Tensor, generate: Callable[[Tensor], Tensor]) -> None:
        super().__init__(process, xt, t)
        self.generate = generate

    @torch.no_grad()
    def sample(self, rng: Source = None) -> Tensor:
        noise = normal(tuple(self.xt.shape), self.xt.device, rng).float()
        y = MeanPosterior(self.process, self.xt, self.t, self.generate(noise)).checked().y
        return self.xt.long() + round_stochastic(y, rng)

    def with_difference(self, change: Callable[[Tensor], Tensor]) -> "DrawnPosterior":
        """The same, of draws that are changed."""
        return DrawnPosterior(self.process, self.xt, self.t, lambda noise: change(self.generate(noise)))

    def difference(self) -> NoReturn:
        raise ValueError(
            "a distilled model gives draws of X_0, and no mean, rates or evidence bound: use its teacher for these"
        )

    def rates(self) -> NoReturn:
        self.difference()

    def checked(self) -> "DrawnPosterior":
        """Itself: every draw is checked."""
        return self
