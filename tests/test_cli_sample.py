from pathlib import Path

import numpy
import pytest
import torch
from PIL import Image

import blackout as bo
from test_cli import blackout_command, status
from test_samples import count_model, picture_model, read

SMALL = ["--num", "5", "--steps", "4"]


def test_sample_from_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train", "digits", "--width", "8", "--blocks", "1", "--batch-size", "8", "--steps", "2", "--out", "run"]
    assert status([*words, "--class-conditional"], monkeypatch) == 0
    capsys.readouterr()
    assert status(["sample", "run", *SMALL], monkeypatch) == 0
    captured = capsys.readouterr()
    assert captured.out == "5 samples: samples.png\n"
    assert "10 classes" in captured.err
    assert status(["sample", "run", *SMALL, "--class", "3", "--out", "a.npz", "--batch-size", "2"], monkeypatch) == 0
    assert status(["sample", "run", *SMALL, "--class", "3", "--out", "b.npz", "--batch-size", "5"], monkeypatch) == 0
    assert numpy.array_equal(read(Path("a.npz"))["x"], read(Path("b.npz"))["x"])
    guided = ["--label", "3", "--guidance"]
    assert status(["sample", "run", *SMALL, *guided, "1", "--out", "d.npz"], monkeypatch) == 0
    assert numpy.array_equal(read(Path("a.npz"))["x"], read(Path("d.npz"))["x"])
    assert status(["sample", "run", *SMALL, *guided, "2.5", "--out", "e.npz"], monkeypatch) == 0
    assert status(["sample", "run", *SMALL, *guided, "-1", "--out", "f.npz"], monkeypatch) == 2
    assert status(["sample", "run", *SMALL, "--class", "10", "--out", "c.npz"], monkeypatch) == 2
    assert status(["sample", "run", *SMALL, "--out", "folder"], monkeypatch) == 0
    assert len(list(Path("folder").glob("*.png"))) == 5


@pytest.mark.parametrize("channels", [1, 3])
def test_walk(channels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    picture_model(channels).save("model")
    assert status(["sample", "model", *SMALL, "--walk", "figures/walk.png"], monkeypatch) == 0
    with Image.open("figures/walk.png") as picture:
        assert picture.height > 500


def test_few_steps_are_taken_by_length_and_any_at_the_times_that_one_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = picture_model()
    model.save("model")
    for grid in ("", "fisher", "length", "variance"):
        words = ["--grid", grid] if grid else []
        assert status(["sample", "model", *SMALL, *words, "--out", f"{grid}samples.npz"], monkeypatch) == 0
    own, end = model.times, model.times.t_end
    assert own.is_fisher(model.process)
    assert torch.equal(model.walk().values, own.values)
    assert torch.equal(model.walk(len(own)).values, own.values)
    found = {"": model.sample(5, 4)}
    assert model.walks_by(4) == "length"
    for grid in ("fisher", "length", "variance"):
        wanted = bo.ObservationTimes.equalize(model.process, grid, len(own), end)
        assert torch.equal(model.walk_by(grid).walk(4).values, wanted.subset(4).values)
        assert torch.equal(model.walk().values, wanted.values)
        assert model.walks_by(4) == grid
        found[grid] = model.sample(5, 4)
    for grid, x in found.items():
        assert numpy.array_equal(read(Path(f"{grid}samples.npz"))["x"], x)
        assert torch.equal(x, found["length"]) == (grid in ("", "length"))
    assert torch.equal(bo.load("model").walk(4).values, picture_model().walk(4).values)


def test_times_that_somebody_chose_are_kept() -> None:
    """Of few steps too, and by a network that knows no others."""
    model = picture_model()
    model.times = bo.ObservationTimes.uniform(len(model.times))
    assert torch.equal(model.walk(4).values, model.times.subset(4).values)
    model = picture_model()
    model.predictor.conditioning = "index"
    assert torch.equal(model.walk(4).values, model.times.subset(4).values)
    with pytest.raises(ValueError, match="by their index alone"):
        model.walk_by("length")


def test_what_cannot_be_a_picture_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    count_model().save("model")
    assert status(["sample", "model", *SMALL], monkeypatch) == 2
    assert "out must end in .npz" in capsys.readouterr().err
    assert status(["sample", "model", *SMALL, "--out", "a.npz", "--walk", "w.png"], monkeypatch) == 2
    assert status(["sample", "model", *SMALL, "--out", "a.npz"], monkeypatch) == 0


def test_pickled_weights_are_refused_by_a_real_process(tmp_path: Path) -> None:
    picture_model().save(tmp_path / "model")
    (weights,) = (tmp_path / "model").glob("*.safetensors")
    weights.write_bytes(b"\x80\x02cos\nsystem\n(S'touch ran'\ntR.")
    result = blackout_command("sample", str(tmp_path / "model"))
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert "pickled code, which is never loaded" in result.stderr


def test_broken_models_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = picture_model().save("model")
    (weights,) = model.glob("*.safetensors")
    good, description = weights.read_bytes(), (model / "model.json").read_text()
    broken = {weights: [good[: len(good) // 2], b"", None], model / "model.json": [b"{}", b"[]", b"{", None]}
    for path, contents in broken.items():
        for content in contents:
            weights.write_bytes(good)
            (model / "model.json").write_text(description)
            path.unlink() if content is None else path.write_bytes(content)
            assert status(["sample", "model"], monkeypatch) == 2
            error = capsys.readouterr().err
            assert error.startswith("blackout: model")
            assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_known_parts_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = picture_model()
    model.save("model")
    assert model.shape is not None
    assert model.max_state is not None
    x = numpy.random.default_rng(0).integers(model.max_state + 1, size=model.shape)
    half = x.shape[-1] // 2
    numpy.save("known.npy", x)
    numpy.savez("known.npz", x=x[None])
    levels = numpy.rint(x[0] * 255 / model.max_state).astype(numpy.uint8)
    Image.fromarray(levels).save("known.png")
    numpy.save("mask.npy", numpy.arange(x.shape[-1]) < half)
    left = numpy.broadcast_to(numpy.arange(x.shape[-1]) < half, x.shape[1:])
    Image.fromarray(numpy.where(left, 255, 0).astype(numpy.uint8)).save("mask.png")
    words = ["sample", "model", "--num", "3", "--steps", "2", "--resample", "1"]
    outputs = []
    for k, (known, mask) in enumerate(
        [("known.npy", "left"), ("known.npz", "mask.npy"), ("known.png", "mask.png"), ("known.png", "left")]
    ):
        given = ["--known", known, "--mask", mask, "--out", f"{k}.npz"]
        assert status([*words, *given], monkeypatch) == 0, capsys.readouterr().err
        outputs.append(read(Path(f"{k}.npz"))["x"])
        assert (outputs[-1][..., :half] == x[..., :half]).all()
        assert numpy.array_equal(outputs[-1], outputs[0])
    assert status([*words, "--known", "known.npy", "--mask", "left", "--walk", "w.png"], monkeypatch) == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--known", "none.npy", "--mask", "left"], "none.npy: no such file"),
        (["--known", "none.png", "--mask", "left"], "none.png: No such file"),
        (["--known", "known.npy", "--mask", "middle"], "mask must be one of left, right, top, bottom, centre or"),
        (["--known", "known.npy", "--mask", "none.npy"], "none.npy: no such file"),
        (["--known", "known.npy"], "known and mask go together, got known alone"),
        (["--mask", "left"], "known and mask go together, got mask alone"),
        (["--resample", "2"], "known and mask go together, got resample alone"),
        (["--known", "known.npy", "--mask", "left", "--resample", "-1"], "resample must be at least 0, got -1"),
        (["--known", "float.npy", "--mask", "left"], "states are integers"),
        (["--known", "large.npy", "--mask", "left"], "known must be at most"),
        (["--known", "small.npy", "--mask", "left"], "known must have shape"),
        (["--known", "known.npy", "--mask", "small.npy"], "mask must have shape"),
        (["--known", "known.npy", "--mask", "float.npy"], "expected booleans, or zeros and ones"),
        (["--known", "known.npy", "--mask", "all.npy"], "mask must leave something to be drawn"),
        (["--steps", "5000"], "steps must be at most"),
        (["--out", "mine.png"], "--out: mine.png is there already, and holds no samples; choose another, or remove it"),
        (["--grid", "beauty"], "grid must be one of 'fisher', 'entropy', 'variance', 'kl', 'length', got 'beauty'"),
        (["--guidance", "2"], "guidance needs a label"),
        (["--label", "1", "--guidance", "2"], "number of classes, 0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_given_is_refused_in_one_line(
    given: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    model = picture_model()
    model.save("model")
    assert model.shape is not None
    for name, x in {
        "known": numpy.zeros(model.shape, int),
        "float": numpy.full(model.shape, 0.5),
        "large": numpy.full(model.shape, 1000),
        "small": numpy.zeros((3, 2), numpy.uint8),
        "all": numpy.ones(model.shape, bool),
    }.items():
        numpy.save(f"{name}.npy", x)
    Path("mine.png").write_bytes(b"somebody's picture")
    assert status(["sample", "model", *SMALL, *given], monkeypatch) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not Path("samples.png").exists()
