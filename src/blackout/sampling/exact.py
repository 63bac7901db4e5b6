"""Event by event, without a time step: the ground truth against which the bias of other samplers is measured."""

import functools
from collections.abc import Iterator, Sequence

import numpy
import torch
from torch import Tensor

from blackout import validate
from blackout.posterior import Denoiser, call
from blackout.process.base import MarkovProcess
from blackout.process.paths import JumpPath
from blackout.random import Streams, pick
from blackout.sampling.base import PosteriorAt, Sampler, check_continuous
from blackout.slow import SlowWork
from blackout.times import ObservationTimes

_NODES = 5
_LEVELS = 20  # pieces are halved so often towards a time at which rates jump
_LOWEST = -28.0  # log(e^{γτ} - 1) below which no event is expected, unless rates differ a lot: γτ = 7e-13
_EVENTS = 3.0  # expected in one piece, at most; it ends with the first of them
_UNRESOLVED = 1e-3  # events in the highest term of the polynomial above which a piece is shortened
_ROWS = 256  # states in one call of the denoiser, unless a batch has more
_ROUNDS = 64  # rounds whose random numbers are drawn at once
_PLACES = 32  # compared at once to find the place of an event


class Exact(Sampler):
    """The reverse process of Eq. (5) itself, simulated jump by jump. Not in the paper.

    Between two events the rates depend on time alone, and the next event is where their integral reaches an exponential
    variable. Over a piece of g = log(e^{γτ} - 1) the rates are polynomials through their values at five Radau nodes,
    of which the first is the present. Pieces have at most the length `piece` and about three expected events, and are
    shortened until the polynomials have converged. The samples' distribution does not depend on the times.

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
        size = torch.full_like(now, self.piece)
        # Numbers are drawn by (sample, round), so that a sample does not depend on how many rounds the others need.
        draw, number = rng.next_draw(), 0
        uniform = self._uniform(rng, draw, 0)
        left = -torch.log1p(-uniform[0, 0])
        floors = process.log_time_edges(low, max(low, high), _LEVELS)[:-1].to(x.device)
        work = self.slow_work()
        while bool((now > low).any()):
            number += 1
            if number % _ROUNDS == 0:
                uniform = self._uniform(rng, draw, number)
            fresh, choice = uniform[number % _ROUNDS]
            # Samples at the end of the step take part with length zero: no hazard, no event.
            floor = floors[(torch.searchsorted(floors, now) - 1).clamp(min=0)]
            length = torch.minimum(now - floor, size)
            coefficients, events, resolved = self._polynomials(posterior_at, process, x, now, length)
            happens = resolved & (events > left) & (length > 0)
            depth = resolved.double()
            depth[happens] = _crossing(coefficients[happens].sum(-1), left[happens])
            left = torch.where(happens, -torch.log1p(-fresh), left - events * resolved)
            now = torch.where((depth == 1) & (length == now - floor), floor, now - depth * length)
            x = self._jump(process, x, coefficients, depth, happens, choice)
            wanted = torch.where(resolved, _EVENTS * length / events.clamp(min=1e-300), length / 4)
            size = torch.minimum(torch.minimum(wanted, 4 * size), torch.full_like(size, self.piece))
            work.done(max(1e-3, float(torch.sigmoid(-now.max()))))
            yield now, x, happens

    def slow_work(self) -> SlowWork:
        return SlowWork(
            "exact sampling, with one or more calls of the denoiser for each event,",
            "the other samplers take as many steps as there are observation times, whatever the counts",
        )

    def check(self, process: MarkovProcess) -> None:
        check_continuous(process)

    def step_log_prob(
        self, posterior_at: PosteriorAt, process: MarkovProcess, xs: Tensor, xt: Tensor, s: Tensor, t: Tensor
    ) -> Tensor:
        raise ValueError("Exact has no steps to bound: its evidence bound is blackout.evidence_bound")

    def _uniform(self, rng: Streams, draw: int, number: int) -> Tensor:
        """Two numbers for each sample in each of the next rounds, shape (_ROUNDS, 2, batch)."""
        samples = rng.samples.repeat(_ROUNDS)
        rounds = torch.arange(number, number + _ROUNDS, device=samples.device).repeat_interleave(len(rng.samples))
        return torch.stack([v.reshape(_ROUNDS, -1) for v in rng.pair(samples, rounds, draw, 0)], 1)

    def _polynomials(
        self, posterior_at: PosteriorAt, process: MarkovProcess, x: Tensor, now: Tensor, length: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Of the rates over the piece below `now`, in events: coefficients, integral, and whether they have converged.

        The coefficients, shape (batch, powers, components × channels), are those of powers of the depth in [0, 1].
        """
        g = now - self._nodes.to(x.device).unsqueeze(-1) * length
        t, stretch = process.at_log_time(g)
        parts = []
        for some in torch.arange(_NODES).split(max(1, _ROWS // max(1, len(x)))):  # copies of the batch in one call
            rates = posterior_at(x.repeat(len(some), *[1] * (x.dim() - 1)), t[some].reshape(-1)).rates()
            parts.append(rates.reshape(len(some), len(x), -1))
        values = torch.cat(parts) * (stretch * length).unsqueeze(-1)
        # Sums, not matrix products, whose rounding would depend on the size of the batch.
        coefficients = (self._coefficients.to(x.device)[:, :, None, None] * values).sum(1).movedim(0, 1)
        events = (coefficients.sum(-1) * _integrals(x.device)).sum(-1)
        highest = (self._highest.to(x.device)[:, None, None] * values).sum(0).abs().sum(-1)
        return coefficients, events.clamp(min=0), highest <= _UNRESOLVED

    def _jump(
        self, process: MarkovProcess, x: Tensor, coefficients: Tensor, depth: Tensor, event: Tensor, u: Tensor
    ) -> Tensor:
        """One jump of one component in each sample that has an event, in proportion to the rates there."""
        rows = event.nonzero().squeeze(-1)
        if not rows.numel():
            return x
        rates = _horner(coefficients[rows].unbind(1), depth[rows].unsqueeze(-1)).clamp(min=0)
        average = (coefficients[rows] * _integrals(x.device).unsqueeze(-1)).sum(1).clamp(min=0)
        chosen = pick(torch.where(rates.sum(-1, keepdim=True) > 0, rates, average), u[rows])
        component, channel = chosen // len(process.jumps), chosen % len(process.jumps)
        moved = x.reshape(len(x), -1).clone()
        moved[rows, component] -= torch.tensor(process.jumps, device=x.device)[channel]
        return moved.reshape(x.shape)


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


def _crossing(coefficients: Tensor, left: Tensor) -> Tensor:
    """The depth at which the integral of the polynomial reaches what is left, to 35 binary digits."""
    integral = [c.unsqueeze(-1) for c in (coefficients * _integrals(left.device)).unbind(-1)]
    places = torch.arange(1, _PLACES, device=left.device, dtype=torch.float64)
    low, width = torch.zeros_like(left), 1.0
    for _ in range(7):
        width /= _PLACES
        place = low.unsqueeze(-1) + width * places
        reached = _horner(integral, place) * place
        low = low + width * (reached < left.unsqueeze(-1)).sum(-1)
    return low + width
