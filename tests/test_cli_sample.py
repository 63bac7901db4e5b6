from pathlib import Path

import numpy
import pytest
from PIL import Image

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
