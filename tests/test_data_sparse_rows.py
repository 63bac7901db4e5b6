"""SparseRows: dense batches of the rows of a sparse matrix."""

from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from blackout.data import SparseRows
from blackout.data.stored_rows import StoredRows, blocks_of

X = numpy.array([[0, 3, 1], [2, 0, 0], [0, 1, 7], [5, 0, 1]])


def sparse_counts(n: int, genes: int, seed: int) -> Any:
    draw = numpy.random.default_rng(seed)
    return sparse.csr_array(draw.poisson(3, (n, genes)) * (draw.random((n, genes)) < 0.2))


@given(st.integers(1, 12), st.integers(1, 9), st.integers(0, 99), st.data())
def test_rows_match_scipy(n: int, genes: int, seed: int, data: st.DataObject) -> None:
    x = sparse_counts(n, genes, seed)
    rows, dense = SparseRows(x), x.toarray()
    index = data.draw(st.lists(st.integers(-n, n - 1), max_size=20))
    for dtype in (torch.int64, torch.int32):
        got = rows[torch.tensor(index, dtype=dtype)]
        assert (got.dtype, got.shape) == (torch.int32, (len(index), genes))
        assert (got.numpy() == dense[index]).all() if index else got.numel() == 0
    for part in (slice(None), slice(1, None), slice(-2, None), slice(0, 0), slice(None, None, 2)):
        assert (rows[part].numpy() == dense[part]).all()
    mask = numpy.random.default_rng(seed).random(n) < 0.5
    assert (rows[torch.from_numpy(mask)].numpy() == dense[mask]).all()
    mean, std = rows.statistics()
    assert mean.dtype == std.dtype == torch.float32
    numpy.testing.assert_allclose(mean, dense.mean(0), rtol=1e-6)
    numpy.testing.assert_allclose(std, dense.std(0), rtol=1e-6)


@given(st.integers(1, 12), st.integers(1, 9), st.integers(0, 99), st.data())
def test_counts_on_the_disk_are_indexed_as_in_scipy(n: int, genes: int, seed: int, data: st.DataObject) -> None:
    x = sparse_counts(n, genes, seed)
    rows = numpy.array(data.draw(st.lists(st.integers(-n, n - 1), min_size=1, max_size=15)))
    columns = data.draw(st.lists(st.integers(0, genes - 1), unique=True, min_size=1))
    fewer = data.draw(st.lists(st.integers(0, len(columns) - 1), unique=True, min_size=1))
    stored = StoredRows.of([x[: n // 2], x[n // 2 :]], genes)
    parts = [(part[rows], part[:, columns][:, fewer][rows], part[rows][:, columns][1:3]) for part in (stored, x)]
    for own, expected in zip(*parts, strict=True):
        assert own.shape == expected.shape
        assert (own.tocsr().toarray() == expected.toarray()).all()
    assert [block.toarray().tolist() for block in blocks_of(stored)] == [x.toarray().tolist()]


def test_reversed_and_repeated_rows() -> None:
    rows = SparseRows(sparse.csr_array(X))
    assert rows[torch.tensor([3, 2, 1, 0, 0, 3])].tolist() == X[[3, 2, 1, 0, 0, 3]].tolist()
    assert rows[3:0:-2].tolist() == X[3:0:-2].tolist()


def test_properties() -> None:
    rows = SparseRows(sparse.csr_array(X)).to("cpu")
    assert (len(rows), rows.shape, rows.dim(), int(rows.max())) == (4, (4, 3), 2, 7)
    assert (rows.device.type, rows.dtype) == ("cpu", torch.int32)
    assert repr(rows) == "SparseRows(4 x 3, 7 stored, on cpu)"
    empty = SparseRows(sparse.csr_array((2, 3), dtype=numpy.int64))
    assert int(empty.max()) == 0
    assert empty[:].tolist() == [[0, 0, 0], [0, 0, 0]]
    twice = sparse.csr_array((numpy.array([1, 2]), numpy.array([0, 0]), numpy.array([0, 2])), shape=(1, 1))
    assert SparseRows(twice)[:].tolist() == [[3]]
    assert twice.nnz == 2


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (torch.tensor([4]), "index must lie in -4 to 3, got 4 to 4"),
        (torch.tensor([-5, 0]), "index must lie in -4 to 3, got -5 to 0"),
        (torch.tensor([0.5]), "index must hold integers, got torch.float32"),
        (torch.tensor(1), r"index must be a slice or a tensor of one dimension, got shape \(\)"),
        ([1], "index must be a slice or a tensor of one dimension, got list"),
        (torch.ones(3, dtype=torch.bool), "index must choose among 4 rows, got a mask of 3"),
    ],
)
def test_invalid_index(index: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SparseRows(sparse.csr_array(X))[index]


def test_invalid_matrices() -> None:
    for wrong in (X, sparse.csc_array(X), sparse.csr_array(X * 0.5), sparse.csr_array(-X), sparse.csr_array(X << 40)):
        with pytest.raises(ValueError, match="csr must"):
            SparseRows(wrong)


@pytest.mark.gpu
def test_on_a_gpu() -> None:
    x = sparse_counts(50, 30, 0)
    rows = SparseRows(x).to("cuda")
    index = torch.randint(-50, 50, (200,))
    for where in ("cpu", "cuda"):
        assert (rows[index.to(where)].cpu().numpy() == x.toarray()[index.numpy()]).all()
    assert (rows[3:20].cpu().numpy() == x.toarray()[3:20]).all()
    assert torch.equal(rows.statistics()[1].cpu(), SparseRows(x).statistics()[1])
