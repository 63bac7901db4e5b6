"""Notebook: what has been measured so far, a file for each part, so that a killed measurement goes on."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from blackout.atomic import write_atomic
from blackout.io.shards import Shards


class Notebook:
    """A folder of finished parts. A part counts if the key it was measured under is the one asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def part(
        self, name: str, key: dict[str, Any], measure: Callable[[], dict[str, Any]], *, needs: str | None = None
    ) -> dict[str, Any]:
        """The part from its file; measured now if that, or a file that it `needs`, is gone or damaged."""
        path, file = self.folder / f"{name}.json", None if needs is None else self.folder / needs
        key = json.loads(json.dumps(key))
        try:
            there = json.loads(path.read_text())
            value = dict(there["value"])
            found = digest(value, file)
            if there["key"] == key and there.get("digest", found) == found:  # without one: written before there was one
                return value
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass  # not there, or damaged: measured again
        value = measure()
        write_atomic(path, json.dumps({"key": key, "value": value, "digest": digest(value, file)}, indent=2) + "\n")
        return value

    def rows(
        self, name: str, key: dict[str, Any], number: int, chunk: int, measure: Callable[[int, int], NDArray[Any]]
    ) -> NDArray[Any]:
        """`number` rows, measured `chunk` at a time by `measure(start, stop)`; finished chunks survive a kill."""
        out = self.folder / f"{name}.npy"
        with Shards(
            self.folder / f"{name}.shards", {**key, "number": number, "chunk": chunk}, -(-number // chunk)
        ) as s:
            s.fill(lambda k: measure(k * chunk, min(number, (k + 1) * chunk)))
            s.finish(lambda: numpy.save(out, numpy.concatenate([s.read(k) for k in range(s.count)])))
        rows: NDArray[Any] = numpy.load(out, allow_pickle=False)
        return rows


def digest(value: dict[str, Any], file: Path | None) -> str:
    """SHA-256 of a part and of the file that it needs."""
    total = hashlib.sha256(json.dumps(value, sort_keys=True).encode())
    if file is not None:
        total.update(file.read_bytes())
    return total.hexdigest()
