"""Cells sampled to files: a killed job resumes, several processes share one, and the counts do not depend on either."""

import itertools
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import anndata
import pytest
import torch

import blackout as bo
from blackout.cells.read import read_counts
from blackout.cells.sampling import write_samples
from processes import COMMAND, Process
from test_cells_commands import status
from test_cells_model import TINY, two_types

CELLS, SHARD = 20, 4
OPTIONS: dict[str, Any] = {"label": "B", "guidance": 2.0, "num_steps": 5, "seed": 3}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = bo.CountModel(labels="kind", library="conditioned", **TINY).fit(two_types(60), steps=2)
    return model.save(tmp_path_factory.mktemp("saved") / "model")


@pytest.fixture
def model(saved: Path) -> bo.CountModel:
    return bo.CountModel.load(saved)


def fail(*_: Any, **__: Any) -> None:
    raise AssertionError("a finished shard was sampled again")


def assert_equal(path: Path, expected: Any) -> None:
    """The file holds the same counts, names and covariates."""
    found = read_counts(path, empty="keep")
    assert (found.x != expected.X).nnz == 0
    assert found.cells == tuple(expected.obs_names)
    assert found.genes == tuple(expected.var_names)
    for key in expected.obs:
        assert found.obs[key].tolist() == expected.obs[key].tolist()


@pytest.mark.parametrize("name", ["a.h5ad", "a.npz"])
def test_files_hold_the_samples(name: str, model: bo.CountModel, tmp_path: Path) -> None:
    seen: list[tuple[float, int]] = []
    out = write_samples(
        model, tmp_path / name, 11, shard=SHARD, batch_size=3, progress=lambda *a: seen.append(a), **OPTIONS
    )
    assert_equal(out, model.sample(11, **OPTIONS))
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert seen[-1] == (11, 11)
    assert all(a[0] <= b[0] + 1e-9 for a, b in itertools.pairwise(seen))


@pytest.mark.parametrize("name", ["a.h5ad", "a.npz"])
def test_finished_job_is_not_repeated(
    name: str, model: bo.CountModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_samples(model, tmp_path / name, 3, **OPTIONS)
    monkeypatch.setattr(model.model, "sample", fail)
    write_samples(model, tmp_path / name, 3, **OPTIONS)
    for changed in ({"seed": 4}, {"label": "A"}, {"library": 50}, {"guidance": 1.0}):
        with pytest.raises(ValueError, match=f"{name} exists already; choose another path"):
            write_samples(model, tmp_path / name, 3, **{**OPTIONS, **changed})
    with pytest.raises(AssertionError):
        write_samples(model, tmp_path / name, 3, overwrite=True, **{**OPTIONS, "seed": 4})


def test_annotated_samples_are_not_overwritten(model: bo.CountModel, tmp_path: Path) -> None:
    adata = anndata.read_h5ad(write_samples(model, tmp_path / "a.h5ad", 3, **OPTIONS))
    adata.obs["cluster"] = "1"
    adata.write_h5ad(tmp_path / "a.h5ad")
    write_samples(model, tmp_path / "a.h5ad", 3, **OPTIONS)
    assert "cluster" in anndata.read_h5ad(tmp_path / "a.h5ad").obs


def test_another_job_is_rejected(model: bo.CountModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample = model.model.sample

    def once(num: int, *args: Any, **options: Any) -> Any:
        if options["start_index"] > 0:
            raise KeyboardInterrupt
        return sample(num, *args, **options)

    monkeypatch.setattr(model.model, "sample", once)
    with pytest.raises(KeyboardInterrupt):
        write_samples(model, tmp_path / "a.npz", CELLS, shard=SHARD, **OPTIONS)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"unfinished job with .*seed=3, not .*seed=1"):
        write_samples(model, tmp_path / "a.npz", CELLS, shard=SHARD, **{**OPTIONS, "seed": 1})
    assert_equal(
        write_samples(model, tmp_path / "a.npz", CELLS, shard=SHARD, **OPTIONS), model.sample(CELLS, **OPTIONS)
    )


WORKER = f"""
import json, sys, time
from pathlib import Path
import blackout as bo
from blackout.cells.sampling import write_samples
model, out, name, other = bo.CountModel.load(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]
sample, sampled = model.model.sample, []
def slow(num, *args, **options):
    sampled.append(options["start_index"] // {SHARD})
    time.sleep(0.1)
    return sample(num, *args, **options)
model.model.sample = slow
out.with_name(name).touch()
while not out.with_name(other).exists():
    time.sleep(0.01)
write_samples(model, out, {CELLS}, shard={SHARD}, **{OPTIONS})
print(json.dumps(sampled))
"""


def worker(saved: Path, out: Path, name: str, other: str) -> Process:
    return Process("-c", WORKER, saved, out, name, other)


def test_two_processes_share_a_job(saved: Path, model: bo.CountModel, tmp_path: Path) -> None:
    out = tmp_path / "out.h5ad"
    with worker(saved, out, "a", "b") as a, worker(saved, out, "b", "a") as b:
        (out_a, error_a), (out_b, error_b) = a.communicate(timeout=120), b.communicate(timeout=120)
    assert (a.returncode, error_a, b.returncode, error_b) == (0, "", 0, "")
    drawn_a, drawn_b = json.loads(out_a), json.loads(out_b)
    assert drawn_a
    assert drawn_b
    assert sorted(drawn_a + drawn_b) == list(range(CELLS // SHARD))
    assert_equal(out, model.sample(CELLS, **OPTIONS))
    assert not out.with_name("out.h5ad.shards").exists()


def test_killed_command_resumes(
    saved: Path, model: bo.CountModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    num, out = 1000, tmp_path / "out.npz"
    work = out.with_name("out.npz.shards")
    words = ["cells", "sample", str(saved), "--num", str(num), "--steps", "200", "--seed", "1", "--out", str(out)]
    with Process(*COMMAND, *words) as process:
        deadline = time.monotonic() + 120
        while not list(work.glob("shard-*.npy")) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    finished = {path.name: path.read_bytes() for path in work.glob("shard-*.npy")}
    assert 1 <= len(finished) < 4
    numbers: list[int] = []
    draw = bo.DiffusionModel.sample

    def counted(self: Any, *args: Any, **options: Any) -> Any:
        numbers.append(options["start_index"])
        return draw(self, *args, **options)

    monkeypatch.setattr(bo.DiffusionModel, "sample", counted)
    assert status(words, monkeypatch) == 0
    monkeypatch.undo()
    assert sorted(numbers) == [k * 256 for k in range(4) if f"shard-{k:06d}.npy" not in finished]
    assert_equal(out, model.sample(num, num_steps=200, seed=1))
    assert not work.exists()


def test_invalid_arguments_leave_nothing(model: bo.CountModel, tmp_path: Path) -> None:
    for name, num, options, reason in (
        ("a.csv", 3, {}, "out must end in .h5ad"),
        ("a.npz", 0, {}, "num must be at least 1, got 0"),
        ("a.npz", 3, {"shard": 0}, "shard must be at least 1, got 0"),
        ("a.npz", 3, {"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ("a.npz", 3, {"label": "C"}, "not trained on these labels: 'C'"),
    ):
        with pytest.raises(ValueError, match=reason):
            write_samples(model, tmp_path / name, num, **options)
    assert not list(tmp_path.iterdir())


def test_counts_beyond_int32_do_not_wrap(model: bo.CountModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bo.DiffusionModel, "sample", lambda self, num, *_, **__: torch.full((num, 6), 2**31 + 5))
    for call in (lambda: model.sample(2), lambda: write_samples(model, tmp_path / "a.h5ad", 2)):
        with pytest.raises(
            ValueError, match="counts must be at most 2147483647, but cell 0, gene 'left' holds 2147483653"
        ):
            call()
