"""Objective: from what the network answers to what is minimised, and to bits per dimension."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from blackout.law import chain_divergence, law_divergence, law_rates, transitions
from blackout.loss import DifferenceLoss, nats
from blackout.network import LawHead, RatesHead
from blackout.process import Chain, MarkovProcess, PureDeath
from blackout.training.batches import Batch


class Objective(ABC):
    """Means over a batch: the loss, which has a gradient, and the bits per dimension, which have none."""

    @abstractmethod
    def __call__(self, answer: Tensor, batch: Batch) -> tuple[Tensor, Tensor]: ...


class DifferenceObjective(Objective):
    """A network that predicts X_0 - X_t under pure death, and one of the paper's losses."""

    def __init__(self, loss: DifferenceLoss) -> None:
        self.loss = loss

    def __call__(self, answer: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        loss = self.loss.values(answer, batch.x0, batch.xt, batch.sigma, batch.tau).mean()
        with torch.no_grad():
            bits = nats(answer.detach(), batch.x0, batch.xt, batch.sigma, batch.tau).mean() / math.log(2)
        return loss, bits


class LawObjective(Objective):
    """A network that gives a law over X_0, under any process: the evidence bound itself, Appendix G.

    Compiled, it makes a few passes over the S numbers of each component where it makes dozens otherwise.
    """

    def __init__(self, process: MarkovProcess, head: LawHead, compiled: bool = False) -> None:
        self.process, self.head = process, head
        self._rate: Callable[..., Tensor] = torch.compile(_law_rate, dynamic=False) if compiled else _law_rate

    def __call__(self, answer: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        matrices = transitions(self.process, batch.tau)
        rate = self._rate(self.process, self.head, answer, batch.x0.long(), batch.xt.long(), matrices, batch.t)
        weight = (batch.t - batch.s).to(rate.dtype).reshape(-1, *(1,) * (rate.dim() - 1))
        loss = (weight * rate).mean()
        return loss, loss.detach() / math.log(2)


def _law_rate(
    process: MarkovProcess, head: LawHead, answer: Tensor, x0: Tensor, xt: Tensor, matrices: Tensor, t: Tensor
) -> Tensor:
    return law_divergence(process, head.law(answer), x0, xt, matrices, t)


class ChainObjective(Objective):
    """A network that gives a law over X_0, under a chain in discrete time: the bound of one step, Appendix A."""

    def __init__(self, process: Chain, head: LawHead) -> None:
        self.process, self.head = process, head

    def __call__(self, answer: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        before, step, matrices = (transitions(self.process, k) for k in (batch.s, batch.t - batch.s, batch.t))
        loss = chain_divergence(self.head.law(answer), batch.x0, batch.xt, before, step, matrices).mean()
        return loss, loss.detach() / math.log(2)


class RateObjective(Objective):
    """A network that gives reverse rates, under any process: Algorithm 3, with the terms that no network changes."""

    def __init__(self, process: MarkovProcess, head: RatesHead) -> None:
        self.process, self.head = process, head

    def __call__(self, answer: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        process, x0, xt = self.process, batch.x0.long(), batch.xt.long()
        matrices = transitions(process, batch.tau)
        independent, answer = self.head.independent_rates(process, xt, matrices, batch.t), answer.float()
        if isinstance(process, PureDeath):
            each = nats((independent * torch.exp(answer)).squeeze(-1), x0, xt, batch.sigma, batch.tau)
        else:
            start = torch.nn.functional.one_hot(x0, matrices.shape[-1]).double()
            true = law_rates(process, start, xt, matrices, batch.t)
            rate = independent * torch.exp(answer) - true + torch.xlogy(true, true / independent.clamp(min=1e-300))
            weight = (batch.t - batch.s).reshape(-1, *(1,) * (xt.dim() - 1))
            each = weight * (rate - true * answer).sum(-1)
        loss = each.mean()
        return loss, loss.detach() / math.log(2)
