"""Folders of models of cells: a run belongs to its cells, and what was refused has changed nothing."""

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import blackout as bo
from blackout.training.loop import Stopped
from test_counts import TINY, two_types

CELLS = two_types(120)


def weights(model: bo.CountModel) -> dict[str, Any]:
    return {name: value.clone() for name, value in model.model.predictor.state_dict().items()}


def same(model: bo.CountModel, before: dict[str, Any]) -> bool:
    return all(torch.equal(value, before[name]) for name, value in model.model.predictor.state_dict().items())


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cells") / "run"
    bo.CountModel(labels="kind", **TINY).fit(CELLS, steps=2, out=folder)
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of one run, to do with it what one likes."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture(scope="module")
def fitted() -> bo.CountModel:
    return bo.CountModel(labels=["kind", "donor"], **TINY).fit(CELLS, steps=2)


def turned_labels() -> Any:
    """The same counts; the same classes, as often; but of other cells."""
    other = CELLS.copy()
    other.obs["kind"] = other.obs["kind"].to_numpy()[::-1]
    return other


@pytest.mark.parametrize("cells", [CELLS[:60], CELLS[::-1], two_types(120, seed=1), turned_labels()])
def test_a_run_is_refused_to_other_cells_and_keeps_its_own(run: Path, cells: Any) -> None:
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    for steps in (2, 4):  # it has finished, or would go on
        with pytest.raises(ValueError, match="holds a run on other cells; give it the cells it began with") as error:
            bo.CountModel(labels="kind", **TINY).fit(cells.copy(), steps=steps, out=run)
        assert "\n" not in str(error.value)
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before
    bo.CountModel(labels="kind", **TINY).fit(CELLS, steps=4, out=run)
    assert (run / "counts.json").read_bytes() == before["counts.json"]


def test_a_run_of_the_first_version_loads_goes_on_and_is_refused_to_other_cells(run: Path) -> None:
    values = json.loads((run / "counts.json").read_text())
    first = {
        key: values[key] for key in ("format", "layer", "genes", "labels", "library", "classes", "share", "totals")
    }
    first["totals"] = {key: values["totals"][key] for key in ("quantiles", "widths", "centre", "scale")}
    (run / "counts.json").write_text(json.dumps(first))
    assert bo.CountModel.load(run).sample(3, num_steps=2).shape == (3, 6)
    with pytest.raises(ValueError, match="holds a run on other cells"):
        bo.CountModel(labels="kind", **TINY).fit(CELLS[:100].copy(), steps=4, out=run)
    bo.CountModel(labels="kind", **TINY).fit(CELLS, steps=4, out=run)
    assert json.loads((run / "counts.json").read_text()) == first


def test_what_has_not_begun_may_begin_with_other_cells(run: Path) -> None:
    (run / "config.json").unlink()  # it is written when training begins
    shutil.rmtree(run / "checkpoints")
    assert bo.CountModel(**TINY).fit(CELLS[:50].copy(), steps=1, out=run).keys == []
    assert bo.CountModel.load(run).classes == []


def test_a_saved_model_is_no_run(tmp_path: Path) -> None:
    model = bo.CountModel(**TINY).fit(CELLS, steps=1)
    with pytest.raises(ValueError, match="holds a saved model, which is no run to go on with"):
        model.fit(CELLS, out=model.save(tmp_path / "model"))
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="folder must be one, or none yet, got the file"):
        model.save(tmp_path / "file")


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"layer": "typo"}, "layer must be one of"),
    ({"labels": "typo"}, "obs has no column 'typo'"),
    ({"empty": "typo"}, "empty must be one of"),
    ({"width": 7}, "width must be even and at least 4, got 7"),
    ({"steps": 0}, "steps must be at least 1"),
    ({"process": "absorbing"}, "counts need process='pure-death'"),
    ({"accumulate": 5}, "batch_size=64 must be a multiple"),
    ({"label_dropout": 2}, "label_dropout must be less than 1, got 2"),
    ({"labels": ["kind", 3]}, "labels must name columns of obs, without commas, got 3"),
    ({"out": "run"}, "holds a run that differs in"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_a_refused_fit_leaves_the_model_as_it_was(
    options: dict[str, Any], message: str, fitted: bo.CountModel, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained.parent)
    model = fitted
    config, before, inside, classes = model.config, weights(model), model.model, model.classes
    with pytest.raises(ValueError, match=message):
        model.fit(CELLS[:, ::-1].copy(), **options)
    assert model.config == config
    assert model.model is inside
    assert (model.classes, model.keys, model.genes) == (classes, ["kind", "donor"], tuple(CELLS.var_names))
    assert same(model, before)


def test_what_was_learnt_until_a_stop_is_kept() -> None:
    def stop(report: Any, trainer: Any) -> None:
        if report.step == 2:  # a second one would not wait for the step
            signal.raise_signal(signal.SIGINT)

    model = bo.CountModel(decay="none", **TINY)
    with pytest.raises(Stopped):  # after the step that follows the signal
        model.fit(CELLS, steps=5, log_every=2, listener=stop)
    assert same(model, weights(bo.CountModel(decay="none", **TINY).fit(CELLS, steps=3)))


@pytest.mark.parametrize("kind", ["run", "saved", "first"])
def test_a_model_from_a_folder_is_fitted_as_it_was(kind: str, tmp_path: Path) -> None:
    options = {**TINY, "labels": "kind", "layer": "raw"}
    cells = CELLS.copy()
    cells.raw = cells
    model = bo.CountModel(**options).fit(cells, steps=3, out=tmp_path / "run" if kind == "run" else None)
    folder = tmp_path / "run" if kind == "run" else model.save(tmp_path / kind)
    if kind == "first":  # it told no more than its network
        values = json.loads((folder / "counts.json").read_text())
        values.pop("config")
        (folder / "counts.json").write_text(json.dumps(values))
    loaded = bo.CountModel.load(folder)
    if kind != "first":
        assert loaded.config == model.config
    assert (loaded.config.width, loaded.config.blocks, loaded.config.dropout) == (32, 1, 0.0)
    assert (loaded.keys, loaded.config.layer) == (["kind"], "raw")
    if kind == "run":
        straight = bo.CountModel(**{**options, "decay": "none"}).fit(cells, steps=5)
        bo.CountModel(**{**options, "decay": "none"}).fit(cells, steps=3, out=tmp_path / "more")
        later = bo.CountModel.load(tmp_path / "more").fit(cells, steps=5, out=tmp_path / "more")
        assert same(later, weights(straight))
    assert loaded.fit(cells, steps=1).model.predictor.network.config.width == 32


def test_a_name_that_is_no_setting_is_named() -> None:
    with pytest.raises(TypeError, match=r"^foo is neither an argument nor a field of TrainConfig$"):
        bo.CountModel(foo=1)
    with pytest.raises(TypeError, match=r"^stps is neither .*; did you mean steps\?$"):
        bo.CountModel().fit(CELLS, stps=3)


def test_labels_may_be_listed_when_fitting_and_taken_back() -> None:
    model = bo.CountModel(**TINY).fit(CELLS, steps=1, labels=CELLS.obs.columns)
    assert (model.keys, len(model.classes)) == (["kind", "donor"], 6)
    assert model.fit(CELLS, steps=1, labels=None, layer=None).keys == []


def test_a_new_model_says_that_it_has_seen_nothing() -> None:
    for ask in (lambda m: m.classes, lambda m: m.covariates, lambda m: m.describe()):
        with pytest.raises(ValueError, match="the model has seen no cells yet: call fit first"):
            ask(bo.CountModel())


def test_a_folder_of_cells_is_not_loaded_as_a_plain_model(run: Path) -> None:
    with pytest.raises(ValueError, match=r"holds a model of cells: CountModel\.load reads it"):
        bo.load(run)
    assert numpy.isfinite(float(bo.CountModel.load(run).bits_per_dim(CELLS[:5], num_times=1)))


def test_a_sampler_by_its_name_is_refused(run: Path) -> None:
    model = bo.CountModel.load(run)
    with pytest.raises(ValueError, match=r"sampler must be a Sampler, such as TauLeaping\(\), got 'bridge'"):
        model.sample(2, sampler="bridge")  # type: ignore[arg-type]
