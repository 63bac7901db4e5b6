"""Models from files, samples to files."""

from blackout.io.models import load, pretrained, pretrained_folder
from blackout.io.observed import read_mask, read_observed
from blackout.io.samples import SAMPLERS, check_sampler, checksum, sampler_for, sampler_name, write_samples
from blackout.io.shards import Shards

__all__ = [
    "SAMPLERS",
    "Shards",
    "check_sampler",
    "checksum",
    "load",
    "pretrained",
    "pretrained_folder",
    "read_mask",
    "read_observed",
    "sampler_for",
    "sampler_name",
    "write_samples",
]
