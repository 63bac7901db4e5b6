from pathlib import Path

import pytest

from blackout.atomic import atomic, write_atomic


def test_failed_write_leaves_the_file_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    write_atomic(path, "complete, schön")
    with pytest.raises(FileNotFoundError), atomic(path) as partial:
        partial.joinpath("there is no such folder").write_text("text")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "\ud800")
    assert path.read_text(encoding="utf-8") == "complete, schön"
    assert list(tmp_path.iterdir()) == [path]
