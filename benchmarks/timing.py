"""Time of a function, and memory of this process."""

import math
import time
from collections.abc import Callable
from pathlib import Path

import torch


def seconds(work: Callable[[], object], repeats: int, warmup: int = 3) -> float:
    """Return the median time of a call, after some calls for warm-up."""
    times = []
    for _ in range(warmup + repeats):
        synchronise()
        start = time.perf_counter()
        work()
        synchronise()
        times.append(time.perf_counter() - start)
    return sorted(times[warmup:])[repeats // 2]


def synchronise() -> None:
    """Wait for the CUDA device, if this process has used one."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def resident(field: str = "VmRSS") -> float:
    """Return the memory of this process in MiB; NaN where the system does not report it."""
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith(field):
            return float(line.split()[1]) / 1024
    return math.nan
