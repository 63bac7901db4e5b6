"""Tables with unusual layouts, missing layers, and obs columns that keep their types."""

import contextlib
import gzip
import json
import math
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy
import pandas
import pytest
from scipy import io, sparse

from blackout.cells import isolated
from blackout.cells.config import CellConfig
from blackout.cells.counts import Counts
from blackout.cells.covariates import Covariates
from blackout.cells.observed import read_observed
from blackout.cells.read import read_counts
from blackout.cells.several import stack_counts
from test_cells_counts import CELLS, GENES, X, anndata_of, assert_counts, assert_rejected, write_10x

FRAME = pandas.DataFrame(X, index=list(CELLS), columns=list(GENES))


def test_table_without_row_names(tmp_path: Path) -> None:
    for number, frame in enumerate((FRAME, FRAME.astype(float))):
        path = tmp_path / f"{number}.csv"
        frame.iloc[[0, 0, 1, 3, 2]].to_csv(path, index=False)  # CD3D: 0, 0, 2, 5, 0
        assert_rejected(path, "the first column, 'CD3D', should name the rows, but holds integers that repeat; write")
    FRAME.set_axis([7, 8, 7, 9]).to_csv(tmp_path / "named.csv", index_label="cell")
    assert_counts(read_counts(tmp_path / "named.csv"), cells=("7", "8", "7-1", "9"))
    FRAME.reset_index(drop=True).to_csv(tmp_path / "numbered.csv", index_label="donor")  # numbers, but each once
    assert_counts(read_counts(tmp_path / "numbered.csv"), cells=("0", "1", "2", "3"))


def test_transposed_tables(tmp_path: Path) -> None:
    FRAME.T.to_csv(tmp_path / "t.csv")
    FRAME.T.to_csv(tmp_path / "t.tsv.gz", sep="\t")
    for name in ("t.csv", "t.tsv.gz"):
        assert_counts(read_counts(tmp_path / name, transpose=True))
    io.mmwrite(tmp_path / "t.mtx", sparse.coo_array(X.T))
    numpy.savez(tmp_path / "t.npz", x=X.T, genes=CELLS, cells=GENES)
    sparse.save_npz(tmp_path / "s.npz", sparse.csr_array(X.T))
    for name in ("t.mtx", "t.npz", "s.npz"):
        assert read_counts(tmp_path / name, transpose=True).x.toarray().tolist() == X.tolist()
    assert read_counts(X.T.tolist(), transpose=True).x.toarray().tolist() == X.tolist()
    message = "transpose is for tables, but this source states which axis holds the genes"
    assert_rejected(write_10x(tmp_path / "a.h5"), message, transpose=True)
    anndata_of(X).write_h5ad(tmp_path / "a.h5ad")
    assert_rejected(tmp_path / "a.h5ad", message, transpose=True)
    (tmp_path / "genes.tsv").write_text("".join(f"ENSG{k}\t{gene}\n" for k, gene in enumerate(GENES)))
    assert_rejected(tmp_path / "t.mtx", message, transpose=True)
    assert_counts(read_counts(tmp_path / "t.mtx"), cells=tuple(f"cell_{k}" for k in range(4)))


def test_missing_layer_is_x_unless_strict(tmp_path: Path) -> None:
    adata = anndata_of(X)
    adata.write_h5ad(tmp_path / "a.h5ad")
    FRAME.to_csv(tmp_path / "a.csv")
    for source in (adata, FRAME, tmp_path / "a.h5ad", tmp_path / "a.csv", read_counts(adata)):
        for layer in ("counts", "raw"):
            assert_counts(read_counts(source, layer=layer, strict=False))
            with pytest.raises(ValueError, match="layer"):
                read_counts(source, layer=layer)
    other = anndata_of(numpy.log1p(X), counts=X)
    assert_counts(read_counts(other, layer="counts", strict=False))
    with pytest.raises(ValueError, match="not counts"):
        read_counts(other, layer="raw", strict=False)


def test_cell_ranger_2(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    matrix = sparse.csc_array(X.T)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for genome in ("GRCh38", "mm10"):
            group = file.create_group(genome)
            for key in ("data", "indices", "indptr", "shape"):
                group[key] = getattr(matrix, key)
            group["genes"] = numpy.array(("ENSG1", "ENSG2", "ENSG3"), "S")
            group["gene_names"], group["barcodes"] = numpy.array(GENES, "S"), numpy.array(CELLS, "S")
    assert_rejected(tmp_path / "a.h5", "or a single genome .*, got 'GRCh38', 'mm10'")
    with h5py.File(tmp_path / "a.h5", "a") as file:
        del file["mm10"]
    assert_counts(read_counts(tmp_path / "a.h5"))


def test_uppercase_suffixes(tmp_path: Path) -> None:
    anndata_of(X).write_h5ad(tmp_path / "A.H5AD")
    FRAME.to_csv(tmp_path / "A.CSV")
    write_10x(tmp_path / "A.H5")
    for name in ("A.H5AD", "A.CSV", "A.H5"):
        assert_counts(read_counts(tmp_path / name))
    numpy.savez(tmp_path / "a.npz", x=X, genes=GENES, cells=CELLS)
    assert_counts(read_counts((tmp_path / "a.npz").rename(tmp_path / "A.NPZ")))


def test_duplicate_genes() -> None:
    with pytest.raises(ValueError, match=r"more than once: 'CD3D'; adata\.var_names_make_unique\(\)"):
        read_counts(FRAME.set_axis(["CD3D", "CD3D", "LYZ"], axis=1))


COLUMNS: list[Any] = [
    pandas.Series(["a", "b", "a"]),
    pandas.Series([3, 1, 3]),
    pandas.Series([3, 1, 3], dtype="uint8"),
    pandas.Series([0.5, 1.0, 0.1]),
    pandas.Series([0.1, 1.0, 0.3], dtype="float32"),
    pandas.Series([True, False, True]),
    pandas.Series([True, False, True], dtype="boolean"),
    pandas.Series([3, 1, 3], dtype="Int64"),
    pandas.Series(["a", "b", "a"], dtype="string"),
    pandas.Series([3, 1, 3], dtype=object),
    pandas.Series(pandas.Categorical(["a", "b", "a"], ["b", "a", "unused"])),
    pandas.Series(pandas.Categorical(["a", "b", "a"], ["b", "a"], ordered=True)),
    pandas.Series(pandas.Categorical([3, 1, 3])),
    pandas.Series(pandas.Categorical([True, False, True])),
    pandas.Series(pandas.to_datetime(["2020-01-02", "2021-01-01", "2020-01-02"])),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.dtype))
def test_label_types_survive_sampling_and_json(column: Any) -> None:
    obs = pandas.DataFrame({"column": column.to_numpy()}, index=list("abc"))
    obs["column"] = column.set_axis(obs.index)
    cells = read_counts(anndata.AnnData(sparse.csr_matrix(X[:3]), obs=obs))
    pandas.testing.assert_frame_equal(cells.obs, obs)
    config = CellConfig(labels=["column"])
    fitted = Covariates.fit(cells, config)
    loaded = Covariates.from_dict(config, json.loads(json.dumps(fitted.to_dict())))
    for covariates in (fitted, loaded):
        sampled = covariates.obs(covariates.read(cells), None)["column"]
        pandas.testing.assert_series_equal(sampled, column, check_names=False)


@pytest.mark.parametrize("missing", [None, math.nan, pandas.NA])
def test_unused_column_may_lack_values(missing: Any) -> None:
    obs = pandas.DataFrame({"note": pandas.Series(["a", missing, "b"], dtype=object).to_numpy()}, index=list("abc"))
    cells = read_counts(anndata.AnnData(sparse.csr_matrix(X[:3]), obs=obs))
    assert cells.is_labelled(["note"]).tolist() == [True, False, True]


@pytest.mark.parametrize("name", ["features.tsv.gz", "cells.csv.gz"])
def test_damaged_gz(name: str, tmp_path: Path) -> None:
    rows = "\n".join(f"cell_{k},{k % 7},{k % 5}" for k in range(500))
    (tmp_path / "matrix.mtx").write_text("%%MatrixMarket matrix coordinate integer general\n2 3 1\n1 1 4\n")
    (tmp_path / "barcodes.tsv").write_text("a\nb\nc\n")
    packed = bytearray(gzip.compress(f",g0,g1\n{rows}\n".encode()))
    packed[len(packed) // 2] ^= 0xFF
    (tmp_path / name).write_bytes(packed)
    with pytest.raises(ValueError, match="damaged"):
        read_counts(tmp_path / ("matrix.mtx" if name.startswith("features") else name))


def _hang(path: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    time.sleep(60)


ENDS = {
    r"its reader crashed \(SIGSEGV\)": lambda path: os.kill(os.getpid(), signal.SIGSEGV),
    r"its reader crashed \(status 3\)": lambda path: os._exit(3),
    r"reading it took longer than 0 s": _hang,
    r"MemoryError": lambda path: bytearray(1 << 50),
    r"^no such key$": lambda path: (_ for _ in ()).throw(ValueError("no such key")),
}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reads in a child")
@pytest.mark.parametrize("said", ENDS)
def test_a_reader_that_crashes_or_hangs_is_an_error_of_the_file(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "longer" in said:
        monkeypatch.setattr(isolated, "_SECONDS", 0.3)
    with pytest.raises(ValueError, match=said):
        isolated.isolated(ENDS[said], tmp_path)


def test_what_a_child_reads_comes_back_unchanged_and_writable(tmp_path: Path) -> None:
    found = isolated.isolated(lambda path: (X, FRAME, numpy.zeros((0, 3)), "text"), tmp_path)
    assert numpy.array_equal(found[0], X)
    found[0][0, 0] += 1  # an array of its own
    pandas.testing.assert_frame_equal(found[1], FRAME)
    assert (found[2].shape, found[3]) == ((0, 3), "text")


def test_a_nul_byte_in_a_matrix_file_is_an_error(tmp_path: Path) -> None:
    io.mmwrite(tmp_path / "a.mtx", sparse.coo_array(X))
    content = (tmp_path / "a.mtx").read_bytes()
    for place in range(0, len(content), 7):
        (tmp_path / "a.mtx").write_bytes(content[:place] + b"\0" + content[place:])
        with contextlib.suppress(ValueError):
            read_counts(tmp_path / "a.mtx", empty="keep")


@pytest.mark.parametrize("pointers", [[0, 9, 3, 4, 5], [0, 9, 0, 0, 0], [0, 2**31 - 1, -(2**31), 4, 5]])
def test_row_pointers_that_decrease_are_rejected(pointers: list[int], tmp_path: Path) -> None:
    """The second list has no entry, so that scipy does not look at it; the third overflows a difference of int32."""
    x = sparse.csr_array(X)
    arrays = {"data": x.data, "indices": x.indices, "indptr": numpy.array(pointers, numpy.int32)}
    numpy.savez(tmp_path / "a.npz", format=b"csr", shape=x.shape, _is_array=True, **arrays)
    write_10x(tmp_path / "a.h5")
    anndata_of(sparse.csr_matrix(X)).write_h5ad(tmp_path / "a.h5ad")
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["matrix/indptr"][:] = pointers
    with h5py.File(tmp_path / "a.h5ad", "a") as file:
        file["X/indptr"][:] = pointers
    for name in ("a.npz", "a.h5", "a.h5ad"):
        assert_rejected(tmp_path / name, "indptr, the pointers of a sparse matrix, must not decrease, got")
    with pytest.raises(ValueError, match=r"indptr, .* must not decrease"):
        read_observed(X, tmp_path / "a.npz")


def test_several_tables_keep_the_types_of_columns_that_one_of_them_lacks() -> None:
    def table(names: str, **columns: Any) -> Counts:
        obs = pandas.DataFrame(columns, index=list(names))
        return read_counts(anndata.AnnData(sparse.csr_matrix(X[: len(names)]), obs=obs))

    first = table("abc", age=[1, 2, 3], kind=pandas.Categorical(["T", "B", "T"]), note=["x", "y", "z"])
    obs = stack_counts([first, table("de", kind=pandas.Categorical(["NK", "B"]))], "both").obs
    assert obs["age"].dtype == numpy.float64
    assert obs["age"].tolist()[:3] == [1.0, 2.0, 3.0]
    assert obs["age"].isna().tolist() == obs["note"].isna().tolist() == [False] * 3 + [True] * 2
    assert obs["kind"].tolist() == ["T", "B", "T", "NK", "B"]
    obs = stack_counts([first, table("de")], "both").obs
    assert isinstance(obs["kind"].dtype, pandas.CategoricalDtype)
    assert obs["kind"].tolist()[:3] == ["T", "B", "T"]
    assert obs["kind"].isna().tolist() == [False] * 3 + [True] * 2
