"""Memory that is free, and a check before work that needs much of it.

    check_memory("a batch of 1,000,000 images", needed, "use a smaller --batch-size", device)

raises ValueError before the work begins, where the system would otherwise end the process without a message.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_GROUPS = Path("/sys/fs/cgroup")
_LIMITS = {"": ("memory.max", "memory.current"), "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes")}
"""Files with the limit and the usage of a control group, by its controllers: of version 2 and of version 1."""
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def available_memory(device: torch.device | str | None = None) -> int:
    """Bytes that this process can still allocate on a device (None: the CPU).

    On a CPU that is the memory of the machine which is free or can be freed, or less under a limit of a control group,
    as containers and job schedulers set it, or of the address space (`ulimit -v`). On CUDA it includes what torch has
    reserved and does not use.
    """
    if device is not None and str(device).startswith("cuda"):
        import torch

        free, _ = torch.cuda.mem_get_info(device)
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    import psutil

    return min([int(psutil.virtual_memory().available), *_left_in_groups(), *_left_of_addresses()])


def check_memory(what: str, needed: float, advice: str, device: torch.device | str | None = None) -> None:
    """Raise ValueError if work needs more memory than a device has left.

    Parameters
    ----------
    what
        The subject of the message: "a batch of 1,000,000 images".
    needed
        Estimate of what the work allocates, in bytes.
    advice
        What the user can change: "use a smaller --batch-size".
    device
        Where the memory is needed; None: the CPU.
    """
    free = available_memory(device)
    if needed > free:
        where = "" if device is None or str(device) == "cpu" else f" on {device}"
        raise ValueError(
            f"{what} needs about {readable(needed)} of memory{where}, but {readable(free)} are free; {advice}"
        )


def readable(size: float) -> str:
    """A number of bytes with its unit: 1.5 GiB."""
    unit = 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 or size >= 10 else f"{size:.1f} {_UNITS[unit]}"


def _left_of_addresses() -> list[int]:
    """What a limit of the address space leaves this process, where there is one."""
    if sys.platform == "win32":
        return []
    import resource

    import psutil

    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    return [] if most == resource.RLIM_INFINITY else [max(0, most - int(psutil.Process().memory_info().vms))]


def _left_in_groups() -> list[int]:
    """What the control groups of this process leave it, where Linux has set a limit."""
    try:
        lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return []
    left: list[int] = []
    for _, controllers, path in lines:
        if controllers not in _LIMITS:
            continue
        root = _GROUPS / controllers
        # A container sees its own group as the root; a limit of a group holds for all groups in it.
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(root):
                left += _left_in(folder, *_LIMITS[controllers])
    return left


def _left_in(group: Path, limit: str, usage: str) -> list[int]:
    try:
        most, used = (int((group / name).read_text()) for name in (limit, usage))
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no such group, or no limit: "max"
        return []
    cached = int(stat.get("inactive_file", 0))  # pages of files, which are dropped when memory is short
    return [max(0, most - used + cached)]
