"""Padding of sampled sequences: lengths drawn from those of the training data."""

from collections.abc import Sequence

import torch
from torch import Tensor

from blackout.process.base import MarkovProcess
from blackout.random import Streams, mix

_LENGTHS = 7  # beside the other uses of a seed


def sequence_lengths(process: MarkovProcess, x: Tensor) -> tuple[int, ...]:
    """How many of the sequences x, (n, length), have each length from zero on; empty without padding."""
    if process.pad_state is None:
        return ()
    return tuple(torch.bincount((x != process.pad_state).sum(-1), minlength=x.shape[-1] + 1).tolist())


def padding(
    process: MarkovProcess, shape: tuple[int, ...], lengths: Sequence[int], seed: int, start_index: int
) -> tuple[Tensor, Tensor]:
    """Padding as observed entries of samples of a shape (num, length), and where it is.

    The length of sample i depends on the seed and on its number alone, which is `start_index` for the first.
    """
    assert process.pad_state is not None
    shares = torch.tensor(lengths, dtype=torch.float64).cumsum(0)
    u = Streams(mix(seed, _LENGTHS), shape[0], start_index, torch.device("cpu")).uniform((shape[0],))
    drawn = torch.searchsorted(shares, u * shares[-1], right=True).clamp(max=shape[1])
    mask = torch.arange(shape[1]) >= drawn.unsqueeze(-1)
    return torch.full(shape, process.pad_state), mask
