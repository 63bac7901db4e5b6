"""MatrixProcess: everything that follows, for any finite process, from its rates and its forward solution."""

from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy
import torch
from torch import Tensor

from blackout import validate
from blackout.memory import check_memory
from blackout.process import generator as generators
from blackout.process.base import MarkovProcess
from blackout.process.propagator import Exponential, Propagator
from blackout.process.schedule import Function, Schedule
from blackout.process.sparse import SparseExponential
from blackout.random import Source, pick, uniform

DENSE_STATES = 2048  # up to here dense matrices are stored; beyond, only their action on single states is computed
_WORKSPACE = 1 << 22
_LARGEST_TABLE = 1 << 27
_TINY = 1e-300  # a probability below this has lost digits, and is taken as zero


def check_num_states(num_states: Any) -> int:
    """A number of states of which a dense matrix fits into memory."""
    size = validate.integer("num_states", num_states, 2)
    if size > DENSE_STATES:
        what, advice = f"a dense generator of num_states={size:,}", "use fewer states"
        check_memory(what, 5.0 * 8 * size * size, advice)  # with the copies that are made of it
    return size


class MatrixProcess(MarkovProcess):
    """A process on {0, ..., S - 1} given by a matrix of rates: Eq. (2), with Appendix B for its channels."""

    _lag = 0.0
    """How much earlier than m the preimage m' is evaluated: zero, or one step of a chain."""

    def __init__(self, matrix: Any, ordered: bool | None = None, schedule: Schedule | Function | None = None) -> None:
        super().__init__(schedule)
        self.csr = matrix
        self.num_states: int = matrix.shape[0]
        self.jumps = generators.displacements(matrix)
        self.ordered = set(self.jumps) <= {-1, 1} if ordered is None else ordered
        self._propagators: dict[torch.device, Propagator] = {}

    @cached_property
    def terminal_probs(self) -> Tensor:
        """The distribution of X_T for T -> infinity, over all states."""
        probs = generators.stationary_probs(generators.without(self.csr, self.pad_state))
        return torch.from_numpy(probs if self.pad_state is None else numpy.insert(probs, self.pad_state, 0.0))

    @property
    def terminal_state(self) -> int | None:  # type: ignore[override]
        return int(self.terminal_probs.argmax()) if float(self.terminal_probs.max()) == 1.0 else None

    @cached_property
    def relaxation_rate(self) -> float:  # type: ignore[override]
        return generators.relaxation_rate(generators.without(self.csr, self.pad_state))

    @cached_property
    def _tables(self) -> tuple[Tensor, Tensor]:
        if self.num_states * len(self.jumps) > _LARGEST_TABLE:
            raise ValueError(
                f"generator has {len(self.jumps)} distinct jumps on {self.num_states} states: too many channels"
            )
        return generators.rate_tables(self.csr, self.jumps)

    @abstractmethod
    def _new_propagator(self, device: torch.device) -> Propagator: ...

    def _propagator(self, device: torch.device) -> Propagator:
        if device not in self._propagators:
            self._propagators[device] = self._new_propagator(device)
        return self._propagators[device]

    def sample_at(self, x0: Tensor, tau: Tensor, source: Source) -> Tensor:
        taus, which = _elements(tau, x0)
        flat = x0.reshape(-1).long()
        return self._propagator(x0.device).sample(flat, taus, which, source, x0.shape).reshape(x0.shape)

    def log_prob_at(self, xt: Tensor, x0: Tensor, tau: Tensor) -> Tensor:
        return torch.log(self._prob(x0, xt, *_elements(tau, x0)))

    def _prob(self, start: Tensor, end: Tensor, taus: Tensor, which: Tensor) -> Tensor:
        flat = (start.reshape(-1).long(), end.reshape(-1, 1).long())
        return self._propagator(start.device).prob(*flat, taus, which).reshape(start.shape)

    def _step_times(self, tau_s: Tensor, tau_t: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """What the propagator takes for the steps from s to t, and for each element of x, flattened, its own."""
        return _elements(tau_t - tau_s, x)

    def probs_at(self, x0: Tensor, tau: Tensor) -> Tensor:
        taus, which = _elements(tau, x0)
        rows = self._propagator(x0.device).rows(x0.reshape(-1).long(), taus, which)
        return rows.reshape(*x0.shape, self.num_states)

    def probs_along(self, x0: Tensor, taus: Tensor) -> Iterator[Tensor]:
        return self._propagator(x0.device).along(x0.long(), taus)

    def log_overlap_along(self, x0: Tensor, taus: Tensor) -> Iterator[Tensor]:
        end, here = self.terminal_probs.to(x0.device), x0.flatten()
        ended = here == (-1 if self.pad_state is None else self.pad_state)
        distances = (torch.where(ended, 0.0, (probs - end).abs().sum(-1) / 2) for probs in self.probs_along(here, taus))
        return (torch.log1p(-distance.clamp(max=1.0)) for distance in distances)

    def forward_rates_at(self, x: Tensor, tau: Tensor) -> Tensor:
        return self._tables[0].to(x.device)[x.long()]

    def arrival_rates(self, x: Tensor, tau: Tensor) -> Tensor:
        return self._tables[1].to(x.device)[x.long()]

    def reverse_rates_at(self, x0: Tensor, xt: Tensor, tau: Tensor) -> Tensor:
        # `eq:reverseRate`, or `eq:cBayes` for a chain: ν_r(m') p_{(m',t)|(o,0)} / p_{(m,t)|(o,0)}.
        taus, which = _elements(tau, x0)
        start, end = x0.reshape(-1).long(), xt.reshape(-1).long()
        jumps = torch.tensor(self.jumps, dtype=torch.int64, device=x0.device)
        propagator = self._propagator(x0.device)
        rates = self.arrival_rates(end, taus[which])
        for part in torch.arange(len(start), device=x0.device).split(max(1, _WORKSPACE // (len(jumps) + 1))):
            # Outside the states the arrival rate is zero, so any state may stand in for the preimage.
            preimage = (end[part].unsqueeze(-1) - jumps).clamp(0, self.num_states - 1)
            if self._lag:
                before = propagator.prob(start[part], preimage, (taus - self._lag).clamp(min=0), which[part])
                here = propagator.prob(start[part], end[part].unsqueeze(-1), taus, which[part])
            else:
                both = torch.cat([preimage, end[part].unsqueeze(-1)], -1)
                before, here = propagator.prob(start[part], both, taus, which[part]).split([len(jumps), 1], -1)
            rates[part] *= torch.where(here > _TINY, before / here.clamp(min=_TINY), 0.0)
        return rates.reshape(*x0.shape, len(jumps))

    def sample_bridge_at(self, x0: Tensor, xt: Tensor, tau_s: Tensor, tau_t: Tensor, source: Source) -> Tensor:
        # Bayes and the Markov property: p_{(m,s)|(n,t),(o,0)} is proportional to p_{(m,s)|(o,0)} p_{(n,t)|(m,s)}.
        u = uniform(tuple(x0.shape), x0.device, source).reshape(-1)
        early, which_early = _elements(tau_s, x0)
        late, which_late = self._step_times(tau_s, tau_t, x0)
        start, end = x0.reshape(-1).long(), xt.reshape(-1).long()
        propagator = self._propagator(x0.device)
        out = torch.empty_like(start)
        once = len(early) == len(late) == 1 and self.num_states <= DENSE_STATES  # one pair of times: two dense matrices
        if once:
            states = torch.arange(self.num_states, device=x0.device)
            first, second = (propagator.rows(states, tau, torch.zeros_like(states)) for tau in (early, late))
            second = second.T.contiguous()
        workspace = _WORKSPACE << 4 if x0.is_cuda else _WORKSPACE
        for part in torch.arange(len(start), device=x0.device).split(max(1, workspace // self.num_states)):
            if once:
                weights = first[start[part]] * second[end[part]]
            else:
                weights = propagator.rows(start[part], early, which_early[part])
                weights *= propagator.columns(end[part], late, which_late[part])
            out[part] = pick(weights, u[part])
        return out.reshape(x0.shape)

    def bridge_log_prob_at(self, xs: Tensor, x0: Tensor, xt: Tensor, tau_s: Tensor, tau_t: Tensor) -> Tensor:
        late = self._prob(xs, xt, *self._step_times(tau_s, tau_t, xs))
        reach = self.log_prob_at(xs, x0, tau_s) + torch.log(late)
        total = self.log_prob_at(xt, x0, tau_t)
        return torch.where(torch.isneginf(reach) | torch.isneginf(total), -torch.inf, reach - total)

    def _terminal(self, shape: tuple[int, ...], device: torch.device, source: Source) -> Tensor:
        probs = self.terminal_probs.to(device)
        cumulative = probs.cumsum(0)
        index = torch.searchsorted(cumulative, uniform(shape, device, source) * cumulative[-1], right=True)
        return index.clamp(max=int(probs.nonzero()[-1]))

    def _terminal_log_prob(self, x: Tensor) -> Tensor:
        logs = torch.log(self.terminal_probs.to(x.device))
        if self.pad_state is not None:
            logs[self.pad_state] = 0.0
        return logs[x.long()]


class GeneratorProcess(MatrixProcess):
    """A MatrixProcess in continuous time: the matrix is a generator, whose rows sum to zero."""

    def __init__(self, matrix: Any, ordered: bool | None = None, schedule: Schedule | Function | None = None) -> None:
        super().__init__(generators.as_csr("generator", matrix, total=0.0), ordered, schedule)
        self._arrival_tables: dict[torch.device, Tensor] = {}

    @property
    def generator(self) -> Tensor:
        """The generator as a dense matrix: generator[i, j] is the rate i -> j."""
        return torch.from_numpy(self.csr.toarray())

    @property
    def divergence_form(self) -> str:  # type: ignore[override]
        return "states" if 2 * len(self.jumps) >= self.num_states else "jumps"

    def arrivals_by_state(self, x: Tensor, tau: Tensor) -> Tensor:
        """The rate y -> x of every state y, zero for y = x, shape (..., S)."""
        if x.device not in self._arrival_tables:
            self._arrival_tables[x.device] = self.generator.fill_diagonal_(0.0).T.contiguous().to(x.device)
        return self._arrival_tables[x.device][x.long()]

    def _new_propagator(self, device: torch.device) -> Propagator:
        if self.num_states <= DENSE_STATES:
            return Exponential(self.csr, device)
        return SparseExponential(self.csr)


def _elements(tau: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct times, and for each element of x, flattened, the index of its own."""
    if tau.dim() == 0:
        return tau.reshape(1), torch.zeros(x.numel(), dtype=torch.int64, device=x.device)
    taus, which = torch.unique(tau, return_inverse=True)
    return taus, which.repeat_interleave(x[0].numel() if len(x) else 0)


def matrix_config(csr: Any) -> dict[str, Any]:
    """A sparse matrix as plain JSON."""
    entries = csr.tocoo()
    return {
        "num_states": csr.shape[0],
        "entries": {"row": entries.row.tolist(), "column": entries.col.tolist(), "value": entries.data.tolist()},
    }


def matrix_from_config(config: dict[str, Any]) -> Any:
    """The scipy matrix that `matrix_config` described."""
    from scipy import sparse

    size, entries = config["num_states"], config["entries"]
    check_memory(f"a process of num_states={size:,}", 16.0 * size, "use fewer states")
    where = (numpy.asarray(entries["row"], dtype=int), numpy.asarray(entries["column"], dtype=int))
    return sparse.coo_array((numpy.asarray(entries["value"], dtype=float), where), shape=(size, size)).tocsr()
