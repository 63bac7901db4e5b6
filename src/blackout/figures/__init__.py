"""Arrays in, Figure out. matplotlib is imported when a figure is asked for."""

from blackout.figures.charts import curves, histograms, points, ranking
from blackout.figures.files import inline_svg, save
from blackout.figures.gaussian import GaussianDiffusion
from blackout.figures.laws import paths
from blackout.figures.observation import observation_times
from blackout.figures.pictures import forward, samples, walk

__all__ = [
    "GaussianDiffusion",
    "curves",
    "forward",
    "histograms",
    "inline_svg",
    "observation_times",
    "paths",
    "points",
    "ranking",
    "samples",
    "save",
    "walk",
]
