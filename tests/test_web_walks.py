import base64
import io
import itertools
import json
import os
import shlex
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from PIL import Image

import blackout as bo
from blackout.io import SAMPLERS
from blackout.web import limits
from blackout.web.again import EXPRESSIONS, command, program, spread
from blackout.web.models import Catalogue
from blackout.web.orders import read_order
from pages import Page, class_model, integers
from test_cli import status
from test_samples import TIMES, picture_model


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two models, in which the page is started."""
    home = tmp_path_factory.mktemp("home")
    class_model().save(home / "classes")
    picture_model(3).save(home / "my runs" / "colour")
    return home


@pytest.fixture(scope="module")
def page(home: Path) -> Iterator[Page]:
    before = Path.cwd()
    os.chdir(home)
    try:
        with Page(("classes", "my runs/colour"), "cpu") as page:
            yield page
    finally:
        os.chdir(before)


DIGIT = (numpy.arange(784).reshape(28, 28) // 28 % 5 == 0).astype(int)
ORDERS = {
    "digits": {"model": "mnist-binary", "steps": 4, "num": 2, "seed": 5},
    "corrected": {"model": "classes", "steps": 20, "num": 2, "sampler": "poisson", "correctors": 2},
    "a class": {"model": "classes", "steps": 9, "num": 4, "label": 2, "guidance": 2.5, "sampler": "binomial"},
    "colours": {"model": "my runs/colour", "steps": 20, "num": 5, "sampler": "bridge-nearest", "seed": 2**53 - 1},
    "filled in": {
        "model": "mnist-binary",
        "steps": 3,
        "num": 2,
        "known": DIGIT.reshape(-1).tolist(),
        "mask": (numpy.arange(784) < 392).astype(int).tolist(),
        "resample": 1,
    },
}


@pytest.mark.parametrize("name", ORDERS)
def test_a_walk_is_that_of_the_command_and_of_the_program(
    page: Page, home: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit: what the page sends, what its two downloads hold, and what its words give when they are run."""
    monkeypatch.chdir(home)
    order = ORDERS[name]
    *_, last = page.walk(**order)
    model = bo.load(str(order["model"]))
    shape = (order["num"], *(model.shape or ()))
    x = integers(last["x"], shape)
    files = {name: base64.b64decode(text) for name, text in last["files"].items()}

    with numpy.load(io.BytesIO(files["samples.npz"]), allow_pickle=False) as arrays:
        assert arrays["x"].dtype == numpy.uint8
        assert numpy.array_equal(arrays["x"], x)
        assert int(arrays["steps"]) == order["steps"]

    monkeypatch.chdir(tmp_path)
    for link in ("classes", "my runs"):
        Path(link).symlink_to(home / link)
    with zipfile.ZipFile(io.BytesIO(files["walk.zip"])) as archive:
        assert archive.testzip() is None
        archive.extractall()
    assert Path("again.txt").read_text() == f"{last['command']}\n\n{last['python']}"

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
    if name == "filled in":  # the longest; the grid is no different
        return
    assert status([*words[1:-1], "own-grid.png"], monkeypatch) == 0
    with Image.open("own-grid.png") as own, Image.open("samples.png") as sent:
        assert numpy.array_equal(numpy.asarray(own), numpy.asarray(sent))


def test_nothing_was_written_by_the_server(page: Page, home: Path) -> None:
    page.walk(**ORDERS["a class"])
    files = sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())
    weights = "model-00001-of-00001.safetensors"
    expected = [f"{model}/{name}" for model in ("classes", "my runs/colour") for name in (weights, "model.json")]
    assert files == sorted(expected)


def test_every_step_is_told(page: Page) -> None:
    place, start, *steps, last = page.walk(model="my runs/colour", steps=20, num=3, seed=1)
    assert place == {"event": "place", "ahead": 0}
    shape = (3, 3, 4, 4)
    assert not integers(start["frame"], shape).any()  # black
    assert start["times"] == [*TIMES.values.flip(0).tolist(), 0]
    assert [event["step"] for event in steps] == list(range(1, 21))
    assert [event["time"] for event in steps] == start["times"][1:]
    x = integers(last["x"], shape)
    assert numpy.array_equal(integers(steps[-1]["frame"], shape), x)
    assert steps[-1]["mean"] == pytest.approx(x.mean())
    # Under pure death every unit is born once, and none dies on the way back.
    assert sum(event["births"] for event in steps) == pytest.approx(x.sum() / 3)
    assert all(event["deaths"] == 0 for event in steps)
    states = [integers(event["frame"], shape) for event in (start, *steps)]
    assert steps[11]["births"] == pytest.approx((states[12].astype(int) - states[11]).sum() / 3)
    rows = base64.b64decode(last["files"]["walk.csv"]).decode().splitlines()
    assert rows[0] == "step,time,mean,births,deaths"
    assert len(rows) == 21
    assert float(rows[20].split(",")[2]) == steps[-1]["mean"]


def test_a_long_walk_sends_some_frames_and_the_last(tmp_path: Path) -> None:
    folder = str(class_model(steps=200).save(tmp_path / "long"))
    with Page((folder,)) as page:
        _, start, *steps, last = page.walk(model=folder, steps=200, num=1)
    shown = [event["step"] for event in steps if "frame" in event]
    assert len(shown) == limits.FRAMES
    assert shown[-1] == 200
    assert max(b - a for a, b in itertools.pairwise(shown)) == 4
    assert steps[-1]["frame"] == last["x"]
    assert "frame" in start


def test_what_is_known_is_kept_and_where_draws_differ_is_shown(page: Page) -> None:
    order = {**ORDERS["filled in"], "num": 4}
    *_, last = page.walk(**order)
    x = integers(last["x"], (4, 28, 28))
    assert (x[:, :14] == DIGIT[:14]).all()
    deviation = x.std(axis=0)
    levels = integers(last["spread"], (28, 28))
    assert not levels[:14].any()
    assert levels.max() == 255
    assert numpy.abs(levels - 255 * deviation / deviation.max()).max() <= 0.5
    with Image.open(io.BytesIO(base64.b64decode(last["files"]["spread.png"]))) as picture:
        assert picture.mode == "L"
    assert not spread(numpy.ones((3, 1, 2, 2), numpy.uint8)).any()  # no division by nothing


@pytest.mark.parametrize("correctors", [0, 2])
@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_are_written_as_they_are_made(name: str, correctors: int) -> None:
    assert set(EXPRESSIONS) == set(SAMPLERS)
    model = law_model() if name == "posterior" else picture_model()
    order = read_order({"model": "m", "sampler": name, "steps": 5, "correctors": correctors}, model)
    line = program(model, order).splitlines()[-1]
    written = eval(line.partition("sampler=")[2].rpartition(", seed=")[0], {"bo": bo})
    made = SAMPLERS[name](corrector_steps=correctors)
    assert type(written) is type(made)
    plain = [{k: v for k, v in vars(s).items() if not k.startswith("_")} for s in (written, made)]
    assert plain[0] == plain[1]


def law_model() -> bo.DiffusionModel:
    x = torch.randint(0, 3, (8, 1, 4, 4), generator=torch.Generator().manual_seed(0))
    times = bo.ObservationTimes.equalize(bo.Absorbing(4), num_steps=12)
    return bo.DiffusionModel.for_data(x, bo.Absorbing(4), times, width=8, blocks=1)


def test_other_processes_walk_too(tmp_path: Path) -> None:
    """A process with labels that are masked: it starts from the mask, and `bridge` means what the model allows."""
    folder = str(law_model().save(tmp_path / "labels"))
    with Page((folder,)) as page:
        about = page.ask("GET", f"/api/model?name={folder}")[1]
        assert (about["mask_state"], about["largest"], about["process"]) == (3, 2, "Absorbing")
        assert about["samplers"]["posterior"] is None
        assert about["samplers"]["bridge-nearest"] is not None
        _, start, *steps, last = page.walk(model=folder, steps=12, num=2)
    assert (integers(start["frame"], (2, 1, 4, 4)) == 3).all()
    assert sum(event["deaths"] - event["births"] for event in steps) == pytest.approx(
        (3 - integers(last["x"], (2, 16)).astype(float)).sum() / 2
    )
    assert "sampler=bo.PosteriorBridge()" in last["python"]
    assert "--sampler bridge" in last["command"]
    assert "--device" not in last["command"]  # the usual one


def test_the_device_is_in_the_command_if_it_was_chosen() -> None:
    order = read_order({"model": "m", "steps": 5}, picture_model())
    assert " --device cpu " in command(order, "cpu")
    assert "--device" not in command(order, "auto")


def test_newer_weights_are_read(tmp_path: Path) -> None:
    folder = str(class_model(seed=0).save(tmp_path / "run"))
    catalogue = Catalogue([folder])
    first = catalogue.open(folder)
    assert catalogue.open(folder) is first
    class_model(seed=1).save(folder)
    os.utime(next(Path(folder).glob("*.safetensors")), ns=(1, 1))
    second = catalogue.open(folder)
    weights = [next(model.predictor.network.parameters()) for model in (first, second)]
    assert not torch.equal(*weights)
    assert catalogue.open(folder) is second


def test_folders_of_runs_are_searched(tmp_path: Path) -> None:
    class_model().save(tmp_path / "runs" / "a")
    (tmp_path / "runs" / "empty").mkdir()
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "model.json").write_text("{")
    (tmp_path / "runs" / "vectors").mkdir()
    (tmp_path / "runs" / "vectors" / "model.json").write_text(json.dumps({"shape": [5]}))
    (tmp_path / "runs" / "file").write_text("")
    name = str(tmp_path / "runs" / "a")
    assert Catalogue(runs=tmp_path / "runs").names == ["cifar10", "mnist-binary", "seven-segment", name]
    assert Catalogue([name], tmp_path / "runs").names == [name, "cifar10", "mnist-binary", "seven-segment"]
    assert Catalogue(runs=tmp_path / "none").names == ["cifar10", "mnist-binary", "seven-segment"]


def test_names_that_no_browser_can_say_are_left_out(tmp_path: Path) -> None:
    folder = os.fsdecode(bytes(tmp_path) + b"/runs/\xff")
    class_model().save(folder)
    assert Catalogue(runs=tmp_path / "runs").names == ["cifar10", "mnist-binary", "seven-segment"]
    with pytest.raises(ValueError, match="is no name in UTF-8"):
        Catalogue([folder])


def test_a_checkpoint_may_vanish_while_it_is_looked_at(tmp_path: Path) -> None:
    folder = class_model().save(tmp_path / "run")
    (folder / "old.safetensors").symlink_to("removed")  # listed, but not there
    assert Catalogue([str(folder)]).open(str(folder)).num_classes == 3


def test_a_model_that_cannot_be_read_is_told_in_one_line(tmp_path: Path) -> None:
    folder = class_model().save(tmp_path / "run")
    (weights,) = folder.glob("*.safetensors")
    with Page((str(folder),)) as page:
        weights.write_bytes(b"nonsense")
        code, answer = page.ask("GET", f"/api/model?name={folder}")
        assert code == 400
        assert "\n" not in answer["error"]
        weights.unlink()
        assert page.ask("GET", f"/api/model?name={folder}")[0] == 400
        assert page.post("/api/walk", {"model": str(folder), "visitor": "a"})[0] == 400
        assert page.walk(model="mnist-binary", steps=1, num=1)[-1]["event"] == "done"
