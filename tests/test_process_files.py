"""Processes from files: matrices in .npz and .npy, through Python and the command line."""

import json
from pathlib import Path

import numpy
import pytest
import torch
from scipy import sparse

import blackout as bo
from blackout.data import read_process
from blackout.training.config import TrainConfig
from test_cli import status
from worlds import random_generator

CHAIN = numpy.array([[0.8, 0.2, 0, 0], [0, 0.8, 0.2, 0], [0, 0, 0.8, 0.2], [0.2, 0, 0, 0.8]])
FIRST, SECOND = random_generator(4), random_generator(4, 1)


def write(folder: Path, name: str) -> Path:
    path = folder / f"{name}.npz"
    if name == "finite-state":
        numpy.savez(path, generator=FIRST)
    elif name == "chain":
        numpy.savez(path, transition=CHAIN, ordered=True)
    else:
        numpy.savez(path, generators=[FIRST, SECOND], breaks=[0.5])
    return path


def same(process: bo.MarkovProcess, other: bo.MarkovProcess) -> bool:
    x = torch.arange(process.num_states or 0)
    return type(process) is type(other) and torch.equal(process.probs(x, 3), other.probs(x, 3))


def test_files_hold_a_generator_a_chain_or_generators(tmp_path: Path) -> None:
    assert same(read_process(write(tmp_path, "finite-state")), bo.FiniteState(FIRST))
    chain = read_process(write(tmp_path, "chain"))
    assert same(chain, bo.Chain(CHAIN))
    assert chain.ordered
    assert same(read_process(write(tmp_path, "piecewise")), bo.PiecewiseGenerator([FIRST, SECOND], [0.5]))
    numpy.save(tmp_path / "alone.npy", FIRST)
    assert same(read_process(tmp_path / "alone.npy"), bo.FiniteState(FIRST))
    for form in (sparse.csr_array, sparse.csc_array, sparse.coo_array):
        sparse.save_npz(tmp_path / "sparse.npz", form(FIRST))
        assert same(read_process(tmp_path / "sparse.npz"), bo.FiniteState(FIRST))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"generator": CHAIN}, "generator must have rows that sum to 0, got 1.0 for row 0"),
        ({"transition": FIRST}, "transition must not be negative"),
        ({"generator": FIRST, "transition": CHAIN}, "it must hold generator .* got generator, transition"),
        ({"rates": FIRST}, "it must hold generator .* got rates"),
        ({"generators": [FIRST, SECOND]}, "it must hold generator .* got generators"),
        ({"generators": FIRST, "breaks": [1.0]}, r"generators must have shape \(pieces, S, S\)"),
        ({"generators": [FIRST, SECOND], "breaks": [1.0, 2.0]}, "generators must be one more than breaks"),
        ({"generator": FIRST[:, :3]}, "generator must be square"),
        ({"generator": FIRST, "ordered": 3}, "ordered must be true or false"),
        ({"generator": numpy.array([[{}, 1], [1, 2]], dtype=object)}, "pickles are not loaded"),
    ],
)
def test_bad_files_give_one_line_and_status_2(
    tmp_path: Path, arrays: dict, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    numpy.savez("bad.npz", **arrays)
    numpy.save("x.npy", numpy.zeros((8, 2), dtype=int))
    with pytest.raises(ValueError, match=rf"bad\.npz .*{message}"):
        read_process("bad.npz")
    assert status(["train", "digits", "--data", "x.npy", "--process", "bad.npz", "--head", "auto"], monkeypatch) == 2
    error = capsys.readouterr().err
    assert error.startswith("blackout: bad.npz ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "content", [b"", b"not a matrix", b"PK\x03\x04broken", b"\x93NUMPY broken", b"\x80\x04\x95pickle"]
)
def test_files_of_other_kinds_are_rejected(tmp_path: Path, content: bytes) -> None:
    for name in ("other.npz", "other.npy"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=r"other\.np. is not a \.npy or \.npz file of numbers"):
            read_process(tmp_path / name)
    with pytest.raises(ValueError, match=r"process: .*missing\.npz is not a file"):
        read_process(tmp_path / "missing.npz")


@pytest.mark.parametrize("name", ["finite-state", "chain", "piecewise"])
def test_train_and_sample_with_a_process_from_a_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, name)
    numpy.save("x.npy", numpy.random.default_rng(0).integers(0, 4, (32, 3)))
    small = ["--max-count", "3", "--width", "8", "--blocks", "1", "--batch-size", "8", "--num-times", "20"]
    density = ["--time-density", "grid"] if name == "chain" else []
    command = ["train", "digits", "--data", "x.npy", "--head", "auto", "--process", path.name, *small, *density]
    assert status([*command, "--steps", "3", "--out", "run"], monkeypatch) == 0
    assert TrainConfig.read(Path("run/config.json"))["process"] == path.name
    numpy.savez(path, **({"transition": numpy.full((4, 4), 0.25)} if name == "chain" else {"generator": SECOND}))
    assert status([*command, "--steps", "4", "--out", "run"], monkeypatch) == 2
    assert "run holds a run whose process has other rates or arguments" in capsys.readouterr().err
    path.unlink()  # the matrix is in the model
    assert status(["sample", "run", "--num", "4", "--steps", "20", "--out", "x.npz"], monkeypatch) == 0
    assert numpy.load("x.npz")["x"].shape == (4, 3)
    assert same(bo.load("run").process, read_process(write(tmp_path, name)))


def test_configurations_name_files(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"process": {"process": "mine.npz"}}))
    assert TrainConfig.read(path).process.is_file
    path.write_text(json.dumps({"process": {"process": "mine.txt"}}))
    with pytest.raises(ValueError, match="process must be one of"):
        TrainConfig.read(path)


def test_row_pointers_that_decrease_are_rejected(tmp_path: Path) -> None:
    x = sparse.csr_array(FIRST)
    sparse.save_npz(tmp_path / "bad.npz", x)
    for pointers in ([0, 12, 4, 8, 16], [0, 12, 0, 0, 0]):
        x.indptr = numpy.array(pointers)
        sparse.save_npz(tmp_path / "bad.npz", x)
        with pytest.raises(ValueError, match=r"bad\.npz holds no process: .*indptr.* must not decrease, got 12 and"):
            read_process(tmp_path / "bad.npz")
