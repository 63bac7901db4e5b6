"""StoredRows: a sparse matrix of counts in a temporary file, of which rows are read when they are needed."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

_ROWS = 2048  # of a block
_ENTRY = 8  # bytes: column and value, 4 each
_LARGE = Path("/var/tmp")  # on many systems /tmp is in memory


def folder() -> Path:
    """Where temporary files of data lie: TMPDIR if it is set."""
    if "TMPDIR" not in os.environ and os.access(_LARGE, os.W_OK):
        return _LARGE
    return Path(tempfile.gettempdir())


class RowFile:
    """Rows of counts in a temporary file, which the system removes when the process ends, however it ends.

    `ends`, shape (rows + 1,): row k has the entries from `ends[k]` to `ends[k + 1]`.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(dir=folder(), buffering=0)  # noqa: SIM115 - open as long as it is used
        self.ends: NDArray[numpy.int64] = numpy.zeros(1, numpy.int64)

    def __del__(self) -> None:
        self._file.close()

    def write(self, blocks: Iterator[Any]) -> None:
        """Append csr matrices of counts below 2^31, with sorted indices."""
        ends = [self.ends]
        for block in blocks:
            entries = numpy.stack([block.indices.astype("<i4"), block.data.astype("<i4")], 1)
            self._file.seek(_ENTRY * int(ends[-1][-1]))
            left = entries.reshape(-1).view(numpy.uint8).data
            while left:
                left = left[self._file.write(left) :]
            ends.append(block.indptr[1:].astype(numpy.int64) + ends[-1][-1])
        self.ends = numpy.concatenate(ends)

    def __len__(self) -> int:
        return len(self.ends) - 1

    def read(self, rows: NDArray[numpy.int64], genes: int) -> Any:
        """These rows as a csr array of int64; neighbours in the file are read at once."""
        from scipy import sparse

        start, stop = self.ends[rows], self.ends[rows + 1]
        indptr = numpy.concatenate([[0], numpy.cumsum(stop - start)])
        entries = numpy.empty((indptr[-1], 2), "<i4")
        if entries.size:
            target = entries.reshape(-1).view(numpy.uint8).data
            first = numpy.concatenate([[0], numpy.flatnonzero(start[1:] != stop[:-1]) + 1])
            last = numpy.concatenate([first[1:], [len(rows)]])
            for source, a, b in zip(start[first].tolist(), indptr[first].tolist(), indptr[last].tolist(), strict=True):
                self._fill(target[_ENTRY * a : _ENTRY * b], _ENTRY * source)
        values, columns = entries[:, 1].astype(numpy.int64), entries[:, 0].astype(numpy.int32)
        return sparse.csr_array((values, columns, indptr), shape=(len(rows), genes))

    def _fill(self, target: memoryview, place: int) -> None:
        self._file.seek(place)
        while target:
            read = self._file.readinto(target)
            if not read:
                raise OSError("a temporary file of cells is shorter than it was written")
            target = target[read:]


class StoredRows:
    """A csr matrix of counts whose rows are read when they are needed, from files or from other matrices.

    `matrix[rows]` is a scipy.sparse.csr_array of int64 in memory; `take`, `columns` and `stack` read nothing.
    """

    def __init__(self, parts: Sequence[tuple[Any, Any]], genes: int, rows: NDArray[numpy.int64] | None = None) -> None:
        self._parts = tuple(parts)  # a RowFile or a csr array, and the new place of each of its columns (-1: none)
        self._starts = numpy.concatenate([[0], numpy.cumsum([_length(part) for part, _ in parts])])
        self._rows = numpy.arange(self._starts[-1]) if rows is None else rows
        self.shape = (len(self._rows), genes)

    @staticmethod
    def stack(matrices: Sequence[Any]) -> "StoredRows":
        """Matrices of the same columns, one below the other; some may be csr arrays."""
        parts: list[tuple[Any, Any]] = []
        rows: list[NDArray[numpy.int64]] = []
        start = 0
        for matrix in matrices:
            own = matrix if isinstance(matrix, StoredRows) else StoredRows([(matrix, None)], matrix.shape[1])
            parts += own._parts
            rows.append(own._rows + start)
            start += int(own._starts[-1])
        return StoredRows(parts, matrices[0].shape[1], numpy.concatenate(rows))

    def take(self, index: Any) -> "StoredRows":
        """These rows."""
        return StoredRows(self._parts, self.shape[1], self._rows[index])

    def columns(self, columns: Sequence[int]) -> "StoredRows":
        """These columns, in this order."""
        place = numpy.full(self.shape[1], -1, numpy.int32)
        place[numpy.asarray(columns, int)] = numpy.arange(len(columns), dtype=numpy.int32)
        parts = [(part, place if old is None else _compose(old, place)) for part, old in self._parts]
        return StoredRows(parts, len(columns), self._rows)

    def blocks(self) -> Iterator[Any]:
        """All rows in their order, some at a time."""
        for start in range(0, len(self._rows), _ROWS):
            yield self[start : start + _ROWS]

    def __getitem__(self, index: Any) -> Any:
        from scipy import sparse

        rows = self._rows[index]
        if len(self._parts) == 1:
            return self._read(0, rows)
        which = numpy.searchsorted(self._starts, rows, side="right") - 1
        found = [self._read(k, rows[which == k] - self._starts[k]) for k in numpy.unique(which)]
        back = numpy.argsort(numpy.argsort(which, kind="stable"), kind="stable")
        return sparse.vstack([*found, sparse.csr_array((0, self.shape[1]), dtype=numpy.int64)], format="csr")[back]

    def _read(self, number: int, rows: NDArray[numpy.int64]) -> Any:
        from scipy import sparse

        part, place = self._parts[number]
        genes = self.shape[1] if place is None else len(place)
        x = part.read(rows, genes) if isinstance(part, RowFile) else part[rows]
        if place is None:
            return x
        columns = place[x.indices]
        kept = columns >= 0
        indptr = numpy.concatenate([[0], numpy.cumsum(kept)])[x.indptr]
        x = sparse.csr_array((x.data[kept], columns[kept], indptr), shape=(len(rows), self.shape[1]))
        x.sort_indices()
        return x


def blocks_of(matrix: Any) -> Iterator[Any]:
    """A csr matrix in blocks of rows: a single one, unless it is stored."""
    return matrix.blocks() if isinstance(matrix, StoredRows) else iter([matrix])


def _length(part: Any) -> int:
    return len(part) if isinstance(part, RowFile) else int(part.shape[0])


def _compose(old: NDArray[numpy.int32], new: NDArray[numpy.int32]) -> NDArray[numpy.int32]:
    """The place after both steps; -1 stays -1."""
    return numpy.append(new, numpy.int32(-1))[old]
