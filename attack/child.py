"""Functions in forks of this process, which has imported torch already: a case costs some hundredths of a second."""

import contextlib
import faulthandler
import gc
import importlib
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PRELOAD = (
    "anndata", "h5py", "matplotlib.pyplot", "PIL.PngImagePlugin", "rich.progress", "scipy.io", "scipy.sparse.csgraph",
    "starlette.applications", "torch", "torchmetrics", "uvicorn", "blackout.cells.evaluate", "blackout.cells.model",
    "blackout.cli", "blackout.distillation.run", "blackout.evaluation.comparison", "blackout.evaluation.pipeline",
    "blackout.figures.write", "blackout.io", "blackout.model", "blackout.training.run",
)  # fmt: skip
_MEMORY = 3 << 30  # bytes that a child may allocate beyond what this process has
_FILE = 1 << 28  # bytes of a file that it may write
_PATIENCE = 5.0  # seconds to end after an interrupt
_AGAIN = "Ctrl-C again stops at once"  # what a run says that saves a checkpoint after a long step


@dataclass(frozen=True)
class Outcome:
    """How a child ended."""

    status: int
    """Of its exit; minus the number of the signal that ended it."""
    out: str
    err: str
    seconds: float
    slow: bool = False
    """Whether it was interrupted, as by Ctrl-C, when its time was over."""
    hung: bool = False
    """Whether it did not end then either, and was killed."""


def warm_up() -> None:
    """Import in this process what children need, and limit torch to one thread, which survives a fork."""
    for name in _PRELOAD:
        importlib.import_module(name)
    sys.modules["torch"].set_num_threads(1)


def learn(functions: Iterable[Callable[[], Any]], folder: Path) -> None:
    """Call functions in children, and import here what they imported there."""

    def names(function: Callable[[], Any]) -> None:
        with contextlib.suppress(SystemExit):
            function()
        (folder / ".modules").write_text("\n".join(sys.modules))

    for function in functions:
        outcome = run(lambda function=function: names(function), folder, seconds=120)  # type: ignore[misc]
        if outcome.status:
            raise RuntimeError(f"a valid line or file of the attack fails: {outcome.err}")
        for name in (folder / ".modules").read_text().split():
            if name not in sys.modules:
                with contextlib.suppress(Exception):
                    importlib.import_module(name)
        (folder / ".modules").unlink()
    gc.collect()
    gc.freeze()  # a collection would copy the pages that children share with this process


def run(
    function: Callable[[], Any], folder: Path, *, seconds: float = 20.0, kill_after: float | None = None
) -> Outcome:
    """Call a function in a fork, in a folder, with limits of time and memory.

    Parameters
    ----------
    seconds
        When it is interrupted by SIGINT; five seconds later it is killed, or interrupted again if it asks for that.
    kill_after
        When it is killed, if it has not ended before.
    """
    names = folder / ".out", folder / ".err"
    begin = time.monotonic()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        _become(function, folder, names)
    slow = hung = False
    with _ended(pid) as ended:
        if kill_after is not None:
            ended(kill_after)
        elif not ended(seconds):
            slow = True
            os.kill(pid, signal.SIGINT)
            hung = not ended(_PATIENCE)
            if hung and _AGAIN in names[1].read_text(errors="replace"):
                os.kill(pid, signal.SIGINT)
                hung = not ended(_PATIENCE)
        _kill_group(pid)
        _, code = os.waitpid(pid, 0)
    out, err = (name.read_text(errors="replace") if name.exists() else "" for name in names)
    return Outcome(os.waitstatus_to_exitcode(code), out, err, time.monotonic() - begin, slow, hung)


def command(words: list[str]) -> Callable[[], None]:
    """A command line of `blackout`, as the function of a child."""

    def call() -> None:
        from blackout.__main__ import main

        sys.argv = ["blackout", *words]
        main()

    return call


@contextmanager
def _ended(pid: int) -> Iterator[Callable[[float], bool]]:
    """A function that waits so many seconds for the end of a process, and returns whether it has ended."""
    handle = os.pidfd_open(pid)
    try:
        yield lambda seconds: bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)


def _kill_group(pid: int) -> None:
    """End a child and its own children, which share its process group."""
    for group in (os.killpg, os.kill):
        try:
            group(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _become(function: Callable[[], Any], folder: Path, names: tuple[Path, Path]) -> None:
    """In the child: call the function and exit with its status."""
    status = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, name in enumerate(names, 1):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        faulthandler.disable()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(folder)
        os.environ["COLUMNS"] = "200"
        most = _virtual_memory() + _MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE, _FILE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _stay_local()
        function()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


def _virtual_memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _stay_local() -> None:
    """No connection but to this machine."""
    connect = socket.socket.connect

    def local(self: socket.socket, address: Any) -> None:
        if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise ConnectionRefusedError(111, "no connections in an attack")
        connect(self, address)

    socket.socket.connect = local  # type: ignore[method-assign]
    socket.getaddrinfo = _unknown_host


def _unknown_host(host: Any, *arguments: Any, **options: Any) -> Any:
    raise socket.gaierror(socket.EAI_NONAME, f"no host {host} in an attack")
