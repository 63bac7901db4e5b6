"""blackout figures: the figures by name, their captions, and the records that they are drawn from."""

import json
import re
import shlex
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import typer
from PIL import Image

import blackout as bo
from blackout.cli import app
from blackout.figures import context as studio
from blackout.figures.catalogue import FIGURES, draw
from blackout.figures.context import Studio
from blackout.figures.record import Record, Uncertain
from blackout.figures.recorded import heads, steps
from blackout.figures.write import write
from test_cli import status
from test_samples import count_model, picture_model

ROOT = Path(__file__).parent.parent


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Models that ship are replaced by tiny ones; the names that were loaded."""
    loaded: list[str] = []

    def load(name: str) -> bo.DiffusionModel:
        loaded.append(name)
        return picture_model(3, 255) if name == "cifar10" else picture_model(1, 1)

    monkeypatch.setattr(studio, "load", load)
    return loaded


def record(columns: list[str], rows: list[tuple[Any, ...]]) -> Record:
    return Record(
        id="one", group="A group", order=1, title="A title", kind="measured", columns=tuple(columns), rows=tuple(rows),
        note="A note.", hardware="an abacus", command=("blackout recipes",), commit="0123abc", date="2026-11-15",
    )  # fmt: skip


def test_the_command_draws_and_says_how_to_draw_again(
    tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    wanted = ["generation-scaled", "samples-mnist-binary"]
    few = ["--num", "2", "--steps", "3", "--out", "out"]
    assert status(["figures", *few, *(word for name in wanted for word in ("--only", name))], monkeypatch) == 0
    assert tiny == ["cifar10", "mnist-binary"]
    assert capsys.readouterr().out.splitlines()[-1] == "captions: out/captions.md"
    assert {file.name for file in Path("out").iterdir()} == {
        "captions.md", *(f"{name}.{kind}" for name in wanted for kind in ("svg", "png", "txt")),
    }  # fmt: skip
    for name in wanted:
        with Image.open(f"out/{name}.png") as picture:
            assert picture.width > 300
        assert Path(f"out/{name}.svg").read_text().startswith("<?xml")
    seen, again = Path("out/samples-mnist-binary.txt").read_text().strip().split("\n\n")
    assert "The first 2 samples of the model `mnist-binary`" in seen
    assert again == "blackout figures --only samples-mnist-binary --num 2 --steps 3"

    words = shlex.split(again)[2:]
    before = Path("out/samples-mnist-binary.png").read_bytes()
    assert status(["figures", *words, "--out", "again"], monkeypatch) == 0
    assert Path("again/samples-mnist-binary.png").read_bytes() == before
    assert status(["figures", "--only", "times", "--out", "out", "--vector", "pdf"], monkeypatch) == 0
    page = Path("out/captions.md").read_text()
    assert page.index("times.png") < page.index("generation-scaled.png")  # earlier figures stay on the page
    assert "`blackout figures --only times --vector pdf`" in page
    assert Path("out/times.pdf").exists()


def test_the_list(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["figures", "--list"], monkeypatch) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(FIGURES)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "monalisa"], "name must be one of 'forward', .*, got 'monalisa'"),
        (["--out", "file"], "out must be a folder, but file is a file"),
        (["--out", "file/inside"], "file/inside: Not a directory"),
        (["--data", "nowhere"], "data must be there, but nowhere does not exist"),
        (["--only", "forward", "--data", "vectors.npy"], r"data must hold pictures, but those of vectors.npy .*\(5,\)"),
        (["--results", "nowhere"], "results must be there, but nowhere does not exist"),
        (["--results", "."], "folder must hold records"),
        (
            ["--only", "heads", "--results", "other"],
            "results must hold a record 'cifar10-heads-training', but other has one",
        ),
        (["--vector", "eps"], "vector must be one of 'svg', 'pdf', got 'eps'"),
        (["--seed", "-1"], "seed must be at least 0, got -1"),
        (["--num", "0"], "num must be at least 1, got 0"),
        (["--steps", "0"], "steps must be at least 1, got 0"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("text")
    numpy.save("vectors.npy", numpy.ones((3, 5), dtype=numpy.int64))
    Path("other").mkdir()
    other = json.loads((ROOT / "results/cifar10-heads.json").read_text()) | {"id": "one"}
    Path("other/one.json").write_text(json.dumps(other))
    assert status(["figures", *words], monkeypatch) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(said, error)


def test_without_matplotlib_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import builtins

    there = builtins.__import__

    def gone(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] == "matplotlib":
            raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")
        return there(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", gone)
    assert status(["figures", "--only", "times", "--out", str(tmp_path)], monkeypatch) == 1
    assert "pip install 'blackout-diffusion[figures]'" in capsys.readouterr().err


def test_pictures_of_ones_own_are_destroyed(tiny: list[str], tmp_path: Path) -> None:
    x = torch.randint(0, 200, (3, 1, 5, 5), generator=torch.Generator().manual_seed(0))
    numpy.save(tmp_path / "mine.npy", x.numpy())
    figure = draw("forward", Studio(data=tmp_path / "mine.npy"))
    shown = numpy.asarray(figure.axes[0].get_images()[0].get_array())
    assert numpy.allclose(shown / shown.max(), x[0, 0] / x[0, 0].max())
    assert tiny == []
    assert "the first pictures of mine" in FIGURES["forward"].plate(Studio(data=tmp_path / "mine.npy")).caption


def test_cifar10_is_found_beside_other_data(tiny: list[str], tmp_path: Path) -> None:
    rows = numpy.arange(10_000 * 3073, dtype=numpy.uint32) % 251
    (tmp_path / "cifar-10-batches-bin").mkdir()
    for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"):
        labelled = rows.astype(numpy.uint8).reshape(10_000, 3073)
        labelled[:, 0] %= 10
        (tmp_path / f"cifar-10-batches-bin/{name}.bin").write_bytes(labelled.tobytes())
    Image.new("L", (4, 4)).save(tmp_path / "another.png")
    x, largest, origin = Studio(data=tmp_path).pictures(2)
    assert (x.shape, largest, origin) == ((2, 3, 32, 32), 255, "the first pictures of cifar10")
    assert x[0, 0, 0, :3].tolist() == [1, 2, 3]
    assert tiny == []


def test_samples_of_its_own_are_destroyed_otherwise(tiny: list[str]) -> None:
    one = Studio(num=2, steps=3)
    plates = [FIGURES[name].plate(one) for name in ("forward", "forward-scaled")]
    assert tiny == ["cifar10"]  # which walks once for both
    assert all("samples of the model `cifar10`" in plate.caption for plate in plates)
    assert plates[0].caption != plates[1].caption


def test_samples_are_those_of_the_command_sample(tiny: list[str]) -> None:
    walks = Studio(num=3, steps=4, seed=5).walks("cifar10")
    assert torch.equal(walks.samples, picture_model(3, 255).sample(3, 4, seed=5))
    assert len(walks.times) == 4


def test_steps_against_quality() -> None:
    rows = [
        ("held-out data", None, None, Decimal("2.5")),
        ("bridge", 100, 0, Decimal("4")),
        ("bridge", 10, 0, Decimal("9")),
        ("bridge", 10, 2, Uncertain(Decimal("8"), Decimal("0.1"))),
        ("poisson", 10, 0, None),
    ]
    plate = steps(record(["sampler", "steps", "correctors", "Fréchet"], rows))
    axis = plate.draw().axes[0]
    curves = {line.get_label(): line.get_xydata().tolist() for line in axis.get_lines()[:2]}
    assert curves == {"bridge": [[10, 9], [100, 4]], "bridge, 2 correctors": [[10, 8]]}
    assert axis.texts[0].get_text() == "held-out data"
    assert axis.get_ylabel() == "Fréchet distance"
    for part in ("A title", "A note.", "`blackout recipes`", "an abacus", "`0123abc`"):
        assert part in plate.caption


def test_heads_against_training_time_or_side_by_side() -> None:
    bits = [Uncertain(Decimal(n), Decimal("0.1")) for n in (5, 4, 3)]
    timed = [("logit", 60, bits[1]), ("logit", 30, bits[0]), ("softplus", 30, bits[2])]
    axis = heads(record(["head", "training, seconds", "bits/dim"], timed)).draw().axes[0]
    assert axis.get_xlabel() == "training, seconds"
    assert [line.get_xydata().tolist() for line in axis.get_lines()] == [[[30, 5], [60, 4]], [[30, 3]]]
    axis = heads(record(["head", "steps", "bits/dim"], timed)).draw().axes[0]
    assert axis.get_xlabel() == "steps"
    same = [(head, 60, value) for head, _, value in timed[1:]]
    axis = heads(record(["head", "steps", "bits/dim"], same)).draw().axes[0]
    assert [text.get_text() for text in axis.texts] == ["5", "3"]
    untimed = [("logit", 2000, bits[0]), ("softplus", 2000, bits[1])]
    axis = heads(record(["head", "images", "bits/dim"], untimed)).draw().axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["logit", "softplus"]


def test_records_that_cannot_be_drawn_are_refused() -> None:
    with pytest.raises(ValueError, match="record one has no column that begins with 'bits/dim', but head, images"):
        heads(record(["head", "images"], [("logit", 1)]))
    with pytest.raises(ValueError, match="record one has no row to draw"):
        steps(record(["sampler", "steps", "Fréchet"], [("held-out data", None, 3)]))


@pytest.mark.parametrize("name", ["steps-cifar10", "steps-mnist-binary", "heads"])
def test_the_records_that_ship_can_be_drawn(name: str) -> None:
    assert draw(name).axes


def test_models_of_vectors_are_not_in_the_gallery(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(studio, "load", lambda name: count_model())
    with pytest.raises(ValueError, match="images must have shape"):
        write(tmp_path, ["samples-cifar10"], Studio(num=1, steps=2))


def test_the_page_in_the_documentation_shows_every_figure() -> None:
    page = (ROOT / "docs/figures.md").read_text()
    for name, drawing in FIGURES.items():
        assert drawing.title in page
        assert f"pictures/figures-{name}.png" in page
        assert f"`blackout figures --only {name}`" in page
    command: Any = typer.main.get_command(app)
    for line in page.splitlines():
        if line.startswith("blackout figures"):
            words = shlex.split(line, comments=True)[2:]
            command.commands["figures"].make_context("blackout", words)


@pytest.mark.slow
def test_all_of_them_from_the_weights_that_ship(tmp_path: Path) -> None:
    files = write(tmp_path, studio=Studio(num=4, steps=10))
    assert len(files) == 3 * len(FIGURES) + 1
    assert all(file.stat().st_size > 0 for file in files)
