"""Files that are there whole or as they were."""

from pathlib import Path

import pytest

from blackout.atomic import write_atomic


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    write_atomic(path, "whole, schön")
    with pytest.raises(FileNotFoundError), atomic(path) as partial:
        partial.joinpath("there is no such folder").write_text("ha")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "\ud800")
    assert path.read_text(encoding="utf-8") == "whole, schön"
    assert list(tmp_path.iterdir()) == [path]
