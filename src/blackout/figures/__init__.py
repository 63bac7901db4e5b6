"""Functions that draw: arrays in, a matplotlib ``Figure`` out. matplotlib is imported when a figure is drawn.

``blackout.figures.catalogue`` has the figures of the command ``blackout figures``.
"""

from typing import TYPE_CHECKING

from blackout.registry import exports

if TYPE_CHECKING:
    from blackout.figures.charts import curves as curves
    from blackout.figures.charts import error_bars as error_bars
    from blackout.figures.charts import histograms as histograms
    from blackout.figures.charts import observation_times as observation_times
    from blackout.figures.charts import scatter as scatter
    from blackout.figures.distributions import paths as paths
    from blackout.figures.files import inline_svg as inline_svg
    from blackout.figures.files import save as save
    from blackout.figures.gaussian import GaussianDiffusion as GaussianDiffusion
    from blackout.figures.images import forward as forward
    from blackout.figures.images import samples as samples
    from blackout.figures.images import trajectory as trajectory

__getattr__, __all__ = exports(__name__)
