"""Event by event, without a time step: the ground truth against which the bias of other samplers is measured."""

import functools
from collections.abc import Iterator

import numpy
import torch
from torch import Tensor

from blackout import validate
from blackout.posterior import Denoiser, call
from blackout.process.base import MarkovProcess
from blackout.process.paths import JumpPath
from blackout.random import Streams, pick
from blackout.sampling.base import PosteriorAt, Sampler, check_continuous
from blackout.times import ObservationTimes

_NODES = 5
_LEVELS = 20  # pieces are halved so often towards a time at which rates jump
_LOWEST = -28.0  # log(e^{γτ} - 1) below which no event is expected, unless rates differ a lot: γτ = 7e-13


class Exact(Sampler):
    """The reverse process of Eq. (5) itself, simulated jump by jump. Not in the paper.

    Between two events the rates depend on time alone, and the next event is where their integral reaches an exponential
    variable. The integral is taken in g = log(e^{γτ} - 1), over pieces of length `piece`, by Gauss–Legendre quadrature
    with five nodes; on smooth rates its error is below 1e-9. The samples' distribution does not depend on the times.

    Examples
    --------
    >>> import blackout as bo
    >>> process, times = bo.PureDeath(9), bo.ObservationTimes.from_values([15.0])
    >>> denoise = bo.ExactPosterior(process, torch.tensor([[2], [8]]))
    >>> samples = bo.Exact().sample(denoise, process, times, (100, 1), seed=0)
    >>> samples.unique()
    tensor([2, 8])
    """

    def __init__(self, corrector_steps: int = 0, corrector_size: float = 0.1, piece: float = 1.0) -> None:
        super().__init__(corrector_steps, corrector_size)
        self.piece = validate.real("piece", piece, 0.0, strict=True)
        if self.piece > 2:
            raise ValueError(f"piece must be at most 2, got {piece}")
        self._nodes, self._integrals = _collocation()

    def step(
        self, posterior_at: PosteriorAt, process: MarkovProcess, xt: Tensor, s: Tensor, t: Tensor, rng: Streams
    ) -> Tensor:
        for _, x, _ in self._rounds(posterior_at, process, xt, s, t, rng):
            xt = x
        return xt

    @torch.no_grad()
    def paths(
        self,
        denoise: Denoiser,
        process: MarkovProcess,
        t_end: float,
        shape: tuple[int, ...],
        seed: int = 0,
        *,
        start_index: int = 0,
    ) -> list[JumpPath]:
        """Paths of the reverse process in continuous time, from t_end down to 0, one for each sample.

        They end where `sample` with t_end as its only observation time does.
        """
        self.check(process)
        shape, times = validate.shape(shape), ObservationTimes.from_values([t_end])
        if not shape:
            raise ValueError("shape must begin with the number of paths, got ()")
        rng = Streams(validate.integer("seed", seed, 0), shape[0], validate.integer("start_index", start_index, 0))
        posterior_at = functools.partial(call, denoise, process)
        xt = self.start(process, times, shape, rng)
        ((s, t),) = times.backwards()
        events = [[(t, state)] for state in xt]
        for now, x, event in self._rounds(posterior_at, process, xt, s, t, rng):
            moments = process.at_log_time(now)[0]
            for row in event.nonzero().flatten().tolist():
                events[row].append((moments[row], x[row]))
        return [JumpPath.of(one) for one in events]

    def _rounds(
        self, posterior_at: PosteriorAt, process: MarkovProcess, xt: Tensor, s: Tensor, t: Tensor, rng: Streams
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """The samples' own times, as `log_time`; their states; and which of them have just had an event."""
        low, high = (float(process.log_time(process.clock_time(v))) for v in (s, t))
        if low < _LOWEST:  # the last steps alone
            lowest = _LOWEST - (0.0 if process.num_states is None else process.stiffness(process.num_states))
            low, high = max(low, lowest), max(high, lowest)
        x, now = xt, torch.full((len(xt),), high, dtype=torch.float64, device=xt.device)
        # Numbers are drawn by (sample, round), so that a sample does not depend on how many rounds the others need.
        draw, number = rng.next_draw(), 0
        left = -torch.log1p(-self._uniform(rng, draw, number)[0])
        floors = process.log_time_edges(low, max(low, high), _LEVELS)[:-1].to(x.device)
        while bool((now > low).any()):
            number += 1
            fresh, choice = self._uniform(rng, draw, number)
            floor = floors[(torch.searchsorted(floors, now) - 1).clamp(min=0)]
            length = torch.minimum(now - floor, torch.full_like(now, self.piece))
            hazard = self._hazard(posterior_at, process, x, now, length)
            event, depth = self._crossing(hazard, left, length)
            # Samples at the end of the step take part with length zero: no hazard, no event.
            left = torch.where(event, -torch.log1p(-fresh), left - _dot(hazard, self._integrals[-1]))
            now = torch.where(event, now - depth * length, torch.where(length < self.piece, floor, now - length))
            x = self._jump(posterior_at, process, x, now, event, choice)
            yield now, x, event

    def check(self, process: MarkovProcess) -> None:
        check_continuous(process)

    def step_log_prob(
        self, posterior_at: PosteriorAt, process: MarkovProcess, xs: Tensor, xt: Tensor, s: Tensor, t: Tensor
    ) -> Tensor:
        raise ValueError("Exact has no steps to bound: its evidence bound is blackout.evidence_bound")

    def _uniform(self, rng: Streams, draw: int, number: int) -> tuple[Tensor, Tensor]:
        return rng.pair(rng.samples, torch.zeros_like(rng.samples), draw, number)

    def _hazard(
        self, posterior_at: PosteriorAt, process: MarkovProcess, x: Tensor, now: Tensor, length: Tensor
    ) -> Tensor:
        """The total rate at each node below `now`, times the length of the piece: shape (batch, nodes)."""
        values = []
        for node in self._nodes.to(x.device):
            g = now - node * length
            t, stretch = process.at_log_time(g)
            rates = posterior_at(x, t).rates()
            values.append(rates.reshape(len(x), -1).sum(-1) * stretch * length)
        return torch.stack(values, -1)

    def _crossing(self, hazard: Tensor, left: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
        """Whether, and how deep in the piece, the integral of the hazard reaches what is left: by bisection."""
        integrals = self._integrals.to(hazard.device)
        event = (_dot(hazard, integrals[-1]) > left) & (length > 0)
        coefficients = (hazard @ integrals[:-1].T).unbind(-1)
        low, high = torch.zeros_like(left), torch.ones_like(left)
        for _ in range(40):
            middle = (low + high) / 2
            reached = torch.zeros_like(middle)
            for coefficient in reversed(coefficients):
                reached = (reached + coefficient) * middle
            below = reached < left
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return event, high

    def _jump(
        self, posterior_at: PosteriorAt, process: MarkovProcess, x: Tensor, now: Tensor, event: Tensor, u: Tensor
    ) -> Tensor:
        """One jump of one component in each sample that has an event, in proportion to the rates there."""
        rows = event.nonzero().squeeze(-1)
        if not rows.numel():
            return x
        rates = posterior_at(x, process.at_log_time(now)[0]).rates()[rows].reshape(len(rows), -1)
        chosen = pick(rates, u[rows])
        component, channel = chosen // len(process.jumps), chosen % len(process.jumps)
        moved = x.reshape(len(x), -1).clone()
        moved[rows, component] -= torch.tensor(process.jumps, device=x.device)[channel]
        return moved.reshape(x.shape)


def _collocation() -> tuple[Tensor, Tensor]:
    """Nodes on [0, 1]; and for the polynomial through values there, the coefficients of its integral, row by power.

    The last row holds the weights of the integral over all of [0, 1].
    """
    nodes, weights = numpy.polynomial.legendre.leggauss(_NODES)
    nodes = (nodes + 1) / 2
    coefficients = numpy.linalg.inv(numpy.vander(nodes, increasing=True))
    integrals = coefficients / numpy.arange(1, _NODES + 1)[:, None]
    return torch.from_numpy(nodes), torch.from_numpy(numpy.vstack([integrals, weights / 2]))


def _dot(values: Tensor, weights: Tensor) -> Tensor:
    return values @ weights.to(values.device)
