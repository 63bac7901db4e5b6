"""Atomic file writes: a file is written under another name, flushed to the disk and renamed."""

import errno
import glob
import os
import platform
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FULL = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
_HOST = re.sub(r"[^A-Za-z0-9]", "", platform.node())
_ABANDONED = 24 * 3600  # seconds after which a partial file of another machine belongs to nobody


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A path of the same suffix to write to, renamed to `path` at the end and removed if the block raises.

    What killed writes of this file have left behind is removed.
    """
    for leftover in path.parent.glob(f".{glob.escape(path.stem)}.*.partial{glob.escape(path.suffix)}"):
        if _is_abandoned(leftover):
            leftover.unlink(missing_ok=True)
    partial = path.with_name(f".{path.stem}.{_HOST}-{os.getpid()}.partial{path.suffix}")
    kept = "the earlier file is kept" if path.exists() else "nothing was written"
    try:
        with disk_errors(path, kept):
            yield partial
            flush(partial)
            partial.replace(path)
            flush(path.parent)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A folder to write to, renamed to `path` at the end, whose earlier folder is kept until then."""
    with disk_errors(path), tempfile.TemporaryDirectory(prefix=f".{path.stem}.", dir=path.parent) as work:
        new = Path(work, path.name)
        yield new
        if path.exists():
            path.rename(Path(work, "earlier"))
        new.rename(path)
        flush(path.parent)


def write_atomic(path: Path, text: str) -> None:
    """Write a text file in UTF-8, completely or not at all."""
    with atomic(path) as partial:
        partial.write_text(text, encoding="utf-8")


def flush(path: Path) -> None:
    """Wait until a file, or the list of files of a folder, is on the disk."""
    with suppress(PermissionError):  # Windows opens no folders
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def disk_errors(path: Path, kept: str = "") -> Iterator[None]:
    """Errors in writing a file name `path`, and on a full disk also what is `kept`."""
    try:
        yield
    except Exception as error:
        number, place = _error_number(error), Path(getattr(error, "filename", None) or path)
        if number is None or not place.absolute().is_relative_to(path.parent.absolute()):
            raise
        reason = os.strerror(number)
        raise OSError(number, f"{reason}; {kept}" if kept and number in _FULL else reason, str(path)) from None


def _error_number(error: Exception) -> int | None:
    """The system's number of an error; libraries in other languages write it into their message."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    found = re.search(r"os error (\d+)|errno = (\d+)", str(error))
    return int(found[1] or found[2]) if found else None


def _is_abandoned(partial: Path) -> bool:
    """Whether the process that wrote a partial file has ended."""
    found = re.search(r"\.([A-Za-z0-9]*)-(\d+)\.partial[^/]*$", partial.name)
    if found is None:
        return False
    if found[1] == _HOST and os.name == "posix":
        try:
            os.kill(int(found[2]), 0)
        except (ProcessLookupError, OverflowError):
            return True
        except PermissionError:
            return False
    try:
        return time.time() - partial.stat().st_mtime > _ABANDONED
    except FileNotFoundError:
        return False
