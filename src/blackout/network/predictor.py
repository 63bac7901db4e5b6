"""Predictor: a network and its head, from a state and a time to y."""

import torch
from torch import Tensor, nn

from blackout import validate
from blackout.network.head import Head
from blackout.network.layers import waves
from blackout.network.ncsnpp import NCSNpp
from blackout.process import PureDeath

_SPAN = 15.0  # |logit p| at the ends of the paper's grid; positions 0 to 1000 cover it


class Predictor(nn.Module):
    """(xt, t) -> y = E[X_0 - X_t | X_t], the denoiser of pure death: of `process`, if that has a schedule.

    Time reaches the network as a position between 0 and 1000: through logit p, continuously (`logit`), or as the index
    k on the grid of observation times (`index`), as the authors do.
    """

    grid: Tensor

    def __init__(
        self,
        network: nn.Module,
        head: Head,
        conditioning: str = "logit",
        grid: Tensor | None = None,
        process: PureDeath | None = None,
    ) -> None:
        super().__init__()
        self.network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.head, self.process = head, process or PureDeath()
        self.conditioning = validate.choice("conditioning", conditioning, ("logit", "index"))
        if conditioning == "index" and grid is None:
            raise ValueError("grid is needed for conditioning on the index, got None")
        self.register_buffer("grid", torch.zeros(0) if grid is None else grid.double(), persistent=False)
        self.periods = network.config.periods if isinstance(network, NCSNpp) else ()
        self.dtype = torch.float32
        """What the network computes in; weights and heads stay in float32."""

    def forward(self, xt: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
        t = t.double().expand(len(xt))
        logit_p = -torch.log(torch.expm1(self.process.clock_time(t).clamp(min=1e-13, max=700.0)))
        if self.conditioning == "logit":
            position = (500 / _SPAN) * (_SPAN - logit_p)
        else:
            position = torch.searchsorted(self.grid, t * (1 - 1e-9)).double()
        return self.predict(xt, logit_p.float(), position.float(), label)

    def predict(self, xt: Tensor, logit_p: Tensor, position: Tensor, label: Tensor | None) -> Tensor:
        """The part that a compiler sees: everything in it is float32 or `dtype`."""
        state, logit_p = xt.float(), validate.expand(logit_p, xt)
        scaled = self.head.scale(state, logit_p)
        if self.periods:
            scaled = torch.cat([scaled, waves(state, self.periods)], 1)
        scaled = scaled.to(self.dtype)
        if scaled.dim() == 4:  # convolutions are fastest so, on a CPU and on a GPU
            scaled = scaled.contiguous(memory_format=torch.channels_last)
        raw = self.network(scaled, position, label).float()
        if self.head.outputs > 1:
            raw = raw.unflatten(1, (xt.shape[1], self.head.outputs)).movedim(2, -1)
        return self.head.difference(raw, state, logit_p)
