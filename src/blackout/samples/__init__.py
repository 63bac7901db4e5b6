"""Samples to files."""

from blackout.samples.write import SAMPLERS, checksum, sampler_for, sampler_name, write_samples

__all__ = ["SAMPLERS", "checksum", "sampler_for", "sampler_name", "write_samples"]
