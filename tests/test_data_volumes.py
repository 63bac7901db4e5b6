import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from numpy.typing import NDArray

from blackout.cli import main
from blackout.data import fetch, open_dataset, read_volume


def _random(*shape: int, labels: int = 4) -> NDArray[numpy.uint8]:
    return numpy.random.default_rng(0).integers(0, labels, shape, numpy.uint8)


def _save(folder: Path, array: Any, name: str = "rock.npy") -> Path:
    numpy.save(folder / name, array)
    return folder / name


def _by_loops(part: NDArray[Any], size: int, stride: int, axes: tuple[int, ...]) -> list[list[list[int]]]:
    found = []
    for axis in axes:
        rows, columns = (n for k, n in enumerate(part.shape) if k != axis)
        for plane in range(0, part.shape[axis], max(1, stride // 2)):
            for i in range(0, rows - size + 1, stride):
                for j in range(0, columns - size + 1, stride):
                    window = part.take(plane, axis)[i : i + size, j : j + size]
                    found.append((plane if axis == 2 else j + size // 2, window.tolist()))
    return [window for _, window in sorted(found, key=lambda pair: pair[0])]


@pytest.mark.parametrize("axis", [None, 0, 1, 2])
@pytest.mark.parametrize(("size", "stride"), [(8, None), (8, 8), (6, 3), (5, 1)])
def test_slices_equal_those_of_plain_loops(size: int, stride: int | None, axis: int | None, tmp_path: Path) -> None:
    volume = _random(40, 11, 13)
    path = _save(tmp_path, volume)
    axes = (0, 1, 2) if axis is None else (axis,)
    for split, part in (("train", volume[: 30 - size // 4]), ("test", volume[30:])):
        data = read_volume(path, split=split, size=size, stride=stride, axis=axis, held_out=0.25)
        assert (data.x.dtype, data.name, data.max_state) == (torch.uint8, "rock", 3)
        assert data.x.squeeze(1).tolist() == _by_loops(part, size, stride or size // 2, axes)


@pytest.mark.parametrize("axis", [None, 0, 1, 2])
def test_training_slices_are_disjoint_from_held_out_planes(axis: int | None, tmp_path: Path) -> None:
    volume = _random(50, 20, 20, labels=2)
    volume[38:40], volume[40:] = 2, volume[40:] + 3  # size // 4 planes between the two parts belong to neither
    path = _save(tmp_path, volume)
    assert read_volume(path, size=8, stride=1, axis=axis).x.unique().tolist() == [0, 1]
    assert read_volume(path, split="test", size=8, stride=1, axis=axis).x.unique().tolist() == [3, 4]


def test_held_out_fraction_is_rounded(tmp_path: Path) -> None:
    path = _save(tmp_path, _random(100, 8, 8))  # 0.29 * 100 is less than 29 in floating point
    assert len(read_volume(path, split="test", size=8, axis=0, stride=1, held_out=0.29)) == 29


def test_two_dimensions(tmp_path: Path) -> None:
    plane = _random(40, 11)
    path = _save(tmp_path, plane)
    assert read_volume(path, size=6).x.squeeze(1).tolist() == _by_loops(plane[:31, None], 6, 3, (1,))
    assert read_volume(path, size=6, split="test").x.squeeze(1).tolist() == _by_loops(plane[32:, None], 6, 3, (1,))
    with pytest.raises(ValueError, match=r"rock\.npy: expected an array of three dimensions for axis=0, got two"):
        read_volume(path, size=6, axis=0)


@pytest.mark.parametrize(
    ("labels", "dtype", "name"),
    [
        ([0, 1], "?", "rock"),
        ([0, 1, 2], "f4", "rock"),
        ([-5, 7, 300], ">i4", "rock (labels -5, 7, 300)"),
        ([1.0, 255.0], "f8", "rock (labels 1, 255)"),
        ([0, 2**64 - 1], "u8", "rock (labels 0, 18446744073709551615)"),
        (range(256), "u1", "rock"),
        (range(1, 257), "i8", "rock (labels 1, 2, 3, 4, ..., 254, 255, 256)"),
    ],
)
def test_labels_are_renumbered_in_their_order(labels: Any, dtype: str, name: str, tmp_path: Path) -> None:
    numbers = numpy.random.default_rng(0).permuted(numpy.arange(40 * 8 * 8) % len(labels)).reshape(40, 8, 8)
    numpy.savez(tmp_path / "rock.npz", voxel_size=3.0, image=numpy.array(labels, dtype)[numbers])
    data = read_volume(tmp_path / "rock.npz", size=8, axis=0, stride=1)
    assert (data.name, data.max_state) == (name, len(labels) - 1)
    assert numpy.array_equal(data.x[:, 0].numpy(), numbers[:30])


@pytest.mark.parametrize(
    ("array", "options", "message"),
    [
        (_random(9), {}, r"expected one array of three dimensions \(or two\), got x of shape \(9,\)"),
        (_random(4, 4, 4, 4), {}, r"expected one array .*, got x of shape \(4, 4, 4, 4\)"),
        (_random(9, 9, 9) / 2, {}, "expected integer labels, got 0.5 among float64"),
        (numpy.full((9, 9, 9), numpy.nan), {}, "expected integer labels, got nan among float64"),
        (numpy.full((9, 9, 9), numpy.inf), {}, "expected integer labels, got inf among float64"),
        (numpy.full((9, 9, 9), "a"), {}, "expected integer labels, got <U1"),
        (numpy.arange(729).reshape(9, 9, 9), {}, "expected at most 256 different labels, got more"),
        (numpy.zeros((9, 9, 9), int), {}, r"expected at least two different labels, got \[0\]"),
        (numpy.zeros((0, 9, 9), int), {}, r"expected at least two different labels, got \[\]"),
        (_random(20, 9, 9), {}, "part 'test': expected at least 8 planes along axis 0 for size=8, got 4"),
        (_random(18, 9, 9), {"held_out": 0.5}, "part 'train': expected at least 8 planes along axis 0 .* got 7"),
        (_random(60, 7, 9), {}, "expected at least 8 planes along axis 1 for size=8, got 7"),
        (_random(60, 9, 9), {"held_out": 0.001, "axis": 0}, "part 'test': expected at least 1 planes .* got 0"),
        (_random(60, 9, 9), {"held_out": 0.999}, "part 'train': expected at least 8 planes along axis 0"),
    ],
)
def test_rejected_volumes(array: Any, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"rock\.npy.*{message}"):
        read_volume(_save(tmp_path, array), **{"size": 8, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size must be at least 1, got 0"),
        ({"stride": 0}, "stride must be at least 1, got 0"),
        ({"held_out": 0}, "held_out must be more than 0.0, got 0"),
        ({"held_out": 1.0}, "held_out must be less than 1, got 1.0"),
        ({"axis": 3}, "axis must be 0, 1, 2 or None, got 3"),
        ({"axis": -1}, "axis must be at least 0, got -1"),
        ({"split": "valid"}, "split must be one of 'train', 'test', got 'valid'"),
    ],
)
def test_rejected_options(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        read_volume(tmp_path / "none.npy", **options)


def test_rejected_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.npy: no such file"):
        read_volume(tmp_path / "none.npy")
    numpy.savez(tmp_path / "two.npz", a=_random(3, 3, 3), b=_random(2, 2))
    with pytest.raises(ValueError, match=r"two\.npz: .* got a of shape \(3, 3, 3\), b of shape \(2, 2\)"):
        read_volume(tmp_path / "two.npz")


def test_more_slices_than_memory_are_rejected_before_slicing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blackout.data.volumes._MAX_BYTES", 10_000)
    path = _save(tmp_path, _random(60, 9, 9))
    assert len(read_volume(path, size=8, stride=8)) == 42
    with pytest.raises(ValueError, match=r"rock\.npy: stride=1 gives 1588 slices, more than 8 GiB"):
        read_volume(path, size=8, stride=1)


def test_bentheimer_by_name(tmp_path: Path) -> None:
    """A quarter of the true side and of the size of a slice gives as many slices."""
    (tmp_path / "bentheimer").mkdir()
    numpy.savez(tmp_path / "bentheimer" / "bentheimer.npz", _random(125, 125, 125, labels=2).astype(bool))
    train, test = (open_dataset("bentheimer", split, folder=tmp_path, size=16) for split in ("train", "test"))
    assert (train.name, train.max_state, train.x.shape) == ("bentheimer", 1, (14_560, 1, 16, 16))
    assert test.x.shape == (3_164, 1, 16, 16)
    again = open_dataset(tmp_path / "bentheimer", size=16)
    assert torch.equal(open_dataset(tmp_path / "bentheimer" / "bentheimer.npz", size=16).x, train.x)
    assert again.checksum == train.checksum != test.checksum
    assert len(open_dataset("bentheimer", folder=tmp_path / "bentheimer", size=16, axis=0, stride=16)) == 12 * 49


def test_missing_bentheimer(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected bentheimer\.npz here or in bentheimer/; .*porespy on PyPI"):
        open_dataset("bentheimer", folder=tmp_path)
    with pytest.raises(
        ValueError, match=r"bentheimer cannot be downloaded automatically: put bentheimer\.npz in .*porespy"
    ):
        fetch("bentheimer", tmp_path)


def test_command_reads_files_that_the_user_provides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["blackout", "data", "bentheimer", "--to", str(tmp_path)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert "porespy" in capsys.readouterr().err
    numpy.savez(tmp_path / "bentheimer.npz", _random(320, 64, 64, labels=2))
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"bentheimer, {s}: {n} of 1x64x64, states 0 to 1" for s, n in (("train", 63), ("test", 12))]
