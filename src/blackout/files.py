"""Files that are ours: JSON and arrays with their own checksum, and which files of a folder may be overwritten."""

import errno
import hashlib
import io
import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blackout.atomic import atomic, write_atomic

if TYPE_CHECKING:  # the command line lists its options without numpy
    from numpy.typing import NDArray

SEAL = "sha256"
"""The field of a JSON file that holds the checksum of the others."""
CLAIMS = "blackout.json"
"""The file of an output folder that lists what this package has written there."""
_DIGEST = 32  # bytes of SHA-256
_NAMED = 8  # lines that a warning names


class DamagedFileError(ValueError):
    """A file that is missing, cannot be read, or does not match its checksum."""


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write JSON with a field that holds the checksum of all others, atomically."""
    plain = json.loads(json.dumps(values))
    write_atomic(path, json.dumps({**plain, SEAL: _seal(plain)}, indent=2) + "\n")


def read_json(
    path: Path, check: Callable[[dict[str, Any]], object] | None = None, *, by_hand: bool = False
) -> dict[str, Any]:
    """The values that `write_json` wrote.

    Parameters
    ----------
    check
        Called with the values before they are compared with the checksum: what it raises is more specific.
    by_hand
        Whether users may write such files too: the checksum may be missing. Fields of unknown names must be rejected.
    """
    try:
        values = json.loads(read_text(path))
        json.dumps(values)  # may nest too deeply for that
    except (OSError, RecursionError, ValueError) as error:
        raise DamagedFileError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not isinstance(values, dict):
        raise DamagedFileError(f"{path} is damaged: expected a JSON object, got {type(values).__name__}")
    seal = values.pop(SEAL, None)
    if check is not None:
        check(values)
    if seal != _seal(values) and not (by_hand and seal is None):
        advice = f"; without the field {SEAL} it is used as it is" if by_hand else ""
        raise DamagedFileError(f"{path} is damaged or was edited: it does not match its checksum{advice}")
    return values


def append_line(path: Path, values: Mapping[str, Any]) -> None:
    """Append a line of JSON, with the checksum as in `write_json`."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({**values, SEAL: _seal(values)}) + "\n")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The values of the lines that `append_line` wrote; a warning names those that are damaged, and they are left out.

    A last line without an end is left out silently: a kill has cut it short.
    """
    *lines, _ = _content(path).split(b"\n")
    found, damaged = [], []
    for number, line in enumerate(lines, 1):
        try:
            values = json.loads(line)
            if values.pop(SEAL) != _seal(values):
                raise ValueError
            found.append(values)
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
            damaged.append(str(number))
    if damaged:
        which = f"line{'s' * (len(damaged) > 1)} {', '.join(damaged[:_NAMED])}{' ...' * (len(damaged) > _NAMED)}"
        warnings.warn(f"{path} is damaged: {which} left out", stacklevel=2)
    return found


def read_text(path: Path) -> str:
    """The text of a file in UTF-8; OSError for a device, which may never end."""
    if path.is_char_device() or path.is_block_device():
        raise OSError(errno.EINVAL, "it is a device", str(path))
    return path.read_text(encoding="utf-8")


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DamagedFileError(f"{path} cannot be read: {error.strerror}") from None


def _seal(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_file(path: Path, digest: object) -> Path:
    """The path itself, if the file has this SHA-256."""
    try:
        found = file_digest(path)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        raise DamagedFileError(f"{path} {'is missing' if missing else f'cannot be read: {error.strerror}'}") from None
    if found != digest:
        raise DamagedFileError(f"{path} is damaged: it does not match its checksum")
    return path


def write_array(path: Path, array: "NDArray[Any]") -> None:
    """Write a .npy file that ends in its checksum, atomically; `numpy.load` reads it too."""
    import numpy

    content = io.BytesIO()
    numpy.save(content, array, allow_pickle=False)
    with atomic(path) as unfinished:
        unfinished.write_bytes(content.getvalue() + hashlib.sha256(content.getbuffer()).digest())


def read_array(path: Path) -> "NDArray[Any]":
    """The array that `write_array` wrote."""
    import numpy

    content = _content(path)
    content, digest = content[:-_DIGEST], content[-_DIGEST:]
    if hashlib.sha256(content).digest() != digest:
        raise DamagedFileError(f"{path} is damaged: it does not match its checksum")
    array: NDArray[Any] = numpy.load(io.BytesIO(content), allow_pickle=False)
    return array


def check_overwrite(
    path: Path, is_ours: Callable[[], bool], overwrite: bool, reason: str, name: str = "out", kind: str = "path"
) -> None:
    """Raise ValueError for a path that exists, unless `is_ours` recognises it or the user wants to `overwrite` it.

    The same for one in a file instead of a folder.

    Parameters
    ----------
    reason, name, kind
        Of the message: why it is not ours, the argument, and what else to choose.
    """
    above = next((parent for parent in path.parents if parent.exists()), path.parent)
    if above.exists() and not above.is_dir():
        raise ValueError(f"{name}: {above} is a file, so that {path} cannot be made; choose another {kind}")
    if not overwrite and path.exists() and not is_ours():
        advice = f"choose another {kind}, or remove it (--overwrite replaces it)"
        raise ValueError(f"{name}: {path} exists {reason}; {advice}")


def claim(folder: Path, names: Iterable[str], overwrite: bool = False) -> None:
    """Make a folder for files of these names, and list them in its blackout.json.

    ValueError if one of them exists that the list does not have, unless the user asks for it.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"out must be a folder, but {folder} is a file")
    names = list(names)
    there = [found for found in names if (folder / found).exists()]  # before the list: another may write both
    listed = _claimed(folder, overwrite)
    for found in there:
        reason = f"and is not in the {CLAIMS} of its folder"
        check_overwrite(folder / found, partial(listed.__contains__, found), overwrite, reason, kind="folder")
    folder.mkdir(parents=True, exist_ok=True)
    if not set(names) <= set(listed):
        write_json(folder / CLAIMS, {"files": sorted({*listed, *names})})


def _claimed(folder: Path, overwrite: bool) -> list[str]:
    """The names in a folder's list; none if there is no list."""
    try:
        return [str(name) for name in read_json(folder / CLAIMS)["files"]] if (folder / CLAIMS).exists() else []
    except (DamagedFileError, KeyError, TypeError) as error:
        if overwrite:
            return []
        raise ValueError(f"{folder / CLAIMS} does not list files: {error}; choose another folder") from None
