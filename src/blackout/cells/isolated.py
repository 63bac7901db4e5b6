"""Files that C libraries parse, read in a child process: a damaged file can crash such a library, or never let it end.

A crash is then an error of the file, and Ctrl-C ends a library that does not listen to it. Linux only: elsewhere files
are read in the process itself, since starting a child there would run the user's program again.
"""

import faulthandler
import mmap
import multiprocessing
import pickle
import signal
import sys
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeVar, cast

from blackout import validate
from blackout.memory import available_memory

T = TypeVar("T")

_SECONDS, _BYTES_PER_SECOND = 30.0, 1e6  # a file may take so long, and so much longer for its size


def isolated(read: Callable[[Path], T], path: Path) -> T:
    """`read(path)`, computed in a child process with a limit of time and memory.

    Raises
    ------
    ValueError
        Of `read` itself; or if it crashes, takes too long, or needs more memory than there is.
    """
    if sys.platform != "linux" or multiprocessing.current_process().daemon:  # a daemon may have no children
        return read(path)
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    limit = _SECONDS + size_on_disk(path) / _BYTES_PER_SECOND
    child = context.Process(target=_answer, args=(read, path, sender, limit), daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads: the child uses none of theirs
        child.start()
    sender.close()
    try:
        if not (ready := wait([receiver, child.sentinel], limit)):
            raise ValueError(f"damaged: reading it took longer than {limit:.0f} s")
        if receiver in ready:
            return cast(T, _receive(receiver))
        raise EOFError
    except EOFError:
        child.join()
        code = child.exitcode or 0
        how = signal.Signals(-code).name if code < 0 else f"status {code}"
        raise ValueError(f"damaged: its reader crashed ({how})") from None
    finally:
        child.kill()
        child.join()
        receiver.close()


def size_on_disk(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _answer(read: Callable[[Path], Any], path: Path, sender: Connection, limit: float) -> None:
    """In the child: send the result, or the error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    faulthandler.disable()  # a crash is reported by the parent
    most = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE + available_memory()
    _set_limits(RLIMIT_AS=most, RLIMIT_CPU=int(limit) + 1, RLIMIT_CORE=0)  # of time in case the parent is killed
    try:
        result: Any = read(path)
    except (ValueError, ImportError) as error:
        result = type(error)(str(error))
    except Exception as error:
        result = ValueError(f"{type(error).__name__}: {validate.one_line(error)}")
    buffers: list[pickle.PickleBuffer] = []
    sender.send_bytes(pickle.dumps(result, protocol=5, buffer_callback=buffers.append))
    parts = [buffer.raw() for buffer in buffers]
    sender.send([part.nbytes for part in parts])
    for part in parts:
        if part.nbytes:
            sender.send_bytes(part)


def _set_limits(**limits: int) -> None:
    import resource  # which Windows lacks

    for name, most in limits.items():
        kind = getattr(resource, name)
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _receive(receiver: Connection) -> Any:
    """The result of the child; its arrays are copied once, out of the pipe."""
    content = receiver.recv_bytes()
    buffers = [bytearray(size) for size in receiver.recv()]
    for buffer in buffers:
        if buffer:
            receiver.recv_bytes_into(buffer)
    result = pickle.loads(content, buffers=buffers)
    if isinstance(result, Exception):
        raise result
    return result
