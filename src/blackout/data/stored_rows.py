"""StoredRows: a sparse matrix of counts in a temporary file, of which rows are read when they are needed."""

import copy
import os
import tempfile
from collections.abc import Iterable, Iterator
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

    def write(self, blocks: Iterable[Any]) -> None:
        """Append csr matrices of counts below 2^31, with sorted indices."""
        lengths = [numpy.diff(self.ends)]
        self._file.seek(0, os.SEEK_END)
        for block in blocks:
            entries = numpy.stack([block.indices.astype("<i4"), block.data.astype("<i4")], 1)
            left = entries.reshape(-1).view(numpy.uint8).data
            while left:
                left = left[self._file.write(left) :]
            lengths.append(numpy.diff(block.indptr).astype(numpy.int64))
        self.ends = numpy.concatenate([[0], numpy.concatenate(lengths).cumsum()])

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
    """A csr matrix of counts on the disk: `x[rows]` and `x[:, columns]`, of different columns, read nothing.

    `x.tocsr()` reads it, into a scipy.sparse.csr_array of int64.
    """

    def __init__(self, file: RowFile, genes: int) -> None:
        self._file, self._rows = file, numpy.arange(len(file))
        self._place: NDArray[numpy.int32] | None = None  # of each column of the file, -1: left out; None: as it is
        self.shape = (len(file), genes)

    @staticmethod
    def of(blocks: Iterable[Any], genes: int) -> "StoredRows":
        """Write csr matrices, one below the other, to the disk."""
        file = RowFile()
        file.write(blocks)
        return StoredRows(file, genes)

    def __getitem__(self, index: Any) -> "StoredRows":
        """Some rows, or with `[:, columns]` some columns, in the order given."""
        rows, columns = index if isinstance(index, tuple) else (index, None)
        part = copy.copy(self)
        part._rows = self._rows[rows]
        part.shape = (len(part._rows), self.shape[1] if columns is None else len(columns))
        if columns is not None:
            new = numpy.full(self.shape[1] + 1, -1, numpy.int32)  # the last one: what was left out stays left out
            new[numpy.asarray(columns, int)] = numpy.arange(len(columns), dtype=numpy.int32)
            part._place = new[:-1] if self._place is None else new[self._place]
        return part

    def tocsr(self) -> Any:
        """The matrix, in memory."""
        from scipy import sparse

        if self._place is None:
            return self._file.read(self._rows, self.shape[1])
        x = self._file.read(self._rows, len(self._place))
        columns = self._place[x.indices]
        kept = columns >= 0
        indptr = numpy.concatenate([[0], numpy.cumsum(kept)])[x.indptr]
        x = sparse.csr_array((x.data[kept], columns[kept], indptr), shape=self.shape)
        x.sort_indices()
        return x


def is_stored(matrix: Any) -> bool:
    """Whether counts are on the disk; they were checked when they were written."""
    return isinstance(matrix, StoredRows)


def blocks_of(matrix: Any) -> Iterator[Any]:
    """A csr matrix, in memory or on the disk, in blocks of rows that are in memory."""
    for start in range(0, matrix.shape[0], _ROWS):
        yield matrix[start : start + _ROWS].tocsr()
