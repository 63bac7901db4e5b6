"""Samples to files."""

from blackout.samples.write import SAMPLERS, checksum, write_samples

__all__ = ["SAMPLERS", "checksum", "write_samples"]
