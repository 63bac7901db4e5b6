"""Processes that start quickly: forks of one process that has imported torch and its like, but nothing of blackout.

A new interpreter needs three seconds of computing to import them. Tests of imports themselves, of environment variables
that packages read when imported, and of pipes that are read line by line start an interpreter of their own.
"""

import atexit
import multiprocessing
import os
import runpy
import stat
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, Listener
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from threading import Thread
from typing import Self

TESTS = Path(__file__).parent
PRELOAD = [
    "accelerate",
    "anndata",
    "filelock",
    "matplotlib.pyplot",
    "PIL.Image",
    "safetensors.torch",
    "scipy.sparse",
    "torch._dynamo",
    "torchmetrics",
    "typer",
]
COMMAND = ("-c", "from blackout.cli import main; main()")
"""The command line, as the first words of a process."""

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(PRELOAD)


class Process:
    """`python WORDS`, where words are `-c CODE`, `-m MODULE` or a file, and arguments; as subprocess.Popen."""

    def __init__(self, *words: object, cwd: str | Path | None = None, env: Mapping[str, str] | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="process-")
        self._files = [Path(self._folder.name) / name for name in ("stdout", "stderr")]
        self._words = list(map(str, words))
        where = str(cwd or Path.cwd())
        environment = dict(os.environ if env is None else env)
        self._process = ForkServerProcess(target=_run, args=(self._words, where, environment, self._files))
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Standard output and standard error, at the end of the process."""
        self._process.join(timeout)
        if self.poll() is None:
            raise subprocess.TimeoutExpired(self._words, timeout or 0.0)
        out, error = (file.read_text() if file.exists() else "" for file in self._files)
        return out, error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.join()
        self._folder.cleanup()


def run(
    *words: object, cwd: str | Path | None = None, env: Mapping[str, str] | None = None, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """The same, until its end."""
    with Process(*words, cwd=cwd, env=env) as process:
        try:
            out, error = process.communicate(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert process.returncode is not None
    return subprocess.CompletedProcess(list(words), process.returncode, out, error)


CLIENT = """
import os, sys
from multiprocessing.connection import Client
with Client({address!r}, authkey={key!r}) as server:
    server.send(({first!r} + sys.argv[1:], os.getcwd(), dict(os.environ)))
    code, out, error = server.recv()
sys.stdout.write(out)
sys.stderr.write(error)
sys.exit(code)
"""


@contextmanager
def programs(folder: Path, names: Mapping[str, Sequence[str]]) -> Iterator[None]:
    """Write programs for a shell into a folder; each runs in a fork with these words before its arguments."""
    key = os.urandom(16)
    with tempfile.TemporaryDirectory(prefix="programs-") as sockets:
        listener = Listener(str(Path(sockets) / "socket"), authkey=key)
        for name, first in names.items():
            client = folder / f".{name}.py"
            client.write_text(CLIENT.format(address=listener.address, key=key, first=list(first)))
            (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{client}" "$@"\n')
            (folder / name).chmod(stat.S_IRWXU)
        Thread(target=_serve, args=(listener,), daemon=True).start()
        yield
        listener.close()


def _serve(listener: Listener) -> None:
    while True:
        try:
            connection = listener.accept()
        except OSError:  # closed
            return
        Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: Connection) -> None:
    with connection:
        words, cwd, environment = connection.recv()
        done = run(*words, cwd=cwd, env=environment)
        connection.send((done.returncode, done.stdout, done.stderr))


def _run(words: list[str], cwd: str, environment: dict[str, str], files: list[Path]) -> None:
    """In the fork: become what a new interpreter is after its start."""
    for number, file in enumerate(files, 1):
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    if threads := environment.get("OMP_NUM_THREADS"):
        sys.modules["torch"].set_num_threads(int(threads))
    first = [part for part in environment.get("PYTHONPATH", "").split(os.pathsep) if part]
    added = {str(TESTS), str(TESTS.parent / "docs/_ext"), *first}  # by pytest and by tests
    sys.path[:] = [*first, *(part for part in sys.path if part not in added)]
    try:
        _execute(words)
    finally:
        atexit._run_exitfuncs()


def _execute(words: list[str]) -> None:
    if words[0] == "-u":  # as torchrun starts its processes
        words = words[1:]
    if words[0] == "-c":
        sys.argv, sys.path[:0] = ["-c", *words[2:]], [""]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(words[1], "<string>", "exec"), main.__dict__)
    elif words[0] == "-m":
        sys.argv, sys.path[:0] = words[1:], [""]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[:0] = words, [str(Path(words[0]).parent)]
        runpy.run_path(words[0], run_name="__main__")
