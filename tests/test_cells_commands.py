"""blackout cells train, sample, impute and evaluate."""

import json
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy
import pytest
from scipy import sparse

from blackout.cells.model import CountModel
from blackout.cells.read import read_counts
from blackout.cli import main
from processes import COMMAND, Process

anndata = pytest.importorskip("anndata")
pandas = pytest.importorskip("pandas")

CELLS, GENES = 60, 20
TINY = ["--width", "8", "--blocks", "1", "--batch-size", "8", "--log-every", "2"]
TRAIN = ["cells", "train", "--data", "cells.h5ad", *TINY]


def status(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit status of a command in this process."""
    monkeypatch.setattr(sys, "argv", ["blackout", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


def checkpoints(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def make_cells(num: int = CELLS, seed: int = 0) -> Any:
    """Two types of cells in two samples; no cell and no gene is empty."""
    rng = numpy.random.default_rng(seed)
    kind, half = rng.integers(2, size=num), rng.integers(2, size=num)
    mean = numpy.random.default_rng(9).gamma(1.0, 3.0, (2, GENES)) + 0.5
    obs = pandas.DataFrame(
        {"cell_type": numpy.array(["B", "T"])[kind], "sample": numpy.array(["s1", "s2"])[half]},
        index=[f"cell{seed}_{k}" for k in range(num)],
    )
    x = sparse.csr_matrix(rng.poisson(mean[kind] + 0.1).astype(numpy.float32))
    return anndata.AnnData(x, obs=obs, var=pandas.DataFrame(index=[f"g{k}" for k in range(GENES)]))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with cells and a run on them, with labels, library size and held-out cells."""
    folder = tmp_path_factory.mktemp("cells")
    make_cells(120).write_h5ad(folder / "cells.h5ad")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        words = ["--labels", "cell_type", "--library", "conditioned", "--held-out", "0.45", "--steps", "4"]
        assert status([*TRAIN, *words, "--out", "run"], patch) == 0
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same in a new working directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("run", "cells.h5ad"):
        Path(name).symlink_to(trained / name)
    return Path("run")


def test_train_resumes_and_rejects_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_cells().write_h5ad("cells.h5ad")
    words = [*TRAIN, "--labels", "cell_type", "--labels", "sample", "--held-out", "0.1", "--seed", "3"]
    assert status([*words, "--steps", "2"], monkeypatch) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith(
        "cells: 54 cells of 20 genes, 2 values of cell_type, 2 values of sample; 6 held out, in runs/cells/held-out.txt"
    )
    begins = out.index("runs/cells: new run")
    assert "cells/s" in out[begins + 1]
    assert out[-1] == "runs/cells: finished step-000000002; sample with `blackout cells sample runs/cells`"
    run = Path("runs/cells")
    model = CountModel.load(run)
    assert (model.config.labels, model.classes) == (
        ("cell_type", "sample"),
        {"cell_type": ["B", "T"], "sample": ["s1", "s2"]},
    )
    _, held_out = read_counts("cells.h5ad").split(0.1, seed=3)
    assert (run / "held-out.txt").read_text().splitlines() == list(held_out.cells)

    assert status([*words, "--steps", "4"], monkeypatch) == 0
    assert "resumes from step-000000002" in capsys.readouterr().out
    assert checkpoints(run)[-1] == "step-000000004"
    for changed, reason in (
        (["--held-out", "0.2"], "other held-out cells"),
        (["--library", "conditioned"], "library='generated', not 'conditioned'"),
        (["other.h5ad"], "other genes"),
    ):
        other = make_cells()
        other.var_names = [f"h{k}" for k in range(GENES)]
        other.write_h5ad("other.h5ad")
        given = (
            [changed[0] if word == "cells.h5ad" else word for word in words] if len(changed) == 1 else words + changed
        )
        assert status([*given, "--steps", "4"], monkeypatch) == 2
        error = capsys.readouterr().err
        assert reason in error
        assert error.count("\n") == 1
    assert CountModel.load(run).genes[0] == "g0"


def test_killed_training_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_cells().write_h5ad(tmp_path / "cells.h5ad")
    run, data = tmp_path / "run", ["--data", str(tmp_path / "cells.h5ad")]
    words = ["cells", "train", *data, *TINY, "--held-out", "0.1", "--out", str(run)]
    with Process(*COMMAND, *words, "--steps", "100000") as process:
        deadline = time.monotonic() + 120
        while not (run / "metrics.jsonl").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "the same command resumes" in error
    (last,) = checkpoints(run)
    step = int(last.removeprefix("step-"))
    assert status([*words, "--steps", str(step + 2)], monkeypatch) == 0
    assert checkpoints(run)[-1] == f"step-{step + 2:09d}"


def test_layer_and_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    cells = make_cells()
    x = cells.X.toarray()
    x[3], x[:, 5] = 0, 0
    cells.layers["raw"] = sparse.csr_matrix(x)
    cells.X = sparse.csr_matrix(numpy.log1p(cells.X.toarray()))
    cells.write_h5ad("cells.h5ad")
    words = [*TRAIN, "--steps", "1", "--out", "run"]
    assert status(words, monkeypatch) == 2
    assert "raw UMI counts are needed" in capsys.readouterr().err
    assert status([*words, "--layer", "raw"], monkeypatch) == 2
    assert "empty='drop' (--empty drop) removes such cells and genes" in capsys.readouterr().err
    assert status([*words, "--layer", "raw", "--empty", "drop"], monkeypatch) == 0
    assert CountModel.load("run").genes == tuple(g for g in cells.var_names if g != "g5")
    # The run keeps the layer; a gene without counts is ignored.
    numbers = ["--samples", "0", "--num-times", "2"]
    assert status(["cells", "evaluate", "run", "--data", "cells.h5ad", *numbers], monkeypatch) == 2
    assert "--empty drop" in capsys.readouterr().err
    assert status(["cells", "evaluate", "run", "--data", "cells.h5ad", *numbers, "--empty", "drop"], monkeypatch) == 0
    assert json.loads(Path("reports/run/report.json").read_text())["data"] | {"checksum": ""} == {
        "name": "cells", "checksum": "", "genes": GENES - 1, "train": None, "test": CELLS - 1,
    }  # fmt: skip


def test_sample(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["cells", "sample", str(run), "--num", "7", "--steps", "3", "--seed", "2"]
    assert (
        status([*words, "--label", "T", "--library", "50", "--guidance", "2", "--out", "sampled.h5ad"], monkeypatch)
        == 0
    )
    assert capsys.readouterr().out == "7 cells of 20 genes: sampled.h5ad\n"
    for name, more in (("a.npz", []), ("b.h5ad", ["--batch-size", "3"]), ("c.npz", ["--sampler", "bridge"])):
        assert status([*words, "--out", name, *more], monkeypatch) == 0
    a, b, c = (read_counts(name, empty="keep") for name in ("a.npz", "b.h5ad", "c.npz"))
    assert (a.x != b.x).nnz == 0
    assert (a.x != c.x).nnz > 0
    assert a.genes == b.genes == CountModel.load(run).genes
    assert a.cells == b.cells
    assert set(a.obs) == set(b.obs) == {"cell_type", "library"}
    assert a.obs["cell_type"].tolist() == b.obs["cell_type"].tolist()
    assert (sparse.load_npz("a.npz") != a.x).nnz == 0


def test_existing_files_are_not_overwritten(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Path("cells.h5ad").read_bytes()
    numpy.save("mask.npy", numpy.ones((CELLS, GENES), bool))
    for words in (
        ["cells", "sample", str(run), "--num", "3", "--steps", "2", "--out", "cells.h5ad"],
        ["cells", "impute", str(run), "--data", "cells.h5ad", "--mask", "mask.npy", "--out", "cells.h5ad"],
    ):
        assert status(words, monkeypatch) == 2
        assert "out: cells.h5ad exists already; choose another path, or remove it" in capsys.readouterr().err
    assert status(["cells", "sample", str(run), "--num", "3", "--steps", "2"], monkeypatch) == 0
    assert capsys.readouterr().out == "3 cells of 20 genes: samples.h5ad\n"
    assert Path("cells.h5ad").read_bytes() == before


def test_evaluation_on_training_cells_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_cells(60, seed=1).write_h5ad("cells.h5ad")
    make_cells(60, seed=2).write_h5ad("other.h5ad")
    small = ["--steps", "2", "--batch-size", "8", "--width", "8", "--blocks", "1", "--labels", "cell_type"]
    assert status(["cells", "train", "cells.h5ad", *small, "--out", "run"], monkeypatch) == 0
    for name, warns in (("cells", True), ("other", False)):
        words = ["cells", "evaluate", "run", "--data", f"{name}.h5ad", "--samples", "0", "--num-times", "2"]
        assert status([*words, "--out", name], monkeypatch) == 0
        assert ("--data holds the training cells of the run" in capsys.readouterr().err) == warns


def test_times(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words, found = ["cells", "sample", str(run), "--num", "7", "--steps", "3"], {}
    for rule in ("", "length", "fisher"):
        more = ["--times", rule] if rule else []
        assert status([*words, *more, "--out", f"{rule}sampled.npz"], monkeypatch) == 0
        found[rule] = read_counts(f"{rule}sampled.npz", empty="keep").x
    assert (found[""] != found["length"]).nnz == 0
    assert (found["fisher"] != CountModel.load(run).sample(7, num_steps=3, times="fisher").X).nnz == 0
    evaluate = ["cells", "evaluate", str(run), "--data", "cells.h5ad", "--steps", "3", "--num-times", "2"]
    assert status([*evaluate, "--times", "fisher"], monkeypatch) == 0
    assert json.loads(Path("reports/run/report.json").read_text())["sampling"]["times"] == "fisher"
    measured = read_counts("reports/run/samples.npz", empty="keep").x
    assert (measured[:7] != found["fisher"]).nnz == 0
    assert (found["fisher"] != found["length"]).nnz > 0


def test_impute(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    cells = make_cells(8, seed=1)
    cells = cells[:, cells.var_names[::-1]].copy()  # the mask has the genes in this order
    cells.write_h5ad("given.h5ad")
    observed = numpy.random.default_rng(0).random(cells.shape) < 0.6
    observed[0] = False
    numpy.save("mask.npy", observed)
    numpy.savez("mask.npz", mask=observed)
    sparse.save_npz("sparse.npz", sparse.csr_matrix(observed))
    frame = pandas.DataFrame(observed, index=cells.obs_names, columns=cells.var_names)
    frame.iloc[::-1, ::-1].to_csv("mask.csv")
    words = ["cells", "impute", str(run), "--data", "given.h5ad", "--steps", "2", "--resample", "0"]
    results = []
    for mask in ("mask.npy", "mask.npz", "sparse.npz", "mask.csv"):
        assert status([*words, "--mask", mask, "--draws", "2", "--out", f"{mask}.h5ad"], monkeypatch) == 0
        results.append(anndata.read_h5ad(f"{mask}.h5ad")[:, cells.var_names])
    assert "8 cells, " in capsys.readouterr().out
    for result in results:
        assert (result.X != results[0].X).nnz == 0
        for layer in ("draw_1", "draw_2", "mean"):
            assert (result.layers[layer].toarray()[observed] == cells.X.toarray()[observed]).all()


def test_impute_a_transposed_table_that_lacks_a_gene(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = make_cells(6, seed=1)[:, 1:]
    frame = cells.to_df()
    frame.iloc[0, 0] = numpy.nan
    frame.T.to_csv("given.csv")
    (~frame.isna()).to_csv("mask.csv")
    words = ["cells", "impute", str(run), "--data", "given.csv", "--transpose", "--mask", "mask.csv", "--steps", "2"]
    assert status([*words, "--out", "imputed.h5ad"], monkeypatch) == 0
    out, err = capsys.readouterr()
    assert out == "6 cells, 5.8% of the counts imputed: imputed.h5ad\n"  # 7 of 120
    assert err == "blackout: obs has no column 'cell_type': it is unknown for all cells\n"
    imputed = anndata.read_h5ad("imputed.h5ad")
    assert list(imputed.var_names) == [*cells.var_names, "g0"]
    observed = ~frame.isna().to_numpy()
    assert (imputed.X.toarray()[:, :-1][observed] == frame.to_numpy()[observed]).all()


def test_library_outside_the_training_range_warns(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["cells", "sample", str(run), "--num", "2", "--steps", "1", "--class", "B", "--library", "100000"]
    assert status([*words, "--out", "a.npz"], monkeypatch) == 0
    out, err = capsys.readouterr()
    assert out == "2 cells of 20 genes: a.npz\n"
    assert err.startswith(
        "blackout: library is outside the range of the training cells, results may differ: training cells"
    )
    assert err.count("\n") == 1


def test_layer_is_optional_in_later_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cells = make_cells()
    cells.write_h5ad("raw.h5ad")
    cells.layers["counts"], cells.X = cells.X.copy(), cells.X / 3
    cells.write_h5ad("cells.h5ad")
    assert status([*TRAIN, "--steps", "1", "--layer", "counts", "--out", "run"], monkeypatch) == 0
    for name in ("raw.h5ad", "cells.h5ad"):
        words = ["cells", "evaluate", "run", "--data", name, "--samples", "0", "--num-times", "2", "--out", name[:-5]]
        assert status(words, monkeypatch) == 0
    reports = [json.loads(Path(name, "report.json").read_text()) for name in ("raw", "cells")]
    raw, layer = (report["bits_per_dim"]["test"]["mean"] for report in reports)
    assert raw == layer


def test_later_data_may_have_their_counts_in_another_layer(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = make_cells()[:, 1:].copy()
    cells.write_h5ad("raw.h5ad")
    cells.layers["mine"], cells.X = cells.X.copy(), cells.X / 3
    cells.write_h5ad("layer.h5ad")
    words = ["cells", "impute", str(run), "--draws", "0", "--data"]
    assert status([*words, "raw.h5ad", "--out", "a.h5ad"], monkeypatch) == 0
    assert status([*words, "layer.h5ad", "--layer", "mine", "--out", "b.h5ad"], monkeypatch) == 0
    assert (anndata.read_h5ad("a.h5ad").X != anndata.read_h5ad("b.h5ad").X).nnz == 0
    for command in (words, ["cells", "evaluate", str(run), "--no-held-out-from-run", "--samples", "0", "--data"]):
        capsys.readouterr()
        assert status([*command, "layer.h5ad", "--layer", "typo", "--out", "c.h5ad"], monkeypatch) == 2
        assert "layer must be one of 'mine', got 'typo'" in capsys.readouterr().err


def test_evaluate_with_the_held_out_cells_of_the_run(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["cells", "evaluate", str(run), "--data", "cells.h5ad", "--steps", "3", "--num-times", "2", "--baselines"]
    assert status(words, monkeypatch) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    assert "bits/dim, held out" in shown
    assert "54 samples, poisson, 3 steps; 54 held-out cells; real: 54 training cells" in shown
    report = json.loads(Path("reports/run/report.json").read_text())
    assert report["command"].startswith("blackout cells evaluate run --data cells.h5ad")
    assert (report["data"]["train"], report["data"]["test"], report["sampling"]["num_samples"]) == (66, 54, 54)
    assert report["bits_per_dim"]["test"]["standard_error"] > 0
    assert report["ending"]["t_end"] == CountModel.load(run).model.times.t_end
    assert 0 < report["ending"]["remaining"] < 1e-3
    assert report["bits_per_dim"]["train"]["num_data"] == 54
    cells = read_counts("cells.h5ad")
    rows = [cells.cells.index(name) for name in (run / "held-out.txt").read_text().splitlines()]
    bits = CountModel.load(run).bits_per_dim(cells.take(rows), num_times=2)
    assert report["bits_per_dim"]["test"]["mean"] == pytest.approx(float(bits))
    assert set(report["baselines"]) >= {"negative_binomial", "negative_binomial_library", "gene_bootstrap"}
    independent = report["baselines"]["negative_binomial"]["scores"]  # without labels: genes are not correlated
    assert report["scores"]["real_vs_real"]["c2st"] < independent["c2st"]
    own, means = (report["imputation"][name]["0.1"] for name in ("model", "gene_means"))
    assert set(own) == set(means) == {"num_cells", "rmse", "mae", "pearson", "spearman"}
    assert 0 < own["mae"] <= own["rmse"]
    assert own["num_cells"] == 54
    assert report["fold_changes"]["real_vs_real"]["correlation"] > 0.9
    assert "10 % hidden, Pearson" in shown
    assert "fold changes" in shown
    assert len(read_counts("reports/run/samples.npz", empty="keep")) == 54
    page = Path("reports/run/report.html").read_text()
    assert page.count("<svg") == 2
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")

    # The same command computes nothing again; missing samples are sampled again, with the same result.
    Path("reports/run/samples.npz").unlink()
    monkeypatch.setattr(CountModel, "bits_of_each", None)
    assert status(words, monkeypatch) == 0
    again = json.loads(Path("reports/run/report.json").read_text())
    assert again["scores"] == report["scores"]
    assert again["baselines"] == report["baselines"]


def test_a_missing_jinja2_is_reported_before_an_evaluation(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert status(["cells", "evaluate", "run", "--data", "cells.h5ad", "--out", "report"], monkeypatch) == 2
    assert "needs jinja2: pip install 'blackout-diffusion[evaluation]'" in capsys.readouterr().err
    assert not Path("report").exists()


def test_evaluate_with_separate_files(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_cells(20, seed=4).write_h5ad("test.h5ad")
    make_cells(30, seed=5).write_h5ad("train.h5ad")
    words = ["cells", "evaluate", str(run), "--data", "test.h5ad", "--num-times", "2"]
    own = [*words, "--train-data", "train.h5ad", "--out", "here"]
    assert status(own, monkeypatch) == 2
    assert "at least 50 held-out cells, got 20" in capsys.readouterr().err
    assert status([*own, "--samples", "0"], monkeypatch) == 0
    report = json.loads(Path("here/report.json").read_text())
    assert (report["bits_per_dim"]["train"]["num_data"], report["sampling"]) == (20, None)
    assert status([*words, "--samples", "0"], monkeypatch) == 2
    assert "--no-held-out-from-run" in capsys.readouterr().err
    assert status([*words, "--samples", "0", "--no-held-out-from-run"], monkeypatch) == 0
    assert status([*words, "--samples", "50", "--no-held-out-from-run", "--steps", "5000"], monkeypatch) == 2
    assert "steps must be at most 1000" in capsys.readouterr().err
    others = ["cells", "evaluate", str(run), "--data", "train.h5ad", "--samples", "0", "--no-held-out-from-run"]
    assert status(others, monkeypatch) == 2
    assert "the report of other data (run on test)" in capsys.readouterr().err


def test_distill(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the cells that are not held out; the student is sampled, and evaluated without bits."""
    words = ["cells", "distill", str(run), "--data", "cells.h5ad", "--steps", "2", "--batch-size", "8", "--out", "st"]
    words += ["--aux-updates", "1", "--checkpoint-every", "2", "--updates"]
    assert status([*words, "2"], monkeypatch) == 0
    assert "66 cells of 20 genes" in capsys.readouterr().out
    assert status([*words, "4"], monkeypatch) == 0
    assert "resumes from step-000000002" in capsys.readouterr().out
    assert status(["cells", "sample", "st", "--num", "5", "--label", "B", "--library", "90"], monkeypatch) == 0
    sampled = anndata.read_h5ad("samples.h5ad")
    assert (sampled.shape, set(sampled.obs["cell_type"])) == ((5, 20), {"B"})
    assert status(["cells", "evaluate", "st", "--data", "cells.h5ad"], monkeypatch) == 0
    report = json.loads(Path("reports/st/report.json").read_text())
    assert (report["bits_per_dim"], report["imputation"]) == ({"test": None, "train": None}, None)
    assert (report["sampling"]["sampler"], report["scores"]["model"]["num"]) == ("student", 54)
    held_out = numpy.isin(make_cells(120).obs_names, Path(run, "held-out.txt").read_text().split())
    make_cells(120)[held_out].copy().write_h5ad("test.h5ad")
    assert status(["cells", "distill", str(run), "--data", "test.h5ad", "--out", "new"], monkeypatch) == 2
    assert "holds the held-out cells" in capsys.readouterr().err
    shutil.copytree(run, "other")
    Path("other/held-out.txt").write_text("another\n")  # of a run with other held-out cells
    assert status(["cells", "distill", str(run), "--data", "cells.h5ad", "--out", "other"], monkeypatch) == 2
    assert "other holds a run that is no distillation" in capsys.readouterr().err
    assert Path("other/held-out.txt").read_text() == "another\n"
    assert status([*TRAIN, "--head", "student", "--out", "new"], monkeypatch) == 2
    assert "--head must be one of 'gamma-poisson', 'softplus', got 'student'" in capsys.readouterr().err


@pytest.fixture(scope="module")
def bad_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_bad_files()
    return folder


def write_bad_files() -> None:
    cells = make_cells()
    cells.write_h5ad("good.h5ad")
    normal = cells.copy()
    normal.X = normal.X * 0.5
    normal.write_h5ad("normal.h5ad")
    twice = cells.copy()
    twice.var_names = ["g0", "g0", *twice.var_names[2:]]
    twice.write_h5ad("twice.h5ad")
    foreign = cells.copy()
    foreign.var_names = ["alien", *foreign.var_names[1:]]
    foreign.write_h5ad("foreign.h5ad")
    cells[:, 1:].write_h5ad("fewer.h5ad")
    strange = cells.copy()
    strange.obs["cell_type"] = "martian"
    strange.write_h5ad("strange.h5ad")
    numpy.save("small.npy", numpy.ones((3, GENES), bool))
    numpy.save("half.npy", numpy.full((CELLS, GENES), 0.5))
    numpy.save("mask.npy", numpy.ones((CELLS, GENES), bool))
    pandas.DataFrame(1, index=cells.obs_names, columns=foreign.var_names).to_csv("foreign.csv")
    cells.to_df().astype(int).to_csv("noindex.csv", index=False)
    Path("broken.h5ad").write_bytes(b"no cells")


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("train", "the cells are missing: blackout cells train DATA, or --data DATA"),
        ("train nowhere.h5ad", "nowhere.h5ad: no such file or folder"),
        ("train --data nowhere.h5ad", "nowhere.h5ad: no such file or folder"),
        ("train --data broken.h5ad", "broken.h5ad: not an .h5ad file"),
        ("train --data normal.h5ad", "raw UMI counts are needed: layer='counts' (--layer counts)"),
        ("train --data twice.h5ad", "got more than once: 'g0'"),
        ("train --data good.h5ad --labels age", "obs has no column 'age'; it has 'cell_type', 'sample'"),
        ("train --data good.h5ad --layer raw", "layer must be one of none"),
        ("train --data good.h5ad --width 7", "width must be even and at least 4, got 7"),
        ("train --data good.h5ad --transpose", "transpose is for tables"),
        ("train --data noindex.csv", "the first column, 'g0', should name the rows"),
        ("train --data good.h5ad --empty keep", "empty must be one of"),
        ("train --data good.h5ad --held-out 1.5", "--held-out must be less than 1, got 1.5"),
        ("train --data good.h5ad --held-out -1", "--held-out must be"),
        ("train --data good.h5ad --library none", "library must be one of"),
        ("train --data good.h5ad --head bounded-logit", "head must be one of 'gamma-poisson', 'softplus'"),
        ("train --data good.h5ad --config nowhere.json", "nowhere.json is not a configuration"),
        ("train --data good.h5ad --config broken.h5ad", "broken.h5ad is not a configuration"),
        ("sample run --label martian --out a.npz", "not trained on these labels: 'martian'; 'cell_type' has 'B', 'T'"),
        ("sample run --label 1 --out a.npz", "not trained on these labels: '1'"),
        ("sample run --library 0 --out a.npz", "library must hold integers of at least 1"),
        ("sample run --out cells.csv", "out must end in .h5ad or .zarr (AnnData) or .npz"),
        ("sample run --num 0 --out a.npz", "num must be at least 1, got 0"),
        ("sample run --steps 0 --out a.npz", "steps must be at least 1, got 0"),
        ("sample run --steps 5000 --out a.npz", "steps must be at most 1000, the model's number of times, got 5000"),
        ("sample run --batch-size 0 --out a.npz", "--batch-size must be at least 1, got 0"),
        ("sample run --sampler binomial --steps 2 --out a.npz", "binomial"),
        ("sample run --sampler posterior --steps 2 --out a.npz", ""),
        ("sample mnist-binary --out a.npz", "mnist-binary holds no model of cells"),
        ("impute run --data good.h5ad", "mask is needed for cells with all genes of the model"),
        ("impute run --mask mask.npy", "Missing option '--data'"),
        ("impute run --data good.h5ad --mask nowhere.npy", "mask: nowhere.npy: no such file or folder"),
        ("impute run --data good.h5ad --mask good.h5ad", "mask: good.h5ad: mask must hold booleans"),
        ("impute run --data good.h5ad --mask small.npy", "mask must have shape (60, 20), cells and genes of the data"),
        ("impute run --data good.h5ad --mask half.npy", "mask: half.npy: mask must hold booleans"),
        ("impute run --data good.h5ad --mask foreign.csv", "mask lacks these genes of the data: 'g0'"),
        ("impute run --data foreign.h5ad --mask mask.npy", "the model was not trained on these genes: 'alien'"),
        ("impute run --data good.h5ad --mask mask.npy --draws -1", "draws must be at least 0, got -1"),
        (
            "impute run --data good.h5ad --mask mask.npy --draws 2 --out a.npz",
            "out must end in .h5ad or .zarr for means",
        ),
        ("impute mnist-binary --data good.h5ad --mask mask.npy", "holds no model of cells"),
        ("evaluate run", "Missing option '--data'"),
        ("evaluate run --data foreign.h5ad --no-held-out-from-run", "not trained on these genes: 'alien'"),
        ("evaluate run --data fewer.h5ad --no-held-out-from-run", "these genes of the model are not in the data: 'g0'"),
        ("evaluate run --data strange.h5ad --no-held-out-from-run", "not trained on these labels: 'martian'"),
        ("evaluate run --data good.h5ad", "of the 54 cells that run/held-out.txt names"),
        ("evaluate run --data good.h5ad --held-out-from-run --train-data good.h5ad", "remove --train-data"),
        ("evaluate run --data good.h5ad --no-held-out-from-run --baselines", "baselines need training cells"),
        ("evaluate run --data good.h5ad --no-held-out-from-run --samples 7", "--samples must be 0 or at least 50"),
    ],
)
def test_bad_input_is_one_line(
    command: str,
    reason: str,
    run: Path,
    bad_files: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for path in bad_files.iterdir():
        Path(path.name).symlink_to(path)
    before = {path.name for path in Path().iterdir()}
    assert status(["cells", *command.split()], monkeypatch) == 2
    captured = capsys.readouterr()
    assert reason in captured.err
    assert captured.err.startswith("blackout: ")
    assert captured.err.count("\n") == 1
    assert {path.name for path in Path().iterdir()} - before <= {"reports"}
