"""Event by event, without a time step: the ground truth against which the bias of other samplers is measured."""

import math
from collections.abc import Iterator

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from blackout import validate
from blackout.posterior import Denoiser
from blackout.process.base import MarkovProcess
from blackout.process.paths import JumpPath
from blackout.random import Streams, pick
from blackout.sampling.base import Sampler, check_continuous
from blackout.sampling.polynomials import NODES, Polynomials, node_places
from blackout.sampling.step import Step
from blackout.slow import SlowWork
from blackout.times import ObservationTimes

_LEVELS = 20  # pieces are halved so often towards a time at which rates jump
_LOWEST = -28.0  # log(e^{γτ} - 1) below which no event is expected, unless rates differ a lot: γτ = 7e-13
_AHEAD = 16  # states evaluated in advance
_DENSE = 150.0  # expected events per unit of g above which that pays
_EVENTS = 3.0, _AHEAD / 2  # expected in one piece, at most: without and with states in advance
_ROWS = 512  # states in one call of the denoiser, unless a batch has more
_NUMBERS = 64  # pairs of random numbers of a sample that are drawn at once

_Floats = NDArray[numpy.float64]
_Integers = NDArray[numpy.int64]


class Exact(Sampler):
    """The reverse process of Eq. (5) itself, simulated jump by jump. Not in the paper.

    Between two events the rates depend on time alone, and the next event is where their integral reaches an exponential
    variable. Over a piece of g = log(e^{γτ} - 1) the rates are polynomials through their values at five Radau nodes,
    of which the first is the present. Pieces have at most the length `piece` and a few expected events, and are
    shortened until the polynomials have converged. Where events are dense, the states that the next ones will lead to
    are predicted, with the random numbers of these events and the rates of the last one, and evaluated in the same
    call. A piece ends with the first event that leads elsewhere. The samples' distribution does not depend on the
    times, nor on predictions.

    Examples
    --------
    >>> import blackout as bo
    >>> process, times = bo.PureDeath(9), bo.ObservationTimes.from_values([15.0])
    >>> denoise = bo.ExactPosterior(process, torch.tensor([[2], [8]]))
    >>> samples = bo.Exact().sample(denoise, process, times, (100, 1), seed=0)
    >>> samples.unique()
    tensor([2, 8])
    """

    def __init__(self, corrector_steps: int = 0, corrector_size: float = 0.1, piece: float = 2.0) -> None:
        super().__init__(corrector_steps, corrector_size)
        self.piece = validate.real("piece", piece, 0.0, strict=True)
        if self.piece > 2:
            raise ValueError(f"piece must be at most 2, got {piece}")

    def step(self, at: Step, xt: Tensor, rng: Streams) -> Tensor:
        states = _States(at.process, xt)
        for _ in self._rounds(at, states, rng):
            pass
        return states.tensor(states.now)

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
        xt = self.start(process, times, shape, rng)
        ((s, t),) = times.backwards()
        events, states = [[(t, state)] for state in xt], _States(process, xt)
        for now, rows in self._rounds(Step.of(denoise, process, s, t), states, rng):
            moments, reached = process.at_log_time(torch.from_numpy(now[rows]))[0], states.tensor(states.now[rows])
            for row, event in zip(rows, zip(moments, reached, strict=True), strict=True):
                events[row].append(event)
        return [JumpPath.of(one) for one in events]

    def _rounds(self, at: Step, states: "_States", rng: Streams) -> Iterator[tuple[_Floats, _Integers]]:
        """Changes the states event by event; yields the samples' own times, as `log_time`, and which have had an event.

        All but the calls of the denoiser is done in numpy, whose operations on small arrays take a fraction of torch's
        time.
        """
        process = at.process
        low, high = (float(process.log_time(process.clock_time(v))) for v in (at.s, at.t))
        if low < _LOWEST:  # the last steps alone
            lowest = _LOWEST - (0.0 if process.num_states is None else process.stiffness(process.num_states))
            low, high = max(low, lowest), max(high, lowest)
        now, numbers = numpy.full(len(states.now), high), _Numbers(rng)
        size, many = numpy.full_like(now, self.piece), numpy.zeros(len(now), bool)
        left, _ = numbers.take(numpy.arange(len(now)))
        work = self._slow_work()
        floors = process.log_time_edges(low, max(low, high), _LEVELS)[:-1].numpy()
        while (now > low).any():
            # Samples at the end of the step take part with length zero: no hazard, no event.
            floor = floors[(numpy.searchsorted(floors, now) - 1).clip(min=0)]
            length, top, ahead = numpy.minimum(now - floor, size), now, _AHEAD if many.any() else 1
            expected = states.predicted(numbers.choices(ahead - 1))
            rates = Polynomials(self._values(at, states.tensor(expected), now, length))
            going, depth = rates.resolved[0] & (length > 0), numpy.zeros_like(now)
            for k in range(ahead):
                target = left + rates.integral(k, depth)
                happens = going & (rates.events[k] > target)
                start, depth = depth, numpy.where(going, 1.0, depth)
                left = numpy.where(going, target - rates.events[k], left)
                rows = happens.nonzero()[0]
                depth[rows] = rates.crossing(k, rows, start[rows], target[rows])
                now = numpy.where((depth == 1) & (length == top - floor), floor, top - depth * length)
                if not len(rows):
                    break
                left[rows], choice = numbers.take(rows)
                states.jump(rows, rates.at(k, rows, depth[rows]), choice)
                yield now, rows
                if k + 1 == ahead:
                    break
                going = happens & many & rates.resolved[k + 1] & (states.now == expected[k + 1]).all(1)
                if not going.any():
                    break
            rate = rates.events[0].clip(min=1e-300) / length.clip(min=1e-300)
            many = rate > _DENSE
            wanted = numpy.where(rates.resolved[0], numpy.where(many, _EVENTS[1], _EVENTS[0]) / rate, length / 4)
            size = numpy.minimum(numpy.minimum(wanted, 4 * size), self.piece)
            work.done(_share(process, float(now.max()), high))

    def _slow_work(self) -> SlowWork:
        return SlowWork(
            "exact sampling, with one or more calls of the denoiser for each event,",
            "the other samplers take as many steps as there are observation times, whatever the counts",
        )

    def check(self, process: MarkovProcess) -> None:
        check_continuous(process)

    def step_log_prob(self, at: Step, xs: Tensor, xt: Tensor) -> Tensor:
        raise ValueError("Exact has no steps to bound: its evidence bound is blackout.evidence_bound")

    def _values(self, at: Step, states: Tensor, now: _Floats, length: _Floats) -> _Floats:
        """Rates of states (ahead, batch, ...) at the nodes, in events per piece: (ahead, nodes, batch, channels)."""
        ahead, batch = states.shape[:2]
        g = torch.from_numpy(now - node_places()[:, None] * length).to(states.device)
        t, stretch = at.process.at_log_time(g)
        states, times, parts = states.repeat_interleave(NODES, 0), t.repeat(ahead, 1), []
        for some in torch.arange(len(times)).split(max(1, _ROWS // max(1, batch))):  # copies of the batch in one call
            rates = at.posterior_at(states[some].flatten(0, 1), times[some].reshape(-1)).rates()
            parts.append(rates.reshape(len(some), batch, -1))
        values = torch.cat(parts).reshape(ahead, NODES, batch, -1).cpu().numpy()
        return values * (stretch.cpu().numpy() * length)[:, :, None]


class _States:
    """The samples' states, shape (batch, components), and what is needed to predict the next ones."""

    def __init__(self, process: MarkovProcess, xt: Tensor) -> None:
        self.now: _Integers = xt.reshape(len(xt), math.prod(xt.shape[1:])).cpu().numpy().astype(numpy.int64)
        self._like, self._jumps = xt, numpy.array(process.jumps)
        self._largest = None if process.num_states is None else process.num_states - 1
        self._rates = torch.zeros(len(xt), self.now.shape[1] * len(self._jumps), dtype=torch.float64)

    def tensor(self, states: _Integers) -> Tensor:
        """States, shape (..., components), in the shape, type and place of those at the start."""
        return torch.from_numpy(states).reshape(*states.shape[:-1], *self._like.shape[1:]).to(self._like)

    def jump(self, rows: _Integers, rates: _Floats, choice: _Floats) -> None:
        """One jump of one component in these rows, in proportion to their rates, by a number in [0, 1)."""
        if rates.shape[1] == 1:
            self.now[rows] -= self._jumps[0]
            return
        these = torch.from_numpy(rates)
        self._rates[torch.from_numpy(rows)] = these
        component, displacement = self._moves(pick(these, torch.from_numpy(choice)).numpy())
        self.now[rows, component] -= displacement

    def predicted(self, choices: _Floats) -> _Integers:
        """The present states, and those after each of the next events, with these random numbers, shape (batch, n)."""
        moves = numpy.zeros((1 + choices.shape[1], *self.now.shape), numpy.int64)
        if self._rates.shape[1] == 1:
            moves[1:] = self._jumps[0]
        else:
            cumulative = self._rates.cumsum(-1)
            chosen = torch.searchsorted(cumulative, torch.from_numpy(choices) * cumulative[:, -1:], right=True)
            component, displacement = self._moves(chosen.clamp(max=self._rates.shape[1] - 1).T.numpy())
            numpy.put_along_axis(moves[1:], component[..., None], displacement[..., None], -1)
        states: _Integers = (self.now - moves.cumsum(0)).clip(0, self._largest)
        return states

    def _moves(self, chosen: _Integers) -> tuple[_Integers, _Integers]:
        """The components and displacements of chosen pairs of a component and a channel."""
        return chosen // len(self._jumps), self._jumps[chosen % len(self._jumps)]


class _Numbers:
    """Random numbers by (sample, event), so that a sample does not depend on how many events the others have."""

    def __init__(self, rng: Streams) -> None:
        self._rng, self._draw, self._batch = rng, rng.next_draw(), numpy.arange(len(rng.samples))
        self._used = numpy.zeros_like(self._batch)
        self._refill()

    def take(self, rows: _Integers) -> tuple[_Floats, _Floats]:
        """An exponential variable and a number in [0, 1) for each of these samples."""
        self._need(1)
        fresh, choice = self._pairs[:, rows, self._used[rows] - self._first[rows]]
        self._used[rows] += 1
        return fresh, choice

    def choices(self, count: int) -> _Floats:
        """The numbers in [0, 1) that `take` will return next, shape (batch, count)."""
        self._need(count)
        place = (self._used - self._first)[:, None] + numpy.arange(count)
        found: _Floats = self._pairs[1, self._batch[:, None], place]
        return found

    def _need(self, count: int) -> None:
        if len(self._used) and (self._used - self._first).max() + count > _NUMBERS:
            self._refill()

    def _refill(self) -> None:
        self._first = self._used.copy()
        samples = self._rng.samples
        index = torch.from_numpy(self._first[:, None] + numpy.arange(_NUMBERS)).flatten().to(samples.device)
        u, choice = self._rng.pair(samples.repeat_interleave(_NUMBERS), index, self._draw, 0)
        # Not by numpy, whose logarithm is rounded differently at the end of an array.
        self._pairs = torch.stack([-torch.log1p(-u), choice]).reshape(2, -1, _NUMBERS).cpu().numpy()


def _share(process: MarkovProcess, now: float, high: float) -> float:
    """About which share of the events has happened between high and now, as `log_time`."""
    if process.terminal_state is None:  # events at all times, as at equilibrium
        return max(1e-3, 1 - math.log1p(math.exp(min(now, 700.0))) / math.log1p(math.exp(min(high, 700.0))))
    return max(1e-3, 1 / (1 + math.exp(min(now, 700.0))))
