"""Files that are there whole or as they were: written under another name, then renamed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Where to write what shall be `path`; it has the same ending, and is gone afterwards whatever happens."""
    partial = path.with_name(f"{path.stem}.{os.getpid()}.partial{path.suffix}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_atomic(path: Path, text: str) -> None:
    with atomic(path) as partial:
        partial.write_text(text, encoding="utf-8")
