"""Reaction networks whose equilibrium distribution is known in closed form."""

import math
from typing import Any

import torch
from torch import Tensor

from blackout import validate
from blackout.memory import check_memory
from blackout.reactions.network import ReactionNetwork


class Exchange(ReactionNetwork):
    """Every unit moves to each neighbouring cell of a grid at one rate: the total is conserved. Not in the paper.

    At equilibrium the units of each total are spread independently and evenly: multinomial. Cells are the components
    in row-major order; borders are closed.

    Parameters
    ----------
    shape
        Sides of the grid, such as (4, 4).
    rate
        Rate at which a unit moves to one neighbour.

    Examples
    --------
    >>> process = Exchange((2, 2))
    >>> process.sample(torch.tensor([[9, 0, 0, 0]]), t=5.0, generator=torch.Generator().manual_seed(0)).sum()
    tensor(9)
    """

    def __init__(self, shape: Any, rate: float = 1.0) -> None:
        self.shape, self.rate = validate.shape(shape), validate.real("rate", rate, 0.0, strict=True)
        number = math.prod(self.shape)
        # Of each axis two reactions for each pair of neighbours, each a row over all cells, with its copies.
        check_memory(f"exchange on a grid of {self.shape}", 64.0 * len(self.shape) * number**2, "use a smaller grid")
        cells = torch.arange(number).reshape(self.shape)
        if cells.numel() < 2:
            raise ValueError(f"shape must have at least two cells, got {self.shape}")
        pairs = []
        for axis, side in enumerate(self.shape):
            first, second = cells.narrow(axis, 0, side - 1).flatten(), cells.narrow(axis, 1, side - 1).flatten()
            pairs += [torch.stack([first, second], 1), torch.stack([second, first], 1)]
        source, target = torch.cat(pairs).T
        one = torch.nn.functional.one_hot
        super().__init__(one(target, cells.numel()) - one(source, cells.numel()), [self.rate] * len(source))
        self.relaxation_rate = self.rate * 2 * (1 - math.cos(math.pi / max(self.shape)))  # of the longest wave

    def config(self) -> dict[str, Any]:
        return {"shape": list(self.shape), "rate": self.rate}

    def terminal_log_prob(self, x: Tensor) -> Tensor:
        """Multinomial, given the total."""
        (x,) = self.check_states(x=x)
        total = x.sum(-1).double()
        return torch.lgamma(total + 1) - torch.lgamma(x.double() + 1).sum(-1) - total * math.log(x.shape[1])


class Dimerisation(ReactionNetwork):
    """2 A -> B at the rate bind A (A - 1) / 2, B -> 2 A at the rate split B; a state is (A, B). Not in the paper.

    A + 2 B is conserved; given its value, the equilibrium has weights proportional to (bind / 2 split)^B / (A! B!).

    Parameters
    ----------
    bind, split
        Rate for each pair of A, and for each B.

    Examples
    --------
    >>> Dimerisation(bind=0.5).propensities(torch.tensor([[4, 1]]))
    tensor([[3., 1.]], dtype=torch.float64)
    """

    def __init__(self, bind: float = 1.0, split: float = 1.0) -> None:
        self.bind = validate.real("bind", bind, 0.0, strict=True)
        self.split = validate.real("split", split, 0.0, strict=True)
        super().__init__([[-2, 1], [2, -1]], [self.bind, self.split])

    def config(self) -> dict[str, Any]:
        return {"bind": self.bind, "split": self.split}

    def terminal_log_prob(self, x: Tensor) -> Tensor:
        """Given A + 2 B."""
        (x,) = self.check_states(x=x)
        units = x[:, 0] + 2 * x[:, 1]
        dimers = torch.arange(int(units.max()) // 2 + 1 if len(x) else 1, device=x.device)
        single = units.unsqueeze(-1) - 2 * dimers
        every = torch.where(single >= 0, self._weight(single.clamp(min=0), dimers), -torch.inf)
        return self._weight(x[:, 0], x[:, 1]) - torch.logsumexp(every, -1)

    def _weight(self, single: Tensor, dimers: Tensor) -> Tensor:
        factorials = torch.lgamma(single.double() + 1) + torch.lgamma(dimers.double() + 1)
        return dimers.double() * math.log(self.bind / (2 * self.split)) - factorials
