"""Files of Cell Ranger: 10x .h5, and Matrix Market files with the names beside them."""

import gzip
import zlib
from pathlib import Path
from typing import Any

import numpy
from scipy import io, sparse

from blackout import validate
from blackout.cells.isolated import isolated
from blackout.cells.names import few, optional, repeated, texts
from blackout.cells.table import Table

_EXPRESSION = "Gene Expression"
_CELL_RANGER_2 = {"id": "genes", "name": "gene_names"}


def read_samples(files: list[Path]) -> Table:
    """Concatenate .h5 files with the same genes; the obs column "sample" names the file of each cell."""
    first: tuple[str, ...] = ()
    cells: list[str] = []
    blocks, samples = [], []
    for file in files:
        try:
            table = read_h5(file)
        except ValueError as error:
            raise ValueError(f"{file.name}: {error}") from None
        genes = table.genes or ()
        first = first or genes
        odd = sorted(set(genes) ^ set(first))
        if odd or len(genes) != len(first):
            which = f"{file.name} and {files[0].name} differ in {len(odd)}: {few(odd)}"
            raise ValueError(f"all files must have the same genes, but {which}")
        column = {gene: k for k, gene in enumerate(genes)}
        blocks.append(table.matrix if genes == first else table.matrix[:, [column[gene] for gene in first]])
        cells.extend(table.cells or ())
        samples.extend([file.stem.partition("_filtered")[0]] * len(table.cells or ()))
    obs = {"sample": numpy.array(samples)}
    return Table(sparse.vstack(blocks, format="csr"), first, tuple(cells), obs, oriented=True)


def read_h5(path: Path) -> Table:
    """Read a 10x .h5 file: genes x cells in csc form, that is cells x genes in csr form."""
    h5py = optional("h5py", "reading .h5")
    return isolated(lambda path: _read_h5(path, h5py), path)


def _read_h5(path: Path, h5py: Any) -> Table:
    try:
        with h5py.File(path, "r") as file:
            group = _group(file, h5py.Group)
            genes, cells = (int(n) for n in group["shape"][:])
            matrix = sparse.csr_array((group["data"][:], group["indices"][:], group["indptr"][:]), shape=(cells, genes))
            validate.sparse(matrix)
            columns = (
                group["features"] if "features" in group else {new: group[old] for new, old in _CELL_RANGER_2.items()}
            )
            features = {key: texts(columns[key][:]) for key in ("id", "name", "feature_type") if key in columns}
            barcodes = texts(group["barcodes"][:])
    except Exception as error:  # h5py raises many types for a damaged file
        raise ValueError(f"not a 10x .h5 file, or a damaged one: {validate.one_line(error)}") from None
    return _table(matrix, barcodes, **features)


def _group(file: Any, group: type) -> Any:
    """The group "matrix" of Cell Ranger 3, or the only genome of Cell Ranger 2."""
    if "matrix" in file:
        return file["matrix"]
    genomes = [name for name in sorted(file) if isinstance(file[name], group) and "gene_names" in file[name]]
    if len(genomes) != 1:
        wanted = "expected the group 'matrix' (Cell Ranger 3) or a single genome (Cell Ranger 2)"
        raise ValueError(f"{wanted}, got {few(genomes or sorted(file)) or 'no group'}")
    return file[genomes[0]]


def _table(
    matrix: Any,
    cells: tuple[str, ...] | None,
    id: tuple[str, ...] = (),
    name: tuple[str, ...] = (),
    feature_type: tuple[str, ...] = (),
) -> Table:
    """Keep genes, drop antibodies and guides. A gene name that occurs more than once becomes name_id."""
    name = name or id
    for what, values in (("names", name), ("ids", id), ("types", feature_type)):
        if values and len(values) != matrix.shape[1]:
            raise ValueError(f"expected {matrix.shape[1]} {what} of genes, got {len(values)}")
    keep = [k for k in range(matrix.shape[1]) if not feature_type or feature_type[k] == _EXPRESSION]
    if not keep:
        raise ValueError(f"no feature is of type {_EXPRESSION!r}, got {few(sorted(set(feature_type)))}")
    if len(keep) < matrix.shape[1]:
        matrix = matrix[:, keep]
    if not name:
        return Table(matrix, None, cells, oriented=True)
    twice = set(repeated([name[k] for k in keep]))
    genes = tuple(f"{name[k]}_{id[k]}" if id and name[k] in twice else name[k] for k in keep)
    return Table(matrix, genes, cells, oriented=True)


def read_market(path: Path) -> Table:
    """Read a .mtx file, and features (or genes) and barcodes beside it, whose numbers give its orientation."""
    matrix = isolated(_read_matrix, path)
    rows = _beside(path, "features.tsv") or _beside(path, "genes.tsv")
    barcodes = _beside(path, "barcodes.tsv")
    if not rows and not barcodes:
        return Table(matrix)
    sizes = len(rows) or None, len(barcodes) or None
    if _fits(matrix.shape, sizes):
        matrix = matrix.T
    elif not _fits(matrix.shape[::-1], sizes):
        got = " x ".join(map(str, matrix.shape))
        raise ValueError(f"the matrix is {got}, but beside it are {len(rows)} genes and {len(barcodes)} barcodes")
    columns = [tuple(column) for column in zip(*rows, strict=False)][:3]
    features = dict(zip(("id", "name", "feature_type"), columns, strict=False))
    return _table(sparse.csr_array(matrix), tuple(row[0] for row in barcodes) or None, **features)


def _read_matrix(path: Path) -> Any:
    try:
        return io.mmread(str(path))
    except Exception as error:
        raise ValueError(f"not a matrix in Matrix Market form, or a damaged one: {validate.one_line(error)}") from None


def _fits(shape: tuple[int, ...], sizes: tuple[int | None, int | None]) -> bool:
    return all(size is None or size == n for n, size in zip(shape, sizes, strict=True))


def _beside(path: Path, name: str) -> list[list[str]]:
    """The lines of a file in the same folder, named with or without the prefix of "matrix.mtx"."""
    prefix = path.name.partition("matrix.mtx")[0] if "matrix.mtx" in path.name else ""
    for file in (path.with_name(start + name + end) for start in (prefix, "") for end in ("", ".gz")):
        if file.is_file():
            try:
                text = (gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()).decode()
            except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
                reason = f"not a list of names, or a damaged one: {validate.one_line(error)}"
                raise ValueError(f"{file.name}: {reason}") from None
            return [line.split("\t") for line in text.splitlines()]
    return []
