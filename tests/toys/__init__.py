"""One file for each kind of thing that can be registered; importing this package registers all of them."""

from toys import clockwork, mean_gap, midpoint, patches, pixelwise, poisson_head

__all__ = ["clockwork", "mean_gap", "midpoint", "patches", "pixelwise", "poisson_head"]
