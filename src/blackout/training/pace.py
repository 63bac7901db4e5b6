"""Pace: the speed of a loop and the time that is left."""

import time


class Pace:
    """The first steps do not count: they compile the network and fill caches.

    Parameters
    ----------
    total, done
        Steps of the loop, and those that an earlier process has done.
    skip
        First steps that do not count.
    """

    def __init__(self, total: int, done: int = 0, skip: int = 1) -> None:
        self.total, self.done, self._counted_from = total, done, done + skip
        self._start = self._mark = (time.perf_counter(), done)

    def advance(self) -> None:
        """One step is done."""
        self.done += 1
        if self.done == self._counted_from:
            self._start = self._mark = (time.perf_counter(), self.done)

    @property
    def counts(self) -> bool:
        """Whether steps have been timed, so that the time left can be told."""
        return self.done > self._counted_from

    @property
    def seconds_left(self) -> float | None:
        """None before steps have been timed."""
        return (self.total - self.done) / self._since(self._start) if self.counts else None

    def lap(self) -> float:
        """Steps a second since the last call."""
        rate, self._mark = self._since(self._mark), (time.perf_counter(), self.done)
        return rate

    def _since(self, mark: tuple[float, int]) -> float:
        seconds, steps = time.perf_counter() - mark[0], self.done - mark[1]
        return steps / max(seconds, 1e-9)
