import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch
from PIL import Image, ImageSequence

import blackout as bo
from blackout.io import write_samples
from blackout.io.images import as_bytes, image_grid
from pages import image_model as page_model
from test_cli import blackout_command, status
from test_samples import count_model, image_model, read

SMALL = ["--num", "5", "--steps", "4"]


def test_sample_from_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train", "digits", "--width", "8", "--blocks", "1", "--batch-size", "8", "--steps", "2", "--out", "run"]
    assert status([*words, "--class-conditional"], monkeypatch) == 0
    capsys.readouterr()
    assert status(["sample", "run", *SMALL], monkeypatch) == 0
    captured = capsys.readouterr()
    assert captured.out == "5 samples: samples.png\n"
    assert "10 classes: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9; --class chooses one, or each" in captured.err
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


def animals(names: tuple[str, ...] | None = ("cat", "dog", "wild, small")) -> bo.DiffusionModel:
    """A class-conditional model with weights that make labels matter."""
    model = page_model(num_classes=3)
    for weights in model.predictor.parameters():
        weights.data += 0.1 * torch.randn(weights.shape, generator=torch.Generator().manual_seed(1))
    return model.with_record(class_names=names)


def test_classes_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    model = animals()
    model.save("model")
    for k, text in enumerate(("dog", "1", "wild, small", "dog,cat", "0, dog")):
        words = ["sample", "model", "--num", "4", "--steps", "4", "--class", text, "--out", f"{k}.npz"]
        assert status(words, monkeypatch) == 0
        label = [[1] * 4, [1] * 4, [2] * 4, [1, 1, 0, 0], [0, 0, 1, 1]][k]
        assert numpy.array_equal(read(Path(f"{k}.npz"))["x"], model.sample(4, 4, label=label).numpy()), text
    capsys.readouterr()
    words = ["sample", "model", "--steps", "3", "--guidance", "2", "--class", "each"]
    assert status([*words, "--out", "each.png", "--trajectory", "t.png"], monkeypatch) == 0
    assert capsys.readouterr().out.startswith("24 samples: each.png\n")
    x = model.sample(24, 3, label=torch.arange(3).repeat_interleave(8), guidance=2.0).numpy()
    with Image.open("each.png") as image:
        assert numpy.array_equal(numpy.asarray(image), image_grid(as_bytes(x, 16), 8)[0])  # a row for each class
    assert status([*words, "--num", "6", "--out", "two.npz"], monkeypatch) == 0
    assert len(read(Path("two.npz"))["x"]) == 6


def test_names_count_before_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders called 10, 2 and 30: `--class 2` is the second class, not the third."""
    monkeypatch.chdir(tmp_path)
    model = animals(("10", "2", "30"))
    model.save("model")
    for text, number in (("2", 1), ("1", 1), ("30", 2)):
        assert status(["sample", "model", *SMALL, "--class", text, "--out", f"{text}.npz"], monkeypatch) == 0
        assert numpy.array_equal(read(Path(f"{text}.npz"))["x"], model.sample(5, 4, label=number).numpy())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--class", "dgo"], "--class must be one of cat, dog, wild, small, got 'dgo'; did you mean dog?"),
        (["--class", "cat,emu"], "--class must be one of cat, dog, wild, small, got 'emu'"),
        (["--class", "each", "--num", "7"], "--num must be a multiple of 3, the number of classes in --class, got 7"),
        (["--class", "each", "--num", "0"], "--num must be a multiple of 3, the number of classes in --class, got 0"),
        (["--class", "3"], "--class must be less than the number of classes, 3, got 3"),
        (["--class", "0,3"], "--class must be less than the number of classes, 3, got 3"),
        (["--class", "-1"], "--class must be one of cat, dog, wild, small, got '-1'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_unknown_classes_are_rejected(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    animals().save("model")
    assert status(["sample", "model", "--steps", "2", *words], monkeypatch) == 2
    assert capsys.readouterr().err == f"blackout: {message}\n"
    assert not Path("samples.png").exists()


@pytest.mark.parametrize("channels", [1, 3])
def test_trajectory(channels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    image_model(channels).save("model")
    assert status(["sample", "model", *SMALL, "--trajectory", "figures/trajectory.png"], monkeypatch) == 0
    assert status(["sample", "model", *SMALL, "--trajectory", "figures/trajectory.png"], monkeypatch) == 0
    with Image.open("figures/trajectory.png") as image:
        assert image.height > 500


@pytest.mark.parametrize("channels", [1, 3])
def test_animations(channels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Black, then each step with its largest state white, then the samples as they are, for two seconds."""
    monkeypatch.chdir(tmp_path)
    image_model(channels).save("model")
    assert status(["sample", "model", *SMALL, "--trajectory", "figures/a.gif"], monkeypatch) == 0
    assert [path.name for path in Path("figures").iterdir()] == ["a.gif"]
    model = bo.load("model")
    states = model.sample(5, 4, trajectory=True)
    with Image.open("figures/a.gif") as image:
        frames, durations = [], []
        for frame in ImageSequence.Iterator(image):
            frames.append(numpy.asarray(frame.convert("RGB")))
            durations.append(frame.info["duration"])
        assert image.info["loop"] == 0
    white = [int(x.max()) or 1 for x in states[:-1]] + [model.max_state]
    grids = [image_grid(as_bytes(x.numpy(), most)).transpose(1, 2, 0) for x, most in zip(states, white, strict=True)]
    different = [k == 0 or not numpy.array_equal(grid, grids[k - 1]) for k, grid in enumerate(grids)]
    grids = list(itertools.compress(grids, different))  # Pillow shows equal ones once, for longer
    assert durations[-1] == 2000
    assert sum(durations) == 4 * 500 + 2000
    for frame, grid in zip(frames, grids, strict=True):
        assert numpy.abs(frame - grid.astype(int)).max() <= (0 if channels == 1 else 48)  # 256 colours

    many = torch.arange(200).reshape(200, 1, 1, 1, 1).expand(200, 1, channels, 2, 2)
    with Image.open(bo.io.write_animation("many.gif", many, 199, scaled=False)) as image:
        assert image.n_frames == 61
        shown = [numpy.asarray(frame.convert("L"))[9, 9] for frame in ImageSequence.Iterator(image)]
    assert shown == sorted(shown)
    assert (shown[0], shown[-1]) == (0, 255)
    masked = torch.tensor([5, 2]).reshape(2, 1, 1, 1, 1)
    with Image.open(bo.io.write_animation("masked.gif", masked, 4, mask_state=5)) as image:
        assert numpy.asarray(image.convert("L"))[9, 9] == 0
    with pytest.raises(ValueError, match=r"trajectory must have shape \(T \+ 1, batch, 1 or 3, height, width\), got"):
        bo.io.write_animation("a.gif", many[0])
    with pytest.raises(ValueError, match=r"path must end in \.gif or \.mp4, got a\.avi"):
        bo.io.write_animation("a.avi", many)


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg is not installed")
def test_an_mp4_is_written_by_ffmpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page_model(3).save("model")
    assert status(["sample", "model", *SMALL, "--out", "a.png", "--trajectory", "a.mp4"], monkeypatch) == 0
    described = subprocess.run(["ffmpeg", "-i", "a.mp4"], capture_output=True, text=True).stderr
    assert "yuv420p" in described
    assert "Duration: 00:00:04.5" in described  # nine frames of half a second: the last one is held
    Path("folder.mp4").mkdir()
    with pytest.raises(OSError, match=r"folder\.mp4"):
        bo.io.write_animation("folder.mp4", torch.zeros(2, 1, 1, 4, 4))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.mp4", "a.png", "folder.mp4", "model"]


def test_files_for_trajectories_are_checked_before_sampling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page_model().save("model")
    monkeypatch.setenv("PATH", str(tmp_path))
    words = ["sample", "model", *SMALL, "--trajectory"]
    assert status([*words, "a.mp4"], monkeypatch) == 1
    message = "a.mp4 needs the program ffmpeg, which is not installed; a .gif needs no other program"
    assert capsys.readouterr().err == f"blackout: {message}\n"
    assert status([*words, "a.jpg"], monkeypatch) == 2
    message = "--trajectory must end in .png, .pdf, .svg, .gif, .mp4, got a.jpg"
    assert capsys.readouterr().err == f"blackout: {message}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_time_grids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few steps follow the rule `length` by default; the job records the rule, or the checksum of the times."""
    monkeypatch.chdir(tmp_path)
    model = image_model()
    model.save("model")
    found, jobs = {}, {}
    for rule in ("", "fisher", "length", "variance"):
        words = ["--times", rule] if rule else []
        assert status(["sample", "model", *SMALL, *words, "--out", f"{rule}samples.npz"], monkeypatch) == 0
        arrays = read(Path(f"{rule}samples.npz"))
        found[rule], jobs[rule] = arrays["x"], json.loads(str(arrays["job"]))
        assert numpy.array_equal(found[rule], model.sample(5, 4, times=rule or None).numpy())
    assert [rule for rule, x in found.items() if numpy.array_equal(x, found["length"])] == ["", "length"]
    assert {rule: job["times"] for rule, job in jobs.items()} == {"": "length"} | {rule: rule for rule in jobs if rule}
    digests = set()
    for times in (bo.ObservationTimes.uniform(7), bo.ObservationTimes.uniform(8)):
        arrays = read(write_samples(model, "own.npz", 5, num_steps=4, times=times))
        assert numpy.array_equal(arrays["x"], model.sample(5, 4, times=times).numpy())
        digests.add(json.loads(str(arrays["job"]))["times"])
    assert [len(digest) for digest in digests] == [64, 64]


def test_samples_that_are_not_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    count_model().save("model")
    assert status(["sample", "model", *SMALL], monkeypatch) == 0
    assert capsys.readouterr().out == "5 samples: samples.npz\n"
    assert status(["sample", "model", *SMALL, "--out", "a.png"], monkeypatch) == 2
    assert "out must end in .npz" in capsys.readouterr().err
    assert status(["sample", "model", *SMALL, "--out", "a.npz", "--trajectory", "t.png"], monkeypatch) == 2
    assert status(["sample", "model", *SMALL, "--out", "a.npz"], monkeypatch) == 0


def test_pickled_weights_are_rejected(tmp_path: Path) -> None:
    image_model().save(tmp_path / "model")
    (weights,) = (tmp_path / "model").glob("*.safetensors")
    weights.write_bytes(b"\x80\x02cos\nsystem\n(S'touch ran'\ntR.")
    result = blackout_command("sample", str(tmp_path / "model"))
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert "pickled code, which is never loaded" in result.stderr


def test_damaged_models_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = image_model().save("model")
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


def test_observed_entries_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = image_model()
    model.save("model")
    assert model.shape is not None
    assert model.max_state is not None
    x = numpy.random.default_rng(0).integers(model.max_state + 1, size=model.shape)
    half = x.shape[-1] // 2
    numpy.save("observed.npy", x)
    numpy.savez("observed.npz", x=x[None])
    levels = numpy.rint(x[0] * 255 / model.max_state).astype(numpy.uint8)
    Image.fromarray(levels).save("observed.png")
    numpy.save("mask.npy", numpy.arange(x.shape[-1]) < half)
    left = numpy.broadcast_to(numpy.arange(x.shape[-1]) < half, x.shape[1:])
    Image.fromarray(numpy.where(left, 255, 0).astype(numpy.uint8)).save("mask.png")
    words = ["sample", "model", "--num", "3", "--steps", "2", "--resample", "1"]
    outputs = []
    for k, (observed, mask) in enumerate(
        [("observed.npy", "left"), ("observed.npz", "mask.npy"), ("observed.png", "mask.png"), ("observed.png", "left")]
    ):
        given = [("--observed", "--known")[k % 2], observed, "--mask", mask, "--out", f"{k}.npz"]
        assert status([*words, *given], monkeypatch) == 0, capsys.readouterr().err
        outputs.append(read(Path(f"{k}.npz"))["x"])
        assert (outputs[-1][..., :half] == x[..., :half]).all()
        assert numpy.array_equal(outputs[-1], outputs[0])
    assert status([*words, "--observed", "observed.npy", "--mask", "left", "--trajectory", "t.png"], monkeypatch) == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--observed", "none.npy", "--mask", "left"], "none.npy: no such file"),
        (["--observed", "none.png", "--mask", "left"], "none.png: No such file"),
        (["--observed", "fine.npy", "--mask", "middle"], "mask must be one of left, right, top, bottom, centre or"),
        (["--observed", "fine.npy", "--mask", "none.npy"], "none.npy: no such file"),
        (["--observed", "fine.npy"], "got observed alone"),
        (["--mask", "left"], "got mask alone"),
        (["--resample", "2"], "got resample alone"),
        (["--observed", "fine.npy", "--mask", "left", "--resample", "-1"], "resample must be at least 0, got -1"),
        (["--observed", "float.npy", "--mask", "left"], "observed: float.npy: x must hold integers, got float64"),
        (["--observed", "large.npy", "--mask", "left"], "observed must be at most"),
        (["--observed", "small.npy", "--mask", "left"], "observed must have shape"),
        (["--observed", "fine.npy", "--mask", "small.npy"], "mask must have"),
        (["--observed", "fine.npy", "--mask", "float.npy"], "expected booleans, or zeros and ones"),
        (["--observed", "fine.npy", "--mask", "all.npy"], "mask must leave entries to sample"),
        (["--steps", "5000"], "steps must be at most"),
        (["--out", "mine.png"], "--out: mine.png exists and holds no samples; choose another file, or remove it"),
        (["--trajectory", "mine.png"], "--trajectory: mine.png exists and is no sampling trajectory; choose another"),
        (["--times", "magic"], "'--times': must be one of fisher, "),
        (["--guidance", "2"], "guidance needs a label"),
        (["--label", "1", "--guidance", "2"], "--class 1 needs a class-conditional model, but this one has no classes"),
        (["--class", "cat"], "--class cat needs a class-conditional model, but this one has no classes"),
        (["--class", "each"], "--class each needs a class-conditional model, but this one has no classes"),
        (["--sampler", "posterior"], "PosteriorBridge needs a head that gives a distribution"),
        (["--volume", "4"], "PosteriorBridge needs a head that gives a distribution"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_options_are_rejected_with_one_line(
    given: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    model = image_model()
    model.save("model")
    assert model.shape is not None
    for name, x in {
        "fine": numpy.zeros(model.shape, int),
        "float": numpy.full(model.shape, 0.5),
        "large": numpy.full(model.shape, 1000),
        "small": numpy.zeros((3, 2), numpy.uint8),
        "all": numpy.ones(model.shape, bool),
    }.items():
        numpy.save(f"{name}.npy", x)
    Path("mine.png").write_bytes(b"not an image")
    assert status(["sample", "model", *SMALL, *given], monkeypatch) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not Path("samples.png").exists()


def test_a_missing_matplotlib_is_reported_before_sampling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    words = "sample seven-segment --num 2 --steps 2 --out a.png --trajectory b.png"
    assert status(words.split(), monkeypatch) == 1
    assert "pip install 'blackout-diffusion[figures]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
