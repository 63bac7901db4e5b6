"""SparseRows: a sparse matrix of counts, on a device or on the disk, of which batches of rows come out dense."""

import copy
from collections.abc import Iterator
from typing import Any

import numpy
import torch
from torch import Tensor

from blackout import validate
from blackout.data.stored_rows import StoredRows, blocks_of, is_stored


class SparseRows:
    """The rows of a csr matrix, or of `StoredRows`, as tensors; `rows[index]` is dense, int32, of shape (k, genes)."""

    def __init__(self, csr: Any) -> None:
        self._source: _Held | _Stored = _Stored(csr) if is_stored(csr) else _Held(csr)
        self.shape = torch.Size(csr.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"SparseRows({len(self)} x {self.shape[1]}, {self._source}, on {self.device})"

    @property
    def device(self) -> torch.device:
        return self._source.device

    @property
    def dtype(self) -> torch.dtype:
        return torch.int32

    def dim(self) -> int:
        return 2

    def max(self) -> Tensor:
        found = [values.max() for _, _, values in self._source.blocks() if len(values)]
        return torch.stack(found).max() if found else torch.zeros((), dtype=self.dtype, device=self.device)

    def to(self, device: torch.device | str) -> "SparseRows":
        moved = copy.copy(self)
        moved._source = self._source.to(validate.device(device))
        return moved

    def __getitem__(self, index: Tensor | slice) -> Tensor:
        """These rows, dense, in the order given and as often as they are named."""
        rows = self._rows(index)
        genes = self.shape[1]
        length, columns, values = self._source.entries(rows)
        row = torch.repeat_interleave(torch.arange(len(rows), device=self.device), length)
        out = torch.zeros(len(rows) * genes, dtype=self.dtype, device=self.device)
        return out.scatter_(0, row.mul_(genes).add_(columns), values).view(len(rows), genes)

    def totals(self) -> Tensor:
        """The sum of each row, int64, shape (rows, 1)."""
        return torch.cat([_row_sums(length, values) for length, _, values in self._source.blocks()]).unsqueeze(-1)

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation (over n, not n - 1) of each gene, in float32, from the stored entries alone."""
        n, genes = self.shape
        # In double precision, which not every device has, and in one order, so that every device gives the same.
        mean, squares = (torch.zeros(genes, dtype=torch.float64) for _ in range(2))
        stored = torch.zeros(genes, dtype=torch.int64)
        for _, columns, values in self._source.blocks():
            mean.index_add_(0, columns.cpu().long(), values.cpu().double())
            stored += torch.bincount(columns.cpu(), minlength=genes)
        mean /= n
        for _, columns, values in self._source.blocks():
            place = columns.cpu().long()
            squares.index_add_(0, place, (values.cpu().double() - mean[place]).square_())
        variance = (squares + (n - stored) * mean.square()) / n  # zeros that are not stored lie `mean` away from it
        return mean.float().to(self.device), variance.sqrt().float().to(self.device)

    def _rows(self, index: Tensor | slice) -> Tensor:
        if isinstance(index, slice):
            return torch.arange(*index.indices(len(self)), device=self.device)
        if not isinstance(index, Tensor) or index.dim() != 1:
            got = f"shape {tuple(index.shape)}" if isinstance(index, Tensor) else type(index).__name__
            raise ValueError(f"index must be a slice or a tensor of one dimension, got {got}")
        if index.dtype == torch.bool:
            if len(index) != len(self):
                raise ValueError(f"index must choose among {len(self)} rows, got a mask of {len(index)}")
            index = index.nonzero().flatten()
        if not validate.is_integer(index.dtype):
            raise ValueError(f"index must hold integers, got {index.dtype}")
        if index.device.type == "cpu" and len(index) and not -len(self) <= index.min() <= index.max() < len(self):
            raise ValueError(f"index must lie in {-len(self)} to {len(self) - 1}, got {index.min()} to {index.max()}")
        rows = index.to(self.device, torch.int64)
        return torch.where(rows < 0, rows + len(self), rows)  # what is still outside, index_select refuses


Entries = tuple[Tensor, Tensor, Tensor]
"""Number of entries of each row (int64), and columns and values (int32) of all of them, row after row."""


class _Held:
    """A csr matrix on a device."""

    def __init__(self, csr: Any) -> None:
        if getattr(csr, "format", None) != "csr" or csr.ndim != 2:
            raise ValueError(f"csr must be a scipy.sparse.csr_array of two dimensions, got {type(csr).__name__}")
        if csr.dtype.kind not in "bui" or (csr.nnz and not 0 <= csr.data.min() <= csr.data.max() <= 2**31 - 1):
            raise ValueError(f"csr must hold integers from 0 to 2^31 - 1, got {csr.dtype}; read_counts checks them")
        if not csr.has_canonical_format:  # one entry would overwrite another
            csr = csr.copy()
            csr.sum_duplicates()
        self.crow = torch.from_numpy(csr.indptr.astype(numpy.int64))
        self.columns = torch.from_numpy(csr.indices.astype(numpy.int32))
        self.values = torch.from_numpy(csr.data.astype(numpy.int32))

    def __repr__(self) -> str:
        return f"{len(self.values)} stored"

    @property
    def device(self) -> torch.device:
        return self.values.device

    def to(self, device: torch.device) -> "_Held":
        moved = copy.copy(self)
        moved.crow, moved.columns, moved.values = (part.to(device) for part in (self.crow, self.columns, self.values))
        return moved

    def entries(self, rows: Tensor) -> Entries:
        start = self.crow.index_select(0, rows)
        length = self.crow.index_select(0, rows + 1) - start
        row = torch.repeat_interleave(torch.arange(len(rows), device=self.device), length)
        # Entry number j of the batch is entry j - (entries of the rows before) of its own row.
        entry = torch.arange(len(row), device=self.device) + (start - length.cumsum(0) + length).index_select(0, row)
        return length, self.columns.index_select(0, entry), self.values.index_select(0, entry)

    def blocks(self) -> Iterator[Entries]:
        yield self.crow.diff(), self.columns, self.values


class _Stored:
    """A matrix on the disk, whose entries go to a device."""

    def __init__(self, matrix: StoredRows, device: torch.device | str = "cpu") -> None:
        self.matrix, self.device = matrix, torch.device(device)

    def __repr__(self) -> str:
        return "on the disk"

    def to(self, device: torch.device) -> "_Stored":
        return _Stored(self.matrix, device)

    def entries(self, rows: Tensor) -> Entries:
        return self._tensors(self.matrix[rows.cpu().numpy()].tocsr())

    def blocks(self) -> Iterator[Entries]:
        return map(self._tensors, blocks_of(self.matrix))

    def _tensors(self, csr: Any) -> Entries:
        length, columns, values = (
            torch.from_numpy(part).to(self.device)
            for part in (
                numpy.diff(csr.indptr).astype(numpy.int64),
                csr.indices.astype(numpy.int32),
                csr.data.astype(numpy.int32),
            )
        )
        return length, columns, values


def _row_sums(length: Tensor, values: Tensor) -> Tensor:
    row = torch.repeat_interleave(torch.arange(len(length), device=values.device), length)
    return torch.zeros(len(length), dtype=torch.int64, device=values.device).index_add_(0, row, values.long())
