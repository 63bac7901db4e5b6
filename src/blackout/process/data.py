"""Data points as states of a process."""

import math
from typing import Any

import torch
from torch import Tensor

from blackout import validate
from blackout.process import PROCESSES
from blackout.process.base import MarkovProcess


def check_process(process: Any) -> MarkovProcess:
    """The process itself; ValueError for anything else."""
    if not isinstance(process, MarkovProcess):
        advice = "such as PureDeath(max_count=255) or FiniteState(generator)"
        raise ValueError(f"process must be a process, {advice}, got {validate.short(process)}")
    return process


def find_process(process: Any, x: Any, max_state: int | None = None) -> MarkovProcess:
    """The process itself, or the one of a name in `PROCESSES` for states 0, ..., max_state (None: the largest of x)."""
    if not isinstance(process, str):
        return check_process(process)
    PROCESSES.check(process)
    (states,) = validate.states(None, x=x)
    if max_state is None:
        max_state = int(states.max()) if states.numel() else 0
    made: MarkovProcess = PROCESSES[process].for_levels(max(1, max_state) + 1)
    return made


def check_data(x: Any, process: MarkovProcess, shape: tuple[int, ...] | None = None, name: str = "x") -> Tensor:
    """Data points as a tensor (n, ...) of states of the process, none of them masked."""
    (states,) = validate.states(check_process(process).num_states, **{name: x})
    if states.dim() < 2 or states.numel() == 0:
        raise ValueError(f"{name} must have shape (n, ...) and hold some data, got {tuple(states.shape)}")
    if shape is not None and tuple(states.shape[1:]) != shape:
        raise ValueError(f"{name} must have shape (n, {', '.join(map(str, shape))}), got {tuple(states.shape)}")
    mask = math.inf if process.mask_state is None else process.mask_state
    # A mask that the dtype cannot hold does not occur, and would be compared as another number.
    if mask <= torch.iinfo(states.dtype).max and bool((states == mask).any()):
        more = f"the mask of {process!r}: the mask is one state more than data have"
        raise ValueError(f"{name} must not hold {mask}, {more}")
    return states
