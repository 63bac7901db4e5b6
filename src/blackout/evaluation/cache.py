"""Cache of the finished stages of an evaluation, so that an interrupted one resumes."""

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from blackout.atomic import write_atomic
from blackout.files import read_array, write_array
from blackout.io.shards import Shards


class Cache:
    """A folder of results. A stored result is used if it was computed for the same key.

    Parameters
    ----------
    folder
        Created if it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def get(
        self, name: str, key: dict[str, Any], compute: Callable[[], dict[str, Any]], *, file: str | None = None
    ) -> dict[str, Any]:
        """Return the result `name`, computed now if it is missing, damaged or of another key.

        Parameters
        ----------
        name
            The result is stored in NAME.json.
        key
            Everything that the result depends on, as JSON.
        compute
            Returns the result. Numbers that are not finite are stored as null.
        file
            A file in the folder that belongs to the result; it is computed again if that is missing or damaged too.
        """
        path, other = self.folder / f"{name}.json", None if file is None else self.folder / file
        key = json.loads(json.dumps(key))
        try:
            stored = json.loads(path.read_text())
            value = dict(stored["value"])
            if stored["key"] == key and stored["digest"] == _digest(value, other):
                return value
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass  # missing or damaged
        value = dict(finite(compute()))
        write_atomic(path, json.dumps({"key": key, "value": value, "digest": _digest(value, other)}, indent=2) + "\n")
        return value

    def rows(
        self, name: str, key: dict[str, Any], number: int, chunk: int, compute: Callable[[int, int], NDArray[Any]]
    ) -> NDArray[Any]:
        """Return `number` rows, computed in chunks by `compute(start, stop)` and stored in NAME.npy.

        Finished chunks survive an interruption, and several processes share the chunks.
        """
        out = self.folder / f"{name}.npy"
        job = {**key, "number": number, "chunk": chunk}
        with Shards(self.folder / f"{name}.shards", job, -(-number // chunk)) as shards:
            shards.fill(lambda k: compute(k * chunk, min(number, (k + 1) * chunk)))
            shards.finish(lambda: write_array(out, numpy.concatenate([shards.read(k) for k in range(shards.count)])))
        return read_array(out)


def finite(value: Any) -> Any:
    """Replace floats that JSON cannot represent by None, in nested dicts and lists."""
    if isinstance(value, dict):
        return {key: finite(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _digest(value: dict[str, Any], file: Path | None) -> str:
    total = hashlib.sha256(json.dumps(value, sort_keys=True).encode())
    if file is not None:
        total.update(file.read_bytes())
    return total.hexdigest()
