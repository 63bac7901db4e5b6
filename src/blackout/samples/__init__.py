"""Samples to files."""

from blackout.samples.cells import read_cell_mask, write_cells
from blackout.samples.given import read_known, read_mask
from blackout.samples.write import SAMPLERS, check_sampler, checksum, sampler_for, sampler_name, write_samples

__all__ = [
    "SAMPLERS",
    "check_sampler",
    "checksum",
    "read_cell_mask",
    "read_known",
    "read_mask",
    "sampler_for",
    "sampler_name",
    "write_cells",
    "write_samples",
]
