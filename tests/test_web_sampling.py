import base64
import io
import itertools
import json
import os
import shlex
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from PIL import Image

import blackout as bo
from blackout.sampling import SAMPLERS
from blackout.times import TIME_RULES
from blackout.web import limits
from blackout.web.export import command, standard_deviation
from blackout.web.models import Catalogue
from blackout.web.requests import read_request
from pages import PRETRAINED, LocalServer, image_model, status, unpack


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models, in which the server is started."""
    home = tmp_path_factory.mktemp("home")
    image_model(num_classes=3).save(home / "classes")
    image_model(num_classes=3).with_record(class_names=("10", "2", 'a cat, \' "small"')).save(home / "named")
    image_model(3).save(home / "my runs" / "colour")
    image_model(process=bo.Absorbing(4)).save(home / "masked")
    return home


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[LocalServer]:
    before = Path.cwd()
    os.chdir(home)
    try:
        with LocalServer(("classes", "named", "my runs/colour", "masked"), "cpu") as server:
            yield server
    finally:
        os.chdir(before)


IMAGE = (numpy.arange(784).reshape(28, 28) // 28 % 5 == 0).astype(int)
REQUESTS: dict[str, dict[str, Any]] = {
    "pretrained": {"model": "mnist-binary", "steps": 4, "num": 2, "seed": 5},
    "correctors": {"model": "classes", "steps": 20, "num": 2, "sampler": "poisson", "correctors": 2},
    "class": {"model": "classes", "steps": 9, "num": 4, "label": 2, "guidance": 2.5, "sampler": "binomial"},
    "name": {"model": "named", "steps": 3, "num": 2, "label": "2", "guidance": 2},
    "number of a name": {"model": "named", "steps": 3, "num": 2, "label": 2, "guidance": 1.5},
    "colour": {"model": "my runs/colour", "steps": 20, "num": 5, "sampler": "bridge-nearest", "seed": 2**53 - 1},
    "times": {"model": "classes", "steps": 7, "num": 2, "sampler": "bridge", "times": "kl"},
    "masked": {"model": "masked", "steps": 6, "num": 2, "times": "length"},
    "inpainting": {
        "model": "mnist-binary",
        "steps": 3,
        "num": 4,
        "observed": IMAGE.reshape(-1).tolist(),
        "mask": (numpy.arange(784) < 392).astype(int).tolist(),
        "resample": 1,
    },
}


@pytest.mark.parametrize("name", REQUESTS)
def test_the_command_and_the_code_reproduce_the_samples(
    server: LocalServer, home: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit: the last event, the downloaded files, the exported script and the exported command."""
    monkeypatch.chdir(home)
    request = REQUESTS[name]
    *_, last = server.sample(**request)
    x = unpack(last["x"], (request["num"], *(bo.load(request["model"]).shape or ())))
    files = {name: base64.b64decode(text) for name, text in last["files"].items()}

    with numpy.load(io.BytesIO(files["samples.npz"]), allow_pickle=False) as arrays:
        assert arrays["x"].dtype == numpy.uint8
        assert numpy.array_equal(arrays["x"], x)
        assert int(arrays["steps"]) == request["steps"]

    with (
        Image.open(io.BytesIO(files["trajectory.gif"])) as moving,
        Image.open(io.BytesIO(files["samples.png"])) as still,
    ):
        moving.seek(getattr(moving, "n_frames", 1) - 1)
        assert moving.size == still.size
        difference = numpy.asarray(moving.convert("RGB"), int) - numpy.asarray(still.convert("RGB"))
        assert numpy.abs(difference).max() <= (0 if x.shape[1] == 1 else 48)  # 256 colours

    monkeypatch.chdir(tmp_path)
    for link in ("classes", "named", "masked", "my runs"):
        Path(link).symlink_to(home / link)
    with zipfile.ZipFile(io.BytesIO(files["samples.zip"])) as archive:
        assert archive.testzip() is None
        archive.extractall()
    assert Path("reproduce.py").read_text() == f"# {last['command']}\n\n{last['python']}"

    result: dict[str, Any] = {}
    exec(last["python"], result)
    assert numpy.array_equal(result["x"].numpy(), x)

    words = shlex.split(last["command"])
    assert words[0] == "blackout"
    assert words[-2:] == ["--out", "samples.npz"]
    Path("samples.npz").unlink()
    assert status(words[1:], monkeypatch) == 0
    with numpy.load("samples.npz", allow_pickle=False) as arrays:
        assert numpy.array_equal(arrays["x"], x)
    if name == "colour":
        assert status([*words[1:-1], "own-grid.png"], monkeypatch) == 0
        with Image.open("own-grid.png") as own, Image.open("samples.png") as sent:
            assert numpy.array_equal(numpy.asarray(own), numpy.asarray(sent))
    if name == "inpainting":
        observed_entries_are_kept(x[:, 0], last)


def observed_entries_are_kept(x: "numpy.typing.NDArray[Any]", last: dict[str, Any]) -> None:
    assert (x[:, :14] == IMAGE[:14]).all()
    std, shown = x.std(axis=0), unpack(last["std"], (28, 28))
    assert not shown[:14].any()
    assert shown.max() == 255
    assert numpy.abs(shown - 255 * std / std.max()).max() <= 0.5
    with Image.open("std.png") as image:
        assert image.mode == "L"
    assert not standard_deviation(numpy.ones((3, 1, 2, 2), numpy.uint8)).any()  # no division by zero


def test_the_server_writes_no_files(server: LocalServer, home: Path) -> None:
    before = sorted(path.relative_to(home) for path in home.rglob("*") if path.is_file())
    server.sample(**REQUESTS["class"])
    assert sorted(path.relative_to(home) for path in home.rglob("*") if path.is_file()) == before


def test_every_step_is_reported(server: LocalServer) -> None:
    queued, start, *steps, last = server.sample(model="my runs/colour", steps=20, num=3, seed=1)
    assert queued == {"event": "queued", "ahead": 0}
    shape = (3, 3, 4, 4)
    assert not unpack(start["frame"], shape).any()  # black
    assert start["times"] == [*bo.ObservationTimes.fisher(20).values.flip(0).tolist(), 0]
    assert [event["step"] for event in steps] == list(range(1, 21))
    assert [event["time"] for event in steps] == start["times"][1:]
    x = unpack(last["x"], shape)
    assert numpy.array_equal(unpack(steps[-1]["frame"], shape), x)
    assert steps[-1]["mean"] == pytest.approx(x.mean())
    # Under pure death every unit is born once in reverse time, and none dies.
    assert sum(event["births"] for event in steps) == pytest.approx(x.sum() / 3)
    assert all(event["deaths"] == 0 for event in steps)
    states = [unpack(event["frame"], shape) for event in (start, *steps)]
    assert steps[11]["births"] == pytest.approx((states[12].astype(int) - states[11]).sum() / 3)
    rows = base64.b64decode(last["files"]["steps.csv"]).decode().splitlines()
    assert rows[0] == "step,time,mean,births,deaths"
    assert len(rows) == 21
    assert float(rows[20].split(",")[2]) == steps[-1]["mean"]


def test_a_long_job_sends_some_frames_and_the_last(tmp_path: Path) -> None:
    folder = str(image_model(steps=200).save(tmp_path / "long"))
    with LocalServer((folder,)) as server:
        _, start, *steps, last = server.sample(model=folder, steps=200, num=1)
    with_frame = [event["step"] for event in steps if "frame" in event]
    assert len(with_frame) == limits.FRAMES
    assert with_frame[-1] == 200
    assert max(b - a for a, b in itertools.pairwise(with_frame)) == 4
    assert steps[-1]["frame"] == last["x"]
    assert "frame" in start
    assert "--device" not in last["command"]  # the default


def test_samplers_and_time_rules_are_those_of_the_registries(server: LocalServer) -> None:
    offered = server.get("/api/models")
    assert offered["samplers"] == {name: SAMPLERS.help(name) for name in SAMPLERS}
    assert offered["times"] == {name: TIME_RULES.help(name) for name in TIME_RULES}
    assert list(server.get("/api/model?name=classes")["samplers"]) == list(SAMPLERS)
    last = server.sample(model="classes", steps=5, times="steps")[-1]
    assert last["event"] == "error"
    assert last["error"].startswith("time rule 'steps' is for chains in discrete time")


def test_other_processes(server: LocalServer) -> None:
    """A masked process starts from the mask, and has another default sampler, here that of few steps."""
    about = server.get("/api/model?name=masked")
    assert (about["mask_state"], about["max_state"], about["process"]) == (3, 2, "absorbing")
    assert (about["samplers"]["posterior"], about["default_sampler"]) == (None, "multistep")
    assert about["default_steps"] == about["max_steps"] <= 64
    assert about["samplers"]["bridge-nearest"] is not None
    _, start, *steps, last = server.sample(model="masked", steps=12, num=2)
    assert (unpack(start["frame"], (2, 1, 4, 4)) == 3).all()
    assert sum(event["deaths"] - event["births"] for event in steps) == pytest.approx(
        (3 - unpack(last["x"], (2, 16)).astype(float)).sum() / 2
    )


def test_the_device_is_in_the_command_if_it_was_chosen() -> None:
    request = read_request({"model": "m", "steps": 5}, image_model())
    assert " --device cpu " in command(request, "cpu")
    assert "--device" not in command(request, "auto")


def test_newer_weights_are_loaded(tmp_path: Path) -> None:
    folder = str(image_model(seed=0).save(tmp_path / "run"))
    catalogue = Catalogue([folder])
    first = catalogue.open(folder)
    assert catalogue.open(folder) is first
    image_model(seed=1).save(folder)
    os.utime(next(Path(folder).glob("*.safetensors")), ns=(1, 1))
    second = catalogue.open(folder)
    weights = [next(model.predictor.network.parameters()) for model in (first, second)]
    assert not torch.equal(*weights)
    assert catalogue.open(folder) is second


def test_run_folders_are_found(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    image_model().save(runs / "a")
    image_model().save(os.fsdecode(bytes(runs) + b"/\xff"))  # a name that no browser can send
    for name, content in {"broken": "{", "vectors": json.dumps({"shape": [5]})}.items():
        (runs / name).mkdir()
        (runs / name / "model.json").write_text(content)
    (runs / "empty").mkdir()
    (runs / "file").write_text("")
    name = str(runs / "a")
    assert Catalogue(runs=runs).names == [*PRETRAINED, name]
    assert Catalogue([name], runs).names == [name, *PRETRAINED]
    assert Catalogue(runs=tmp_path / "none").names == PRETRAINED
    assert Catalogue(device="meta").names == sorted(PRETRAINED)  # on a GPU the best one is fast enough
    begun = shutil.copytree(runs / "a", runs / "begun", ignore=shutil.ignore_patterns("*.safetensors"))
    with pytest.raises(
        ValueError, match="begun has no weights yet: a training run has them after its first checkpoint"
    ):
        Catalogue([str(begun)])
    catalogue = Catalogue(runs=runs)
    assert catalogue.names == [*PRETRAINED, name]
    shutil.copytree(runs / "a", begun, dirs_exist_ok=True)  # the first checkpoint
    assert catalogue.names == [*PRETRAINED, name, str(begun)]
    shutil.rmtree(runs / "a")
    assert catalogue.names == [*PRETRAINED, str(begun)]
    with pytest.raises(ValueError, match="is not valid UTF-8"):
        Catalogue([os.fsdecode(bytes(runs) + b"/\xff")])


def test_a_checkpoint_may_vanish_while_it_is_listed(tmp_path: Path) -> None:
    folder = image_model().save(tmp_path / "run")
    (folder / "old.safetensors").symlink_to("removed")
    assert Catalogue([str(folder)]).open(str(folder)).shape == (1, 4, 4)


def test_a_broken_model_is_reported_in_one_line(tmp_path: Path) -> None:
    folder, fine = image_model().save(tmp_path / "run"), str(image_model().save(tmp_path / "fine"))
    (weights,) = folder.glob("*.safetensors")
    with LocalServer((str(folder), fine)) as server:
        weights.write_bytes(b"nonsense")
        code, answer = server.request("GET", f"/api/model?name={folder}")
        assert code == 400
        assert "\n" not in answer["error"]
        weights.unlink()
        assert server.request("GET", f"/api/model?name={folder}")[0] == 400
        assert server.post("/api/sample", {"model": str(folder)})[0] == 400
        assert server.sample(model=fine, steps=1, num=1)[-1]["event"] == "done"
