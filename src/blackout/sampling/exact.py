"""Event by event, without a time step: the ground truth against which the bias of other samplers is measured."""

import math
from collections.abc import Iterator, Sequence

import numpy
import torch
from torch import Tensor

from blackout import validate
from blackout.posterior import Denoiser
from blackout.process.base import MarkovProcess
from blackout.process.paths import JumpPath
from blackout.random import Streams, pick
from blackout.sampling.base import Sampler, check_continuous
from blackout.sampling.jump import clip
from blackout.sampling.step import Step
from blackout.slow import SlowWork
from blackout.times import ObservationTimes

_NODES = 5
_LEVELS = 20  # pieces are halved so often towards a time at which rates jump
_LOWEST = -28.0  # log(e^{γτ} - 1) below which no event is expected, unless rates differ a lot: γτ = 7e-13
_AHEAD = 16  # states evaluated in advance where there is but one jump, so that the next states are known
_DENSE = 150.0  # expected events per unit of g above which that pays
_EVENTS = 3.0, _AHEAD / 2  # expected in one piece, at most: without and with states in advance
_UNRESOLVED = 1e-3  # events in the highest term of the polynomial above which a piece is shortened
_ROWS = 512  # states in one call of the denoiser, unless a batch has more
_NUMBERS = 64  # pairs of random numbers of a sample that are drawn at once
_PLACES = 32  # compared at once to find the place of an event


class Exact(Sampler):
    """The reverse process of Eq. (5) itself, simulated jump by jump. Not in the paper.

    Between two events the rates depend on time alone, and the next event is where their integral reaches an exponential
    variable. Over a piece of g = log(e^{γτ} - 1) the rates are polynomials through their values at five Radau nodes,
    of which the first is the present. Pieces have at most the length `piece` and a few expected events, and are
    shortened until the polynomials have converged. They end with the first event, after which all rates have changed;
    only with one component and one channel is the next state known, and many are evaluated in one call. The samples'
    distribution does not depend on the times.

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
        self._nodes, self._coefficients, self._highest = _collocation()

    def step(self, at: Step, xt: Tensor, rng: Streams) -> Tensor:
        for _, x, _ in self._rounds(at, xt, rng):
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
        xt = self.start(process, times, shape, rng)
        ((s, t),) = times.backwards()
        events = [[(t, state)] for state in xt]
        for now, x, event in self._rounds(Step.of(denoise, process, s, t), xt, rng):
            moments = process.at_log_time(now)[0]
            for row in event.nonzero().flatten().tolist():
                events[row].append((moments[row], x[row]))
        return [JumpPath.of(one) for one in events]

    def _rounds(self, at: Step, xt: Tensor, rng: Streams) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """The samples' own times, as `log_time`; their states; and which of them have just had an event."""
        process = at.process
        low, high = (float(process.log_time(process.clock_time(v))) for v in (at.s, at.t))
        if low < _LOWEST:  # the last steps alone
            lowest = _LOWEST - (0.0 if process.num_states is None else process.stiffness(process.num_states))
            low, high = max(low, lowest), max(high, lowest)
        x, now = xt, torch.full((len(xt),), high, dtype=torch.float64, device=xt.device)
        most = _AHEAD if xt.shape[1:].numel() * len(process.jumps) == 1 else 1
        size, many = torch.full_like(now, self.piece), torch.zeros_like(now, dtype=torch.bool)
        numbers = _Numbers(rng)
        left, work = numbers.exponential(torch.ones_like(many)), self._slow_work()
        floors = process.log_time_edges(low, max(low, high), _LEVELS)[:-1].to(x.device)
        while bool((now > low).any()):
            # Samples at the end of the step take part with length zero: no hazard, no event.
            floor = floors[(torch.searchsorted(floors, now) - 1).clamp(min=0)]
            length, top, ahead = torch.minimum(now - floor, size), now, most if bool(many.any()) else 1
            values = self._values(at, x, now, length, ahead)
            coefficients, events, resolved = self._polynomials(values)
            going, depth = resolved[:, 0] & (length > 0), torch.zeros_like(now)
            for k in range(ahead):
                total = coefficients[:, k].sum(-1)
                target = left + _integral(total.unbind(-1), depth)
                happens = going & (events[:, k] > target)
                depth = torch.where(going, 1.0, depth)
                depth[happens] = _crossing(total[happens], target[happens])
                left = torch.where(going, target - events[:, k], left)
                now = torch.where((depth == 1) & (length == top - floor), floor, top - depth * length)
                if bool(happens.any()):
                    left = torch.where(happens, numbers.exponential(happens), left)
                    x = self._jump(process, x, coefficients[:, k], depth, happens, numbers)
                    yield now, x, happens
                if k + 1 == ahead or not bool((going := happens & many & resolved[:, k + 1]).any()):
                    break
            rate = events[:, 0].clamp(min=1e-300) / length.clamp(min=1e-300)
            many = (rate > _DENSE) & (most > 1)
            wanted = torch.where(resolved[:, 0], torch.where(many, _EVENTS[1], _EVENTS[0]) / rate, length / 4)
            size = torch.minimum(torch.minimum(wanted, 4 * size), torch.full_like(size, self.piece))
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

    def _values(self, at: Step, x: Tensor, now: Tensor, length: Tensor, ahead: int) -> Tensor:
        """Rates of x and of the states that follow it, in events per piece: (ahead, nodes, batch, channels)."""
        process, g = at.process, now - self._nodes.to(x.device).unsqueeze(-1) * length
        t, stretch = process.at_log_time(g)
        steps = torch.arange(ahead, device=x.device).reshape(-1, *[1] * x.dim())
        states = clip(process, x - steps * process.jumps[0] if ahead > 1 else x.unsqueeze(0))
        states = states.repeat_interleave(_NODES, 0)
        t, parts = t.repeat(ahead, 1), []
        for some in torch.arange(len(t)).split(max(1, _ROWS // max(1, len(x)))):  # copies of the batch in one call
            rates = at.posterior_at(states[some].flatten(0, 1), t[some].reshape(-1)).rates()
            parts.append(rates.reshape(len(some), len(x), -1))
        return torch.cat(parts).reshape(ahead, _NODES, len(x), -1) * (stretch * length).unsqueeze(-1)

    def _polynomials(self, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Coefficients of powers of the depth in [0, 1], (batch, ahead, powers, channels); the integrals of their sums
        over channels, and whether they have converged, (batch, ahead).
        """
        # Sums, not matrix products, whose rounding would depend on the size of the batch.
        coefficients = self._coefficients.to(values.device)[:, :, None, None] * values.unsqueeze(1)
        coefficients = coefficients.sum(2).permute(2, 0, 1, 3)
        events = (coefficients.sum(-1) * _integrals(values.device)).sum(-1)
        highest = (self._highest.to(values.device)[:, None, None] * values).sum(1).abs().sum(-1)
        return coefficients, events.clamp(min=0), (highest <= _UNRESOLVED).T

    def _jump(
        self, process: MarkovProcess, x: Tensor, coefficients: Tensor, depth: Tensor, event: Tensor, numbers: "_Numbers"
    ) -> Tensor:
        """One jump of one component in each sample that has an event, in proportion to the rates there."""
        rows = event.nonzero().squeeze(-1)
        chosen = torch.zeros_like(rows)
        if coefficients.shape[-1] > 1:
            rates = _horner(coefficients[rows].unbind(1), depth[rows].unsqueeze(-1)).clamp(min=0)
            average = (coefficients[rows] * _integrals(x.device).unsqueeze(-1)).sum(1).clamp(min=0)
            chosen = pick(torch.where(rates.sum(-1, keepdim=True) > 0, rates, average), numbers.choice[rows])
        component, channel = chosen // len(process.jumps), chosen % len(process.jumps)
        moved = x.reshape(len(x), -1).clone()
        moved[rows, component] -= torch.tensor(process.jumps, device=x.device)[channel]
        return moved.reshape(x.shape)


class _Numbers:
    """Random numbers by (sample, event), so that a sample does not depend on how many events the others have."""

    def __init__(self, rng: Streams) -> None:
        self._rng, self._draw = rng, rng.next_draw()
        self._rows = torch.arange(len(rng.samples), device=rng.samples.device)
        self._used, self._left = torch.zeros_like(self._rows), 0
        self.choice = torch.zeros(len(self._rows), dtype=torch.float64, device=self._rows.device)

    def exponential(self, event: Tensor) -> Tensor:
        """An exponential variable for each sample; `choice` is a number in [0, 1) that belongs to the same event."""
        if self._left == 0:
            self._left, self._first = _NUMBERS, self._used.clone()
            index = (self._first.unsqueeze(-1) + torch.arange(_NUMBERS, device=self._rows.device)).flatten()
            pair = self._rng.pair(self._rng.samples.repeat_interleave(_NUMBERS), index, self._draw, 0)
            self._pairs = [v.reshape(-1, _NUMBERS) for v in pair]
        self._left -= 1
        place = self._used - self._first
        fresh, self.choice = (v[self._rows, place] for v in self._pairs)
        self._used = self._used + event
        return -torch.log1p(-fresh)


def _share(process: MarkovProcess, now: float, high: float) -> float:
    """About which share of the events has happened between high and now, as `log_time`."""
    if process.terminal_state is None:  # events at all times, as at equilibrium
        return max(1e-3, 1 - math.log1p(math.exp(min(now, 700.0))) / math.log1p(math.exp(min(high, 700.0))))
    return max(1e-3, 1 / (1 + math.exp(min(now, 700.0))))


def _collocation() -> tuple[Tensor, Tensor, Tensor]:
    """Radau nodes on [0, 1] with 0 among them; of the polynomial through values there, the coefficients, row by power.

    Third, the weights of the highest Legendre polynomial in it.
    """
    legendre = numpy.polynomial.legendre
    nodes = (numpy.sort(legendre.legroots([0.0] * (_NODES - 1) + [1.0, 1.0]).real) + 1) / 2
    nodes[0] = 0.0
    coefficients = numpy.linalg.inv(numpy.vander(nodes, increasing=True))
    highest = numpy.linalg.inv(legendre.legvander(2 * nodes - 1, _NODES - 1))[-1]
    return torch.from_numpy(nodes), torch.from_numpy(coefficients), torch.from_numpy(highest)


def _integrals(device: torch.device) -> Tensor:
    """The integrals of the powers of the depth over [0, 1]."""
    return 1 / torch.arange(1, _NODES + 1, dtype=torch.float64, device=device)


def _horner(coefficients: Sequence[Tensor], place: Tensor) -> Tensor:
    total = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        total = total * place + coefficient
    return total


def _integral(coefficients: Sequence[Tensor], place: Tensor) -> Tensor:
    """The integral from 0 to a place in [0, 1] of the polynomial with these coefficients."""
    return _horner([c / (k + 1) for k, c in enumerate(coefficients)], place) * place


def _crossing(coefficients: Tensor, target: Tensor) -> Tensor:
    """The depth at which the integral of the polynomial reaches the target, to 35 binary digits."""
    # In numpy, where operations on small arrays take a fraction of torch's time.
    integral = (coefficients * _integrals(target.device)).cpu().numpy().T[:, :, None]
    goal = target.cpu().numpy()[:, None]
    places, low, width = numpy.arange(1, _PLACES), numpy.zeros_like(goal), 1.0
    for _ in range(7):
        width /= _PLACES
        place = low + width * places
        reached = integral[-1]
        for coefficient in integral[-2::-1]:
            reached = reached * place + coefficient
        low = low + width * numpy.count_nonzero(reached * place < goal, axis=-1, keepdims=True)
    return torch.from_numpy(low[:, 0] + width).to(target.device)
