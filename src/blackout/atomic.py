"""Atomic file writes: a file is written under another name and then renamed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A path of the same suffix to write to, renamed to `path` at the end and removed if the block raises."""
    partial = path.with_name(f"{path.stem}.{os.getpid()}.partial{path.suffix}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_atomic(path: Path, text: str) -> None:
    """Write a text file in UTF-8, completely or not at all."""
    with atomic(path) as partial:
        partial.write_text(text, encoding="utf-8")
