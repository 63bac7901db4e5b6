"""FiniteState: the process of any generator matrix."""

from typing import Any

from blackout import validate
from blackout.process.generator import with_isolated, without
from blackout.process.matrix import GeneratorProcess, matrix_config, matrix_from_config
from blackout.process.schedule import Function, Schedule


class FiniteState(GeneratorProcess):
    """The process of a generator matrix: Eq. (2), `eq:cforward`, and Appendix B for jumps of any length.

    `generator[i, j]` is the rate i -> j and rows sum to zero; a tensor, an array or a scipy sparse matrix. `ordered`
    says whether neighbouring labels are neighbouring states (default: if all jumps are by one). `schedule` multiplies
    all rates by β(t): a `Schedule`, or any rate that `Schedule.from_rate` accepts. `pad_state`, the padding of
    sequences, if there is one, is a state that nothing leaves or enters: it is part of no loss and no bound, and
    `with_padding` adds one. States with padding have no order. See docs/mathematics.md#any-generator.

    Examples
    --------
    >>> import blackout as bo, torch
    >>> process = bo.FiniteState([[-1.0, 1.0, 0.0], [0.5, -1.0, 0.5], [0.0, 1.0, -1.0]])
    >>> process.terminal_probs
    tensor([0.2500, 0.5000, 0.2500], dtype=torch.float64)
    """

    def __init__(
        self,
        generator: Any,
        *,
        ordered: bool | None = None,
        pad_state: int | None = None,
        schedule: Schedule | Function | None = None,
    ) -> None:
        if pad_state is not None and ordered:
            raise ValueError("ordered must be False with a pad_state: several jumps at once could end in the padding")
        super().__init__(generator, ordered if pad_state is None else False, schedule)
        if pad_state is not None:
            self.pad_state = validate.integer("pad_state", pad_state, 0, self.num_states - 1)
            without(self.csr, self.pad_state)  # raises for a state that is not isolated
            if self.num_states < 3:
                raise ValueError(f"generator must have two labels beside pad_state, got {self.num_states} states")

    @classmethod
    def for_levels(cls, levels: int | None) -> "FiniteState":
        raise ValueError("FiniteState has no default: give a generator matrix, in Python or as a file")

    def _with_padding(self) -> "FiniteState":
        return FiniteState(with_isolated(self.csr), pad_state=self.num_states, schedule=self.schedule)

    def config(self) -> dict[str, Any]:
        padding = {} if self.pad_state is None else {"pad_state": self.pad_state}
        return {**super().config(), **matrix_config(self.csr), "ordered": self.ordered, **padding}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "FiniteState":
        values = dict(config)
        schedule = {"schedule": Schedule.from_config(values["schedule"])} if "schedule" in values else {}
        return cls(matrix_from_config(values), ordered=values["ordered"], pad_state=values.get("pad_state"), **schedule)

    def __repr__(self) -> str:
        padding = "" if self.pad_state is None else f", pad_state={self.pad_state}"
        schedule = "" if self.schedule is None else f", schedule={self.schedule}"
        return f"FiniteState({self.num_states} states, {len(self.jumps)} jumps{padding}{schedule})"
