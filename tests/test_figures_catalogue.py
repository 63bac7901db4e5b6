"""blackout figures: the catalogue, its captions, the files it writes, and docs/figures.md."""

import json
import math
import re
import shlex
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import typer
from PIL import Image

import blackout as bo
from blackout.cli import app, main
from blackout.data import from_array
from blackout.figures import context as contexts
from blackout.figures.catalogue import FIGURES, draw
from blackout.figures.context import Context, Sampled
from blackout.figures.record import Record, Uncertain
from blackout.figures.recorded import heads, steps
from blackout.figures.write import write
from blackout.io import load
from blackout.recipes import build_model, recipe

ROOT = Path(__file__).parent.parent


def status(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a command in this process; returns its exit status."""
    monkeypatch.setattr(sys, "argv", ["blackout", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


def tiny_model(*shape: int, max_count: int = 1) -> bo.DiffusionModel:
    x = torch.arange(2 * math.prod(shape)).reshape(2, *shape) % (max_count + 1)
    return bo.DiffusionModel.for_data(x, bo.PureDeath(max_count), width=8, blocks=1)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace the pretrained models by tiny ones; returns the names that were loaded."""
    loaded: list[str] = []

    def load(name: str) -> bo.DiffusionModel:
        loaded.append(name)
        return tiny_model(3, 8, 8, max_count=255) if name == "cifar10" else tiny_model(1, 8, 8)

    monkeypatch.setattr(contexts, "load", load)
    return loaded


def with_record(columns: list[str], rows: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch) -> Context:
    """A context whose only record is this table."""
    record = Record(
        id="one", group="A group", order=1, title="A title", kind="measured", columns=tuple(columns), rows=tuple(rows),
        note="", hardware="one CPU", command=("blackout recipes",), commit="0123abc", date="2026-11-15",
    )  # fmt: skip
    monkeypatch.setattr(contexts, "read", lambda folder: [record])
    return Context()


def test_command_writes_figures_captions_and_how_to_reproduce_them(
    tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["generation-scaled", "samples-mnist-binary"]
    few = ["--num", "2", "--steps", "3", "--out", "out"]
    assert status(["figures", *few, *(word for name in names for word in ("--only", name))], monkeypatch) == 0
    assert tiny == ["cifar10", "mnist-binary"]
    assert capsys.readouterr().out.splitlines()[-1] == "captions: out/captions.md"
    assert {file.name for file in Path("out").iterdir()} == {
        "blackout.json", "captions.md", *(f"{name}.{kind}" for name in names for kind in ("svg", "png", "txt")),
    }  # fmt: skip
    for name in names:
        with Image.open(f"out/{name}.png") as image:
            assert image.width > 300
        assert Path(f"out/{name}.svg").read_text().startswith("<?xml")
    caption, command = Path("out/samples-mnist-binary.txt").read_text().strip().split("\n\n")
    assert "The first 2 samples of the model `mnist-binary`" in caption
    assert command == "blackout figures --only samples-mnist-binary --num 2 --steps 3"

    before = Path("out/samples-mnist-binary.png").read_bytes()
    assert status(["figures", *shlex.split(command)[2:], "--out", "again"], monkeypatch) == 0
    assert Path("again/samples-mnist-binary.png").read_bytes() == before
    assert status(["figures", "--only", "times", "--out", "out", "--vector", "pdf"], monkeypatch) == 0
    page = Path("out/captions.md").read_text()
    assert page.index("times.png") < page.index("generation-scaled.png")  # earlier figures stay on the page
    assert "`blackout figures --only times --vector pdf`" in page

    Path("mine").mkdir()
    Path("mine/times.png").write_text("mine")
    assert status(["figures", "--only", "times", "--out", "mine"], monkeypatch) == 2
    assert "out: mine/times.png exists and is not in the blackout.json of its folder" in capsys.readouterr().err
    assert [file.name for file in Path("mine").iterdir()] == ["times.png"]
    assert Path("mine/times.png").read_text() == "mine"
    assert status(["figures", "--only", "times", "--out", "mine", "--overwrite"], monkeypatch) == 0
    assert status(["figures", "--only", "times", "--out", "mine"], monkeypatch) == 0
    assert Path("out/times.pdf").exists()


def test_list_and_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["figures", "--list"], monkeypatch) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(FIGURES)
    assert max(map(len, lines)) <= 80
    assert status(["figures", "--help"], monkeypatch) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ("forward-scaled", "samples-cifar10", "heads"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "monalisa"], "figure must be one of forward, .*, got 'monalisa'"),
        (["--out", "file"], "out must be a folder, but file is a file"),
        (["--out", "file/inside"], "file/inside: Not a directory"),
        (["--data", "nowhere"], "data must exist, but nowhere does not"),
        (
            ["--only", "forward", "--data", "vectors.npy"],
            r"data must hold images, but .* vectors.npy have shape \(5,\)",
        ),
        (["--results", "nowhere"], "results must exist, but nowhere does not"),
        (["--results", "."], "folder must hold records"),
        (
            ["--only", "heads", "--results", "other"],
            "results must hold a record 'cifar10-heads-training', but other has one",
        ),
        (["--vector", "eps"], "vector must be one of 'svg', 'pdf', got 'eps'"),
        (["--seed", "-1"], "seed must be at least 0, got -1"),
        (["--num", "0"], "num must be at least 1, got 0"),
        (["--steps", "0"], "steps must be at least 1, got 0"),
        (["--device", "abacus"], "device must be one that torch knows"),
        (
            ["--only", "grid-celeba", "--runs", "mine"],
            "there is no run in mine/celeba64-paper; train it with `blackout train celeba64-paper",
        ),
    ],
)
def test_bad_input_exits_with_one_line(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
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
    assert re.search(message, error)


def test_missing_matplotlib_is_reported_with_the_install_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import builtins

    original = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] == "matplotlib":
            raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")
        return original(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    assert status(["figures", "--only", "times", "--out", str(tmp_path)], monkeypatch) == 1
    assert "pip install 'blackout-diffusion[figures]'" in capsys.readouterr().err


def test_grids_of_the_papers_runs(tmp_path: Path) -> None:
    x = torch.randint(0, 2, (4, 1, 32, 32), generator=torch.Generator().manual_seed(0))
    config = recipe("mnist-binary-paper").replace(width=8, blocks=1, num_times=6, batch_size=2, steps=3, compile=False)
    model = build_model(config, from_array(x))
    model.train(config, x, None, tmp_path / "mnist-binary-paper")
    lines: list[str] = []
    context = Context(runs=tmp_path, num=5)
    write(tmp_path / "out", ["grid-mnist"], context, report=lines.append)
    caption, command = (tmp_path / "out/grid-mnist.txt").read_text().strip().split("\n\n")
    assert caption.startswith(
        "The first 5 samples of the run `mnist-binary-paper`, not selected, as in the paper's `fig:mnist-grid`: 3 "
        "training steps of 2 images, instantaneous loss, float32; seed 0, 6 steps of the sampler `poisson`, dropout on."
    )
    assert command == f"blackout figures --only grid-mnist --num 5 --runs {tmp_path}"
    shown = [axis.get_images()[0].get_array() for axis in draw("grid-mnist", context).axes if axis.get_images()]
    samples = load(tmp_path / "mnist-binary-paper").sample(5, 6, "poisson", 0)
    assert numpy.array_equal(numpy.stack(shown), samples[:, 0].numpy())
    write(tmp_path / "out", ["grid-mnist"], Context(runs=tmp_path, num=2, steps=3, seed=1))
    assert "seed 1, 3 steps" in (tmp_path / "out/grid-mnist.txt").read_text()

    model.save(tmp_path / "saved/mnist-binary-paper")  # without configuration and checkpoints
    assert (
        ": an unknown training; seed 0" in FIGURES.make("grid-mnist", Context(runs=tmp_path / "saved", num=1)).caption
    )


def test_figures_of_missing_runs_are_left_out(tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in FIGURES if not name.startswith("grid-") and name != "times"]:
        monkeypatch.delitem(FIGURES._entries, name)
    lines: list[str] = []
    files = write(tmp_path / "out", context=Context(runs=tmp_path), report=lines.append)
    assert {file.stem for file in files} == {"times", "captions"}
    assert len(lines) == len(FIGURES)
    assert lines[1].startswith(f"grid-finite-bridge: left out: there is no run in {tmp_path / 'cifar10-paper-finite'}")


def test_forward_process_on_images_of_the_user(tiny: list[str], tmp_path: Path) -> None:
    x = torch.randint(0, 200, (3, 1, 5, 5), generator=torch.Generator().manual_seed(0))
    numpy.save(tmp_path / "mine.npy", x.numpy())
    context = Context(data=tmp_path / "mine.npy")
    shown = numpy.asarray(draw("forward", context).axes[0].get_images()[0].get_array())
    assert numpy.allclose(shown / shown.max(), x[0, 0] / x[0, 0].max())
    assert "the first images of mine" in FIGURES.make("forward", context).caption
    assert tiny == []


def test_cifar10_files_are_found_beside_other_images(tiny: list[str], tmp_path: Path) -> None:
    rows = numpy.arange(10_000 * 3073, dtype=numpy.uint32) % 251
    (tmp_path / "cifar-10-batches-bin").mkdir()
    for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"):
        labelled = rows.astype(numpy.uint8).reshape(10_000, 3073)
        labelled[:, 0] %= 10
        (tmp_path / f"cifar-10-batches-bin/{name}.bin").write_bytes(labelled.tobytes())
    Image.new("L", (4, 4)).save(tmp_path / "another.png")
    x, max_state, origin = Context(data=tmp_path).images(2)
    assert (x.shape, max_state, origin) == ((2, 3, 32, 32), 255, "the first images of cifar10")
    assert x[0, 0, 0, :3].tolist() == [1, 2, 3]
    assert tiny == []


def test_figures_of_one_context_share_the_samples_of_the_sample_command(tiny: list[str]) -> None:
    context = Context(num=3, steps=4, seed=5)
    found = [FIGURES.make(name, context) for name in ("forward", "forward-scaled", "generation", "samples-cifar10")]
    assert tiny == ["cifar10"]
    assert len({figure.caption for figure in found}) == 4
    sampled = context.sampled("cifar10")
    assert torch.equal(sampled.samples, tiny_model(3, 8, 8, max_count=255).sample(3, 4, seed=5))
    assert len(sampled.times) == 4


def test_steps_and_sample_quality(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        ("held-out data", None, None, Decimal("2.5")),
        ("bridge", 100, 0, Decimal("4")),
        ("bridge", 10, 0, Decimal("9")),
        ("bridge", 10, 2, Uncertain(Decimal("8"), Decimal("0.1"))),
        ("poisson", 10, 0, None),
    ]
    figure = steps(with_record(["sampler", "steps", "correctors", "Fréchet"], rows, monkeypatch), "one")
    axis = figure.draw().axes[0]
    curves = {line.get_label(): line.get_xydata().tolist() for line in axis.get_lines()[:2]}
    assert curves == {"bridge": [[10, 9], [100, 4]], "bridge, 2 correctors": [[10, 8]]}
    assert axis.texts[0].get_text() == "held-out data"
    assert axis.get_ylabel() == "Fréchet distance"
    assert figure.caption.endswith(
        "Horizontal line: held-out data. "
        "Record `one`, measured by `blackout recipes`: one CPU, commit `0123abc`, 2026-11-15."
    )


def test_heads_and_training_time(monkeypatch: pytest.MonkeyPatch) -> None:
    bits = [Uncertain(Decimal(n), Decimal("0.1")) for n in (5, 4, 3)]
    rows = [("logit", 60, bits[1]), ("logit", 30, bits[0]), ("softplus", 30, bits[2])]
    axis = heads(with_record(["head", "training, seconds", "bits/dim"], rows, monkeypatch), "one").draw().axes[0]
    assert axis.get_xlabel() == "training, seconds"
    assert [line.get_xydata().tolist() for line in axis.get_lines()] == [[[30, 5], [60, 4]], [[30, 3]]]


def test_records_without_the_columns_or_rows_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="record one has no column that begins with 'training'; its columns are head"):
        heads(with_record(["head", "bits/dim"], [("logit", 1)], monkeypatch), "one")
    with pytest.raises(ValueError, match="record one has no row to draw"):
        steps(with_record(["sampler", "steps", "Fréchet"], [("held-out data", None, 3)], monkeypatch), "one")


@pytest.mark.parametrize("name", ["steps-cifar10", "steps-mnist-binary", "heads"])
def test_packaged_records_can_be_drawn(name: str) -> None:
    assert draw(name).axes


def test_models_of_vectors_cannot_be_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(contexts, "load", lambda name: tiny_model(5))
    with pytest.raises(ValueError, match="images must have shape"):
        write(tmp_path, ["samples-cifar10"], Context(num=1, steps=2))


def test_documentation_has_every_figure_with_its_caption_and_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def sampled(context: Context, name: str) -> Sampled:
        x, sampler = torch.zeros(51, 24, 3, 1, 1, dtype=torch.long), load(name).default_sampler(50)
        return Sampled(x, bo.ObservationTimes.uniform(50), sampler, 255)

    monkeypatch.setattr(Context, "sampled", sampled)
    page = (ROOT / "docs/figures.md").read_text()
    text = " ".join(page.split())
    for name in FIGURES:
        if name.startswith("grid-"):
            assert re.search(rf"^\| `fig:[\w-]+` .*\| `blackout figures --only {name}` \|", page, re.M), name
            continue
        caption = FIGURES.make(name, Context()).caption
        assert caption.split(", measured by")[0] in text, name  # the provenance of a record is in docs/results.md
        assert f"### {FIGURES.help(name)}\n\n![{FIGURES.help(name)}](pictures/figures-{name}.png)" in page
        assert f"\n`blackout figures --only {name}`\n" in page
    command: Any = typer.main.get_command(app)
    for line in page.splitlines():
        if line.startswith("blackout figures"):
            command.commands["figures"].make_context("blackout", shlex.split(line, comments=True)[2:])


@pytest.mark.slow
def test_all_figures_from_the_pretrained_models(tmp_path: Path) -> None:
    files = write(tmp_path, context=Context(num=4, steps=10))
    assert len(files) == 3 * len([name for name in FIGURES if not name.startswith("grid-")]) + 1
    assert all(file.stat().st_size > 0 for file in files)
