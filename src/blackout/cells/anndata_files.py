"""AnnData, in memory and in .h5ad and .zarr files, whose counts may stay on the disk.

A file that this package has not written is parsed in a child process only, in blocks of rows. What it finds there is
checked and copied into a temporary file of plain arrays, from which single rows are read quickly, in any order.
"""

import warnings
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import numpy
from scipy import sparse

from blackout import validate
from blackout.cells.counts import BYTES_PER_COUNT, integer_counts
from blackout.cells.isolated import isolated
from blackout.cells.names import few, optional, repeated, texts
from blackout.cells.table import Table
from blackout.data.stored_rows import RowFile, StoredRows, folder
from blackout.io.shards import check_disk
from blackout.memory import available_memory, check_memory, readable

_ENTRIES = 1 << 22  # of a block that is read at once
_SHARE = 0.5  # of the free memory that counts may need before they stay on the disk


def read_anndata(path: Path, layer: str | None, strict: bool, backed: bool | None) -> Table:
    """The contents of an .h5ad or .zarr file; see `read_counts` for `backed`."""
    kind = path.suffix.lower()
    for package in ("anndata", "h5py" if kind == ".h5ad" else "zarr"):
        optional(package, f"reading {kind}")  # before the child starts, which has no time for imports
    file, limit = RowFile(), _SHARE * available_memory()

    def read(path: Path) -> tuple[Table, Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # repeated names are renamed later
            table = None if backed is False else _copied(path, layer, strict, backed, limit, file)
            return (from_anndata(_load(path), layer, strict), 0) if table is None else (table, file.ends)

    table, ends = isolated(read, path)
    if table.matrix is not None:
        return table
    file.ends, genes = ends, len(table.genes or ())
    if backed is None:
        needed = f"{ends[-1]:,} counts would need {readable(BYTES_PER_COUNT * float(ends[-1]))} of memory"
        warnings.warn(f"{path.name}: {needed}, {readable(limit / _SHARE)} are free: read from the disk", stacklevel=5)
    return table._replace(matrix=StoredRows(file, genes))


def _load(path: Path) -> Any:
    """All of a file, in memory."""
    anndata = optional("anndata", "")
    try:
        return anndata.read_h5ad(path) if path.suffix.lower() == ".h5ad" else anndata.read_zarr(path)
    except Exception as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> ValueError:
    return ValueError(f"not an {path.suffix.lower()} file, or a damaged one: {validate.one_line(error)}")


def from_anndata(adata: Any, layer: str | None, strict: bool) -> Table:
    """The contents of AnnData; the counts of one that is backed are copied to a temporary file."""
    var, has_x = adata.var, adata.isbacked or adata.X is not None
    place = _place(layer, adata.layers, adata.raw, has_x, strict)
    if place == "layers":
        matrix = adata.layers[layer]
    elif place == "raw":
        raw, var = adata.raw, adata.raw.var
        matrix = _stored(lambda a, b: raw[a:b].X, raw.shape, raw.X, var) if adata.isbacked else raw.X
    elif adata.isbacked:
        matrix = _stored_part(adata) if adata.is_view else _stored(lambda a, b: adata[a:b].X, adata.shape, adata.X, var)
    else:
        matrix = adata.X
    return Table(matrix, texts(var.index), texts(adata.obs_names), adata.obs, var, oriented=True)


def _place(layer: str | None, layers: Collection[str], raw: Any, has_x: bool, strict: bool) -> str:
    """Where AnnData has the counts: in "layers", "raw" or "X"."""
    if layer is not None and layer in layers:
        return "layers"
    if layer == "raw" and raw is not None:
        return "raw"
    names = ", ".join(map(repr, [*layers, *(["raw"] if raw is not None else [])])) or "none (there are no layers)"
    if layer is not None and strict:
        raise ValueError(f"layer must be one of {names}, got {layer!r}")
    if not has_x:
        raise ValueError(f"this AnnData has no X; layer must be one of {names}")
    return "X"


def _stored(rows: Callable[[int, int], Any], shape: tuple[int, int], matrix: Any, var: Any) -> StoredRows:
    """The counts of an AnnData that its user has opened as backed."""
    genes, step = texts(var.index), max(1, _ENTRIES // max(1, shape[1]))
    if getattr(matrix, "format", "csr") == "csc":
        _check_csc(matrix.group["data"].shape[0])
        step = shape[0]
    starts = range(0, shape[0], step)
    return StoredRows.of((integer_counts(rows(a, min(a + step, shape[0])), genes, a) for a in starts), shape[1])


def _stored_part(view: Any) -> StoredRows:
    """The counts of some cells and genes of an AnnData that is backed; they are found by name."""
    whole = optional("anndata", "").read_h5ad(view.filename, backed="r")
    try:
        for names in (whole.obs_names, whole.var_names):
            if not names.is_unique:
                raise ValueError(f"a part of a backed AnnData needs unique names, got {few(repeated(names))} twice")
        rows, columns = whole.obs_names.get_indexer(view.obs_names), whole.var_names.get_indexer(view.var_names)
        return _stored(lambda a, b: whole[a:b].X, whole.shape, whole.X, whole.var)[rows, columns]
    finally:
        whole.file.close()


def _copied(
    path: Path, layer: str | None, strict: bool, backed: bool | None, limit: float, file: RowFile
) -> Table | None:
    """The names and obs of a file, its counts being in `file`; None if they are not large, or the format is old."""
    io = optional("anndata", "").io
    try:
        group = open_root(path)
    except Exception as error:
        raise _damaged(path, error) from None
    try:
        if group.attrs.get("encoding-type") != "anndata":
            return None
        matrix, var = _element(group, layer, strict)
        if backed is None and _memory(matrix) <= limit:
            return None
        var, obs = io.read_elem(var), io.read_elem(group["obs"])
        genes = texts(var.index)
        shape = tuple(int(n) for n in (matrix.shape if _is_dense(matrix) else matrix.attrs["shape"]))
        if shape != (len(obs), len(genes)):
            raise ValueError(f"damaged: counts of shape {shape} for {len(obs)} cells and {len(genes)} genes")
        file.write(_blocks(matrix, shape, genes))
    except ValueError as error:
        raise ValueError(validate.one_line(error)) from None
    except Exception as error:
        raise _damaged(path, error) from None
    return Table(None, genes, texts(obs.index), obs, var, oriented=True)


def open_root(path: Path) -> Any:
    """The root group of a file, of h5py or of zarr, open until the child process ends."""
    if path.suffix.lower() == ".h5ad":
        return optional("h5py", "reading .h5ad").File(path, "r")
    return optional("zarr", "reading .zarr").open_group(str(path), mode="r")


def _element(group: Any, layer: str | None, strict: bool) -> tuple[Any, Any]:
    """The counts, and the table of the genes."""
    layers, raw = group.get("layers", {}), group.get("raw")
    place = _place(layer, layers, raw, "X" in group, strict)
    if place == "layers":
        return layers[layer], group["var"]
    return (raw["X"], raw["var"]) if place == "raw" else (group["X"], group["var"])


def _is_dense(matrix: Any) -> bool:
    return hasattr(matrix, "dtype")


def _memory(matrix: Any) -> float:
    """Bytes that counts need at the most in memory; a dense table is taken for one with zeros in nine of ten places."""
    if _is_dense(matrix):
        return float(numpy.prod(matrix.shape) * (matrix.dtype.itemsize + BYTES_PER_COUNT / 10))
    return float(BYTES_PER_COUNT * matrix["data"].shape[0])


def _blocks(matrix: Any, shape: tuple[int, int], genes: tuple[str, ...]) -> Iterator[Any]:
    """Checked counts, some rows at a time."""
    if 0 in shape:
        raise ValueError(f"expected at least one cell and one gene, got {shape[0]} x {shape[1]}")
    if _is_dense(matrix):
        step = max(1, _ENTRIES // shape[1])
        for a in range(0, shape[0], step):
            yield integer_counts(matrix[a : a + step], genes, a)
        return
    kind = str(matrix.attrs.get("encoding-type", "")).removesuffix("_matrix")
    if kind not in ("csr", "csc"):
        raise ValueError(f"expected a matrix of counts, dense, csr or csc, got {kind or 'none'}")
    data, indices, ends = matrix["data"], matrix["indices"], numpy.asarray(matrix["indptr"][...]).astype(numpy.int64)
    rows, number = shape[0] if kind == "csr" else shape[1], int(ends[-1])
    sizes = {number, *data.shape, *indices.shape}
    if len(ends) != rows + 1 or ends[0] or (numpy.diff(ends) < 0).any() or len(sizes) > 1:
        raise ValueError(f"damaged: indptr of {len(ends)} does not fit {rows} rows of {data.shape[0]} entries")
    check_disk("these counts", 8.0 * number, folder() / "counts", "set TMPDIR to a folder with more space")
    if kind == "csc":
        _check_csc(number)
        yield integer_counts(sparse.csc_array((data[...], indices[...], ends), shape=shape), genes)
        return
    a = 0
    while a < rows:
        b = max(a + 1, int(numpy.searchsorted(ends, ends[a] + _ENTRIES, side="right")) - 1)
        part = slice(int(ends[a]), int(ends[b]))
        block = sparse.csr_array((data[part], indices[part], ends[a : b + 1] - ends[a]), shape=(b - a, shape[1]))
        yield integer_counts(block, genes, a)
        a = b


def _check_csc(entries: int) -> None:
    """A table that is stored by genes is read at once."""
    check_memory("a table stored by genes (csc)", 40.0 * entries, "write it by cells: adata.X = adata.X.tocsr()")
