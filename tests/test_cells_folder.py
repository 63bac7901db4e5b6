"""Folders of models of cells: a run is tied to its cells, and a failed fit changes nothing."""

import shutil
import signal
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import blackout as bo
from blackout.cells.folder import CELLS
from blackout.files import read_json, write_json
from blackout.training.loop import Stopped
from test_cells_model import TINY, two_types

DATA = two_types(120)


def weights(model: bo.CountModel) -> dict[str, Any]:
    return {name: value.clone() for name, value in model.model.predictor.state_dict().items()}


def same(model: bo.CountModel, before: dict[str, Any]) -> bool:
    return all(torch.equal(value, before[name]) for name, value in model.model.predictor.state_dict().items())


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cells") / "run"
    bo.CountModel(labels="kind", **TINY).fit(DATA, steps=2, out=folder)
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of the run."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture(scope="module")
def fitted() -> bo.CountModel:
    return bo.CountModel(labels=["kind", "donor"], **TINY).fit(DATA, steps=2)


def turned_labels() -> Any:
    """The same counts and class frequencies, but the labels of other cells."""
    other = DATA.copy()
    other.obs["kind"] = other.obs["kind"].to_numpy()[::-1]
    return other


@pytest.mark.parametrize("cells", [DATA[:60], DATA[::-1], two_types(120, seed=1), turned_labels()])
def test_run_rejects_other_cells(run: Path, cells: Any) -> None:
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    for steps in (2, 4):  # finished, or to be resumed
        with pytest.raises(
            ValueError, match="holds a run on other cells; choose another folder, or the data of the run"
        ) as error:
            bo.CountModel(labels="kind", **TINY).fit(cells.copy(), steps=steps, out=run)
        assert "\n" not in str(error.value)
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before
    bo.CountModel(labels="kind", **TINY).fit(DATA, steps=4, out=run)
    assert (run / CELLS).read_bytes() == before[CELLS]


def test_run_that_has_not_begun_accepts_other_cells(run: Path) -> None:
    (run / "config.json").unlink()  # it is written when training begins
    shutil.rmtree(run / "checkpoints")
    assert bo.CountModel(**TINY).fit(DATA[:50].copy(), steps=1, out=run).config.labels == ()
    assert bo.CountModel.load(run).classes == {}


def test_saved_model_is_not_a_run(tmp_path: Path) -> None:
    model = bo.CountModel(**TINY).fit(DATA, steps=1)
    with pytest.raises(ValueError, match="holds a saved model, which is not a run to resume"):
        model.fit(DATA, out=model.save(tmp_path / "model"))
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="folder must be a folder or not exist yet, got the file"):
        model.save(tmp_path / "file")


INVALID: list[tuple[dict[str, Any], str]] = [
    ({"layer": "typo"}, "layer must be one of"),
    ({"labels": "typo"}, "obs has no column 'typo'"),
    ({"empty": "typo"}, "empty must be one of"),
    ({"width": 7}, "width must be even and at least 4, got 7"),
    ({"steps": 0}, "steps must be at least 1"),
    ({"process": "absorbing"}, "process must be 'pure-death' for a model of cells, got 'absorbing'"),
    ({"accumulate": 5}, "batch_size=64 must be a multiple"),
    ({"label_dropout": 2}, "label_dropout must be less than 1, got 2"),
    ({"labels": ["kind", 3]}, "labels must name columns of obs, got 3"),
    ({"out": "run"}, r"holds a run with labels=\['kind'\], not"),
]


@pytest.mark.parametrize(("options", "message"), INVALID)
def test_failed_fit_leaves_the_model_unchanged(
    options: dict[str, Any], message: str, fitted: bo.CountModel, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained.parent)
    model = fitted
    config, before, inside, classes = model.config, weights(model), model.model, model.classes
    with pytest.raises(ValueError, match=message):
        model.fit(DATA[:, ::-1].copy(), **options)
    assert model.config == config
    assert model.model is inside
    assert (model.classes, model.config.labels, model.genes) == (classes, ("kind", "donor"), tuple(DATA.var_names))
    assert same(model, before)


def test_stopped_fit_keeps_its_weights() -> None:
    def stop(report: Any, trainer: Any) -> None:
        if report.step == 2:  # a second one would not wait for the step
            signal.raise_signal(signal.SIGINT)

    model = bo.CountModel(lr_schedule="none", **TINY)
    with pytest.raises(Stopped):  # after the step that follows the signal
        model.fit(DATA, steps=5, log_every=2, listener=stop)
    assert same(model, weights(bo.CountModel(lr_schedule="none", **TINY).fit(DATA, steps=3)))


@pytest.mark.parametrize("kind", ["run", "saved"])
def test_loaded_model_has_the_configuration_of_its_training(kind: str, tmp_path: Path) -> None:
    options = {**TINY, "labels": "kind", "layer": "raw", "lr_schedule": "none"}
    cells = DATA.copy()
    cells.raw = cells
    model = bo.CountModel(**options).fit(cells, steps=3, out=tmp_path / "run" if kind == "run" else None)
    folder = tmp_path / "run" if kind == "run" else model.save(tmp_path / kind)
    loaded = bo.CountModel.load(folder)
    assert loaded.config == model.config
    assert (loaded.config.labels, loaded.config.layer, loaded.config.train.network.width) == (("kind",), "raw", 32)
    if kind == "run":
        straight = bo.CountModel(**options).fit(cells, steps=5)
        assert same(bo.CountModel.load(folder).fit(cells, steps=5, out=folder), weights(straight))
        assert bo.CountModel.load(folder).config.train.optimiser.steps == 5
    assert loaded.fit(cells, steps=1).model.predictor.network.settings.width == 32


def test_unknown_setting() -> None:
    with pytest.raises(ValueError, match=r"^foo is not a field of TrainConfig$"):
        bo.CountModel(foo=1)
    with pytest.raises(ValueError, match=r"^stps is not a field of TrainConfig; did you mean steps\?$"):
        bo.CountModel().fit(DATA, stps=3)


def test_labels_can_be_changed_by_fit() -> None:
    model = bo.CountModel(**TINY).fit(DATA, steps=1, labels=DATA.obs.columns)
    assert (model.config.labels, len(model.classes)) == (("kind", "donor"), 2)
    assert model.fit(DATA, steps=1, labels=None, layer=None).config.labels == ()


def test_history_must_be_a_list_of_reports(run: Path, tmp_path: Path) -> None:
    path = bo.CountModel.load(run).save(tmp_path / "model") / "model.json"
    description = read_json(path)
    for history in (3, "none", [1]):
        write_json(path, description | {"cells": description["cells"] | {"history": history}})
        with pytest.raises(ValueError, match=r"model\.json does not describe a model of cells: history must be a list"):
            bo.CountModel.load(tmp_path / "model")


def test_unfitted_model() -> None:
    for ask in (lambda m: m.classes, lambda m: m.covariates, lambda m: m.describe()):
        with pytest.raises(ValueError, match="the model is not fitted yet: call fit first"):
            ask(bo.CountModel())


def test_load_rejects_a_folder_of_cells(run: Path) -> None:
    with pytest.raises(ValueError, match=r"holds a model of cells: use CountModel\.load"):
        bo.load(run)
    assert numpy.isfinite(float(bo.CountModel.load(run).bits_per_dim(DATA[:5], num_times=1)))


def test_sampler_by_name(run: Path) -> None:
    model = bo.CountModel.load(run)
    named, given = (model.sample(5, num_steps=3, sampler=s) for s in ("bridge", bo.BinomialBridge()))
    assert (named.X != given.X).nnz == 0
    with pytest.raises(ValueError, match="sampler must be one of"):
        model.sample(2, sampler="other")
