"""SIGINT and SIGTERM during training."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Stopped(Exception):
    """A signal ended the run; its state is saved."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number


class StopSignals:
    """SIGINT and SIGTERM end the run after the current step, with a checkpoint; a second SIGINT ends it at once.

    `number` is the signal received, 0 for none.
    """

    def __init__(self) -> None:
        self.number = 0

    @contextmanager
    def caught(self, immediate: bool, on_stop: Callable[[], None] | None) -> Iterator[None]:
        """Catch signals inside the `with` statement.

        `immediate`: whether a second SIGINT raises KeyboardInterrupt. Processes that share a run receive several
        signals for one key press, so they do not. `on_stop` is called at each signal.
        """

        def note(number: int, frame: FrameType | None) -> None:
            if immediate and self.number == number == signal.SIGINT:
                raise KeyboardInterrupt
            self.number = number
            if on_stop is not None:
                on_stop()

        before: dict[int, Any] = {}
        try:
            for ending in (signal.SIGINT, signal.SIGTERM):
                before[ending] = signal.signal(ending, note)
        except ValueError:  # not in the main thread, which handles signals itself
            pass
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
