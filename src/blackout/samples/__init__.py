"""Samples to files."""

from blackout.samples.write import SAMPLERS, write_samples

__all__ = ["SAMPLERS", "write_samples"]
