import gzip
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from scipy import io, sparse

from blackout.cells.counts import Counts, warn_normalised, warn_transposed
from blackout.cells.read import read_counts, to_anndata
from blackout.data import SparseRows

X = numpy.array([[0, 3, 1], [2, 0, 0], [0, 1, 7], [5, 0, 1]])
GENES = ("CD3D", "LYZ", "nCoV")
CELLS = ("a", "b", "c", "d")
OBS = {"donor": numpy.array(["p", "q", "p", "q"]), "old": numpy.array([True, True, False, False])}


def counts(**changes: Any) -> Counts:
    fine = {"x": sparse.csr_array(X), "genes": GENES, "cells": CELLS, "obs": OBS, "name": "four"}
    return Counts(**{**fine, **changes})


def assert_counts(got: Counts, x: Any = X, genes: tuple[str, ...] = GENES, cells: tuple[str, ...] = CELLS) -> None:
    got = got.in_memory()
    assert isinstance(got.x, sparse.csr_array)
    assert got.x.dtype == numpy.int64
    assert got.x.has_canonical_format
    assert got.x.data.all()
    assert (got.genes, got.cells) == (genes, cells)
    assert got.x.toarray().tolist() == numpy.asarray(x).tolist()


def write_10x(path: Path, x: Any = X, **changes: Any) -> Path:
    """As Cell Ranger 3 does: genes x cells, by columns."""
    h5py = pytest.importorskip("h5py")
    matrix = sparse.csc_array(numpy.asarray(x).T)
    columns = {"id": ("ENSG1", "ENSG2", "ENSG3"), "name": GENES, "barcodes": CELLS, **changes}
    with h5py.File(path, "w") as file:
        group = file.create_group("matrix")
        for key in ("data", "indices", "indptr"):
            group[key] = changes.get(key, getattr(matrix, key))
        group["shape"] = numpy.array(matrix.shape, numpy.int32)
        group["barcodes"] = numpy.array(columns["barcodes"], "S")
        features = group.create_group("features")
        for key in ("id", "name", "feature_type"):
            if key in columns:
                features[key] = numpy.array(columns[key], "S")
    return path


def anndata_of(x: Any = X, **layers: Any) -> Any:
    anndata, pandas = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    obs = pandas.DataFrame({key: list(column) for key, column in OBS.items()}, index=list(CELLS))
    obs["donor"] = obs["donor"].astype("category")
    return anndata.AnnData(X=x, obs=obs, var=pandas.DataFrame(index=list(GENES)), layers=layers)


def test_properties() -> None:
    data = counts()
    assert (len(data), data.num_genes, data.library.tolist()) == (4, 3, [4, 2, 8, 6])
    assert data.library.dtype == numpy.int64
    assert repr(data) == "Counts(four: 4 cells x 3 genes, donor, old)"
    wide = sparse.csr_array(X)
    wide.indices, wide.indptr = wide.indices.astype(numpy.int64), wide.indptr.astype(numpy.int64)
    assert counts(x=wide).checksum == data.checksum
    others = [counts(genes=("CD3D", "LYZ", "x")), data.take([1, 0, 2, 3]), data.with_genes(GENES[::-1])]
    assert len({data.checksum, *(other.checksum for other in others)}) == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": sparse.csr_array(-X)}, "not counts: cell 0, gene 'LYZ' holds -3"),
        ({"x": sparse.csr_array((0, 3), dtype=numpy.int64)}, "at least one cell and one gene, got 0 x 3"),
        ({"genes": GENES[:2]}, "expected a name for each of 3 genes, got 2 names"),
        ({"cells": "abc"}, "expected a name for each of 4 cells, got 3 names"),
        ({"genes": ("A", "B", "A")}, "gene names must be unique, got more than once: 'A'"),
        ({"obs": {"age": numpy.arange(3)}}, "obs must have a row for each of 4 cells, got 3"),
    ],
)
def test_invalid_counts(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        counts(**changes)


def test_take_by_number_slice_and_mask() -> None:
    data = counts()
    for index in ([3, 1], torch.tensor([3, -3]), slice(3, None, -2), numpy.array([3, 1])):
        assert_counts(data.take(index), X[[3, 1]], cells=("d", "b"))
    taken = data.take(numpy.array([False, True, False, True]))
    assert taken.obs["old"].tolist() == [True, False]
    assert_counts(data.take([0, 0, 0]), X[[0, 0, 0]], cells=("a", "a-1", "a-2"))
    for index, message in (([4], "among 4 cells"), ([0.5], "among 4 cells"), ([], "at least one cell")):
        with pytest.raises(ValueError, match=message):
            data.take(index)


def test_with_genes() -> None:
    assert_counts(counts().with_genes(["nCoV", "CD3D"]), X[:, [2, 0]], genes=("nCoV", "CD3D"))
    with pytest.raises(ValueError, match=r"^these genes are not in the data: 'A', 'B', 'C' and 1 more$"):
        counts().with_genes(["A", "B", "LYZ", "C", "D"])


def test_values_of_a_column_are_text() -> None:
    assert counts().column("donor") == ["p", "q", "p", "q"]
    assert counts().take([0, 1, 3]).column("old") == ["True", "True", "False"]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (numpy.array(["x", None, "y", None], dtype=object), "no value for 2 of 4 cells: 'b', 'd'"),
        (numpy.array(["x", float("nan"), "y", "nan"], dtype=object), "no value for 1 of 4 cells: 'b'"),
        (numpy.array([1.0, 2.0, float("nan"), 1.0]), "obs column 'k' has no value for 1 of 4 cells: 'c'"),
        (numpy.array(["2020-01-01", "NaT", "2020-01-01", "2021-01-01"], "M8[D]"), "no value for 1 of 4 cells: 'b'"),
    ],
)
def test_columns_need_a_value_for_every_cell(column: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        counts(obs={"k": column}).column("k")


def test_absent_column() -> None:
    with pytest.raises(ValueError, match="obs has no column 'age'; it has 'donor', 'old'"):
        counts().column("age")


def test_split() -> None:
    data = read_counts(numpy.eye(1000, dtype=numpy.int32) + 1)
    train, held_out = data.split()
    assert (len(train), len(held_out)) == (900, 100)
    assert sorted(train.cells + held_out.cells) == sorted(data.cells)
    assert data.split()[1].cells == held_out.cells
    assert data.split(seed=1)[1].cells != held_out.cells
    assert len(counts().split(0.01)[1]) == 1
    for share in (0.0, 1.0, float("nan")):
        with pytest.raises(ValueError, match="held_out must be"):
            data.split(share)


@pytest.mark.parametrize("kind", ["i1", ">i4", "u8", "?", "f2", "f4", ">f8"])
def test_number_types(kind: str) -> None:
    x = (X > 0 if kind == "?" else X).astype(kind)
    assert_counts(read_counts(x), x, tuple(f"gene_{k}" for k in range(3)), tuple(f"cell_{k}" for k in range(4)))


def test_objects_in_memory() -> None:
    names = {"genes": ("gene_0", "gene_1", "gene_2"), "cells": ("cell_0", "cell_1", "cell_2", "cell_3")}
    dense = torch.tensor(X, dtype=torch.bfloat16)
    forms = [
        f"{form}_{kind}" for form in ("csr", "csc", "coo", "lil", "dok", "bsr", "dia") for kind in ("array", "matrix")
    ]
    sources = [getattr(sparse, form)(X) for form in forms]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls this layout beta
        compressed = dense.int().to_sparse_csr()
    sources += [dense, dense.int(), dense.int().to_sparse(), compressed, X.tolist()]
    for source in sources:
        assert_counts(read_counts(source), **names)
    data = counts()
    assert read_counts(data) is data
    assert read_counts(data, name="five").name == "five"


def test_source_is_not_modified_and_zeros_are_not_stored() -> None:
    x = sparse.csr_array((numpy.array([1, 2, 0, 3], numpy.int8), numpy.array([2, 2, 0, 1]), numpy.array([0, 3, 4])))
    before = x.data.copy(), x.indices.copy()
    got = read_counts(x, empty="drop")
    assert_counts(got, [[0, 3], [3, 0]], ("gene_1", "gene_2"), ("cell_0", "cell_1"))
    assert (x.data == before[0]).all()
    assert (x.indices == before[1]).all()
    full = numpy.array([127, 127], numpy.int8), (numpy.array([0, 0]), numpy.array([0, 0]))
    assert read_counts(sparse.coo_array(full, shape=(1, 1))).x.toarray().tolist() == [[254]]


def test_dataframe(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, index=list(CELLS), columns=list(GENES))
    for kind in ("int16", "float32", "Int64", pandas.SparseDtype("int32", 0)):
        assert_counts(read_counts(frame.astype(kind)))
    frame.to_csv(tmp_path / "t.csv")
    frame.to_csv(tmp_path / "t.tsv.gz", sep="\t")
    for name in ("t.csv", "t.tsv.gz"):
        assert_counts(read_counts(tmp_path / name))
        assert read_counts(tmp_path / name).name == "t"
    (tmp_path / "r.csv").write_text("CD3D,LYZ,nCoV\nNA,0,3,1\nb,2,0,0\n")  # as R writes it
    assert_counts(read_counts(tmp_path / "r.csv"), X[:2], cells=("NA", "b"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n,A,A\na,1,2\n", "gene names must be unique, got more than once: 'A'"),
        ("n,A,B\na,1,\n", "cell 0, gene 'B' holds nan"),
        ("n,A,B\na,1,two\n", "gene 'B' holds .*, not numbers"),
        ("n,A,B,C\na,1\n", "the header names 4 columns, but the rows have 2"),
        ("n,A,B\na,1,2\nb,1,2,3\n", "not a text table, or a damaged one: .*Expected 3 fields"),
        ("n,A,B\n", "not a text table, or a damaged one: No columns"),
        ("", "not a text table, or a damaged one: No columns"),
    ],
)
def test_invalid_text(text: str, message: str, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    (tmp_path / "t.csv").write_text(text)
    assert_rejected(tmp_path / "t.csv", message)


def test_long_text_is_read_in_blocks(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    x = numpy.random.default_rng(0).poisson(0.5, (2500, 3)) + 1
    pandas.DataFrame(x, columns=list(GENES)).to_csv(tmp_path / "t.csv")
    assert_counts(read_counts(tmp_path / "t.csv"), x, cells=tuple(map(str, range(2500))))


@pytest.mark.parametrize("form", [numpy.asarray, sparse.csr_matrix, sparse.csc_matrix])
def test_anndata(form: Any, tmp_path: Path) -> None:
    adata = anndata_of(form(X.astype("f4")), log=sparse.csr_matrix(numpy.log1p(X)))
    adata.write_h5ad(tmp_path / "t.h5ad")
    anndata = pytest.importorskip("anndata")
    backed = anndata.read_h5ad(tmp_path / "t.h5ad", backed="r")
    for source in (adata, adata[:], backed, tmp_path / "t.h5ad", str(tmp_path / "t.h5ad")):
        got = read_counts(source)
        assert_counts(got)
        assert got.obs["donor"].tolist() == ["p", "q", "p", "q"]
        assert got.obs["old"].dtype == bool
        assert got.column("old") == got.obs["old"].map(str).tolist()
    backed.file.close()
    assert_rejected(
        tmp_path / "t.h5ad", "not counts: cell 0, gene 'LYZ' holds 1.38.*; raw UMI counts are needed", layer="log"
    )
    assert_rejected(tmp_path / "t.h5ad", "layer must be one of 'log', got 'counts'", layer="counts")


def test_layers_and_raw(tmp_path: Path) -> None:
    adata = anndata_of(numpy.log1p(X), counts=X)
    adata.raw = anndata_of(X.astype("f4"))
    adata = adata[:, ["LYZ", "nCoV"]].copy()
    adata.write_h5ad(tmp_path / "t.h5ad")
    for source in (adata, tmp_path / "t.h5ad"):
        assert_counts(read_counts(source, layer="raw"))
        assert_counts(read_counts(source, layer="counts", empty="drop"), X[[0, 2, 3], 1:], GENES[1:], ("a", "c", "d"))
    adata.X = None
    with pytest.raises(ValueError, match="this AnnData has no X; layer must be one of 'counts', 'raw'"):
        read_counts(adata)


def test_missing_covariates_stay_missing(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    adata = anndata_of()
    adata.obs["sex"] = pandas.Categorical(["f", None, "m", "f"])
    adata.obs["age"] = pandas.array([1, None, 3, 4], dtype="Int64")
    adata.write_h5ad(tmp_path / "t.h5ad")
    for source in (adata, tmp_path / "t.h5ad"):
        data = read_counts(source)
        assert data.obs["sex"].isna().tolist() == [False, True, False, False]
        for key in ("sex", "age"):
            with pytest.raises(ValueError, match=f"obs column '{key}' has no value for 1 of 4 cells: 'b'"):
                data.column(key)


def test_to_anndata_roundtrip(tmp_path: Path) -> None:
    pytest.importorskip("anndata")
    for x in (sparse.csr_array(X), torch.tensor(X), torch.tensor(X, dtype=torch.uint8)):
        adata = to_anndata(x, GENES, CELLS, OBS)
        assert sparse.isspmatrix_csr(adata.X)
        assert adata.X.dtype == numpy.int32
        adata.write_h5ad(tmp_path / "t.h5ad")
        got = read_counts(tmp_path / "t.h5ad")
        assert_counts(got)
        assert got.checksum == counts().checksum
        assert got.obs["old"].tolist() == OBS["old"].tolist()
    assert to_anndata(torch.zeros(2, 3, dtype=torch.int32), GENES).obs_names.tolist() == ["cell_0", "cell_1"]
    with pytest.raises(ValueError, match=r"gene 'LYZ' holds 0\.5"):
        to_anndata(torch.tensor([[1.0, 0.5, 0.0]]), GENES)
    with pytest.raises(ValueError, match="expected a name for each of 3 genes, got 2"):
        to_anndata(torch.tensor(X), GENES[:2])
    with pytest.raises(ValueError, match="expected a name for each of 4 cells, got 2"):
        to_anndata(torch.tensor(X), GENES, ["a", "b"])


def test_10x_h5_keeps_genes_and_renames_duplicates(tmp_path: Path) -> None:
    assert_counts(read_counts(write_10x(tmp_path / "a.h5")))
    types = ("Gene Expression", "Gene Expression", "Antibody Capture")
    path = write_10x(
        tmp_path / "b.h5", feature_type=types, name=("TBCE", "TBCE", "TBCE"), barcodes=("A", "B", "A", "A")
    )
    assert_counts(read_counts(path), X[:, :2], ("TBCE_ENSG1", "TBCE_ENSG2"), ("A", "B", "A-1", "A-2"))
    assert_rejected(
        write_10x(tmp_path / "c.h5", feature_type=("Antibody Capture",) * 3),
        "no feature is of type 'Gene Expression', got 'Antibody Capture'",
    )


def test_damaged_10x_h5(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    complete = write_10x(tmp_path / "a.h5").read_bytes()
    (tmp_path / "cut.h5").write_bytes(complete[: len(complete) // 2])
    assert_rejected(tmp_path / "cut.h5", "not a 10x .h5 file, or a damaged one: .*truncated file")
    (tmp_path / "text.h5").write_text("gene,cell\n")
    assert_rejected(tmp_path / "text.h5", "not a 10x .h5 file, or a damaged one")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["GRCh38"] = 1
    assert_rejected(tmp_path / "other.h5", "expected the group 'matrix' .*, got 'GRCh38'")
    far = numpy.array([1, 2, 0, 1, 2, 0, 1 << 40])
    assert_rejected(write_10x(tmp_path / "far.h5", indices=far), "not a 10x .h5 file, or a damaged one: .*ind")
    assert_rejected(write_10x(tmp_path / "short.h5", barcodes=CELLS[:3]), "expected a name for each of 4 cells, got 3")
    assert_rejected(write_10x(tmp_path / "names.h5", name=GENES[:2]), "expected 3 names of genes, got 2")


def test_folder_of_10x_h5(tmp_path: Path) -> None:
    write_10x(tmp_path / "S1_filtered_feature_bc_matrix.h5")
    write_10x(tmp_path / "S2.h5", X[:, ::-1], name=GENES[::-1])
    got = read_counts(tmp_path)
    assert_counts(got, numpy.vstack([X, X]), cells=(*CELLS, "a-1", "b-1", "c-1", "d-1"))
    assert got.obs["sample"].tolist() == ["S1"] * 4 + ["S2"] * 4
    assert got.name == tmp_path.name
    write_10x(tmp_path / "S3.h5", name=("CD3D", "LYZ", "ACE2"))
    assert_rejected(tmp_path, "all files must have the same genes, but S3.h5 and S1_.*h5 differ in 2: 'ACE2', 'nCoV'")
    (tmp_path / "S3.h5").write_text("")
    assert_rejected(tmp_path, "S3.h5: not a 10x .h5 file")


@pytest.mark.parametrize("names", ["features.tsv.gz", "genes.tsv"])
def test_10x_matrix_market(names: str, tmp_path: Path) -> None:
    def write(name: str, text: str) -> None:
        content = text.encode()
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)

    io.mmwrite(tmp_path / "matrix.mtx", sparse.coo_array(X.T))
    write("matrix.mtx.gz", (tmp_path / "matrix.mtx").read_text())
    (tmp_path / "matrix.mtx").unlink()
    write(names, "".join(f"ENSG{k}\t{gene}\tGene Expression\n" for k, gene in enumerate(GENES)))
    write("barcodes.tsv", "".join(f"{cell}\n" for cell in CELLS))
    assert_counts(read_counts(tmp_path))
    assert_counts(read_counts(tmp_path / "matrix.mtx.gz"))
    (tmp_path / "matrix.mtx.gz").unlink()
    io.mmwrite(tmp_path / "GSM_matrix.mtx", sparse.coo_array(X))
    assert_counts(read_counts(tmp_path))
    io.mmwrite(tmp_path / "GSM_matrix.mtx", sparse.coo_array(X[:2]))
    assert_rejected(tmp_path, "the matrix is 2 x 3, but beside it are 3 genes and 4 barcodes")


def test_matrix_market_alone(tmp_path: Path) -> None:
    io.mmwrite(tmp_path / "t.mtx", sparse.coo_array(X))
    assert read_counts(tmp_path / "t.mtx").x.toarray().tolist() == X.tolist()
    text = (tmp_path / "t.mtx").read_text()
    (tmp_path / "t.mtx").write_text(text[:-6])
    assert_rejected(tmp_path / "t.mtx", "not a matrix in Matrix Market form, or a damaged one: .*[Tt]runcated")
    (tmp_path / "t.mtx.gz").write_bytes(gzip.compress(text.encode())[:-20])
    assert_rejected(tmp_path / "t.mtx.gz", "not a matrix in Matrix Market form, or a damaged one")
    assert_rejected(tmp_path, "expected one matrix, got 't.mtx', 't.mtx.gz'; give the path of one")


def test_numpy_and_scipy_files(tmp_path: Path) -> None:
    numpy.save(tmp_path / "a.npy", X)
    numpy.savez(tmp_path / "b.npz", x=X, genes=GENES, cells=CELLS)
    assert_counts(read_counts(tmp_path / "b.npz"))
    for form in (sparse.csr_array, sparse.csc_matrix, sparse.coo_array):
        sparse.save_npz(tmp_path / "c.npz", form(X))
        for name in ("a.npy", "c.npz"):
            assert read_counts(tmp_path / name).x.toarray().tolist() == X.tolist()
    numpy.savez(tmp_path / "d.npz", x=X, genes=GENES[:2])
    assert_rejected(tmp_path / "d.npz", "expected a name for each of 3 genes, got 2")
    numpy.savez(tmp_path / "e.npz", counts=X, labels=X[:, 0])
    assert read_counts(tmp_path / "e.npz").x.toarray().tolist() == X.tolist()
    numpy.savez(tmp_path / "e.npz", y=X, z=X)
    assert_rejected(tmp_path / "e.npz", "the key 'x', or a single matrix, got 'y', 'z'")
    numpy.savez(tmp_path / "f.npz", x=numpy.array([[{}]], dtype=object))
    assert_rejected(tmp_path / "f.npz", "'x' holds Python objects, which need pickle, and pickles are never loaded")
    numpy.savez(tmp_path / "n.npz", x=X, genes=numpy.array(GENES, object))
    assert_rejected(
        tmp_path / "n.npz", r"'genes' holds Python objects, .*; names can be saved as numpy.array\(names, str\)"
    )
    (tmp_path / "g.npz").write_bytes((tmp_path / "c.npz").read_bytes()[:-50])
    assert_rejected(tmp_path / "g.npz", "not an .npz file, or a damaged one")
    far = {"indices": [0, 9], "indptr": [0, 1, 2], "format": b"csr", "shape": [2, 2], "data": [1, 1]}
    numpy.savez(tmp_path / "h.npz", **far)
    assert_rejected(tmp_path / "h.npz", "ind")


def assert_rejected(path: Path, message: str, **options: Any) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read_counts(path, **options)
    assert str(caught.value).startswith(f"{path}: ")
    assert str(caught.value).count(str(path)) == 1 or "h5" in path.name
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (1.38, "not counts: cell 3, {} holds 1.38; raw UMI counts are needed: layer='counts'"),
        (-1.0, "not counts: cell 3, {} holds -1.0"),
        (float("nan"), "not counts: cell 3, {} holds nan"),
        (float("inf"), "not counts: cell 3, {} holds inf"),
        (2.0**31, "counts must be at most 2147483647, but cell 3, {} holds 2147483648.0"),
    ],
)
def test_values_that_are_not_counts(value: float, message: str, tmp_path: Path) -> None:
    x = X.astype("f8")
    x[3, 0] = value
    for form in (numpy.asarray, torch.tensor, sparse.csr_matrix, sparse.csc_array, sparse.coo_array):
        with pytest.raises(ValueError, match="^" + message.format("gene 0")):
            read_counts(form(x))
    numpy.savez(tmp_path / "t.npz", x=x, genes=GENES)
    assert_rejected(tmp_path / "t.npz", message.format("gene 'CD3D'"))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (-X, "cell 0, gene 1 holds -3"),
        (sparse.csr_array(numpy.array([[1, 2**31]])), "at most 2147483647, but cell 0, gene 1 holds 2147483648"),
        (numpy.array([[2**64 - 1]], dtype=numpy.uint64), "at most 2147483647, .* holds 18446744073709551615"),
        (
            sparse.csr_array(numpy.array([[2**64 - 1]], numpy.uint64)),
            "at most 2147483647, .* holds 18446744073709551615",
        ),
        (X * 1j, "expected numbers, got complex128"),
        ([["a"]], "expected numbers, got <U1"),
        ({"x": 1}, r"expected a matrix, cells x genes, got shape \(\)"),
        (numpy.arange(3), r"expected a matrix, cells x genes, got shape \(3,\)"),
        (numpy.zeros((0, 3)), "expected at least one cell and one gene, got 0 x 3"),
        (sparse.csr_array((3, 0)), "expected at least one cell and one gene, got 3 x 0"),
        (
            numpy.array([[1, 1], [0, 0], [0, 0]]),
            r"2 of 3 cells have no counts: 'cell_1', 'cell_2'; empty='drop' \(--empty drop\)",
        ),
        (
            numpy.array([[0, 1, 0], [0, 1, 0]]),
            r"2 of 3 genes have no counts: 'gene_0', 'gene_2'; empty='drop' \(--empty drop\)",
        ),
    ],
)
def test_invalid_matrices(source: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_counts(source)


def test_drop_empty() -> None:
    x = numpy.array([[0, 1, 0, 2], [0, 0, 0, 0], [0, 0, 0, 5]])
    assert_counts(read_counts(x, empty="drop"), [[1, 2], [0, 5]], ("gene_1", "gene_3"), ("cell_0", "cell_2"))
    assert_counts(read_counts(counts(x=sparse.csr_array(X * [1, 0, 1])), empty="drop"), X[:, [0, 2]], ("CD3D", "nCoV"))
    with pytest.raises(ValueError, match="every count is zero, in all of 3 cells"):
        read_counts(x * 0, empty="drop")


def test_invalid_files(tmp_path: Path) -> None:
    for name in ("none.h5ad", "none.csv", "none"):
        assert_rejected(tmp_path / name, "no such file or folder", layer="counts" if name == "none.h5ad" else None)
    with pytest.raises(ValueError, match="source must be a path whose names have 1 to 255 bytes"):
        read_counts("x" * 1000)
    (tmp_path / "t.xlsx").write_text("")
    assert_rejected(tmp_path / "t.xlsx", "expected .h5ad, .zarr, 10x .h5, .mtx")
    numpy.save(tmp_path / "t.npy", X)
    assert_rejected(
        tmp_path / "t.npy",
        "layer is for AnnData, .h5ad and .zarr, but layer='counts' was given for .npy",
        layer="counts",
    )
    (tmp_path / "empty").mkdir()
    assert_rejected(tmp_path / "empty", "expected a folder with one .mtx file or with 10x .h5 files, got neither")
    with pytest.raises(ValueError, match=r"layer is for AnnData, \.h5ad and \.zarr, .* was given for ndarray"):
        read_counts(X, layer="counts")


def test_damaged_h5ad(tmp_path: Path) -> None:
    anndata_of(X).write_h5ad(tmp_path / "t.h5ad")
    complete = (tmp_path / "t.h5ad").read_bytes()
    for content in (complete[: len(complete) // 2], b"text", b""):
        (tmp_path / "t.h5ad").write_bytes(content)
        assert_rejected(tmp_path / "t.h5ad", "not an .h5ad file, or a damaged one")


@pytest.mark.parametrize(("name", "package"), [("t.h5ad", "anndata"), ("t.h5", "h5py"), ("t.csv", "pandas")])
def test_missing_package(name: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).write_text("")
    monkeypatch.setitem(sys.modules, package, None)
    assert_rejected(tmp_path / name, rf"reading .* needs {package}: pip install 'blackout-diffusion\[counts\]'$")


def test_sparse_stays_sparse() -> None:
    n = 200_000  # dense, this would be 320 GB
    for form in ("csr", "csc", "coo"):
        data = read_counts(sparse.eye_array(n, dtype=numpy.float32, format=form))
        assert data.x.nnz == n
    train, held_out = data.split()
    assert len(data.with_genes(data.genes[::-1]).checksum) == 64
    assert len(read_counts(held_out, empty="drop")) == read_counts(held_out, empty="drop").num_genes == n // 10
    rows = SparseRows(train.x)
    assert rows[:2].sum().item() == 2
    assert rows.statistics()[0].sum().item() == pytest.approx(1)


@pytest.mark.parametrize("form", ["totals", "scaled"])
def test_rounded_normalised_data_warn(form: str) -> None:
    rng = numpy.random.default_rng(0)
    x = rng.poisson(rng.gamma(0.5, 4.0, (40, 200)) * rng.lognormal(0, 0.5, (40, 1)))
    normalised = numpy.round(x / x.sum(1, keepdims=True) * {"totals": 5000, "scaled": 1e6}[form])
    if form == "scaled":  # counts per million of some of the genes: totals differ
        normalised = normalised[:, :60]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_normalised(read_counts(x, empty="keep"))
    expected = {"totals": "the same total, 4999, as after", "scaled": "100% of the cells have no count of 1, as after"}
    with pytest.warns(UserWarning, match=f"{expected[form]} normalisation: raw UMI counts are needed"):
        warn_normalised(read_counts(normalised, empty="keep"))


def test_conventions_of_anndata_that_may_break() -> None:
    """Views, float counts, repeated names and genes in another order: the same counts, or a line that says why not."""
    anndata, pandas = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    x = numpy.array([[0.0, 2, 1], [3, 0, 1], [0, 1, 4]], "float32")
    adata = anndata.AnnData(sparse.csc_matrix(x), var=pandas.DataFrame(index=["a", "b", "c"]))
    view = adata[[2, 0], ["c", "a"]]
    assert view.is_view
    counts = read_counts(view, empty="keep")
    assert counts.genes == ("c", "a")
    assert counts.x.toarray().tolist() == [[4, 0], [1, 0]]
    assert counts.align(("a", "c")).x.toarray().tolist() == [[0, 4], [0, 1]]
    assert view.is_view  # reading does not copy the view in place
    adata.obs_names = ["cell", "cell", "cell"]
    assert read_counts(adata).cells == ("cell", "cell-1", "cell-2")
    adata.var_names = ["a", "b", "a"]
    with pytest.raises(ValueError, match=r"gene names must be unique, .*'a'; adata.var_names_make_unique\(\)"):
        read_counts(adata)
    adata.var_names, adata.X = ["a", "b", "c"], sparse.csr_matrix(x + 0.5)
    with pytest.raises(ValueError, match=r"not counts: cell 0, gene 'a' holds 0.5"):
        read_counts(adata)


def test_tables_whose_rows_are_genes_warn() -> None:
    pandas, x = pytest.importorskip("pandas"), numpy.ones((4, 3), int)
    barcodes, genes = (
        ["AAACCTGAGATAGCAT-1", "a:AAACCTGAGCCGATTT", "TTTGTCATCTTGACGA"],
        ["Actb", "GAPDH", "B2M", "CD3"],
    )
    ensembl = ["ENSG00000000003", "ENSMUSG00000000001.4", "ENSG00000000005", "SPIKE"]
    for rows, columns in ((genes, ["a", "b", "c"]), (ensembl, ["a", "b", "c"]), (["a", "b", "c", "d"], barcodes)):
        named = f"columns are named '{barcodes[0]}'" if columns is barcodes else f"rows are named '{rows[0]}'"
        with pytest.warns(UserWarning, match=f"the rows seem to be genes, not cells: {named}"):
            warn_transposed(read_counts(pandas.DataFrame(x, rows, columns)))
    with pytest.warns(UserWarning, match="rows are named 'Actb'"):  # one barcode among three names proves nothing
        warn_transposed(read_counts(pandas.DataFrame(x, genes, [barcodes[0], "b", "c"])))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_transposed(read_counts(pandas.DataFrame(x.T, barcodes, genes)))
