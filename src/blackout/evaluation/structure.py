"""Structure of one phase of label images: porosity, two-point function, chord lengths, specific surface.

x holds integers of shape (n, height, width) or (n, 1, height, width); `phase` is one of its labels. All quantities are
counts, so they are exact. Not in the paper: S. Torquato, Random Heterogeneous Materials, chapter 2.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from blackout import validate


@dataclass(frozen=True, kw_only=True)
class StructureDifferences:
    """Absolute differences of two sets of images. `chords` is the Kolmogorov–Smirnov distance of the chord lengths."""

    porosity: float
    surface: float
    two_point_mean: float
    two_point_max: float
    chords: float


@dataclass(frozen=True, kw_only=True)
class StructureScores:
    """Structure of samples and data, returned by `compare_structure`.

    `difference` compares samples with data, `real_vs_real` the first half of the data with the second. Halves have more
    noise: as many independent samples of the same distribution as data give about 0.7 of `real_vs_real`.
    """

    phase: int
    max_lag: int
    num_samples: int
    num_data: int
    porosity: float
    porosity_error: float
    data_porosity: float
    data_porosity_error: float
    surface: float
    data_surface: float
    two_point: tuple[float, ...]
    """S2 of the samples at 0, ..., max_lag."""
    data_two_point: tuple[float, ...]
    chord_probs: tuple[float, ...]
    """Share of chords of length 0, 1, ... in the samples, along rows and columns."""
    data_chord_probs: tuple[float, ...]
    difference: StructureDifferences
    real_vs_real: StructureDifferences


def porosity(x: Tensor, phase: int) -> tuple[float, float]:
    """Return the share of pixels in the phase and its standard error over images (NaN for one image).

    The error assumes independent images. It is too small for overlapping slices of one rock.
    """
    inside = _inside("x", x, phase)
    share = inside.flatten(1).sum(1).double() / inside[0].numel()
    error = float(share.std()) / math.sqrt(len(share)) if len(share) > 1 else math.nan
    return float(share.mean()), error


def two_point(x: Tensor, phase: int, max_lag: int) -> Tensor:
    """Return S2(r) for r = 0, ..., max_lag: the share of pairs in the phase among pixels r apart in a row or column.

    Boundaries are not periodic. S2(0) is the porosity φ; S2(r) tends to φ² without long-range order.
    """
    inside = _inside("x", x, phase)
    n, height, width = inside.shape
    if validate.integer("max_lag", max_lag, 0) >= min(height, width):
        raise ValueError(f"max_lag must be less than {min(height, width)}, the side of x, got {max_lag}")
    rows, columns = _both(inside), _both(inside.transpose(1, 2))
    hits = [float(rows.diagonal(r).sum() + columns.diagonal(r).sum()) for r in range(max_lag + 1)]
    pairs = [n * (height * (width - r) + width * (height - r)) for r in range(max_lag + 1)]
    return torch.tensor(hits, dtype=torch.float64) / torch.tensor(pairs)


def specific_surface(x: Tensor, phase: int) -> float:
    """Return the number of pixel edges between the phase and the rest, per pixel, without those on the border.

    Its mean is 2(S2(0) - S2(1)), once for rows and once for columns. A smooth isotropic boundary has π/4 of this
    length, because pixel edges form stairs.
    """
    inside = _inside("x", x, phase)
    rows = inside[:, :, 1:] ^ inside[:, :, :-1]
    columns = inside[:, 1:] ^ inside[:, :-1]
    return sum(int(unlike.sum()) / max(1, unlike.numel()) for unlike in (rows, columns))


def chord_lengths(x: Tensor, phase: int, axis: int = -1) -> Tensor:
    """Count the chords of length 0, 1, ...: shape (width,) along rows (axis -1), (height,) along columns (axis -2).

    A chord is a maximal run of pixels in the phase. Chords that touch the border are left out, because their length is
    unknown. Long chords touch it more often: a chord of length l fits in w - 1 - l places of a line of w pixels, so
    counts are proportional to (w - 1 - l) times the distribution of lengths. Images of one size share this bias.
    """
    if axis not in (-1, -2):
        raise ValueError(f"axis must be -1 (along rows) or -2 (along columns), got {axis!r}")
    inside = _inside("x", x, phase).transpose(-1, axis)
    width = inside.shape[-1]
    edge = torch.zeros_like(inside[..., :1])
    padded = torch.cat([edge, inside, edge], -1)
    first = (padded[..., 1:] & ~padded[..., :-1]).nonzero()[:, -1]
    last = (padded[..., :-1] & ~padded[..., 1:]).nonzero()[:, -1] - 1
    complete = (first > 0) & (last < width - 1)
    return (last - first + 1)[complete].bincount(minlength=width)


def compare_structure(samples: Tensor, data: Tensor, phase: int, max_lag: int = 32) -> StructureScores:
    """Compare the structure of samples with that of data of the same height and width, at least two of each.

    `data` is split into its first and second half. Overlapping images should be in the same half, or `real_vs_real` is
    too small; `read_volume` returns them in such an order.
    """
    sizes = [_inside(name, x, phase).shape for name, x in (("samples", samples), ("data", data))]
    for name, size in zip(("samples", "data"), sizes, strict=True):
        if size[0] < 2:
            raise ValueError(f"{name} must be at least two images, got {size[0]}")
    if sizes[0][1:] != sizes[1][1:]:
        raise ValueError(f"samples must be images of {tuple(sizes[1][1:])}, like data, got {tuple(sizes[0][1:])}")
    sets = samples, data, data[: len(data) // 2], data[len(data) // 2 :]
    ours, theirs, first_half, second_half = (_structure(x, phase, max_lag) for x in sets)
    return StructureScores(
        phase=phase,
        max_lag=max_lag,
        num_samples=len(samples),
        num_data=len(data),
        porosity=ours.porosity,
        porosity_error=ours.porosity_error,
        data_porosity=theirs.porosity,
        data_porosity_error=theirs.porosity_error,
        surface=ours.surface,
        data_surface=theirs.surface,
        two_point=tuple(ours.two_point.tolist()),
        data_two_point=tuple(theirs.two_point.tolist()),
        chord_probs=tuple(ours.chord_probs.tolist()),
        data_chord_probs=tuple(theirs.chord_probs.tolist()),
        difference=_differences(ours, theirs),
        real_vs_real=_differences(first_half, second_half),
    )


class _Structure(NamedTuple):
    porosity: float
    porosity_error: float
    surface: float
    two_point: Tensor
    chord_probs: Tensor


def _structure(x: Tensor, phase: int, max_lag: int) -> _Structure:
    along = [chord_lengths(x, phase, axis) for axis in (-1, -2)]  # rows and columns together
    chords = torch.nn.utils.rnn.pad_sequence(along).sum(1)
    probs = chords.double() / max(1, int(chords.sum()))  # all 0 without any chords
    return _Structure(*porosity(x, phase), specific_surface(x, phase), two_point(x, phase, max_lag), probs)


def _differences(a: _Structure, b: _Structure) -> StructureDifferences:
    lags = (a.two_point - b.two_point).abs()
    return StructureDifferences(
        porosity=abs(a.porosity - b.porosity),
        surface=abs(a.surface - b.surface),
        two_point_mean=float(lags.mean()),
        two_point_max=float(lags.max()),
        chords=float((a.chord_probs - b.chord_probs).cumsum(0).abs().max()),
    )


def _both(inside: Tensor) -> Tensor:
    """Number of lines along the last axis with the phase at both i and j, for all i and j; exact up to 2^53."""
    parts = (part.reshape(-1, inside.shape[-1]).double() for part in inside.split(1024))
    return torch.stack([part.T @ part for part in parts]).sum(0)


def _inside(name: str, x: Tensor, phase: int) -> Tensor:
    """Mask of the phase, shape (n, height, width), on the CPU."""
    (x,) = validate.states(None, **{name: x})
    validate.integer("phase", phase, 0)
    flat = x.squeeze(1) if x.dim() == 4 and x.shape[1] == 1 else x
    if flat.dim() != 3 or flat.numel() == 0:
        raise ValueError(f"{name} must have shape (n, height, width) or (n, 1, height, width), got {tuple(x.shape)}")
    return (flat == phase).cpu()
