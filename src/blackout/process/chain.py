"""Discrete-time chains."""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from blackout.process import generator as generators
from blackout.process.matrix import DENSE_STATES, MatrixProcess, matrix_config, matrix_from_config
from blackout.process.propagator import MatrixPower, Propagator


class Chain(MatrixProcess):
    """A Markov chain with `transition[i, j]` = P(i -> j): Appendix A, `eq:dforward2`. Times are integers.

    What are rates elsewhere are probabilities of one step here. `reverse_rates(x0, xt, k)[..., r]` is the probability
    of the step back from (xt, k) to (xt - jumps[r], k - 1), `eq:romeo` and `eq:cBayes`; staying has the remainder. See
    docs/mathematics.md#discrete-time.

    Examples
    --------
    >>> import blackout as bo
    >>> chain = bo.Chain([[0.9, 0.1], [0.2, 0.8]])
    >>> chain.probs(torch.tensor([0]), 1)
    tensor([[0.9000, 0.1000]], dtype=torch.float64)
    """

    discrete_time = True
    time_rule = "steps"
    _lag = 1.0

    def __init__(self, transition: Any, *, ordered: bool | None = None) -> None:
        csr = generators.as_csr("transition", transition, total=1.0)
        if csr.shape[0] > DENSE_STATES:
            raise ValueError(f"transition must have at most {DENSE_STATES} states, got {csr.shape[0]}")
        super().__init__(csr, ordered)

    @classmethod
    def for_levels(cls, levels: int | None) -> "Chain":
        raise ValueError("Chain has no default: give a transition matrix, in Python or as a file")

    def config(self) -> dict[str, Any]:
        return {**matrix_config(self.csr), "ordered": self.ordered}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Chain":
        return cls(matrix_from_config(config), ordered=config["ordered"])

    def __repr__(self) -> str:
        return f"Chain({self.num_states} states, {len(self.jumps)} jumps)"

    @property
    def transition(self) -> Tensor:
        """The one-step probabilities as a dense matrix."""
        return torch.from_numpy(self.csr.toarray())

    @cached_property
    def terminal_probs(self) -> Tensor:
        """The distribution of X_k for k -> infinity over all states; ValueError for a periodic chain."""
        probs = generators.stationary_probs(self.csr)
        if (period := generators.period(self.csr)) > 1:
            raise ValueError(f"the chain has no terminal distribution: it returns to a state every {period} steps only")
        return torch.from_numpy(probs)

    @property
    def relaxation_rate(self) -> float:  # type: ignore[override]
        second = torch.linalg.eigvals(self.transition).abs().sort(descending=True).values[1]
        return max(float(-torch.log(second.clamp(min=1e-300))), 1e-12)  # below the resolution of double precision

    def checked_clock(self, x: Tensor, **named: Any) -> tuple[Tensor, ...]:
        checked = super().checked_clock(x, **named)
        for name, k in zip(named, checked, strict=True):
            if bool((k != k.round()).any()):
                raise ValueError(
                    f"{name} must be an integer number of steps, got {float(k[k != k.round()].reshape(-1)[0])}"
                )
        return checked

    def reverse_rates_at(self, x0: Tensor, xt: Tensor, tau: Tensor) -> Tensor:
        # At k = 0 there is no step to take back.
        started = (tau > 0).reshape(tau.shape + (1,) * (x0.dim() - tau.dim() + 1))
        return torch.where(started, super().reverse_rates_at(x0, xt, tau), 0.0)

    def _new_propagator(self, device: torch.device) -> Propagator:
        return MatrixPower(self.transition.to(device))
