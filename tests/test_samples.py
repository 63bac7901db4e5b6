import itertools
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from PIL import Image

import blackout as bo
from blackout.data.arrays import load_arrays
from blackout.distillation.config import DistillConfig
from blackout.distillation.run import new_student
from blackout.io import Shards, load, write_samples
from blackout.io.images import as_bytes, image_grid
from blackout.model import DiffusionModel
from blackout.network import MLP, BoundedLogitHead, GammaPoissonHead, MLPConfig, NCSNpp, UNetConfig
from blackout.sampling import SAMPLERS
from processes import Process

TIMES = bo.ObservationTimes.fisher(20)
STATISTICS = torch.full((1, 1, 1), 5.0)


def image_model(channels: int = 1, max_count: int = 16) -> DiffusionModel:
    torch.manual_seed(0)
    network = NCSNpp(
        UNetConfig(channels=channels, resolution=4, width=8, multipliers=(1,), blocks=1, attention=(), dropout=0.0)
    )
    head = BoundedLogitHead(STATISTICS, STATISTICS, max_count)
    return DiffusionModel(bo.PureDeath(max_count), TIMES, network, head, shape=(channels, 4, 4))


def count_model() -> DiffusionModel:
    head = GammaPoissonHead(torch.full((5,), 2.0), torch.full((5,), 2.0))
    return DiffusionModel(
        bo.PureDeath(None), TIMES, MLP(MLPConfig(features=5, width=8, blocks=1, outputs=2)), head, shape=(5,)
    )


def read(path: Path) -> dict[str, Any]:
    with numpy.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def fail(*_: Any, **__: Any) -> None:
    raise AssertionError("a finished shard was computed again")


def test_arrays(tmp_path: Path) -> None:
    model = image_model()
    seen: list[tuple[float, int]] = []
    out = write_samples(
        model, tmp_path / "a.npz", 11, num_steps=7, seed=3, shard=4, batch_size=3, progress=lambda *a: seen.append(a)
    )
    arrays = read(out)
    assert arrays["x"].dtype == numpy.uint8
    assert (int(arrays["seed"]), int(arrays["steps"])) == (3, 7)
    assert str(arrays["sampler"]).startswith("BinomialBridge(")
    assert numpy.array_equal(arrays["x"], model.sample(11, 7, seed=3).numpy())
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]
    assert seen[-1] == (11, 11)
    assert all(a[0] <= b[0] + 1e-9 for a, b in itertools.pairwise(seen))


@pytest.mark.parametrize(("max_count", "dtype"), [(1, "u1"), (255, "u1"), (256, "u2"), (70_000, "u4")])
def test_smallest_integer_type_that_holds_the_states(max_count: int, dtype: str, tmp_path: Path) -> None:
    out = write_samples(image_model(max_count=max_count), tmp_path / "a.npz", 2, num_steps=2)
    assert read(out)["x"].dtype == numpy.dtype(dtype)


def test_unbounded_counts(tmp_path: Path) -> None:
    out = write_samples(count_model(), tmp_path / "a.npz", 3, num_steps=3)
    assert (read(out)["x"].dtype, read(out)["x"].shape) == (numpy.int64, (3, 5))
    with pytest.raises(ValueError, match=r"out must end in \.npz"):
        write_samples(count_model(), tmp_path / "a.png", 3, num_steps=3)


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (3, "RGB")])
def test_grid_and_folder_show_the_samples(channels: int, mode: str, tmp_path: Path) -> None:
    model = image_model(channels)
    x = numpy.rint(model.sample(5, 4).numpy() * (255 / 16)).astype(numpy.uint8)
    write_samples(model, tmp_path / "a.png", 5, num_steps=4)
    with Image.open(tmp_path / "a.png") as image:
        assert (image.mode, image.width >= 512) == (mode, True)
        pixels = numpy.asarray(image)
    assert numpy.array_equal(pixels, image_grid(x)[0] if channels == 1 else image_grid(x).transpose(1, 2, 0))
    write_samples(model, tmp_path / "folder", 5, num_steps=4, shard=2)
    assert sorted(p.name for p in (tmp_path / "folder").glob("*.png")) == [f"{k:06d}.png" for k in range(5)]
    for k in range(5):
        with Image.open(tmp_path / "folder" / f"{k:06d}.png") as image:
            pixels = numpy.asarray(image)
        assert numpy.array_equal(pixels, x[k, 0] if channels == 1 else x[k].transpose(1, 2, 0))


def test_grid_is_about_square_and_holds_every_image() -> None:
    x = numpy.arange(1, 8, dtype=numpy.uint8).reshape(7, 1, 1, 1) * numpy.ones((1, 1, 2, 2), numpy.uint8)
    out = image_grid(x)
    assert out.shape == (1, 524, 524)  # three by three, each 2 pixels enlarged to 172, with gaps of 2
    assert set(numpy.unique(out)) == {1, 2, 3, 4, 5, 6, 7, 96}
    rows = image_grid(x[:6], 2)  # three rows of two
    assert (rows.shape[2] < rows.shape[1], rows[0, 2, 2], rows[0, -3, 2], rows[0, -3, -3]) == (True, 1, 5, 6)


@pytest.mark.parametrize("name", SAMPLERS)
def test_samples_depend_on_the_seed_alone(name: str, tmp_path: Path) -> None:
    model, sampler = image_model(max_count=2), SAMPLERS.make(name, corrector_steps=0 if name == "student" else 1)
    if sampler.needs_draws:
        model = new_student(model, DistillConfig(num_steps=3))
    if sampler.needs_probs:  # of X_0
        x = torch.arange(3).repeat(16).reshape(3, 1, 4, 4)
        process = bo.Absorbing(4) if name == "remasking" else bo.PureDeath(2)
        model = DiffusionModel.for_data(x, process, TIMES, head="categorical", width=8, blocks=1)
    options: dict[str, Any] = {"num_steps": 1 if name == "exact" else 3, "sampler": sampler}
    a = read(write_samples(model, tmp_path / "a.npz", 3, **options, batch_size=3))
    b = read(write_samples(model, tmp_path / "b.npz", 3, **options, batch_size=1, shard=2))
    assert numpy.array_equal(a["x"], b["x"])


def test_finished_job_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = image_model()
    for out in (tmp_path / "a.npz", tmp_path / "a.png", tmp_path / "folder"):
        write_samples(model, out, 3, num_steps=2)
    changed = image_model()
    monkeypatch.setattr(model, "sample", fail)
    for out in (tmp_path / "a.npz", tmp_path / "a.png", tmp_path / "folder"):
        write_samples(model, out, 3, num_steps=2)
        assert not out.with_name(out.name + ".shards").exists()
    with torch.no_grad():
        next(changed.predictor.parameters()).add_(1)
    before = read(tmp_path / "a.npz")
    assert str(read(write_samples(changed, tmp_path / "a.npz", 3, num_steps=2))["job"]) != str(before["job"])
    with pytest.raises(ValueError, match="holds other files"):
        write_samples(changed, tmp_path / "folder", 3, num_steps=2)


def test_another_job_in_the_same_folder_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, out = image_model(), tmp_path / "a.npz"
    sample = model.sample

    def once(num: int, **options: Any) -> Any:
        if options["start_index"] > 0:
            raise KeyboardInterrupt
        return sample(num, **options)

    monkeypatch.setattr(model, "sample", once)
    with pytest.raises(KeyboardInterrupt):
        write_samples(model, out, 6, num_steps=2, shard=2)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="unfinished job with seed=0, not seed=1"):
        write_samples(model, out, 6, num_steps=2, shard=2, seed=1)
    write_samples(model, out, 6, num_steps=2, shard=2)
    assert numpy.array_equal(read(out)["x"], model.sample(6, 2).numpy())


def test_job_without_finished_shards_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, out = image_model(), tmp_path / "a.npz"
    monkeypatch.setattr(model, "sample", fail)
    with pytest.raises(AssertionError):
        write_samples(model, out, 2, num_steps=2)
    monkeypatch.undo()
    assert (tmp_path / "a.npz.shards").exists()
    write_samples(model, out, 2, num_steps=2, seed=1)
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


def test_damaged_shard_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, out = image_model(), tmp_path / "a.npz"
    monkeypatch.setattr("blackout.io.images.write_arrays", fail)
    with pytest.raises(AssertionError):
        write_samples(model, out, 2, num_steps=2)
    monkeypatch.undo()
    (tmp_path / "a.npz.shards/shard-000000.npy").write_bytes(b"nothing")
    with pytest.warns(UserWarning, match=r"shard-000000\.npy is damaged.*; it is computed again"):
        write_samples(model, out, 2, num_steps=2)
    assert numpy.array_equal(load_arrays(out)["x"], model.sample(2, num_steps=2))


def test_a_work_folder_of_others_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "a.npz.shards").mkdir()
    (tmp_path / "a.npz.shards/notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"notes\.txt is in the way"):
        write_samples(image_model(), tmp_path / "a.npz", 2, num_steps=2)
    assert (tmp_path / "a.npz.shards/notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"num": 0}, "num must be at least 1, got 0"),
        ({"columns": 0}, "columns must be at least 1, got 0"),
        ({"shard": 0}, "shard must be at least 1"),
        ({"num_steps": 0}, "num_steps must be at least 1"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"seed": 2**63}, "seed must be at most 9223372036854775807"),
        ({"label": 0}, "label must be None: the model has no classes, got 0"),
        ({"out": "a.jpg"}, r"out must end in \.png or \.npz"),
        ({"out": "there"}, "holds other files"),
        ({"out": "there/file"}, "is a file"),
    ],
)
def test_bad_arguments_leave_nothing_behind(options: dict[str, Any], reason: str, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/file").touch()
    out = tmp_path / options.pop("out", "a.npz")
    with pytest.raises(ValueError, match=reason):
        write_samples(image_model(), out, **options)
    assert [path.name for path in tmp_path.rglob("*")] == ["there", "file"]


WORKER = """
import json, sys, time
from pathlib import Path
from blackout.io import load, write_samples
folder, name, others = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
model = load(folder / "model")
original, computed = model.sample, []
def sample(num, **options):
    computed.append(options["start_index"] // 4)
    time.sleep(0.1)
    return original(num, **options)
model.sample = sample
(folder / f"{name}.ready").touch()
while not all((folder / f"{other}.ready").exists() for other in others):
    time.sleep(0.01)
write_samples(model, folder / "out.npz", 40, num_steps=5, shard=4)
print(json.dumps(computed))
"""


def worker(folder: Path, name: str, *others: str) -> Process:
    return Process("-c", WORKER, folder, name, *others)


def test_two_processes_share_a_job(tmp_path: Path) -> None:
    model = image_model()
    model.save(tmp_path / "model")
    with worker(tmp_path, "a", "b") as a, worker(tmp_path, "b", "a") as b:
        (out_a, error_a), (out_b, error_b) = a.communicate(timeout=120), b.communicate(timeout=120)
    assert (a.returncode, error_a, b.returncode, error_b) == (0, "", 0, "")
    shards_a, shards_b = json.loads(out_a), json.loads(out_b)
    assert shards_a
    assert shards_b
    assert sorted(shards_a + shards_b) == list(range(10))
    assert numpy.array_equal(read(tmp_path / "out.npz")["x"], model.sample(40, 5).numpy())
    assert not (tmp_path / "out.npz.shards").exists()


def test_folder_half_removed_by_a_killed_process_counts_as_empty(tmp_path: Path) -> None:
    """The last process removes job.json first."""
    work = tmp_path / "out.npz.shards"
    work.mkdir()
    for name in ("shard-000000.lock", "worker-0.lock"):
        (work / name).touch()
    numpy.save(work / "shard-000000.npy", numpy.zeros((4, 1, 4, 4), numpy.uint8))
    model = image_model()
    write_samples(model, tmp_path / "out.npz", 4, num_steps=2)
    assert numpy.array_equal(read(tmp_path / "out.npz")["x"], model.sample(4, 2).numpy())
    assert [path.name for path in tmp_path.iterdir()] == ["out.npz"]


def test_workers_of_one_job_share_a_folder_that_the_last_one_removes(tmp_path: Path) -> None:
    folder, barrier = tmp_path / "work", threading.Barrier(4, timeout=60)
    computed: list[int] = []
    results: list[list[int]] = []

    def square(number: int) -> Any:
        computed.append(number)
        return numpy.array([number**2])

    def work() -> None:
        with Shards(folder, {"job": 1}, 5) as shards:
            barrier.wait()
            barrier.wait()
            shards.fill(square)
            shards.finish(lambda: results.append([int(shards.read(k)[0]) for k in range(5)]))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    barrier.wait()
    with pytest.raises(ValueError, match="unfinished job with job=1, not job=2"), Shards(folder, {"job": 2}, 3):
        pass
    barrier.wait()
    for thread in threads:
        thread.join()
    assert (results, sorted(computed)) == ([[0, 1, 4, 9, 16]], [0, 1, 2, 3, 4])
    assert list(tmp_path.iterdir()) == []


def test_killed_job_resumes(tmp_path: Path) -> None:
    model = image_model()
    model.save(tmp_path / "model")
    work = tmp_path / "out.npz.shards"
    with worker(tmp_path, "a") as process:
        deadline = time.monotonic() + 120
        while len(list(work.glob("shard-*.npy"))) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    finished = {path: path.stat().st_mtime_ns for path in work.glob("shard-*.npy")}
    assert 3 <= len(finished) < 10
    seen = []

    def progress(done: float, num: int) -> None:
        if done < num:
            seen.append({path: path.stat().st_mtime_ns for path in finished})

    write_samples(load(tmp_path / "model"), tmp_path / "out.npz", 40, num_steps=5, shard=4, progress=progress)
    assert len(seen) >= 5 * (10 - len(finished)) - 1
    assert all(times == finished for times in seen)
    assert numpy.array_equal(read(tmp_path / "out.npz")["x"], model.sample(40, 5).numpy())
    assert not work.exists()


def test_states_beyond_one_byte_are_kept(tmp_path: Path) -> None:
    """The mask is state 0 here, and 256 a state of data."""
    data = torch.tensor([1, 256]).repeat(256).reshape(32, 1, 4, 4)
    model = DiffusionModel.for_data(data, bo.Absorbing(257, mask_state=0), width=8, blocks=1)
    x = read(write_samples(model, tmp_path / "a.npz", 4, num_steps=1, sampler=bo.TauLeaping()))["x"]
    assert numpy.array_equal(x, model.sample(4, 1, bo.TauLeaping()).numpy())
    assert (x == 256).any()
    assert not (x == 0).any()
    assert as_bytes(numpy.array([0, 1, 2, 3]), 2).tolist() == [0, 128, 255, 255]  # never as dark as another state


def test_samples_that_do_not_fit_are_rejected_before_the_work(tmp_path: Path) -> None:
    model = image_model()
    with pytest.raises(ValueError, match=r"num=90,\d+,\d+,\d+,\d+ samples need about .* on the disk, but .* are free"):
        write_samples(model, tmp_path / "a.npz", 9 * 10**13, num_steps=1)
    with pytest.raises(ValueError, match=r"a batch of .* samples needs about .* of memory, but .* are free"):
        write_samples(model, tmp_path / "folder", 2**30, num_steps=1, batch_size=2**30)
    assert not any(tmp_path.iterdir())


def test_the_size_of_a_batch_changes_the_network_by_rounding_alone() -> None:
    """What is left of it in the samples: docs/reliability.md."""
    model, xt = image_model(), torch.randint(0, 17, (64, 1, 4, 4), generator=torch.Generator().manual_seed(0))
    t = torch.tensor(1.0, dtype=torch.float64)
    together = model.posterior(xt, t).mean()
    alone = torch.cat([model.posterior(row, t).mean() for row in xt.split(1)])
    torch.testing.assert_close(alone, together, rtol=1e-5, atol=1e-5)
