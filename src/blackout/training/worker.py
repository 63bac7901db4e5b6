"""The copy of a predictor that computes: in bfloat16 on CUDA."""

import copy

import torch

from blackout.network import Predictor


def uses_bfloat16(precision: str, device: torch.device) -> bool:
    """Whether a network computes in bfloat16 on a device; "auto": everywhere but on a CPU."""
    return precision == "bfloat16" or (precision == "auto" and device.type != "cpu")


class Worker:
    """Computes with the weights of a predictor; on CUDA a copy whose network has weights and activations in bfloat16.

    Parameters
    ----------
    predictor
        Holds the weights in float32; the optimiser changes them.
    precision
        See `uses_bfloat16`.
    """

    def __init__(self, predictor: Predictor, precision: str) -> None:
        self.predictor = self.module = predictor
        if uses_bfloat16(precision, predictor.grid.device):
            self.module = copy.deepcopy(predictor)
            self.module.network.to(torch.bfloat16)
            self.module.dtype = torch.bfloat16

    @torch.no_grad()
    def collect_gradients(self) -> None:
        """Copy the gradients to the weights in float32."""
        if self.module is self.predictor:
            return
        kept, worked = [], []
        for parameter, copied in zip(self.predictor.parameters(), self.module.parameters(), strict=True):
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            kept.append(parameter.grad)
            worked.append(torch.zeros_like(copied) if copied.grad is None else copied.grad)
        torch._foreach_copy_(kept, worked)

    @torch.no_grad()
    def update_weights(self) -> None:
        """Copy the weights after a step, and drop the gradients."""
        if self.module is not self.predictor:
            torch._foreach_copy_(list(self.module.parameters()), list(self.predictor.parameters()))
        for parameter in self.module.parameters():
            parameter.grad = None
