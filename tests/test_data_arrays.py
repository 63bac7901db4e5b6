import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from blackout.data import Dataset, from_array, make_seven_segment, open_dataset, read_array


def test_listing_the_data_sets_imports_no_heavy_library() -> None:
    program = "import sys; from blackout.data import DATASETS; print(*DATASETS, *sys.modules)"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert not {"PIL", "pooch"} & set(out.split())


def test_label_grids_become_images_of_one_channel(tmp_path: Path) -> None:
    grids = numpy.random.default_rng(0).integers(0, 3, (5, 6, 4))
    numpy.save(tmp_path / "grids.npy", grids)
    assert torch.equal(read_array(tmp_path / "grids.npy").x, torch.from_numpy(grids)[:, None])


def test_dataset_has_a_checksum_and_is_frozen() -> None:
    data = from_array(numpy.arange(12, dtype=numpy.uint8).reshape(3, 4), labels=[0, 2, 1])
    assert (len(data), data.max_state, data.num_classes) == (3, 11, 3)
    assert data.checksum == hashlib.sha256(bytes(range(12))).hexdigest()
    assert from_array(data.x.T.contiguous().T).checksum == data.checksum
    assert from_array(data.x.flip(0)).checksum != data.checksum
    assert repr(data) == "Dataset(array: (3, 4), states 0 to 11, 3 classes)"
    with pytest.raises(AttributeError):
        data.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.zeros(2, 2)}, "x must hold integers, got dtype torch.float32"),
        ({"x": torch.tensor([[3]])}, "x must be at most 2, got 3"),
        ({"x": torch.tensor([[-1]])}, "x must not be negative, got -1"),
        ({"x": torch.zeros(0, 2, dtype=torch.uint8)}, r"x must hold at least one state, got shape \(0, 2\)"),
        ({"max_state": 0}, "max_state must be at least 1, got 0"),
        ({"labels": None}, "labels and num_classes must be given together, got num_classes=2"),
        ({"labels": torch.zeros(3, dtype=torch.int64)}, r"labels must be torch.int64 of shape \(2,\), got .*\(3,\)"),
        ({"labels": torch.tensor([0, 2])}, "labels must be at most 1, got 2"),
    ],
)
def test_dataset_rejects_bad_arguments_by_name(changes: dict[str, Any], message: str) -> None:
    fine: dict[str, Any] = {"x": torch.zeros(2, 2, dtype=torch.uint8), "labels": torch.tensor([0, 1]), "num_classes": 2}
    fine |= {"max_state": 2}
    with pytest.raises(ValueError, match=message):
        Dataset(name="x", **{**fine, **changes})


@pytest.mark.parametrize("dtype", ["?", "u1", "<u2", ">u2", "u4", "u8", "i1", ">i4", "i8"])
def test_arrays_of_every_kind_of_integer(dtype: str, tmp_path: Path) -> None:
    x = numpy.array([[0, 1], [1, 0], [1, 1]]).astype(dtype)[::-1]
    numpy.save(tmp_path / "a.npy", x)
    numpy.savez(tmp_path / "b.npz", x=x, labels=[1, 0, 1])
    numpy.savez_compressed(tmp_path / "c.npz", grid=x)
    for data in (from_array(x), *(open_dataset(tmp_path / name) for name in ("a.npy", "b.npz", "c.npz"))):
        assert data.x.tolist() == [[1, 1], [1, 0], [0, 1]]
        assert data.max_state == 1
    assert read_array(tmp_path / "b.npz", max_state=9, num_classes=5).num_classes == 5


def test_arrays_in_memory() -> None:
    x = torch.arange(6, dtype=torch.int16).reshape(2, 3)
    assert open_dataset(x).x is x
    assert open_dataset(x, max_state=10, labels=[0, 1]).num_classes == 2
    assert open_dataset(x.to(torch.uint16)).x.dtype == torch.int32
    assert torch.equal(open_dataset(x.numpy()).x, x)
    with pytest.raises(ValueError, match="x must hold integers, got bfloat16"):
        open_dataset(x.bfloat16())
    with pytest.raises(ValueError, match=r"less than 2\^63, got 18446744073709551615"):
        from_array(numpy.array([2**64 - 1], dtype=numpy.uint64))


def test_rejected_arrays(tmp_path: Path) -> None:
    numpy.save(tmp_path / "float.npy", numpy.zeros(3, numpy.float32))
    with pytest.raises(ValueError, match=r"float\.npy: x must hold integers, got float32"):
        open_dataset(tmp_path / "float.npy")
    numpy.save(tmp_path / "object.npy", numpy.array([{}, 1], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"object\.npy: not an array of integers.*allow_pickle=False"):
        open_dataset(tmp_path / "object.npy")
    numpy.savez(tmp_path / "two.npz", a=[1], b=[2])
    with pytest.raises(ValueError, match=r"two\.npz: expected the key 'x' or a single key, got a, b"):
        open_dataset(tmp_path / "two.npz")
    numpy.save(tmp_path / "fine.npy", numpy.arange(1000))
    for name, content in {
        "cut.npy": (tmp_path / "fine.npy").read_bytes()[:500],
        "empty.npy": b"",
        "x.npz": b"PK",
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{name}: not an array of integers"):
            open_dataset(tmp_path / name)
    with pytest.raises(ValueError, match=r"none\.npy: no such file"):
        read_array(tmp_path / "none.npy")
    with pytest.raises(ValueError, match=r"split must be 'train', because .*fine\.npy has no splits, got 'test'"):
        open_dataset(tmp_path / "fine.npy", split="test")


def test_seven_segment_digits_are_the_same_in_every_call() -> None:
    train, test = make_seven_segment(), open_dataset("seven-segment", split="test")
    assert (train.x.shape, test.x.shape) == ((2000, 1, 8, 8), (500, 1, 8, 8))
    assert (train.x.dtype, train.max_state, int(train.x.max())) == (torch.uint8, 16, 16)
    assert train.labels.bincount().tolist() == [200] * 10
    assert make_seven_segment().checksum == train.checksum != test.checksum


def test_seven_segment_digits_are_separable() -> None:
    """The nearest neighbour in the training set has the same label for nearly every test image."""
    train, test = make_seven_segment(), make_seven_segment(split="test")
    distance = torch.cdist(test.x.flatten(1).double(), train.x.flatten(1).double())
    assert float((train.labels[distance.argmin(1)] == test.labels).double().mean()) > 0.97


def test_images_with_channels_last_are_rejected(tmp_path: Path) -> None:
    numpy.save(tmp_path / "x.npy", numpy.zeros((5, 8, 8, 3), numpy.uint8))
    with pytest.raises(ValueError, match=r"images must have shape \(n, channels, height, width\): numpy.moveaxis"):
        read_array(tmp_path / "x.npy")
