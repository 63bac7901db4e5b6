"""What labels and numbers change in the mean of each gene: a Poisson regression with main effects alone."""

from collections.abc import Iterator
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from blackout.data.sparse_rows import SparseRows
from blackout.labels import Conditions

_SWEEPS = 20  # over columns and numbers, at most
_CLOSE = 1e-3  # change of the effects in a sweep at which they are found
_PRIOR = 1.0  # counts of each gene, as many as its mean predicts, that are added to those of each value
_STEP = 0.5  # the largest change of a slope at once
_GRID = 4.0  # numbers are rounded to a quarter of a standard deviation, so that many cells have the same row
_BLOCK = 1 << 17  # counts that are dense at once


def label_effects(rows: SparseRows, label: Tensor, conditions: Conditions, mean: Tensor) -> tuple[Tensor, Tensor]:
    """The effects, (design, genes), and the standard deviation of each gene given the label at the gene's mean.

    The expected count is mean · exp(design · effects). The effects of one column after another become the logarithms of
    the ratios of its counts to those that all others predict (iterative proportional scaling); a number's slope takes a
    step of Newton's method. See docs/mathematics.md#effects-of-labels.

    Parameters
    ----------
    label
        The row of each cell, see `Conditions`.
    mean
        The mean of each gene.
    """
    mean, label = mean.cpu().double(), (label.double().nan_to_num() * _GRID).round() / _GRID
    edges = list(accumulate([*conditions.columns, *[1] * conditions.numbers], initial=0))
    counts = torch.zeros(edges[-1], len(mean), dtype=torch.float64)
    for x, design in _blocks(rows, label, conditions):
        counts += design.T @ x
    different, cells = torch.unique(label, dim=0, return_counts=True)
    patterns = conditions.design(different), cells.unsqueeze(1).double()
    effects = torch.zeros_like(counts)
    for _ in range(_SWEEPS):
        before = effects.clone()
        for k, own in enumerate(slice(*ends) for ends in pairwise(edges)):
            expected, curvature = (mean * total for total in _factors(patterns, effects, own))
            if k < len(conditions.columns):
                by_others = expected * torch.exp(-effects[own])
                effects[own] = torch.log((counts[own] + _PRIOR) / (by_others + _PRIOR))
            else:
                slope = counts[own] - expected - _PRIOR * effects[own]
                effects[own] += (slope / (curvature + _PRIOR)).clamp(-_STEP, _STEP)
        if float((effects - before).abs().max()) < _CLOSE:
            break
    return effects.float(), _std(_blocks(rows, label, conditions), effects, mean)


def _factors(patterns: tuple[Tensor, Tensor], effects: Tensor, own: slice) -> tuple[Tensor, Tensor]:
    """The sums over cells of exp(design · effects) times these entries of the design, and times their squares."""
    first, second = torch.zeros_like(effects[own]), torch.zeros_like(effects[own])
    size = max(1, _BLOCK // effects.shape[1])
    for design, cells in zip(*(part.split(size) for part in patterns), strict=True):
        factor = cells * torch.exp(design @ effects)
        first += design[:, own].T @ factor
        second += (design[:, own] ** 2).T @ factor
    return first, second


def _std(blocks: Iterator[tuple[Tensor, Tensor]], effects: Tensor, mean: Tensor) -> Tensor:
    """From the shape a with which the squared differences are those expected, m + m²/a for a count of mean m."""
    excess, squares = torch.zeros_like(mean), torch.zeros_like(mean)
    for x, design in blocks:
        expected = mean * torch.exp(design @ effects)
        squares += expected.square().sum(0)
        excess += ((x - expected) ** 2 - expected).sum(0)
    return torch.sqrt(mean + mean**2 * excess.clamp(min=0.0) / squares.clamp(min=1e-12)).float()


def _blocks(rows: SparseRows, label: Tensor, conditions: Conditions) -> Iterator[tuple[Tensor, Tensor]]:
    """The counts of some cells at a time, and their design."""
    size = max(1, _BLOCK // rows.shape[1])
    for start in range(0, len(rows), size):
        part = slice(start, start + size)
        yield rows[part].cpu().double(), conditions.design(label[part])
