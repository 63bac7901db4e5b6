"""When the process is looked at."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from blackout.figures.style import COLOURS, DASHES, SMALL, TEXT, WIDTH, blank, cycle, open_frame
from blackout.times import ObservationTimes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def observation_times(times: Mapping[str, ObservationTimes] | ObservationTimes | None = None) -> "Figure":
    """t_k against k on a linear and on a logarithmic axis, log 2 marked: Appendix E. Default: the paper's own times.

    At t = log 2 half of the units are left, and the paper's times lie symmetrically about it.
    """
    times = ObservationTimes.fisher() if times is None else times
    named = {"": times} if isinstance(times, ObservationTimes) else dict(times)
    if not named:
        raise ValueError("times must hold a grid at least, got none")
    for name, one in named.items():
        if not isinstance(one, ObservationTimes):
            raise ValueError(f"times[{name!r}] must be ObservationTimes, got {type(one).__name__}")
    figure = blank(WIDTH, 2.6)
    for axis, scale in zip(figure.subplots(1, 2), ("linear", "log"), strict=True):
        for k, (name, one) in enumerate(named.items()):
            index = range(1, len(one) + 1)
            axis.plot(index, one.values.numpy(), label=name, color=cycle(COLOURS, k), linestyle=cycle(DASHES, k))
        axis.axhline(math.log(2), color="black", linewidth=0.8, linestyle=(0, (4, 3)))
        axis.annotate(
            r"$t = \log 2$", (1, math.log(2)), (-2, 3), xycoords=("axes fraction", "data"),
            textcoords="offset points", ha="right", fontsize=SMALL,
        )  # fmt: skip
        axis.set_yscale(scale)
        axis.set_xlabel("observation $k$", fontsize=TEXT)
        axis.set_ylabel("time $t_k$, in mean lives of a unit", fontsize=TEXT)
        axis.set_title(f"{'linear' if scale == 'linear' else 'logarithmic'} axis", fontsize=TEXT)
        axis.tick_params(labelsize=SMALL)
        open_frame(axis)
    if len(named) > 1:
        axis.legend(frameon=False, handlelength=3, fontsize=SMALL)
    return figure
