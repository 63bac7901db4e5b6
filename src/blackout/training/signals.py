"""SIGINT and SIGTERM during training."""

import atexit
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

_PATIENCE = 1.0  # seconds until a process that does not answer is ended


class Stopped(Exception):
    """A signal ended the run.

    Parameters
    ----------
    number
        The signal.
    saved
        Whether a checkpoint was written; before the first step there is nothing to save.
    """

    def __init__(self, number: int, saved: bool = True) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code, self.saved = 128 + number, saved


class StopSignals:
    """SIGINT and SIGTERM end the run after the current step, with a checkpoint; a second SIGINT ends it at once.

    `number` is the signal received, 0 for none. `started` is set after the first step; before it, a signal ends the run
    at once.
    """

    def __init__(self) -> None:
        self.number, self.started = 0, False

    @contextmanager
    def caught(self, immediate: bool, on_stop: Callable[[], None] | None) -> Iterator[None]:
        """Catch signals inside the `with` statement.

        `immediate`: whether a second SIGINT raises KeyboardInterrupt. Processes that share a run receive several
        signals for one key press, so they do not. `on_stop` is called at each signal.
        """

        def note(number: int, frame: FrameType | None) -> None:
            if immediate and (not self.started or self.number) and number == signal.SIGINT:
                raise KeyboardInterrupt
            if immediate and not self.started:
                raise Stopped(number, saved=False)
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


class Watchdog:
    """Ends a process that does not answer a signal in time, because its main thread is busy in compiled code.

    Python's handlers wait until such code returns: a large first step, a compiler. For programs, not for libraries.
    While `waits` is true, one signal is left to the training loop, which finishes its step and saves.
    """

    def __init__(self) -> None:
        self.waits, self._number = False, 0
        self._ours, self._theirs = socket.socketpair()
        self._theirs.setblocking(False)

    def start(self) -> "Watchdog":
        try:
            signal.set_wakeup_fd(self._theirs.fileno(), warn_on_full_buffer=False)
        except ValueError:  # not in the main thread
            return self
        threading.Thread(target=self._watch, daemon=True).start()
        atexit.register(self._skip_teardown)
        return self

    def stop(self) -> None:
        """Leave signals to Python again."""
        with suppress(ValueError):  # not in the main thread
            signal.set_wakeup_fd(-1)

    def _watch(self) -> None:
        count = 0
        while True:
            number = self._ours.recv(1)[0]
            if number not in (signal.SIGINT, signal.SIGTERM):
                continue
            count, self._number = count + 1, number
            if count > 1 or not self.waits:
                threading.Thread(target=self._end, args=(number,), daemon=True).start()

    def _end(self, number: int) -> None:
        """The process has a moment to end by itself, which closes its files in order."""
        time.sleep(_PATIENCE)
        sys.stderr.write(f"blackout: ended by {signal.Signals(number).name}\n")
        sys.stderr.flush()
        os._exit(128 + number)

    def _skip_teardown(self) -> None:
        """Freeing the memory of torch takes seconds, in which no thread of Python runs."""
        if self._number:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(128 + self._number)
