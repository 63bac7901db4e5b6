"""Attacks on the package: kills, command lines, damaged files, calls of the Python API, a soak."""
