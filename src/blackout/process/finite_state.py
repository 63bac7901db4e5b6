"""FiniteState: the process of any generator matrix."""

from typing import Any

from blackout.process.matrix import GeneratorProcess, matrix_config, matrix_from_config
from blackout.process.schedule import Function, Schedule, shown


class FiniteState(GeneratorProcess):
    """The process of a generator matrix: Eq. (2), `eq:cforward`, and Appendix B for jumps of any length.

    `generator[i, j]` is the rate i -> j and rows sum to zero; a tensor, an array or a scipy sparse matrix. `ordered`
    says whether neighbouring labels are neighbouring states (default: if all jumps are by one). `schedule` multiplies
    all rates by β(t): a `Schedule`, or any rate that `Schedule.from_rate` accepts. See
    docs/mathematics.md#any-generator.

    Examples
    --------
    >>> import blackout as bo, torch
    >>> process = bo.FiniteState([[-1.0, 1.0, 0.0], [0.5, -1.0, 0.5], [0.0, 1.0, -1.0]])
    >>> process.terminal_probs
    tensor([0.2500, 0.5000, 0.2500], dtype=torch.float64)
    """

    def __init__(
        self, generator: Any, *, ordered: bool | None = None, schedule: Schedule | Function | None = None
    ) -> None:
        super().__init__(generator, ordered, schedule)

    @classmethod
    def for_levels(cls, levels: int | None) -> "FiniteState":
        raise ValueError("FiniteState has no default: give a generator matrix, in Python or as a file")

    def config(self) -> dict[str, Any]:
        return {**super().config(), **matrix_config(self.csr), "ordered": self.ordered}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "FiniteState":
        values = dict(config)
        schedule = {"schedule": Schedule.from_config(values["schedule"])} if "schedule" in values else {}
        return cls(matrix_from_config(values), ordered=values["ordered"], **schedule)

    def __repr__(self) -> str:
        return f"FiniteState({self.num_states} states, {len(self.jumps)} jumps{shown(self.schedule)})"
