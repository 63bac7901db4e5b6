"""Atomic writes, checksums in files, claims of output folders, and full disks."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anndata
import numpy
import pytest
import torch
from scipy import sparse

import blackout as bo
from blackout.atomic import atomic, write_atomic
from blackout.cells.files import write_blocks, write_npz
from blackout.data.arrays import load_arrays
from blackout.files import (
    CLAIMS,
    DamagedFileError,
    check_overwrite,
    claim,
    read_array,
    read_json,
    write_array,
    write_json,
)
from blackout.io import write_samples
from test_cli import status


def test_failed_write_leaves_the_file_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    write_atomic(path, "complete, schön")
    with pytest.raises(FileNotFoundError), atomic(path) as partial:
        partial.joinpath("there is no such folder").write_text("text")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "\ud800")
    assert path.read_text(encoding="utf-8") == "complete, schön"
    assert list(tmp_path.iterdir()) == [path]


def test_the_next_write_removes_what_a_killed_one_has_left(tmp_path: Path) -> None:
    path = tmp_path / "a [1].json"
    killed = f"""
import os, signal
from pathlib import Path
from blackout.atomic import atomic
with atomic(Path({str(path)!r})) as partial:
    partial.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", killed]).returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    alive = left.with_name(left.name.replace(left.name.split("-")[-1].split(".")[0], str(os.getppid())))
    alive.write_text("of a process that runs")
    write_atomic(path, "new")
    assert set(tmp_path.iterdir()) == {path, alive}


def test_every_flipped_bit_of_a_sealed_file_is_found_or_changes_nothing(tmp_path: Path) -> None:
    values, array = {"step": 12, "nested": {"a": [1.5, None, "b"]}}, numpy.arange(5.0)
    path, rows = tmp_path / "values.json", tmp_path / "rows.npy"
    write_json(path, values)
    write_array(rows, array)
    assert numpy.array_equal(numpy.load(rows), array)
    for file, read in ((path, read_json), (rows, lambda path: read_array(path).tolist())):
        content, expected = file.read_bytes(), read(file)
        for place in range(len(content)):
            changed = bytearray(content)
            changed[place] ^= 1 << place % 8
            file.write_bytes(changed)
            try:
                assert read(file) == expected
            except DamagedFileError as error:
                assert str(file) in str(error)  # noqa: PT017 - some bits of JSON are white space
    with pytest.raises(DamagedFileError, match="cannot be read"):
        read_json(tmp_path / "absent.json")


def test_a_file_that_users_may_write_needs_no_checksum(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"steps": 3}')
    assert read_json(path, by_hand=True) == {"steps": 3}
    write_json(path, {"steps": 3})
    path.write_text(path.read_text().replace("3", "4", 1))
    with pytest.raises(DamagedFileError, match="without the field sha256 it is used as it is"):
        read_json(path, by_hand=True)


def test_claims(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    claim(tmp_path, ["a.txt"])
    (tmp_path / "a.txt").touch()
    claim(tmp_path, ["a.txt", "b.txt"])
    with pytest.raises(ValueError, match=r"^out: .*mine\.txt exists .*; choose another folder, or remove it \(--over"):
        claim(tmp_path, ["a.txt", "mine.txt"])
    assert read_json(tmp_path / CLAIMS)["files"] == ["a.txt", "b.txt"]
    claim(tmp_path, ["mine.txt"], overwrite=True)
    claim(tmp_path, ["mine.txt"])
    (tmp_path / CLAIMS).write_text("[]")
    with pytest.raises(ValueError, match=CLAIMS):
        claim(tmp_path, ["a.txt"])
    with pytest.raises(ValueError, match=r"out must be a folder, but .* is a file"):
        claim(tmp_path / "a.txt", ["b.txt"])


def test_damaged_arrays_are_rejected(tmp_path: Path) -> None:
    """numpy reads as much as a header asks for, and any byte as a boolean."""
    x, mask = numpy.zeros((30, 4), numpy.int64), numpy.zeros((3, 4), bool)
    for name, save in (("x.npy", numpy.save), ("x.npz", lambda path, x: numpy.savez(path, x=x))):
        save(tmp_path / name, x)
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes().replace(b"(30, 4)", b"(20, 4)"))
        with pytest.raises(ValueError, match=rf"{name}: .*damaged"):
            load_arrays(tmp_path / name)
    numpy.savez(tmp_path / "two.npz", x=x, labels=x)
    content = bytearray((tmp_path / "two.npz").read_bytes())
    content[content.index(b"PK\1\2") + 33] ^= 1  # the length of a comment: zipfile finds no further member
    (tmp_path / "two.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"two\.npz: .*damaged: 1 of 2 arrays"):
        load_arrays(tmp_path / "two.npz")
    numpy.save(tmp_path / "mask.npy", mask)
    (tmp_path / "mask.npy").write_bytes((tmp_path / "mask.npy").read_bytes()[:-1] + b"\4")
    with pytest.raises(ValueError, match=r"mask\.npy: .*neither true nor false"):
        load_arrays(tmp_path / "mask.npy")


@contextmanager
def full_disk(size: int = 4_000) -> Iterator[None]:
    """No file may grow beyond a size."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


X = torch.randint(0, 5, (64, 500), generator=torch.Generator().manual_seed(0))
CELLS = anndata.AnnData(sparse.csr_matrix(X.numpy()))
MODEL = bo.DiffusionModel.for_data(X, bo.PureDeath(4), bo.ObservationTimes.fisher(10), width=16, blocks=1)
WRITERS: dict[str, Callable[[Path], object]] = {
    "model": MODEL.save,
    "samples.npz": lambda path: write_samples(MODEL, path, 200, num_steps=1, shard=4),
    "text.html": lambda path: write_atomic(path, "a" * 30_000),
    "cells.h5ad": lambda path: write_blocks(path, CELLS.obs, CELLS.var, [{"X": CELLS.X}]),
    "cells.npz": lambda path: write_npz(CELLS, path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_is_reported_in_words_and_nothing_is_lost(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with full_disk(), pytest.raises(OSError, match="File too large") as error:
        WRITERS[name](path)
    assert str(path) in str(error.value.filename)
    assert not path.is_file()
    WRITERS[name](path)
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_a_full_disk_keeps_the_model_that_was_there(tmp_path: Path) -> None:
    MODEL.save(tmp_path)
    other = bo.DiffusionModel.for_data(X, bo.PureDeath(4), width=32, blocks=1)
    with full_disk(), pytest.raises(OSError, match="File too large"):
        other.save(tmp_path)
    assert bo.load(tmp_path).config() == MODEL.config()
    assert len(list(tmp_path.iterdir())) == 2


def test_outputs_in_a_file_and_inputs_that_are_devices_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("mine")
    with pytest.raises(ValueError, match=r"--trajectory: text is a file, so that text/x\.png cannot be made"):
        check_overwrite(Path("text/x.png"), lambda: True, True, "", "--trajectory", "file")
    for words in (["compare", "/dev/zero"], ["cells", "train", "--data", "x.h5ad", "--config", "/dev/zero"]):
        assert status(words, monkeypatch) == 2
        assert "it is a device" in capsys.readouterr().err
