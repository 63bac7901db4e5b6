"""How long a piece of work takes, and how much memory this process holds."""

import math
import time
from collections.abc import Callable
from pathlib import Path

import torch


def seconds(work: Callable[[], object], repeats: int, warm: int = 3) -> float:
    """The median time of one call, after some to warm up."""
    times = []
    for _ in range(warm + repeats):
        synchronise()
        start = time.perf_counter()
        work()
        synchronise()
        times.append(time.perf_counter() - start)
    return sorted(times[warm:])[repeats // 2]


def synchronise() -> None:
    """Wait for the device, if this process has used one."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def resident(field: str = "VmRSS") -> float:
    """MiB of memory; NaN where the system does not tell."""
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith(field):
            return float(line.split()[1]) / 1024
    return math.nan
