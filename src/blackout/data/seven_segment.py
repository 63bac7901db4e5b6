"""Seven-segment digits on 8 x 8 pixels: a toy data set that is computed and needs no files."""

import torch
from torch import Tensor

from blackout import validate
from blackout.data.arrays import Dataset
from blackout.data.source import Source
from blackout.random import uniform

_SIZES = {"train": 2000, "test": 500}
_SEEDS = {"train": 1, "test": 2}
_LIT = ("abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgedc", "abc", "abcdefg", "abcdfg")  # for 0, ..., 9
# Segments a, ..., g: centre x, centre y, half length along x and along y, in pixels from the centre of the digit.
_SEGMENTS = torch.tensor(
    [
        (0, -2.5, 1.5, 0),
        (1.5, -1.25, 0, 1.25),
        (1.5, 1.25, 0, 1.25),
        (0, 2.5, 1.5, 0),
        (-1.5, 1.25, 0, 1.25),
        (-1.5, -1.25, 0, 1.25),
        (0, 0, 1.5, 0),
    ],
    dtype=torch.float64,
)


def make_seven_segment(folder: object = None, *, split: str = "train") -> Dataset:
    """2000 or 500 images of shape (1, 8, 8), intensities 0 to 16, ten equally frequent classes.

    The images are the same in every call. `folder` is ignored.
    """
    n = _SIZES[validate.choice("split", split, tuple(_SIZES))]
    generator = torch.Generator().manual_seed(_SEEDS[split])
    labels = torch.arange(n) % 10
    shift_x, shift_y, thickness, brightness = uniform((4, n), torch.device("cpu"), generator)
    x = _render(labels, 2 * shift_x - 1, 1.2 * shift_y - 0.6, 0.8 + 0.4 * thickness, 10 + 6 * brightness)
    digits = tuple("0123456789")
    return Dataset(
        x=x, name="seven-segment", max_state=16, labels=labels, num_classes=10, class_names=digits, named=True
    )


SEVEN_SEGMENT = Source(read=make_seven_segment)


def _render(labels: Tensor, shift_x: Tensor, shift_y: Tensor, thickness: Tensor, brightness: Tensor) -> Tensor:
    """A pixel is as bright as the share of it that the stroke around the nearest lit segment covers."""
    lit = torch.tensor([[segment in lit for segment in "abcdefg"] for lit in _LIT])[labels]  # (n, 7)
    along = torch.arange(8, dtype=torch.float64) - 3.5
    x, y = (along - shift.unsqueeze(-1) for shift in (shift_x, shift_y))  # (n, 8), from the centre of the digit
    centre_x, centre_y, half_x, half_y = _SEGMENTS.T.unsqueeze(-1)  # (7, 1)
    away_x = ((x.unsqueeze(1) - centre_x).abs() - half_x).clamp(min=0)  # (n, 7, 8)
    away_y = ((y.unsqueeze(1) - centre_y).abs() - half_y).clamp(min=0)
    distance = torch.maximum(away_y.unsqueeze(-1), away_x.unsqueeze(-2))  # (n, 7, 8, 8)
    distance = distance.masked_fill(~lit[..., None, None], float("inf")).amin(1, keepdim=True)
    covered = (0.5 + thickness.reshape(-1, 1, 1, 1) / 2 - distance).clamp(0, 1)
    return (covered * brightness.reshape(-1, 1, 1, 1)).round().to(torch.uint8)
