"""Observation: X_t = xt seen at time t, with what follows from the process alone."""

import torch
from torch import Tensor

from blackout import validate
from blackout.process.base import MarkovProcess


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

    Attributes
    ----------
    t, tau
        The times in float64, shape (batch,); `tau` on the clock of the homogeneous process.
    log_time
        log(e^{γτ} - 1), with γ the relaxation rate, shape (batch,): what a network is conditioned on.
    """

    def __init__(self, process: MarkovProcess, xt: Tensor, t: Tensor) -> None:
        self.process, self.xt = process, xt
        self.t = t.double().expand(len(xt))
        self.tau = process.clock_time(self.t)
        self.log_time = process.log_time(self.tau.clamp(min=1e-13))
        self._matrices: Tensor | None = None

    @property
    def logit_p(self) -> Tensor:
        """The logit of the survival probability e^{-γτ}, float32, shaped to broadcast with xt.

        p and 1 - p both follow from it without cancellation.
        """
        return validate.expand(-self.log_time.float(), self.xt)

    @property
    def matrices(self) -> Tensor:
        """P_t for each time, shape (batch, S, S), float64; (1, S, S) where all times are equal."""
        if self._matrices is None:
            # In training times differ, and comparing them would wait for the device.
            same = len(self.tau) > 0 and not torch.is_grad_enabled() and bool((self.tau == self.tau[0]).all())
            self._matrices = self.process.transition_matrices(self.tau[:1] if same else self.tau)
        return self._matrices
