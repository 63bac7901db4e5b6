"""Benchmarks: timings and ratios within one run. `python -m benchmarks --help` lists them."""
