"""Samples to files, models from files."""

from blackout.io.observed import read_known, read_mask
from blackout.io.samples import SAMPLERS, check_sampler, checksum, sampler_for, sampler_name, write_samples

__all__ = [
    "SAMPLERS",
    "check_sampler",
    "checksum",
    "read_known",
    "read_mask",
    "sampler_for",
    "sampler_name",
    "write_samples",
]
