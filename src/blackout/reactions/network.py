"""ReactionNetwork: counts that change together, at rates that depend on all of them."""

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor

from blackout import validate
from blackout.random import Source, pick, uniform

Propensities = Callable[[Tensor], Tensor]
"""States, int64 of shape (batch, D) -> rates of the R channels, shape (batch, R)."""
_MOST_EVENTS = 1_000_000  # of a simulated path


class ReactionNetwork:
    """A Markov process on vectors of D counts: channel r adds stoichiometry[r] to the state, at the rate a_r(x).

    Not in the paper, whose processes act component by component: Eq. (2) and (5) hold for the joint state. There is no
    closed form of X_t given X_0, and no bridge; X_t is simulated exactly. See docs/mathematics.md#coupled-components.

    Parameters
    ----------
    stoichiometry
        Integers of shape (R, D): one row for each channel, the change of every count.
    propensities
        R rate constants: mass action, a_r(x) = k_r Π_d binom(x_d, reactants[r, d]), the number of distinct groups of
        reactants. Or a function x -> rates, shape (batch, R); such a network is not saved with a model.
    reactants
        Counts that take part in a reaction, shape (R, D), for mass action. Default: those that it consumes; give it
        for catalysts.
    max_count
        The largest count; a reaction that would lead beyond it does not happen. None: no bound.

    Examples
    --------
    >>> infection = ReactionNetwork([[-1, 1, 0], [0, -1, 1]], [0.1, 1.0], reactants=[[1, 1, 0], [0, 1, 0]])
    >>> infection.propensities(torch.tensor([[20, 3, 0]]))  # 0.1 per pair, and recovery
    tensor([[6., 3.]], dtype=torch.float64)
    >>> infection.sample(torch.tensor([[20, 3, 0]]), t=2.0, generator=torch.Generator().manual_seed(0)).sum()
    tensor(23)
    """

    relaxation_rate: float | None = None
    """How fast the process mixes, where that is known in closed form."""

    def __init__(
        self, stoichiometry: Any, propensities: Any, reactants: Any = None, max_count: int | None = None
    ) -> None:
        self.stoichiometry = _table("stoichiometry", stoichiometry)
        still = (self.stoichiometry == 0).all(1)
        if bool(still.any()):
            raise ValueError(
                f"stoichiometry must change the state in every row, got zeros in row {int(still.nonzero()[0])}"
            )
        self.max_count = None if max_count is None else validate.integer("max_count", max_count, 1)
        self._function: Propensities | None = propensities if callable(propensities) else None
        self._rates = None if callable(propensities) else _constants(propensities, self.num_channels)
        consumed = (-self.stoichiometry).clamp(min=0)
        self.reactants = consumed if reactants is None else _table("reactants", reactants)
        if self.reactants.shape != consumed.shape or bool((self.reactants < consumed).any()):
            raise ValueError(f"reactants must be at least what each channel consumes, got {self.reactants.tolist()}")
        if self._function is not None and reactants is not None:
            raise ValueError(f"reactants belong to rate constants: propensities is a function, got {reactants!r}")
        self._species, self._offsets, self._orders = _factors(self.reactants)
        self._changed = _padded([row.nonzero().flatten().tolist() for row in self.stoichiometry])
        same = (self.stoichiometry.unsqueeze(1) == -self.stoichiometry.unsqueeze(0)).all(-1)
        self._opposite = torch.where(same.any(1), same.long().argmax(1), -1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.num_components} components, {self.num_channels} channels)"

    @property
    def num_channels(self) -> int:
        return len(self.stoichiometry)

    @property
    def num_components(self) -> int:
        return self.stoichiometry.shape[1]

    def config(self) -> dict[str, Any]:
        """The constructor's arguments, as plain JSON; ValueError for propensities that are a function."""
        if self._rates is None:
            raise ValueError("propensities must be rate constants to be saved, got a function: register a subclass")
        return {
            "stoichiometry": self.stoichiometry.tolist(),
            "propensities": self._rates.tolist(),
            "reactants": self.reactants.tolist(),
            "max_count": self.max_count,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The network that `config` described."""
        return cls(**config)

    def check_states(self, **named: Any) -> tuple[Tensor, ...]:
        """Integer tensors of shape (batch, D) within the bounds, as int64."""
        checked = validate.states(None if self.max_count is None else self.max_count + 1, **named)
        for name, x in zip(named, checked, strict=True):
            if x.dim() != 2 or x.shape[1] != self.num_components:
                raise ValueError(f"{name} must have shape (batch, {self.num_components}), got {tuple(x.shape)}")
        return tuple(x.long() for x in checked)

    def contains(self, x: Tensor) -> Tensor:
        """Whether each row of integers is a state, shape (batch,)."""
        inside = x >= 0
        return (inside if self.max_count is None else inside & (x <= self.max_count)).all(-1)

    def propensities(self, x: Tensor) -> Tensor:
        """a_r(x), float64 of shape (batch, R); zero where the reaction leads out of the states."""
        if self._function is not None:
            return torch.where(self._inside(x, 1), self._called(x), 0.0)
        rates = self._mass_action(x, torch.zeros_like(self.stoichiometry))
        return rates if self.max_count is None else torch.where(self._inside(x, 1), rates, 0.0)

    def arrival_rates(self, x: Tensor) -> Tensor:
        """a_r(x - v_r): the rate at which channel r arrives in x from the state before, float64, shape (batch, R)."""
        inside = self._inside(x, -1)
        if self._function is None:
            return torch.where(inside, self._mass_action(x, self.stoichiometry), 0.0)
        before = (x.unsqueeze(1) - self.stoichiometry.to(x.device)).clamp(min=0, max=self.max_count)
        rates = self._called(before.flatten(0, 1)).unflatten(0, (len(x), self.num_channels))
        return torch.where(inside, rates.diagonal(dim1=1, dim2=2), 0.0)

    def reference_rates(self, x: Tensor) -> Tensor:
        """Reverse rates that a new model starts from: those of equilibrium, where reactions balance in pairs.

        The rate of the opposite reaction, where the network has one, else a_r(x - v_r). Zero where channel r cannot
        have led to x.
        """
        arrival, forward = self.arrival_rates(x), self.propensities(x)
        index = self._opposite.to(x.device)
        opposite = torch.where(index >= 0, forward[:, index], 0.0)
        return torch.where((arrival > 0) & (opposite > 0), opposite, arrival)

    def sample(self, x0: Any, t: Any, generator: Source = None) -> Tensor:
        """A draw of X_t given X_0 = x0, int64 of shape (batch, D): Gillespie's direct method (1977), exact."""
        (x,) = self.check_states(x0=x0)
        (time,) = validate.times(x, t=t)
        return self._simulate(x, time.expand(len(x)).unsqueeze(-1), generator)[:, 0]

    def sample_path(self, x0: Any, times: Tensor, generator: Source = None) -> Tensor:
        """States of one path from each x0 at increasing times, (batch, K) -> int64 of shape (batch, K, D)."""
        (x,) = self.check_states(x0=x0)
        times = validate.reals("times", times, "a tensor of times").to(x.device)
        if times.dim() != 2 or len(times) != len(x) or times.shape[1] == 0:
            raise ValueError(f"times must have shape ({len(x)}, K), got {tuple(times.shape)}")
        early = torch.diff(times, dim=1, prepend=torch.zeros_like(times[:, :1])) < 0
        if bool((early | ~torch.isfinite(times)).any()):
            raise ValueError(f"times must be finite, not negative and increasing in each row, got {times.tolist()}")
        return self._simulate(x, times, generator)

    def terminal_log_prob(self, x: Tensor) -> Tensor:
        """The logarithm of the equilibrium distribution, given the conserved quantities of x, shape (batch,)."""
        raise ValueError(f"the equilibrium distribution of {type(self).__name__} has no closed form: it has no bound")

    def _simulate(self, x0: Tensor, times: Tensor, source: Source) -> Tensor:
        """Gillespie's direct method for many paths at once: no approximation.

        The next event comes after an exponential time at the sum of the rates, and is each channel in proportion to its
        rate. With `Streams`, path number i depends on the seed and on i alone.
        """
        x, now = x0.clone(), torch.zeros(len(x0), dtype=torch.float64, device=x0.device)
        out = x0.unsqueeze(1).repeat(1, times.shape[1], 1)
        jumps, rows = self.stoichiometry.to(x0.device), torch.arange(len(x0), device=x0.device)
        for _ in range(_MOST_EVENTS):
            u = uniform((len(x0), 2), x0.device, source)[rows]  # for all, so that a path does not depend on the others
            rates = self.propensities(x[rows])
            after = now[rows] - torch.log1p(-u[:, 0]) / rates.sum(-1)  # infinite where no reaction is left
            row, column = ((times[rows] >= now[rows, None]) & (times[rows] < after[:, None])).nonzero(as_tuple=True)
            out[rows[row], column] = x[rows[row]]
            going = after <= times[rows, -1]
            now[rows] = after
            rows = rows[going]
            if not len(rows):
                return out
            x[rows] += jumps[pick(rates[going], u[going, 1])]
        raise ValueError(
            f"t must leave time for at most {_MOST_EVENTS} events, got t={float(times.max())}: lower the rates"
        )

    def _inside(self, x: Tensor, sign: int) -> Tensor:
        """Whether x + sign * stoichiometry[r] is a state, shape (batch, R)."""
        changed = self._changed.to(x.device)
        after = x[:, changed] + sign * self.stoichiometry.to(x.device).gather(1, changed)
        return self.contains(after)

    def _mass_action(self, x: Tensor, shift: Tensor) -> Tensor:
        """k_r Π binom(x_d - shift[r, d], reactants[r, d])."""
        assert self._rates is not None
        species = self._species.to(x.device)
        one = torch.ones_like(x[:, :1])  # stands for reactants that a channel does not have
        moved = torch.cat([shift.to(x.device), torch.zeros_like(shift[:, :1]).to(x.device)], 1).gather(1, species)
        groups = (torch.cat([x, one], 1)[:, species] - moved - self._offsets.to(x.device)).clamp(min=0)
        return self._rates.to(x.device) * groups.double().prod(-1) / self._orders.to(x.device)

    def _called(self, x: Tensor) -> Tensor:
        assert self._function is not None
        rates = torch.as_tensor(self._function(x))
        if tuple(rates.shape) != (len(x), self.num_channels):
            raise ValueError(
                f"propensities must return rates of shape ({len(x)}, {self.num_channels}), got {tuple(rates.shape)}"
            )
        rates = rates.double()
        wrong = ~(torch.isfinite(rates) & (rates >= 0))
        if bool(wrong.any()):
            raise ValueError(f"propensities must be finite and not negative, got {float(rates[wrong][0])}")
        return rates


def check_network(process: Any) -> ReactionNetwork:
    """The network itself; ValueError for anything else."""
    if not isinstance(process, ReactionNetwork):
        raise ValueError(f"process must be a ReactionNetwork, such as Exchange((4, 4)), got {validate.short(process)}")
    return process


def _table(name: str, value: Any) -> Tensor:
    table = validate.integers(name, value).long()
    if table.dim() != 2 or table.numel() == 0:
        raise ValueError(f"{name} must have shape (channels, components), got {tuple(table.shape)}")
    return table


def _constants(value: Any, number: int) -> Tensor:
    rates = validate.reals("propensities", value, "rate constants or a function")
    if tuple(rates.shape) != (number,) or not bool((torch.isfinite(rates) & (rates > 0)).all()):
        raise ValueError(f"propensities must be {number} positive rate constants, one for each channel, got {value!r}")
    return rates


def _factors(reactants: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """binom(x, 2) = x (x - 1) / 2: the species and offset of each factor, shape (R, order), and the denominators."""
    lists = [[(d, k) for d, m in enumerate(row) for k in range(m)] for row in reactants.tolist()]
    width, none = max(1, *map(len, lists)), (reactants.shape[1], 0)
    table = torch.tensor([[*row, *[none] * (width - len(row))] for row in lists])
    return table[..., 0], table[..., 1], torch.exp(torch.lgamma(reactants.double() + 1).sum(-1)).round()


def _padded(lists: list[list[int]]) -> Tensor:
    width = max(map(len, lists))
    return torch.tensor([row + row[:1] * (width - len(row)) for row in lists])
