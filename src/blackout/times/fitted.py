"""FittedTimes: observation times for any number of steps, from the information that steps of a model lose."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from blackout import validate
from blackout.process.base import MarkovProcess
from blackout.times.grid import ObservationTimes

_LEAST = 0.02  # of the mean density of times: no interval is left without any
_DIGITS = 9


@dataclass(frozen=True)
class FittedTimes:
    """Times at equal steps of a progress that was fitted to a model: docs/mathematics.md#fitted-times.

    Parameters
    ----------
    values
        M candidate times, increasing.
    progress
        The progress at each of them, increasing to 1; zero at time zero.

    Examples
    --------
    >>> import blackout as bo
    >>> fitted = FittedTimes((0.5, 1.0, 15.0), (0.4, 0.8, 1.0))
    >>> fitted.choose(bo.PureDeath(), 5)
    ObservationTimes(5 times from 0.25 to 15)
    """

    values: tuple[float, ...]
    progress: tuple[float, ...]

    def __post_init__(self) -> None:
        ObservationTimes(self.values)
        if len(self.progress) != len(self.values):
            raise ValueError(
                f"progress must have {len(self.values)} numbers, one for each time, got {len(self.progress)}"
            )
        if ObservationTimes(self.progress).t_end != 1:
            raise ValueError(f"progress must end at 1, got {self.progress[-1]}")

    @staticmethod
    def from_losses(candidates: ObservationTimes, losses: Tensor, nats: Tensor) -> "FittedTimes":
        """Times at which every step loses the same, relative to what has been decided by then.

        Parameters
        ----------
        losses
            For each candidate t_k but the last, the nats that are lost if t_k is left out: shape (M - 1,).
        nats
            For each candidate, the nats that are decided in the step that starts there, back to t_{k-1}: shape (M,).
        """
        nats = nats.clamp(min=0)  # estimates of few data points
        decided = nats.sum() - torch.cumsum(nats, 0)[:-1]  # by the time t_k
        density = torch.sqrt(losses.clamp(min=0) / (1 + decided))
        if not bool(torch.isfinite(density).all()):
            raise ValueError(f"losses and nats must be finite, got {losses.tolist()} and {nats.tolist()}")
        if not bool(density.any()):  # independent components, or a single candidate: any times will do
            density = torch.ones(max(1, len(density)), dtype=torch.float64)
        edges = torch.cat([density[:1], (density[1:] + density[:-1]) / 2, density[-1:]])[: len(candidates)]
        edges = edges + _LEAST * edges.mean()
        progress = torch.cumsum(edges, 0) / edges.sum()
        rounded = [round(float(v), _DIGITS) for v in progress[:-1]]
        return FittedTimes(tuple(candidates.values.tolist()), (*rounded, 1.0))

    def choose(self, process: MarkovProcess, num_steps: int) -> ObservationTimes:
        """`num_steps` times, the last candidate the last of them; integers for a chain, at most as many as it has."""
        num_steps = validate.integer("num_steps", num_steps, 1)
        values, progress = (torch.tensor((0.0, *v), dtype=torch.float64) for v in (self.values, self.progress))
        at = torch.arange(1, num_steps + 1, dtype=torch.float64) / num_steps
        index = torch.searchsorted(progress, at).clamp(1, len(values) - 1)
        share = (at - progress[index - 1]) / (progress[index] - progress[index - 1])
        if process.discrete_time:
            return ObservationTimes(_integers(torch.lerp(values[index - 1], values[index], share)))
        g = process.log_time(process.clock_time(values[1:]))
        between, _ = process.at_log_time(torch.lerp(g[(index - 2).clamp(min=0)], g[index - 1], share))
        chosen = torch.where(index == 1, share * values[1], between)
        chosen[-1] = values[-1]
        return ObservationTimes(chosen)

    def config(self) -> dict[str, Any]:
        """The values as plain JSON."""
        return {"values": list(self.values), "progress": list(self.progress)}

    @staticmethod
    def from_config(config: dict[str, Any]) -> "FittedTimes":
        return FittedTimes(tuple(config["values"]), tuple(config["progress"]))


def _integers(times: Tensor) -> Tensor:
    """Different positive integers near increasing times, the last of them kept."""
    number, end = len(times), int(times[-1].round())
    if number > end:
        raise ValueError(f"num_steps must be at most {end}, the number of steps of the chain, got {number}")
    place = torch.arange(number, dtype=torch.float64)
    later = torch.cummax(times.round().clamp(min=1) - place, 0).values + place  # at least one more than the one before
    return torch.minimum(later, end - (number - 1 - place))


def not_fitted(process: MarkovProcess, num_steps: int, t_end: float) -> ObservationTimes:
    """Raise ValueError: a process alone has no fitted times."""
    raise ValueError(
        "time rule 'fitted' needs a model with fitted times: those of DiffusionModel.fit_times(x), or `blackout times`"
    )
