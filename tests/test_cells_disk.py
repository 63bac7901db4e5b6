"""Cells that stay on the disk give what cells in memory give, bit for bit, and damaged files one line."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy
import pytest
import torch
import zarr
from scipy import sparse

import blackout as bo
from blackout.cells import anndata_files
from blackout.cells.evaluate import _subset
from blackout.cells.files import read_job
from blackout.cells.imputation import imputation
from blackout.cells.read import read_counts
from blackout.cells.sampling import write_samples
from blackout.data.stored_rows import RowFile, StoredRows
from blackout.training.signals import Stopped
from test_cells_commands import status
from test_cells_model import TINY, two_types

DATA = two_types(240)
DATA.X = sparse.csr_matrix(DATA.X)
OPTIONS: dict[str, Any] = {"labels": "kind", "library": "conditioned", **TINY}


def write_zarr(cells: anndata.AnnData, path: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the next version of the format
        cells.write_zarr(path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cells as .h5ad, by rows, by columns and dense, as .zarr, and in two files with genes in another order."""
    path = tmp_path_factory.mktemp("cells")
    DATA.write_h5ad(path / "rows.h5ad")
    for name, matrix in (("columns", sparse.csc_matrix(DATA.X)), ("dense", DATA.X.toarray())):
        anndata.AnnData(matrix, obs=DATA.obs, var=DATA.var).write_h5ad(path / f"{name}.h5ad")
    write_zarr(DATA, path / "cells.zarr")
    DATA[:100].write_h5ad(path / "first.h5ad")
    write_zarr(DATA[100:, ::-1].copy(), path / "second.zarr")
    layered = anndata.AnnData(obs=DATA.obs, var=DATA.var, layers={"counts": DATA.X})
    layered.write_h5ad(path / "layer.h5ad")
    return path


@pytest.fixture(scope="module")
def fitted() -> bo.CountModel:
    return bo.CountModel(**OPTIONS).fit(DATA, steps=6)


def weights(model: bo.CountModel) -> dict[str, torch.Tensor]:
    return dict(model.model.predictor.state_dict())


def assert_same(model: bo.CountModel, expected: bo.CountModel) -> None:
    a, b = weights(model), weights(expected)
    assert all(torch.equal(a[name], b[name]) for name in b)
    assert model.describe()["covariates"] == expected.describe()["covariates"]


SOURCES: dict[str, Callable[[Path], Any]] = {
    "rows": lambda path: path / "rows.h5ad",
    "zarr": lambda path: path / "cells.zarr",
    "columns": lambda path: path / "columns.h5ad",
    "dense": lambda path: path / "dense.h5ad",
    "layer": lambda path: path / "layer.h5ad",
    "several": lambda path: [path / "first.h5ad", path / "second.zarr"],
    "opened": lambda path: anndata.read_h5ad(path / "rows.h5ad", backed="r"),
    "part": lambda path: anndata.read_h5ad(path / "rows.h5ad", backed="r")[:, [0, 1, 2, 3, 4, 5]],
}


@pytest.mark.parametrize("name", SOURCES)
def test_counts_are_those_in_memory(name: str, folder: Path) -> None:
    layer, source = "counts" if name == "layer" else None, SOURCES[name](folder)
    found, expected = read_counts(source, backed=True, layer=layer), read_counts(DATA)
    assert found.stored
    assert (found.checksum, found.cells, found.genes) == (expected.checksum, expected.cells, expected.genes)
    assert found.library.tolist() == expected.library.tolist()
    assert found.obs["kind"].tolist() == expected.obs["kind"].tolist()
    rows = [3, 239, 3, 101, 99]
    chosen, genes = found.take(rows).with_genes(["house", "left"]), expected.take(rows).with_genes(["house", "left"])
    assert chosen.in_memory().x.toarray().tolist() == genes.x.toarray().tolist()
    assert chosen.in_memory().checksum == chosen.checksum == genes.checksum
    assert read_counts(source, layer=layer).stored == (name in ("opened", "part"))


@pytest.mark.parametrize("name", ["rows", "zarr", "several"])
def test_weights_and_likelihood_are_those_in_memory(name: str, folder: Path, fitted: bo.CountModel) -> None:
    model = bo.CountModel(**OPTIONS).fit(SOURCES[name](folder), steps=6, backed=True)
    assert_same(model, fitted)
    stored = read_counts(SOURCES[name](folder), backed=True)
    assert model.bits_per_dim(stored, num_times=2) == fitted.bits_per_dim(DATA, num_times=2)
    assert numpy.array_equal(model.get_latent_representation(stored), fitted.get_latent_representation(DATA))


def test_killed_run_ends_with_the_same_weights(folder: Path, fitted: bo.CountModel, tmp_path: Path) -> None:
    def stop(report: Any, trainer: Any) -> None:
        trainer._signals.number = 15

    run: dict[str, Any] = {"steps": 6, "out": tmp_path, "log_every": 3, "backed": True}
    with pytest.raises(Stopped):
        bo.CountModel(**OPTIONS).fit(folder / "rows.h5ad", listener=stop, **run)
    whole = bo.CountModel(**OPTIONS).fit(DATA, steps=6, log_every=3)
    assert_same(bo.CountModel(**OPTIONS).fit(folder / "cells.zarr", **run), whole)
    with pytest.raises(ValueError, match="holds a run on other cells"):
        bo.CountModel(**OPTIONS).fit(folder / "first.h5ad", **run)


def test_large_files_stay_on_the_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anndata_files, "available_memory", lambda: 20_000)
    with pytest.warns(UserWarning, match=r"rows.h5ad: [\d,]+ counts would need \d+ KiB of memory, 20 KiB are free"):
        assert read_counts(folder / "rows.h5ad").stored
    assert not read_counts(folder / "rows.h5ad", backed=False).stored
    monkeypatch.setattr(anndata_files, "check_disk", lambda *_: (_ for _ in ()).throw(ValueError("no space")))
    with pytest.raises(ValueError, match=r"rows.h5ad: no space"):
        read_counts(folder / "rows.h5ad", backed=True)


def test_files_with_other_genes_and_columns(folder: Path, tmp_path: Path) -> None:
    other = two_types(30, seed=1)[:, ["house", "left", "noisy"]].copy()
    other.obs = other.obs[["kind"]].assign(extra=1.0)
    other.write_h5ad(tmp_path / "other.h5ad")
    for backed in (False, True):
        with pytest.warns(UserWarning, match="different genes: 3 that all have are used, of up to 6"):
            found = read_counts([folder / "rows.h5ad", tmp_path / "other.h5ad"], backed=backed)
        assert found.genes == ("left", "house", "noisy")
        below = other[:, list(found.genes)].X.toarray()
        assert found.in_memory().x[240:].toarray().tolist() == below.tolist()
        assert found.obs["kind"].notna().all()
        assert found.obs["extra"].isna().sum() == 240
        assert len(set(found.cells)) == 270
    other.var_names = ["x", "y", "z"]
    with pytest.raises(ValueError, match="no gene in common; counts: 'left', 'right', 'house' and 3 more; counts: 'x'"):
        read_counts([DATA, other])


def test_imputation_by_blocks_is_that_in_memory(
    folder: Path, fitted: bo.CountModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = DATA[:20, ["house", "left", "often", "noisy"]].copy()
    few.write_h5ad(tmp_path / "few.h5ad")
    fitted.save(tmp_path / "model")
    expected = fitted.impute(few, draws=2, num_steps=3, resample=1, batch_size=8)
    monkeypatch.setattr(anndata_files, "available_memory", lambda: 100)
    with pytest.warns(UserWarning, match="read from the disk"):
        result = imputation(
            fitted, tmp_path / "few.h5ad", draws=2, num_steps=3, resample=1, seed=0, batch_size=8, callback=None
        )
    assert result.given.cells.stored
    words = "cells impute model --data few.h5ad --draws 2 --steps 3 --resample 1 --batch-size 8 --out out.zarr"
    monkeypatch.chdir(tmp_path)
    assert status(words.split(), monkeypatch) == 0
    found = anndata.read_zarr(tmp_path / "out.zarr")
    assert found.var_names.tolist() == expected.var_names.tolist()
    for layer in ("mean", "draw_1", "draw_2", "std"):
        assert (found.layers[layer] != expected.layers[layer]).nnz == 0
    assert (found.X != expected.X).nnz == 0


@pytest.mark.parametrize("name", ["a.h5ad", "a.zarr"])
def test_samples_are_written_by_blocks(
    name: str, fitted: bo.CountModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blackout.cells.sampling._AT_ONCE", 2)
    options: dict[str, Any] = {"num_steps": 3, "seed": 2}
    out = write_samples(fitted, tmp_path / name, 23, shard=4, **options)
    expected = fitted.sample(23, **options)
    found = anndata.read_h5ad(out) if name == "a.h5ad" else anndata.read_zarr(out)
    assert (found.X != expected.X).nnz == 0
    assert found.X.dtype == numpy.int32
    assert found.obs_names.tolist() == expected.obs_names.tolist()
    assert found.obs["kind"].tolist() == expected.obs["kind"].tolist()
    assert read_job(out) is not None
    assert write_samples(fitted, out, 23, **options) == out
    with pytest.raises(ValueError, match="exists already"):
        write_samples(fitted, out, 22, **options)
    write_samples(fitted, out, 22, overwrite=True, **options)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def damage(path: Path, part: str, values: Any) -> None:
    with h5py.File(path, "a") as file:
        del file["X"][part]
        file["X"][part] = values


@pytest.mark.parametrize(
    ("part", "change", "reason"),
    [
        ("indptr", lambda v: v[::-1].copy(), "damaged: indptr of 241 does not fit 240 rows"),
        ("indptr", lambda v: v[:-2], "damaged: indptr of 239 does not fit 240 rows"),
        ("indices", lambda v: v + 6, "indices must be"),
        ("indices", lambda v: v[:5], "damaged: indptr of 241"),
        ("data", lambda v: v + 0.5, r"not counts: cell 0, gene 'left' holds [\d.]+\.5"),
        ("data", lambda v: numpy.where(numpy.arange(len(v)) == len(v) - 1, -1, v), "not counts: cell 239, gene"),
        ("data", lambda v: v.astype("S3"), "not counts: expected numbers"),
    ],
)
def test_damaged_files_give_one_line(part: str, change: Any, reason: str, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.h5ad"
    path.write_bytes((folder / "rows.h5ad").read_bytes())
    damage(path, part, change(h5py.File(path)["X"][part][...]))
    with pytest.raises(ValueError, match=reason) as error:
        read_counts(path, backed=True)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(str(path))


def test_wrong_files_give_one_line(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.h5ad").write_bytes((folder / "rows.h5ad").read_bytes()[:3000])
    zarr.open_group(str(tmp_path / "a.zarr"), mode="w")
    (tmp_path / "b.zarr").write_text("no folder")
    for name in ("a.h5ad", "a.zarr", "b.zarr"):
        for backed in (True, False):
            with pytest.raises(ValueError, match=rf"{name}: not an? \.\w+ file, or a damaged one") as error:
                read_counts(tmp_path / name, backed=backed)
            assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=r"layer must be one of 'counts', got 'typo'"):
        read_counts(folder / "layer.h5ad", layer="typo", backed=True)
    with pytest.raises(ValueError, match=r"has no X; layer must be one of 'counts'"):
        read_counts(folder / "layer.h5ad", backed=True)


def test_evaluation_takes_a_subset(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blackout.cells.evaluate._MOST", 50)
    with pytest.warns(UserWarning, match="rows: 50 of 240 cells on the disk are evaluated"):
        some = _subset(read_counts(folder / "rows.h5ad", backed=True), 0)
    assert (len(some), some.stored) == (50, False)
    cells = read_counts(DATA)
    assert _subset(cells, 0) is cells


def test_a_cut_file_raises() -> None:
    file = RowFile()
    file.write(iter([sparse.csr_array(numpy.eye(3, dtype=int))]))
    file._file.truncate(10)
    with pytest.raises(OSError, match="shorter than it was written"):
        StoredRows(file, 3).tocsr()
