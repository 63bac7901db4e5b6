"""Attacks on the package: kills, command lines, files, calls of the Python API, a soak. Not part of the wheel."""
