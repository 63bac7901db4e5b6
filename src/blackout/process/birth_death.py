"""Linear birth and death, with immigration: the paper's R = 2 example."""

import numpy

from blackout import validate
from blackout.memory import check_memory
from blackout.process.matrix import GeneratorProcess
from blackout.process.schedule import Function, Schedule


class BirthDeath(GeneratorProcess):
    """m -> m + 1 at rate birth m + immigration, m -> m - 1 at rate death m: Eq. (3), `eq:cforward2`, with both signs.

    The last state, num_states - 1, has no births. Appendix G names this process with R = 2 (data not shown there).

    Examples
    --------
    >>> import blackout as bo, torch
    >>> bo.BirthDeath(num_states=9, immigration=2.0).forward_rates(torch.tensor([3]))  # down at rate 3, up at rate 2
    tensor([[3., 2.]], dtype=torch.float64)
    """

    arguments = ("num_states", "birth", "death", "immigration")

    def __init__(
        self,
        num_states: int,
        birth: float = 0.0,
        death: float = 1.0,
        immigration: float = 0.0,
        schedule: Schedule | Function | None = None,
    ) -> None:
        from scipy import sparse

        size = validate.integer("num_states", num_states, 2)
        check_memory(f"a process of num_states={size:,}", 200.0 * size, "use fewer states")
        states = numpy.arange(size, dtype=float)
        self.birth = validate.real("birth", birth, 0.0)
        self.death = validate.real("death", death, 0.0, strict=True)
        self.immigration = validate.real("immigration", immigration, 0.0)
        up = (self.birth * states + self.immigration)[:-1]
        down = (self.death * states)[1:]
        exits = numpy.append(up, 0.0) + numpy.append(0.0, down)
        super().__init__(sparse.diags_array([down, -exits, up], offsets=[-1, 0, 1]), ordered=True, schedule=schedule)

    @classmethod
    def for_levels(cls, levels: int | None) -> "BirthDeath":
        """Death and immigration, with half of the largest count as the terminal mean."""
        states = cls.finite_levels(levels)
        return cls(states, death=1.0, immigration=(states - 1) / 2)
