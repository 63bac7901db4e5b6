"""A warning for work that takes more than a few seconds."""

import time
import warnings

_SECONDS = 5.0  # of processor time


class SlowWork:
    """Warns once, with an estimate of the whole, if work has taken five seconds and needs as many again.

    Parameters
    ----------
    what
        What takes long: the subject of the warning.
    advice
        What to do instead.
    """

    def __init__(self, what: str, advice: str) -> None:
        self.what, self.advice = what, advice
        self._start = time.process_time()
        self._warned = False

    def done(self, share: float) -> None:
        """Report that a share in (0, 1] of the work is done."""
        spent = time.process_time() - self._start
        if self._warned or spent < _SECONDS or spent / share - spent < _SECONDS:
            return
        self._warned = True
        warnings.warn(f"{self.what} takes about {spent / share:.0f} s: {self.advice}", RuntimeWarning, stacklevel=3)
