"""From a matrix of any kind to whole counts, or to one line that says which entry is none."""

import importlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy
from numpy.typing import NDArray

from blackout import validate

LARGEST = 2**31 - 1  # states are int32 on a device
_RAW = "give raw UMI counts, such as adata.layers['counts'] or adata.raw"


class Table(NamedTuple):
    """What a source holds, before anything is checked: cells × genes, and names where there are any."""

    matrix: Any
    genes: tuple[str, ...] | None = None
    cells: tuple[str, ...] | None = None
    obs: dict[str, NDArray[Any]] | None = None
    frames: tuple[Any, Any] | None = None
    """obs and var of AnnData."""
    oriented: bool = False
    """Whether names say which are the genes."""


def optional(module: str, purpose: str) -> Any:
    """A module that only the extra `counts` installs. Other people's packages fail to import in any way."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise ValueError(f"{purpose} needs {module}, which does not import: {validate.one_line(error)}") from None
        raise ValueError(f"{purpose} needs {module}: pip install 'blackout-diffusion[counts]'") from None
    except Exception as error:
        raise ValueError(f"{purpose} needs {module}, which does not import: {validate.one_line(error)}") from None


def few(names: Sequence[str]) -> str:
    """Up to three of them."""
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def repeated(names: Iterable[str]) -> list[str]:
    """Those that occur more than once."""
    return [name for name, number in Counter(names).items() if number > 1]


def texts(values: Any) -> tuple[str, ...]:
    """Names from any array of strings or bytes."""
    values = numpy.asarray(values).ravel().tolist()
    return tuple(value.decode() if isinstance(value, bytes) else str(value) for value in values)


def unique_names(names: Sequence[str]) -> tuple[str, ...]:
    """The first of several equal names stays, the others become name-1, name-2, ..., as anndata does it."""
    taken = set(names)
    if len(taken) == len(names):
        return tuple(names)
    last: dict[str, int] = {}
    out = []
    for name in names:
        if name not in last:
            last[name] = 0
            out.append(name)
            continue
        number = last[name] + 1
        while f"{name}-{number}" in taken:
            number += 1
        last[name] = number
        out.append(f"{name}-{number}")
        taken.add(out[-1])
    return tuple(out)


def frame_table(frames: Iterable[Any]) -> Table:
    """pandas DataFrames, one below the other: rows are cells. A block at a time, so that a long file never is dense."""
    from scipy import sparse

    blocks = []
    cells: list[str] = []
    genes: tuple[str, ...] = ()
    for frame in frames:
        genes = texts(frame.columns)
        for gene, kind in zip(genes, frame.dtypes, strict=True):
            if getattr(kind, "subtype", kind).kind not in "buif":  # a sparse column tells its kind by its subtype
                raise ValueError(f"these are not counts: gene {gene!r} holds {kind}, not numbers; {_RAW}")
        if len(genes) and all(str(kind).startswith("Sparse") for kind in frame.dtypes):
            blocks.append(frame.sparse.to_coo())
        else:
            dense = frame.to_numpy()
            if dense.dtype == object:  # whole numbers of pandas' own that can be missing
                dense = frame.to_numpy(dtype=numpy.float64, na_value=numpy.nan)
            blocks.append(sparse.csr_array(dense))
        cells.extend(texts(frame.index))
    if not blocks:
        return Table(numpy.zeros((0, 0)))
    return Table(sparse.vstack(blocks, format="csr"), tuple(genes), tuple(cells))


def frame_columns(frame: Any) -> dict[str, NDArray[Any]]:
    """The columns of a DataFrame as they came; a missing text is None."""
    columns = {}
    for key in frame.columns:
        values: NDArray[Any] = frame[key].to_numpy(copy=True)
        if values.dtype == object:
            values[frame[key].isna().to_numpy()] = None
        columns[str(key)] = values
    return columns


def as_matrix(matrix: Any) -> Any:
    """A sparse matrix or an array, with rows and columns, whatever it holds."""
    from scipy import sparse

    if not sparse.issparse(matrix):
        matrix = numpy.asarray(matrix)
    elif matrix.format in ("csr", "csc", "bsr"):
        matrix.check_format(full_check=True)  # an index outside the matrix would be read from foreign memory
    if matrix.ndim != 2:
        raise ValueError(f"expected a matrix, cells x genes, got shape {matrix.shape}")
    return matrix


def whole_counts(matrix: Any, genes: Sequence[str] | None = None) -> Any:
    """A csr_array of int64, sorted and without stored zeros. Only stored entries are looked at; nothing is rounded."""
    from scipy import sparse

    matrix = as_matrix(matrix)
    if 0 in matrix.shape:
        raise ValueError(f"expected at least one cell and one gene, got {matrix.shape[0]} x {matrix.shape[1]}")
    if genes is not None and len(genes) != matrix.shape[1]:
        raise ValueError(f"expected a name for each of {matrix.shape[1]} genes, got {len(genes)} names")
    if matrix.dtype.kind not in "buif":
        raise ValueError(f"these are not counts: expected numbers, got {matrix.dtype}; {_RAW}")
    if not matrix.dtype.isnative:
        matrix = matrix.astype(matrix.dtype.newbyteorder("="))
    if matrix.dtype.kind == "f" and matrix.dtype.itemsize < 4:
        matrix = matrix.astype(numpy.float32)  # scipy knows no half precision
    elif sparse.issparse(matrix) and matrix.dtype.kind in "bui" and matrix.dtype != numpy.uint64:
        matrix = matrix.astype(numpy.int64)  # entries at one place are added up, which a narrow type may not hold
    x = sparse.csr_array(matrix)
    if not x.has_canonical_format:
        x = x.copy()  # it may share its arrays with the caller's
        x.sum_duplicates()
    if not x.data.all():
        x = x.copy()
        x.eliminate_zeros()
    if x.dtype.kind == "f":
        with numpy.errstate(invalid="ignore"):
            _refuse(x, ~numpy.isfinite(x.data) | (x.data != numpy.floor(x.data)), genes)
    _refuse(x, x.data < 0, genes)
    _refuse(x, x.data > LARGEST, genes)
    return sparse.csr_array((x.data.astype(numpy.int64), x.indices, x.indptr), shape=x.shape)


def _refuse(x: Any, wrong: NDArray[Any], genes: Sequence[str] | None) -> None:
    if wrong.any():
        _name_entry(x, int(wrong.argmax()), genes)


def _name_entry(x: Any, at: int, genes: Sequence[str] | None) -> NoReturn:
    cell = int(numpy.searchsorted(x.indptr, at, side="right")) - 1
    gene = int(x.indices[at])
    where = f"cell {cell}, gene {repr(genes[gene]) if genes is not None else gene} holds {x.data[at]}"
    if x.data[at] > LARGEST and numpy.isfinite(x.data[at]):
        raise ValueError(f"counts must be at most {LARGEST}, but {where}")
    raise ValueError(f"these are not counts: {where}; {_RAW}")
