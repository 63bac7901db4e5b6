"""A figure that Jupyter shows without `%matplotlib inline`."""

import io

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A figure that is not known to pyplot, which would keep it in memory and show it in a way of its own."""

    def _repr_png_(self) -> bytes:
        """What IPython displays."""
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()
