import os
import pickle
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from blackout.data import open_dataset, read_cifar10
from blackout.data.pickled import read_pickle

BATCHES = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]


def _rows(batch: str) -> tuple[numpy.ndarray, numpy.ndarray]:
    start = BATCHES.index(batch)
    labels = ((numpy.arange(10_000) + start) % 10).astype(numpy.uint8)
    down, across = (numpy.arange(size).astype(numpy.uint8) for size in (10_000, 3072))
    pixels = 7 * down[:, None] + across // 5 + numpy.uint8(start)  # modulo 256
    return labels, pixels


def _pickled(batch: str) -> bytes:
    labels, pixels = _rows(batch)
    content = {b"batch_label": b"a batch", "labels": labels.tolist(), "data": pixels, "filenames": [b"a.png"] * 10_000}
    return pickle.dumps(content, protocol=2)


@pytest.fixture(scope="module")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """binary/cifar-10-batches-bin/, python/cifar-10-batches-py/, and both packed."""
    root = tmp_path_factory.mktemp("cifar")
    for kind, name in (("binary", "cifar-10-batches-bin"), ("python", "cifar-10-batches-py")):
        folder = root / kind / name
        folder.mkdir(parents=True)
        for batch in BATCHES if kind == "binary" else BATCHES[-2:]:
            labels, pixels = _rows(batch)
            if kind == "binary":
                (folder / f"{batch}.bin").write_bytes(numpy.column_stack([labels, pixels]).tobytes())
            else:
                (folder / batch).write_bytes(_pickled(batch))
        (root / f"packed-{kind}").mkdir()
        with tarfile.open(root / f"packed-{kind}" / f"cifar-10-{kind}.tar.gz", "w:gz", compresslevel=1) as archive:
            archive.add(folder, name)
    return root


@pytest.mark.parametrize("where", ["binary", "packed-binary/cifar-10-binary.tar.gz"])
def test_cifar_binary(cifar: Path, where: str) -> None:
    data = open_dataset(cifar / where)
    assert (data.name, data.max_state, data.num_classes, data.x.dtype) == ("cifar10", 255, 10, torch.uint8)
    assert data.class_names is not None
    assert (len(data.class_names), data.class_names[3], data.class_names[9]) == (10, "cat", "truck")
    assert data.x.shape == (50_000, 3, 32, 32)
    for k, batch in enumerate(BATCHES[:5]):
        labels, pixels = _rows(batch)
        part = slice(10_000 * k, 10_000 * (k + 1))
        assert numpy.array_equal(data.x[part].flatten(1).numpy(), pixels)
        assert numpy.array_equal(data.labels[part].numpy(), labels)


@pytest.mark.parametrize(
    "where",
    [
        "binary/cifar-10-batches-bin",
        "packed-binary",
        "python",
        "python/cifar-10-batches-py",
        "packed-python/cifar-10-python.tar.gz",
    ],
)
def test_cifar_test_batch(cifar: Path, where: str) -> None:
    data = open_dataset("cifar10", split="test", folder=cifar / where)
    labels, pixels = _rows("test_batch")
    assert numpy.array_equal(data.x.flatten(1).numpy(), pixels)
    assert numpy.array_equal(data.labels.numpy(), labels)


def _official(labels: list[int], data: bytes, shape: tuple[int, int]) -> bytes:
    """The opcodes of the official files, which Python 2 wrote: its text is bytes."""
    return (
        b"\x80\x02}q\x01(U\x0bbatch_labelq\x02U\x15training batch 1 of 5q\x03U\x06labelsq\x04]q\x05("
        + b"".join(b"K" + bytes([label]) for label in labels)
        + b"eU\x04dataq\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08"
        + b"K\x00\x85U\x01b\x87Rq\t(K\x01"
        + struct.pack("<cHcH", b"M", shape[0], b"M", shape[1])
        + b"\x86cnumpy\ndtype\nq\nU\x02u1K\x00K\x01\x87Rq\x0b"
        + b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        + struct.pack("<cI", b"T", len(data))
        + data
        + b"tbU\tfilenamesq\x0c]q\rU\x05a.pngq\x0eau."
    )


@pytest.mark.filterwarnings("ignore:numpy.core is deprecated:DeprecationWarning")
def test_pickles_of_python_2_are_read_as_pickle_reads_them() -> None:
    content = _official([3, 1], bytes(range(250, 256)), (2, 3))
    expected = pickle.loads(content, encoding="latin1")
    found = read_pickle(content)
    assert found.keys() == expected.keys()
    assert found["labels"] == expected["labels"] == [3, 1]
    assert found["filenames"] == ["a.png"]
    assert numpy.array_equal(found["data"], expected["data"])


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_in_pickles_keep_their_order(protocol: int, order: Any) -> None:
    x = numpy.asarray(numpy.arange(256, dtype=numpy.uint8).reshape(2, 128), order=order)
    assert numpy.array_equal(read_pickle(pickle.dumps(x, protocol)), x)
    assert numpy.array_equal(read_pickle(pickle.dumps({"x": x, "y": (1, None, True)}, protocol))["x"], x)


class _Attack:
    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.reduced = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.reduced


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_with_calls_are_rejected_and_not_run(protocol: int, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    for content in (_Attack(os.system, f"touch {marker}"), {"labels": _Attack(eval, f"open({str(marker)!r}, 'w')")}):
        (tmp_path / "test_batch").write_bytes(pickle.dumps(content, protocol))
        with pytest.raises(
            ValueError, match=r"test_batch: expected a CIFAR-10 batch, got a pickle that .*, which is not allowed"
        ):
            read_cifar10(tmp_path, split="test")
        assert not marker.exists()


def test_rejected_names_are_in_the_message(tmp_path: Path) -> None:
    for function, name in ((os.system, f"{os.name}.system"), (numpy.load, "numpy.load")):
        with pytest.raises(ValueError, match=f"names {name}, which is not allowed"):
            read_pickle(pickle.dumps(_Attack(function, "x"), 2))


@pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning")
def test_damaged_pickles_raise_value_errors_only() -> None:
    random = numpy.random.default_rng(0)
    intact = [_official([3, 1], b"abcdef", (2, 3)), pickle.dumps({"data": numpy.zeros((2, 3), "u1"), "labels": [1]}, 2)]
    for number in range(4000):
        content = bytearray(intact[number % 2])
        for _ in range(int(random.integers(1, 4))):
            content[random.integers(len(content))] = random.integers(256)
        cut = random.integers(len(content)) if number % 3 == 0 else len(content)
        try:
            read_pickle(bytes(content[:cut]))
        except ValueError:
            continue


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "expected 'data', uint8 of shape"),
        ({"labels": [0] * 10_000, "data": numpy.zeros((3, 3072), "u1")}, "expected 'data', uint8 of shape"),
        ({"labels": [0] * 10_000, "data": numpy.zeros(2, "f4")}, "expected a CIFAR-10 batch, got a damaged pickle"),
        ({"labels": [11] * 10_000, "data": numpy.zeros((10_000, 3072), "u1")}, "expected 'labels', 10000 integers"),
        ({1: 2}, "got a damaged pickle .*key 1 is not text"),
    ],
)
def test_pickles_of_something_else(content: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "test_batch").write_bytes(pickle.dumps(content, 2))
    with pytest.raises(ValueError, match=message):
        read_cifar10(tmp_path, split="test")


def test_truncated_or_missing_cifar(cifar: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected cifar-10-batches-bin/.* here"):
        read_cifar10(tmp_path)
    with pytest.raises(ValueError, match=r"expected data_batch_1, .*, got no data_batch_1"):
        read_cifar10(cifar / "python")
    with pytest.raises(ValueError, match="split must be one of 'train', 'test', got 'valid'"):
        read_cifar10(cifar / "binary", split="valid")
    (tmp_path / "test_batch.bin").write_bytes(bytes(123))
    with pytest.raises(ValueError, match=r"test_batch\.bin: expected 30730000 bytes, got 123"):
        read_cifar10(tmp_path, split="test")
    (tmp_path / "test_batch.bin").write_bytes(b"\x0b" * 30_730_000)
    with pytest.raises(ValueError, match=r"test_batch\.bin: expected labels from 0 to 9, got 11"):
        read_cifar10(tmp_path, split="test")
    packed = (cifar / "packed-python" / "cifar-10-python.tar.gz").read_bytes()
    for content in (packed[: len(packed) // 2], b"not an archive", b""):
        (tmp_path / "cut.tar.gz").write_bytes(content)
        with pytest.raises(ValueError, match=r"cut\.tar\.gz: damaged \.tar\.gz archive"):
            read_cifar10(tmp_path / "cut.tar.gz", split="test")
