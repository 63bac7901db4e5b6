"""ObservationTimes: the grid of times at which the process is observed."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from blackout import validate
from blackout.process.base import MarkovProcess
from blackout.process.data import check_data, check_process
from blackout.random import uniform

_LATEST = 700.0  # e^{-t} is a number of double precision
MOST_STEPS = 1 << 24
"""More observation times than any work needs."""


def check_times(times: Any) -> "ObservationTimes":
    """The times themselves; ValueError for anything else."""
    if not isinstance(times, ObservationTimes):
        advice = "such as ObservationTimes.fisher(1000)"
        raise ValueError(f"times must be ObservationTimes, {advice}, got {validate.short(times)}")
    return times


class ObservationTimes:
    """t_1 < ... < t_T, with t_0 = 0 understood: Section 2.6, Appendix E, and docs/mathematics.md#observation-times.

    Examples
    --------
    >>> import blackout as bo
    >>> bo.ObservationTimes.fisher(num_steps=1000, t_end=15.0).subset(50)
    ObservationTimes(50 times from 3.06e-07 to 15)
    """

    def __init__(self, values: Any) -> None:
        values = validate.reals("values", values, "a list of times").detach().cpu().clone()
        if values.dim() != 1 or len(values) == 0:
            raise ValueError(f"values must be a list of times, got shape {tuple(values.shape)}")
        steps = torch.diff(values, prepend=torch.zeros(1, dtype=torch.float64))
        fine = torch.isfinite(values) & (steps > 0)
        if not bool(fine.all()):
            k = int((~fine).long().argmax())
            raise ValueError(f"values must be positive, finite and increasing, got {float(values[k])} at position {k}")
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"ObservationTimes({len(self)} times from {float(self.values[0]):.3g} to {self.t_end:.3g})"

    @property
    def t_end(self) -> float:
        return float(self.values[-1])

    @staticmethod
    def fisher(num_steps: int = 1000, t_end: float = 15.0) -> "ObservationTimes":
        """Equal steps of Fisher information for pure death: `eq:observationTimes`, uniform in logit(e^{-t})."""
        num_steps, t_end = _check_grid(num_steps, t_end)
        end = torch.tensor(t_end, dtype=torch.float64)
        g_end = torch.log(torch.expm1(end)) if t_end < 40 else end  # -logit(e^{-t_T})
        if num_steps == 1:
            return ObservationTimes(end.reshape(1))
        if g_end <= 0:
            raise ValueError(f"t_end must be more than log 2, about which the times are symmetric, got {t_end}")
        if t_end > _LATEST:
            raise ValueError(
                f"t_end must be at most {_LATEST:g}: the first time, its mirror image, is e^-t_end, got {t_end}"
            )
        values = torch.nn.functional.softplus(
            torch.linspace(-1, 1, num_steps, dtype=torch.float64) * g_end, threshold=50
        )
        values[-1] = end
        return ObservationTimes(values)

    @staticmethod
    def uniform(num_steps: int = 1000, t_end: float = 15.0) -> "ObservationTimes":
        """Equal steps of time: the uniform temporal grid that Appendix E compares with."""
        num_steps, t_end = _check_grid(num_steps, t_end)
        return ObservationTimes(torch.linspace(0, t_end, num_steps + 1, dtype=torch.float64)[1:])

    @staticmethod
    def survival(num_steps: int = 1000, t_end: float = 15.0) -> "ObservationTimes":
        """Equal steps of e^{-t}: the same number of labels is masked in each. Not in the paper; for `Absorbing`."""
        num_steps, t_end = _check_grid(num_steps, t_end)
        end = torch.tensor(t_end, dtype=torch.float64)
        lost = torch.arange(1, num_steps + 1, dtype=torch.float64) / num_steps * -torch.expm1(-end)
        return ObservationTimes(torch.cat([-torch.log1p(-lost[:-1]), end.reshape(1)]))

    @staticmethod
    def cosine(num_steps: int = 1000, t_end: float = 15.0) -> "ObservationTimes":
        """After k of T sampling steps the share cos(πk/2T) of the labels is masked: the first steps draw few.

        The cosine schedule of MaskGIT, 2022. Not in the paper; for `Absorbing`.
        """
        num_steps, t_end = _check_grid(num_steps, t_end)
        end = torch.tensor(t_end, dtype=torch.float64)
        angles = torch.arange(1, num_steps, dtype=torch.float64) * (math.pi / 2 / num_steps)
        return ObservationTimes(torch.cat([-torch.log1p(torch.sin(angles) * torch.expm1(-end)), end.reshape(1)]))

    @staticmethod
    def from_values(values: Any) -> "ObservationTimes":
        """Given times, increasing and positive."""
        return ObservationTimes(values)

    @staticmethod
    def equalize(
        process: MarkovProcess,
        measure: str = "fisher",
        num_steps: int = 1000,
        t_end: float | None = None,
        x0: Sequence[int] | Tensor | None = None,
        resolution: int = 512,
    ) -> "ObservationTimes":
        """Equal steps of a measure of change along the process: Appendix E, for any process and its heuristics.

        Parameters
        ----------
        measure
            `fisher`: Fisher information about q = e^{-γt}, with γ the relaxation rate; for pure death, `fisher(...)`
            again. `entropy`, `variance`: total variation of the entropy or variance of X_t. `production`: entropy
            production; where it is infinite, because some jumps are one-way, the number of these. `snr`: total
            variation of the logarithm of mean² / variance of X_t, the inverse square of the coefficient of variation.
            `kl`: Kullback-Leibler divergence between neighbouring times (its root, the Fisher-Rao length, is what adds
            up). `length`: half of the steps equal in that length, half in the logarithm of what remains of it; not in
            the paper.
        num_steps
            Number of times, at least 2.
        t_end
            The last time; default: 15 relaxation times, or as many as the process needs to mix. The first time is the
            mirror image of the last, as in Appendix E.
        x0
            Starts over which distributions are averaged; default: up to 32 states spread evenly.
        """
        from blackout.times.measures import equal_steps

        return ObservationTimes(equal_steps(process, measure, num_steps, t_end, x0, resolution))

    @staticmethod
    def by_rule(
        rule: str, process: MarkovProcess, num_steps: int = 1000, t_end: float | None = None
    ) -> "ObservationTimes":
        """The times of a rule by name, see `TIME_RULES`; `t_end` as in `equalize`."""
        from blackout.times import TIME_RULES
        from blackout.times.measures import mixing_time

        check_process(process).terminal((0,))  # raises, with the reason, for one without a terminal distribution
        end = mixing_time(process) if t_end is None else validate.real("t_end", t_end, 0.0, strict=True)
        times: ObservationTimes = TIME_RULES.make(rule, process, num_steps, end)
        return times

    @staticmethod
    def for_process(
        process: MarkovProcess, num_steps: int = 1000, t_end: float | None = None, x0: Any = None
    ) -> "ObservationTimes":
        """The default times of a process, and of data.

        The paper's times for pure death, the rule `cosine` for masking, the rule `length` for all others, where
        equal steps of Fisher information would lie where nothing happens: docs/mathematics.md#observation-times. A
        chain is observed at each of its steps, whatever `num_steps`.

        Parameters
        ----------
        t_end
            The last time in relaxation times, or as many as the process needs to mix, if that is later. None: 15, or
            as many as x0 needs: docs/mathematics.md#the-last-time.
        x0
            Data points, integers of shape (n, ...): the last time is one at which none of them is more than 1e-3 from
            the terminal distribution. Not used with a given `t_end`.

        Examples
        --------
        >>> import blackout as bo, torch
        >>> bo.ObservationTimes.for_process(bo.PureDeath(), x0=torch.tensor([[10_000_000], [1_000_000]])).t_end
        23.5
        """
        from blackout.times.measures import mixing_time

        check_process(process).terminal((0,))  # raises, with the reason, for one without a terminal distribution
        if t_end is None:
            end = mixing_time(process, x0=None if x0 is None else check_data(x0, process, name="x0"))
        else:
            end = mixing_time(process, validate.real("t_end", t_end, 0.0, strict=True))
        return ObservationTimes.by_rule(process.time_rule, process, num_steps, end)

    def subset(self, num_steps: int) -> "ObservationTimes":
        """`num_steps` of these times, spread evenly over their indices, the last one kept."""
        num_steps = validate.integer("num_steps", num_steps, 1)
        if num_steps > len(self):
            raise ValueError(f"num_steps must be at most {len(self)}, the number of times, got {num_steps}")
        if num_steps == 1:
            return ObservationTimes(self.values[-1:])
        index = torch.linspace(0, len(self) - 1, num_steps, dtype=torch.float64).round().long()
        return ObservationTimes(self.values[index])

    def is_fisher(self, process: MarkovProcess) -> bool:
        """Whether these are equal steps of Fisher information, the default rule of pure death, by whatever clock."""
        if process.time_rule != "fisher":
            return False
        g = process.log_time(process.clock_time(self.values))
        even = torch.linspace(-1, 1, len(self), dtype=torch.float64) * g[-1]
        return len(self) > 1 and bool((g[-1] > 0) & ((g - even).abs() < 1e-6 * g[-1]).all())

    def draw(
        self,
        size: int,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
        stratified: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """(s, t) = (t_{k-1}, t_k) with k uniform on {1, ..., T}, each of shape (size,): Algorithm 1.

        `stratified` spreads the k of one draw evenly, one in each of `size` equal strata, in order.
        """
        size, stratified = validate.integer("size", size, 0, MOST_STEPS), validate.boolean("stratified", stratified)
        device = validate.device(device)
        v = uniform((size,), torch.device("cpu"), generator)
        index = ((torch.arange(size) + v) / size * len(self) if stratified else v * len(self)).long()
        index = index.clamp(max=len(self) - 1)
        s, t = self.steps(index)
        return s.to(device), t.to(device)

    def runs(self, number: int, growing: bool = False) -> list[tuple[int, int]]:
        """The steps 0, ..., T - 1 as `number` runs of neighbours, [low, high), later ones first.

        Runs are equally long; `growing` ones are long in proportion to their place, for the steps of a chain, in which
        ever less happens: about 1/k in step k.
        """
        number = min(validate.integer("number", number, 1), len(self))
        ends = torch.linspace(0, 1, number + 1, dtype=torch.float64)
        ends = torch.expm1(ends * math.log1p(len(self))) if validate.boolean("growing", growing) else ends * len(self)
        edges = torch.maximum(ends.round().long(), torch.arange(number + 1)).tolist()  # no run is empty
        return list(itertools.pairwise(edges))[::-1]

    def steps(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """(s, t) of the steps with the given numbers, from 0 on."""
        edges = torch.cat([torch.zeros(1, dtype=torch.float64), self.values]).to(index.device)
        return edges[index], edges[index + 1]

    def backwards(self) -> Iterator[tuple[Tensor, Tensor]]:
        """(s, t) for each step from t_T down to 0, as float64 scalars."""
        edges = torch.cat([torch.zeros(1, dtype=torch.float64), self.values])
        for k in range(len(self), 0, -1):
            yield edges[k - 1], edges[k]


def _check_grid(num_steps: Any, t_end: Any) -> tuple[int, float]:
    """Number of times and last time of a grid."""
    return validate.integer("num_steps", num_steps, 1, MOST_STEPS), validate.real("t_end", t_end, 0.0, strict=True)
