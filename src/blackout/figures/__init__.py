"""Functions that draw: arrays in, a matplotlib ``Figure`` out. matplotlib is imported when a figure is drawn.

``blackout.figures.catalogue`` has the figures of the command ``blackout figures``.
"""

from blackout.figures.charts import curves, error_bars, histograms, observation_times, scatter
from blackout.figures.distributions import paths
from blackout.figures.files import inline_svg, save
from blackout.figures.gaussian import GaussianDiffusion
from blackout.figures.images import forward, samples, trajectory

__all__ = [
    "GaussianDiffusion",
    "curves",
    "error_bars",
    "forward",
    "histograms",
    "inline_svg",
    "observation_times",
    "paths",
    "samples",
    "save",
    "scatter",
    "trajectory",
]
