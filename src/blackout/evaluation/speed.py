"""The speed of sampling, measured while samples are written."""

import time
from collections.abc import Callable
from typing import Any


class Speed:
    """A `progress` of `write_samples` that measures the speed from its first call on: before it is the start-up.

    Parameters
    ----------
    report
        Called with the same arguments: how much is done, and the total.
    """

    def __init__(self, report: Callable[[float, float], None]) -> None:
        self._report = report
        self._calls: list[tuple[float, float]] = []  # time and what was done, of the first and the last call

    def __call__(self, done: float, total: float) -> None:
        self._calls[1:] = [(time.perf_counter(), done)]
        self._report(done, total)

    def of(self, number: int) -> dict[str, Any]:
        """Seconds that so many samples take, and samples per second; None if they were there already."""
        if len(self._calls) < 2:
            return {"seconds": None, "samples_per_second": None}
        (begin, before), (end, after) = self._calls
        rate = (after - before) / max(end - begin, 1e-9)
        return {"seconds": number / rate if rate else None, "samples_per_second": rate}
