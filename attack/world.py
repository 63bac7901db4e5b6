"""A folder of small models, runs and data of every kind that commands read."""

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy

from attack import child

SHAPE, MAX_STATE = (1, 8, 8), 3
CELLS, GENES = 60, 8
_TINY = {
    "max_count": MAX_STATE, "num_times": 20, "preset": "tiny", "width": 8, "blocks": 1, "steps": 3, "batch_size": 4,
    "log_every": 1, "checkpoint_every": 1, "time_density": "logistic", "stratified": True,
}  # fmt: skip
TRAIN = ["train", "config.json", "--data", "images.npy"]
TRAIN_CELLS = [
    "cells", "train", "--data", "cells.h5ad", "--width", "8", "--blocks", "1", "--batch-size", "8", "--num-times", "20",
    "--labels", "kind", "--held-out", "0.5",
]  # fmt: skip
PART: dict[str, Any] = {"num": 4, "num_steps": 2, "shard": 2}
_SPEC = """title = "small"
data = "images.npy"
[[model]]
source = "model"
[sample]
num_steps = [2]
[evaluate]
num_samples = 50
num_data = 4
num_times = 1
"""


class World:
    """The folder, and copies of it."""

    def __init__(self, folder: Path) -> None:
        self.template, self._copies = folder / "world", folder / "copies"
        self.template.mkdir(parents=True)
        self._copies.mkdir()
        self._clean: dict[str, tuple[int, ...]] = {}
        outcome = child.run(lambda: _make(self.template), self.template, seconds=300)
        if outcome.status:
            raise RuntimeError(f"the world of the attack could not be made: {outcome.err}")
        for name in (".out", ".err"):
            (self.template / name).unlink()

    def copy(self) -> Path:
        """A copy for a case; the one before is replaced, or used again if nothing in it has changed."""
        place = self._copies / "case"
        if not place.exists() or self.state() != self._clean:
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(self.template, place, symlinks=True)
            self._clean = self.state()
        return place

    def state(self) -> dict[str, tuple[int, ...]]:
        """Size and times of each file of the copy, except what a child wrote to its standard streams."""
        found, place = {}, str(self._copies / "case")
        for folder, _, files in os.walk(place):
            for name in files:
                if name not in (".out", ".err"):
                    stat = os.lstat(os.path.join(folder, name))
                    found[os.path.join(folder, name)] = stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
            found[folder] = ()
        return found


def _make(folder: Path) -> None:
    rng = numpy.random.default_rng(0)
    _images(folder, rng)
    _cells(folder, rng)
    _call([*TRAIN, "--out", "run"])
    _call([*TRAIN_CELLS, "--steps", "3", "--out", "cells-run"])
    import blackout as bo

    bo.load("run").save("model")
    bo.CountModel.load("cells-run").save("cells-model")
    labels = bo.DiffusionModel.for_data(
        bo.Uniform(4).terminal((20, 3)), bo.Absorbing(5), bo.ObservationTimes.uniform(12, 8.0), width=8, blocks=1,
        num_classes=2,
    )  # fmt: skip
    labels.with_record(class_names=("a", "b")).save("labels")
    _start_part()
    (folder / "not-a-folder").write_text("text\n")


def _call(words: list[str]) -> None:
    try:
        child.command(words)()
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"blackout {' '.join(words)}") from None


def _start_part() -> None:
    """A sampling job that ended after its first shard, as if it were killed."""
    from blackout.io import load, write_samples

    class Ended(Exception):
        pass

    def progress(done: float, total: int) -> None:
        if done > PART["shard"]:
            raise Ended

    try:
        write_samples(load("model"), "part.npz", **PART, progress=progress)
    except Ended:
        return
    raise RuntimeError("the job was not ended")


def _images(folder: Path, rng: numpy.random.Generator) -> None:
    from PIL import Image

    from blackout.training.config import TrainConfig

    x = rng.integers(0, MAX_STATE + 1, (24, *SHAPE)).astype(numpy.uint8)
    numpy.save(folder / "images.npy", x)
    numpy.savez(folder / "images.npz", x=x, labels=rng.integers(0, 2, 24))
    (folder / "pictures").mkdir()
    for number in range(4):
        Image.fromarray(x[number, 0] * 85).save(folder / "pictures" / f"{number}.png")
    Image.fromarray(x[0, 0] * 85).save(folder / "picture.png")
    numpy.save(folder / "observed.npy", x[0])
    numpy.save(folder / "mask.npy", rng.integers(0, 2, SHAPE).astype(bool))
    Image.fromarray(rng.integers(0, 2, SHAPE[1:]).astype(numpy.uint8) * 255).save(folder / "mask.png")
    (folder / "config.json").write_text(json.dumps(TrainConfig().replace(**_TINY).to_dict(), indent=2))
    (folder / "spec.toml").write_text(_SPEC)
    (folder / "pickle.npy").write_bytes(pickle.dumps([1, 2, 3]))


def _cells(folder: Path, rng: numpy.random.Generator) -> None:
    import anndata
    import h5py
    import pandas
    from scipy import io, sparse

    x = sparse.csr_matrix((rng.poisson(3.0, (CELLS, GENES)) + numpy.eye(CELLS, GENES) + 1).astype(numpy.float32))
    names, genes = [f"cell{k}" for k in range(CELLS)], [f"gene{k}" for k in range(GENES)]
    obs = pandas.DataFrame({"kind": rng.choice(["B", "T"], CELLS)}, index=names)
    adata = anndata.AnnData(x, obs=obs, var=pandas.DataFrame(index=genes))
    adata.layers["counts"] = x.copy()
    adata.write_h5ad(folder / "cells.h5ad")
    pandas.DataFrame(x.toarray().astype(int), index=names, columns=genes).to_csv(folder / "cells.csv")
    sparse.save_npz(folder / "cells.npz", x.astype(numpy.int32))
    with h5py.File(folder / "cells.h5", "w") as file:
        group = file.create_group("matrix")
        counts = x.astype(numpy.int32)
        for name, values in {"data": counts.data, "indices": counts.indices, "indptr": counts.indptr}.items():
            group[name] = values
        group["shape"], group["barcodes"] = [GENES, CELLS], [name.encode() for name in names]
        features = group.create_group("features")
        features["id"] = features["name"] = [gene.encode() for gene in genes]
        features["feature_type"] = [b"Gene Expression"] * GENES
    (folder / "tenx").mkdir()
    io.mmwrite(folder / "tenx" / "matrix.mtx", x.T.astype(int))
    (folder / "tenx" / "features.tsv").write_text("".join(f"{g}\t{g}\tGene Expression\n" for g in genes))
    (folder / "tenx" / "barcodes.tsv").write_text("".join(f"{name}\n" for name in names))
    numpy.save(folder / "cell-mask.npy", rng.integers(0, 2, (CELLS, GENES)).astype(bool))
    mask = pandas.DataFrame(rng.integers(0, 2, (CELLS, GENES)), index=names, columns=genes)
    mask.to_csv(folder / "cell-mask.csv")
