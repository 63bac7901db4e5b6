"""SparseRows: a sparse matrix of counts on a device, of which batches of rows come out dense."""

import copy
from typing import Any

import numpy
import torch
from torch import Tensor

from blackout import validate


class SparseRows:
    """The rows of a csr matrix as tensors; `rows[index]` is dense, int32, of shape (k, genes)."""

    def __init__(self, csr: Any) -> None:
        if getattr(csr, "format", None) != "csr" or csr.ndim != 2:
            raise ValueError(f"csr must be a scipy.sparse.csr_array of two dimensions, got {type(csr).__name__}")
        if csr.dtype.kind not in "bui" or (csr.nnz and not 0 <= csr.data.min() <= csr.data.max() <= 2**31 - 1):
            raise ValueError(f"csr must hold integers from 0 to 2^31 - 1, got {csr.dtype}; read_counts checks them")
        if not csr.has_canonical_format:  # one entry would overwrite another
            csr = csr.copy()
            csr.sum_duplicates()
        self.shape = torch.Size(csr.shape)
        self._crow = torch.from_numpy(csr.indptr.astype(numpy.int64))
        self._columns = torch.from_numpy(csr.indices.astype(numpy.int32))
        self._values = torch.from_numpy(csr.data.astype(numpy.int32))

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"SparseRows({len(self)} x {self.shape[1]}, {len(self._values)} stored, on {self.device})"

    @property
    def device(self) -> torch.device:
        return self._values.device

    @property
    def dtype(self) -> torch.dtype:
        return self._values.dtype

    def dim(self) -> int:
        return 2

    def max(self) -> Tensor:
        return self._values.max() if len(self._values) else self._values.new_zeros(())

    def to(self, device: torch.device | str) -> "SparseRows":
        target = validate.device(device)
        moved = copy.copy(self)
        moved._crow, moved._columns, moved._values = (
            part.to(target) for part in (self._crow, self._columns, self._values)
        )
        return moved

    def __getitem__(self, index: Tensor | slice) -> Tensor:
        """These rows, dense, in the order given and as often as they are named."""
        rows = self._rows(index)
        genes = self.shape[1]
        start = self._crow.index_select(0, rows)
        length = self._crow.index_select(0, rows + 1) - start
        row = torch.repeat_interleave(torch.arange(len(rows), device=self.device), length)
        # Entry number j of the batch is entry j - (entries of the rows before) of its own row.
        entry = torch.arange(len(row), device=self.device) + (start - length.cumsum(0) + length).index_select(0, row)
        place = row.mul_(genes).add_(self._columns.index_select(0, entry))
        out = torch.zeros(len(rows) * genes, dtype=self.dtype, device=self.device)
        return out.scatter_(0, place, self._values.index_select(0, entry)).view(len(rows), genes)

    def totals(self) -> Tensor:
        """The sum of each row, int64, shape (rows, 1)."""
        row = torch.repeat_interleave(torch.arange(len(self), device=self.device), self._crow.diff())
        sums = torch.zeros(len(self), dtype=torch.int64, device=self.device)
        return sums.index_add_(0, row, self._values.long()).unsqueeze(-1)

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation (over n, not n - 1) of each gene, in float32, from the stored entries alone."""
        n, genes = self.shape
        # In double precision, which not every device has, and in one order, so that every device gives the same.
        columns, values = self._columns.cpu().long(), self._values.cpu().double()
        mean = torch.zeros(genes, dtype=torch.float64).index_add_(0, columns, values) / n
        stored = torch.bincount(columns, minlength=genes)
        squares = torch.zeros(genes, dtype=torch.float64).index_add_(0, columns, (values - mean[columns]).square_())
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
