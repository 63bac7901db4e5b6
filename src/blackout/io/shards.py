"""Shards: work that several processes share, so that each part is done once and survives a kill.

FOLDER.lock               held while a process joins, and while the result is assembled
FOLDER/job.json           the job, and the id of this folder
FOLDER/worker-ID.lock     held by a process as long as it works here
FOLDER/shard-000000.lock  held by the process that computes the shard
FOLDER/shard-000000.npy   a finished shard, which ends in its checksum: written atomically

The operating system releases the locks of a process that dies. All locks are exclusive, so that they work on every
platform; to wait for all others, a process takes their locks one after the other.
"""

import shutil
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from numpy.typing import NDArray

from blackout.files import DamagedFileError, read_array, read_json, write_array, write_json
from blackout.memory import readable

_OWN = ("job.", "shard-", "worker-", "output.partial")  # how the names of files in a work folder begin


class Shards:
    """A work folder, joined by this process for the duration of the `with` statement.

    Parameters
    ----------
    folder
        The work folder; created if needed, removed by `finish`.
    job
        JSON values that determine the result. A folder holds one job at a time.
    count
        Number of shards.

    Raises
    ------
    ValueError
        On entering, if the folder holds finished shards of another job, or another process works on one there.

    Examples
    --------
    >>> import numpy
    >>> with Shards(Path("squares.shards"), {"num": 3}, 3) as shards:
    ...     shards.fill(lambda k: numpy.array([k * k]))
    ...     shards.finish(lambda: print([int(shards.read(k)[0]) for k in range(3)]))
    [0, 1, 4]
    """

    def __init__(self, folder: Path, job: dict[str, Any], count: int) -> None:
        self.folder, self.job, self.count = folder, job, count
        self._id, self._worker = "", FileLock(folder / f"worker-{uuid.uuid4().hex}.lock")

    def __enter__(self) -> "Shards":
        with self._entrance():
            there = self._read_job()
            if there is None or self._differs(there):
                if self.folder.exists():
                    self._check_content()
                    shutil.rmtree(self.folder)
                self.folder.mkdir()
                there = {"id": uuid.uuid4().hex, "job": self.job}
                write_json(self.folder / "job.json", there)
            self._id = there["id"]
            self._worker.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.release()

    def path(self, number: int) -> Path:
        """Where a finished shard is."""
        return self.folder / f"shard-{number:06d}.npy"

    def pending(self) -> list[int]:
        """Numbers of the shards that are not finished."""
        return [k for k in range(self.count) if not self.path(k).exists()]

    def fill(self, compute: Callable[[int], NDArray[Any]]) -> None:
        """Compute the shards that no other process has computed or is computing; then wait for the others.

        A finished shard that is damaged is computed again, with a warning.
        """
        for number in set(range(self.count)) - set(self.pending()):
            self._check(number)
        while pending := self.pending():
            taken = [k for k in pending if self._take(k, compute, wait=False)]
            if not taken:  # all are being computed; the shard of a process that dies is taken over
                self._take(pending[0], compute, wait=True)

    def finish(self, assemble: Callable[[], None]) -> None:
        """Wait until all processes have left; the first one here assembles the result and removes the folder."""
        self._worker.release()  # others may be waiting for it in here
        with self._entrance():
            there = self._read_job()
            if there is None or there["id"] != self._id:
                return  # another process has finished the job
            for path in self.folder.glob("worker-*.lock"):
                with FileLock(path):
                    pass
            assemble()
            (self.folder / "job.json").unlink()  # first, so that a folder half removed counts as empty
            shutil.rmtree(self.folder, ignore_errors=True)

    def read(self, number: int) -> NDArray[Any]:
        """A finished shard; DamagedFileError if it is not as it was written."""
        return read_array(self.path(number))

    @contextmanager
    def _entrance(self) -> Iterator[None]:
        path = self.folder.with_name(f"{self.folder.name}.lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path):
            try:
                yield
            finally:
                if not self.folder.exists():
                    with suppress(OSError):  # Windows removes it on release
                        path.unlink()  # a process that waits for a removed lock file tries again with a new one

    def _take(self, number: int, compute: Callable[[int], NDArray[Any]], *, wait: bool) -> bool:
        path = self.path(number)
        try:
            held = FileLock(path.with_suffix(".lock")).acquire(blocking=wait)
        except Timeout:
            return False
        with held:
            if not path.exists():
                write_array(path, compute(number))
        return True

    def _check(self, number: int) -> None:
        """Remove a finished shard that is damaged."""
        path = self.path(number)
        with FileLock(path.with_suffix(".lock")):
            try:
                self.read(number)
            except DamagedFileError as error:
                if path.exists():
                    warnings.warn(f"{error}; it is computed again", stacklevel=3)
                    path.unlink()

    def _check_content(self) -> None:
        """Raise ValueError if a folder without a job holds files that are not those of a work folder."""
        strange = [path for path in self.folder.iterdir() if not path.name.lstrip(".").startswith(_OWN)]
        if strange:
            raise ValueError(f"{strange[0]} is in the way: {self.folder} is a work folder; move it, or choose another")

    def _read_job(self) -> dict[str, Any] | None:
        path = self.folder / "job.json"
        if not path.exists():
            return None
        try:
            there = read_json(path)
            return {"id": str(there["id"]), "job": dict(there["job"])}
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} cannot be used, remove {self.folder} and run again: {error}") from None

    def _differs(self, there: dict[str, Any]) -> bool:
        """Whether the folder is that of another job, which has no finished shard and no worker."""
        theirs, ours = there["job"], self.job
        names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
        if names and (any(self.folder.glob("shard-*.npy")) or self._has_workers()):
            found, wanted = (", ".join(f"{name}={_short(job.get(name))}" for name in names) for job in (theirs, ours))
            raise ValueError(
                f"{self.folder} holds an unfinished job with {found}, not {wanted}: "
                f"run that command again to finish it, or remove the folder"
            )
        return bool(names)

    def _has_workers(self) -> bool:
        try:
            for path in self.folder.glob("worker-*.lock"):
                with FileLock(path, blocking=False):
                    pass
        except Timeout:
            return True
        return False


def check_disk(what: str, needed: float, path: Path, advice: str) -> None:
    """Raise ValueError if files of so many bytes do not fit on the disk that holds a path."""
    place = next((folder for folder in path.absolute().parents if folder.exists()), path.anchor)
    free = shutil.disk_usage(place).free
    if needed > free:
        raise ValueError(f"{what} need about {readable(needed)} on the disk, but {readable(free)} are free; {advice}")


def _short(value: Any) -> str:
    return value[:12] if isinstance(value, str) and len(value) == 64 else str(value)  # enough of a checksum
