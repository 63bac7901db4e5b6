"""`python -m blackout` is the command line; so is `torchrun ... -m blackout`, and the program `blackout`."""

import os
import signal
from types import FrameType


def main() -> None:
    """Run the command line. An interrupt during an import ends the process at once, with one line.

    The import of torch takes seconds. A KeyboardInterrupt in the middle of it would show the traceback of a callback,
    or be lost in a library.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where a shell has it ignored
        signal.signal(signal.SIGINT, _interrupt)
    from blackout.cli import main as run

    try:
        run()
    finally:
        if signal.getsignal(signal.SIGINT) is _interrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the status is decided; the interpreter shuts down


def _interrupt(number: int, frame: FrameType | None) -> None:
    if _is_importing(frame):
        os.write(2, b"blackout: interrupted\n")
        os._exit(128 + number)
    raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


if __name__ == "__main__":
    main()
