"""Shards: work that several processes share, and that none of them does twice.

FOLDER/job.json            what is being made
FOLDER/shard-000000.npy    a finished shard: written under another name, flushed to the disk, renamed
FOLDER/shard-000000.lock   held by the process that draws the shard; the system lets go of it if the process dies
FOLDER/lock                held by all who work here, and by one alone while the end result is put together
"""

import fcntl
import glob
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy
from numpy.typing import NDArray

from blackout.atomic import write_atomic

_DONE = ".done"


class Shards:
    """A work folder that this process has joined, for as long as the `with` statement lasts."""

    def __init__(self, folder: Path, job: dict[str, Any], count: int) -> None:
        self.folder, self.job, self.count = folder, job, count
        self._lock: IO[str] | None = None

    def __enter__(self) -> "Shards":
        while True:
            self._join()
            try:
                if self._agree():
                    return self
                self._discard()
            except BaseException:
                self.__exit__()
                raise
            self.__exit__()

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def path(self, number: int) -> Path:
        return self.folder / f"shard-{number:06d}.npy"

    def pending(self) -> list[int]:
        return [k for k in range(self.count) if not self.path(k).exists()]

    def fill(self, draw: Callable[[int], NDArray[Any]]) -> None:
        """Draw whatever nobody has drawn or is drawing; on return every shard is finished."""
        while pending := self.pending():
            taken = [k for k in pending if self._take(k, draw, wait=False)]
            if not taken:  # others are at work on all that is left; should one of them die, its shard is ours
                self._take(pending[0], draw, wait=True)

    def finish(self, assemble: Callable[[], None]) -> None:
        """Once nobody works here any more, the first to get here assembles the result and removes the folder."""
        assert self._lock is not None
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        if self._is_current(self._lock):
            assemble()
            self._discard()

    def read(self, number: int) -> NDArray[Any]:
        try:
            array: NDArray[Any] = numpy.load(self.path(number), allow_pickle=False)
        except (OSError, EOFError, ValueError) as error:
            raise ValueError(f"{self.path(number)} is damaged, remove it and run again: {error}") from None
        return array

    def _take(self, number: int, draw: Callable[[int], NDArray[Any]], *, wait: bool) -> bool:
        with self.path(number).with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                return False
            if not self.path(number).exists():
                self._write(self.path(number), draw(number))
            return True

    def _write(self, path: Path, array: NDArray[Any]) -> None:
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            numpy.save(file, array, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)

    def _join(self) -> None:
        while self._lock is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                lock = (self.folder / "lock").open("w")
            except FileNotFoundError:  # whoever finished the job before us has just removed its folder
                continue
            fcntl.flock(lock, fcntl.LOCK_SH)
            if self._is_current(lock):
                self._lock = lock
            else:
                lock.close()

    def _agree(self) -> bool:
        """Say what is made here, or find that it is the same; False if it is another job that never got anywhere."""
        path = self.folder / "job.json"
        with (self.folder / "job.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                write_atomic(path, json.dumps(self.job, indent=2) + "\n")
        try:
            there = dict(json.loads(path.read_text()))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path} is damaged, remove {self.folder} and run again: {error}") from None
        names = [name for name in {**self.job, **there} if self.job.get(name) != there.get(name)]
        if names and (any(self.folder.glob("shard-*.npy")) or not self._alone()):
            theirs, ours = (", ".join(f"{name}={_short(job.get(name))}" for name in names) for job in (there, self.job))
            raise ValueError(
                f"{self.folder} holds an unfinished job with {theirs}, not {ours}: "
                f"run that command again to finish it, or remove the folder"
            )
        return not names

    def _alone(self) -> bool:
        assert self._lock is not None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return self._is_current(self._lock)

    def _discard(self) -> None:
        """Remove the folder, first from under its name, so that a newcomer finds all of it or nothing.

        With it goes what others left who were killed at this.
        """
        name = self.folder.name
        self.folder.rename(Path(tempfile.mkdtemp(_DONE, f"{name}.", self.folder.parent), name))
        for gone in self.folder.parent.glob(f"{glob.escape(name)}.*{_DONE}"):
            shutil.rmtree(gone, ignore_errors=True)

    def _is_current(self, lock: IO[str]) -> bool:
        try:
            return os.path.samestat(os.fstat(lock.fileno()), os.stat(self.folder / "lock"))
        except FileNotFoundError:
            return False


def _short(value: Any) -> str:
    return value[:12] if isinstance(value, str) and len(value) == 64 else str(value)  # a checksum needs no more
