"""Sampler: the loop that runs the process backwards, written once."""

import functools
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from blackout import validate
from blackout.memory import check_memory
from blackout.posterior import Denoiser, call
from blackout.process.base import MarkovProcess
from blackout.process.data import check_process
from blackout.process.ending import ending_points, leaves_states, log_end_prob, sample_end
from blackout.random import Streams
from blackout.sampling import MAX_REPEATS
from blackout.sampling.step import Back, Past, PosteriorAt, Step
from blackout.slow import SlowWork
from blackout.times import ObservationTimes
from blackout.times.grid import check_times

_LARGE = 1 << 28  # bytes beyond which free memory is looked up
_FEW = 16  # states over which the divergence of a step is summed exactly
_NEGLIGIBLE = 1e-12  # probability of one of them


class Sampler(ABC):
    """One loop from the terminal distribution to time zero; a sampler is one `step`: docs/mathematics.md#samplers."""

    needs_probs: ClassVar[bool] = False
    """Whether it needs a distribution over X_0, so that means or rates are not enough."""
    has_memory: ClassVar[bool] = False
    """Whether a step depends on the one before: then it defines `next_step` and `next_log_prob`."""
    needs_draws: ClassVar[bool] = False
    """Whether it is for distilled models, whose heads give draws of X_0 alone."""

    def __init__(self, corrector_steps: int = 0, corrector_size: float = 0.1) -> None:
        self.corrector_steps = validate.integer("corrector_steps", corrector_steps, 0, MAX_REPEATS)
        self.corrector_size = validate.real("corrector_size", corrector_size, 0.0, strict=True)

    def __repr__(self) -> str:
        names = inspect.signature(type(self)).parameters
        values = {name: vars(self).get(name, vars(self).get(f"{name}_rule")) for name in names}
        shown = (
            f"{name}={tuple(value.shape) if isinstance(value, Tensor) else repr(value)}"
            for name, value in values.items()
            if self.corrector_steps or not name.startswith("corrector")
        )
        return f"{type(self).__name__}({', '.join(shown)})"

    @abstractmethod
    def step(self, at: Step, xt: Tensor, rng: Streams) -> Tensor:
        """A draw of X_s given X_t = xt."""

    @abstractmethod
    def step_log_prob(self, at: Step, xs: Tensor, xt: Tensor) -> Tensor:
        """The logarithm of the probability, elementwise, with which `step` would have led from xt to xs."""

    @abstractmethod
    def check(self, process: MarkovProcess) -> None:
        """Raise ValueError for a process that this sampler cannot reverse."""

    def next_step(self, at: Step, xt: Tensor, rng: Streams, past: Past | None) -> tuple[Tensor, Past | None]:
        """`step` after the step that left `past` (None: there is none), and what it leaves to the next one."""
        return self.step(at, xt, rng), None

    def next_log_prob(self, at: Step, xs: Tensor, xt: Tensor, past: Past | None) -> tuple[Tensor, Past | None]:
        """`step_log_prob` of `next_step`, and what that step leaves to the next one."""
        return self.step_log_prob(at, xs, xt), None

    def rows(self, rows: slice) -> "Sampler":
        """The sampler for some of the samples, where it depends on their number."""
        return self

    def start(self, process: MarkovProcess, times: ObservationTimes, shape: tuple[int, ...], rng: Streams) -> Tensor:
        """Where sampling starts: a draw from the terminal distribution."""
        return process.terminal(shape, rng)

    def correct(self, at: Step, x: Tensor, rng: Streams) -> Tensor:
        """x after the corrector steps that follow a step; at time zero nothing is left to correct."""

        def back(at: Step, xt: Tensor) -> Tensor:
            return self.single_step(at, xt, rng)

        for _ in range(self.corrector_steps if float(at.s) > 0 else 0):
            x = self.corrector_step(at, x, back, rng, None)
        return x

    def corrector_step(self, at: Step, x: Tensor, back: Back, rng: Streams, observed: Tensor | None) -> Tensor:
        """x after one corrector step at s; `back` is a step of the sampler, and keeps entries that are `observed`.

        A short time of the forward process, and back to s: docs/mathematics.md#correctors. The short time is
        `corrector_size` times the time in which the process relaxes at s, (1 - e^{-γs}) / γ, and at most as long as the
        step that is corrected: the more steps, the smaller the error of each step back.
        """
        process, now = at.process, at.process.clock_time(at.s)
        short = self.corrector_size * -torch.expm1(-process.relaxation_rate * now) / process.relaxation_rate
        later = now + torch.minimum(short, process.clock_time(at.t) - now)
        return back(replace(at, t=process.real_time(later)), process.sample_step_at(x, now, later, rng))

    def single_step(self, at: Step, xt: Tensor, rng: Streams) -> Tensor:
        """`step` without repetitions, for samplers that repeat it."""
        return self.step(at, xt, rng)

    def _slow_work(self) -> SlowWork | None:
        """The warning of a sampler whose steps have no bounded cost."""
        return None

    @torch.no_grad()
    def sample(
        self,
        denoise: Denoiser,
        process: MarkovProcess,
        times: ObservationTimes,
        shape: tuple[int, ...],
        seed: int = 0,
        trajectory: bool = False,
        *,
        start_index: int = 0,
        batch_size: int | None = None,
        device: Any = "cpu",
        callback: Callable[[int, int, Tensor], None] | None = None,
    ) -> Tensor:
        """Samples of the given shape (batch, ...), int64.

        Parameters
        ----------
        denoise
            A denoiser: see `blackout.posterior`.
        times
            The observation times, one step from each to the one before.
        shape
            (batch, ...).
        seed, start_index
            Sample number i depends on the seed and on i alone, not on `batch_size` or on the other samples;
            `start_index` is the number of the first one.
        trajectory
            Whether to return all states from X_{t_T} to X_0, shape (T + 1, batch, ...).
        callback
            callback(k, T, x) is called after each of the T steps of each batch.
        """
        self.check(check_process(process))
        validate.function("denoise", denoise)
        validate.function("callback", callback, optional=True)
        shape, device = validate.shape(shape), validate.device(device)
        if not shape:
            raise ValueError("shape must begin with the number of samples, got ()")
        num_steps, trajectory = len(check_times(times)), validate.boolean("trajectory", trajectory)
        check_samples(shape[0], shape[1:], num_steps + 1 if trajectory else 2, device)
        process.checked_clock(times.values, t=times.values)  # the times of a chain are integers
        seed, start_index = validate.integer("seed", seed, 0), validate.integer("start_index", start_index, 0)
        batch = max(1, shape[0]) if batch_size is None else validate.integer("batch_size", batch_size, 1)
        posterior_at = functools.partial(call, denoise, process)
        parts = []
        for start in range(0, max(1, shape[0]), batch):
            rows = min(batch, shape[0] - start)
            rng = Streams(seed, rows, start_index + start, device)
            parts.append(self._run(posterior_at, process, times, (rows, *shape[1:]), rng, trajectory, callback))
        return torch.cat(parts, dim=1 if trajectory else 0)

    def _run(
        self,
        posterior_at: PosteriorAt,
        process: MarkovProcess,
        times: ObservationTimes,
        shape: tuple[int, ...],
        rng: Streams,
        trajectory: bool,
        callback: Callable[[int, int, Tensor], None] | None,
    ) -> Tensor:
        x = self.start(process, times, shape, rng)
        past, path, work = None, [x], self._slow_work()
        for k, (s, t) in enumerate(times.backwards(), 1):
            at = Step(process, posterior_at, s.to(x.device), t.to(x.device))
            x, past = self.next_step(at, x, rng, past)
            x = self.correct(at, x, rng)
            if trajectory:
                path.append(x)
            if callback is not None:
                callback(k, len(times), x)
            elif work is not None:
                work.done(k / len(times))
        return torch.stack(path) if trajectory else x

    @torch.no_grad()
    def bound(
        self,
        denoise: Denoiser,
        process: MarkovProcess,
        times: ObservationTimes,
        x0: Tensor,
        seed: int = 0,
        *,
        start_index: int = 0,
        num_steps: int | None = None,
    ) -> Tensor:
        """The evidence bound of these very T steps, in nats, shape (batch,): not in the paper.

        Σ_k log q(x_{k-1} | x_k, x0) - log p(x_{k-1} | x_k) along one path of the forward process given x0, and given
        that it ends in a state of the terminal distribution: docs/mathematics.md#the-prior-term. Infinite if a step
        cannot follow a path of the data, as for a bridge that adds at most ceil(y). Corrector steps are not part of it.
        The path of a data point depends on the seed and on its number alone; `start_index` is the number of the first.

        With fewer than T `num_steps`, one step represents each of so many runs of neighbouring steps, at its own draw
        of X_t, and with few states its divergence is a sum over all of them: unbiased, for grids with too many steps.
        Steps are drawn for each data point, so the standard error of a mean over data points covers them. Steps with
        memory cannot be drawn one by one: docs/mathematics.md#steps-with-memory.
        """
        self.check(check_process(process))
        validate.function("denoise", denoise)
        check_times(times)
        if self.has_memory and num_steps is not None:
            raise ValueError(f"num_steps must be None for steps that depend on the step before, got {num_steps}")
        (x0,) = validate.states(process.num_states, x0=x0)
        if x0.dim() == 0:
            raise ValueError("x0 must have shape (batch, ...), got a single state")
        if x0.numel() == 0:
            return torch.zeros(len(x0), dtype=torch.float64, device=x0.device)
        x0 = x0.long()
        seed, start_index = validate.integer("seed", seed, 0), validate.integer("start_index", start_index, 0)
        rng = Streams(seed, len(x0), start_index, device=x0.device)
        posterior_at = functools.partial(call, denoise, process)
        end = torch.tensor(times.t_end, dtype=torch.float64, device=x0.device)
        x0, possible = ending_points(process, x0, process.clock_time(end))
        xt, total = sample_end(process, x0, process.clock_time(end), rng), torch.zeros_like(x0, dtype=torch.float64)
        if process.terminal_state is None:
            total = process.log_prob(xt, x0, end) - process.terminal_log_prob(xt)
            total = total - log_end_prob(process, x0, process.clock_time(end))
        if num_steps is not None and validate.integer("num_steps", num_steps, 1) < len(times):
            leaves = leaves_states(process)
            for low, high in times.runs(num_steps, growing=process.discrete_time):
                s, t = times.steps(low + (rng.uniform((len(x0),)) * (high - low)).long())
                if not leaves:
                    now = process.sample(x0, t, rng)
                else:
                    drawn = process.sample_bridge(x0, xt, torch.where(t < end, t, s), end, rng)
                    now = torch.where(validate.expand(t < end, xt), drawn, xt)
                total += (high - low) * self._divergence(Step(process, posterior_at, s, t), x0, now, rng)
            return torch.where(possible, total.reshape(len(x0), -1).sum(-1), torch.inf)
        past = None
        for s, t in times.backwards():
            s, t = s.to(x0.device), t.to(x0.device)
            xs = process.sample_bridge(x0, xt, s, t, rng)
            true = process.bridge_log_prob(xs, x0, xt, s, t)
            model, past = self.next_log_prob(Step(process, posterior_at, s, t), xs, xt, past)
            total, xt = total + true - model, xs
        return torch.where(possible, total.reshape(len(x0), -1).sum(-1), torch.inf)

    def _divergence(self, at: Step, x0: Tensor, xt: Tensor, rng: Streams) -> Tensor:
        """KL(q(. | x_t, x_0) ‖ p(. | x_t)) of one step, elementwise; where states are many, one draw of it."""
        process, s, t = at.process, at.s, at.t
        if process.num_states is None or process.num_states > _FEW:
            xs = process.sample_bridge(x0, xt, s, t, rng)
            true = process.bridge_log_prob(xs, x0, xt, s, t)
            return true - self.step_log_prob(at, xs, xt)
        total = torch.zeros_like(x0, dtype=torch.float64)
        for state in range(process.num_states):
            xs = torch.full_like(x0, state)
            true = process.bridge_log_prob(xs, x0, xt, s, t)
            model = self.step_log_prob(at, xs, xt)
            # Where the model's probability is rounded to zero, a state counts if the data's is more than rounding.
            total += torch.where(true < math.log(_NEGLIGIBLE), 0.0, torch.exp(true) * (true - model))
        return total


def check_continuous(process: MarkovProcess) -> None:
    """Raise ValueError for a chain in discrete time."""
    if process.discrete_time:
        raise ValueError(f"process must run in continuous time for this sampler, got {process!r}")


def check_samples(num: int, shape: tuple[int, ...], states: int, device: torch.device) -> None:
    """Raise ValueError if so many states of each of `num` samples do not fit into memory."""
    if (needed := 8 * num * math.prod(shape) * states) > _LARGE:
        check_memory(f"{num:,} samples of shape {shape}", needed, "sample fewer at once", device)


def check_sampler(sampler: Any) -> Sampler:
    """The sampler itself; ValueError for anything else."""
    if not isinstance(sampler, Sampler):
        raise ValueError(f"sampler must be a Sampler, such as TauLeaping(), or a name, got {validate.short(sampler)}")
    return sampler
