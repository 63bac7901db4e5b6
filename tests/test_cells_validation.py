"""Validation: which cells, the best weights, early stopping, and sizes that follow from the data."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import blackout as bo
from blackout.cells.config import CellConfig, sized
from blackout.cells.validation import choose_cells
from blackout.training.config import TrainConfig
from blackout.training.run import train
from blackout.training.validation import Validation
from test_cells_model import TINY, two_types


def tiny() -> tuple[bo.DiffusionModel, TrainConfig, torch.Tensor]:
    x = torch.randint(0, 5, (64, 3), generator=torch.Generator().manual_seed(0))
    model = bo.DiffusionModel.for_data(x, bo.PureDeath(4), width=8, blocks=1)
    options: dict[str, Any] = {"steps": 40, "batch_size": 8, "log_every": 4, "checkpoint_every": 6}
    return model, TrainConfig.for_fit(model.process, model.predictor.head, model.times, 0, **options), x


def test_the_best_weights_are_kept_and_the_run_ends(tmp_path: Path) -> None:
    """Scores 3, 2, 1, 4, 5, 6, ...: the third is the best, and two worse ones in a row end the run."""
    seen, values = [], iter([3.0, 2.0, 1.0, 4.0, math.nan, 6.0, 7.0])

    def score(predictor: Any) -> float:
        seen.append({name: value.clone() for name, value in predictor.state_dict().items()})
        assert not predictor.training
        return next(values)

    model, config, x = tiny()
    validation = Validation(score, every=4, patience=2)
    reports = train(model, config, x, None, tmp_path / "run", None, validation)
    assert list(validation.scores) == [4, 8, 12, 16, 20]
    assert (validation.best_step, validation.ended, reports[-1].step) == (12, True, 20)
    assert [report.validation for report in reports] == [3.0, 2.0, 1.0, 4.0, math.inf]
    for kept in (model, bo.load(tmp_path / "run")):
        for name, value in kept.predictor.state_dict().items():
            assert torch.equal(value, seen[2][name])
    again = Validation(lambda _: pytest.fail("the run has ended"), every=4, patience=2)
    assert train(tiny()[0], config, x, None, tmp_path / "run", None, again) == []
    assert again.scores == validation.scores


def test_a_stopped_run_resumes_its_validation(tmp_path: Path) -> None:
    def score(predictor: Any) -> float:
        return float(next(iter(predictor.network.parameters())).double().sum())

    model, config, x = tiny()
    complete = Validation(score, every=3)
    train(model, config, x, None, None, None, complete)
    for steps in (18, 40):
        part = Validation(score, every=3)
        train(tiny()[0], config.replace(steps=steps), x, None, tmp_path / "run", None, part)
    assert part.scores == complete.scores
    assert list(part.scores) == [*range(3, 40, 3), 40]
    assert part.weights is not None
    assert complete.weights is not None
    assert all(torch.equal(value, complete.weights[name]) for name, value in part.weights.items())


def test_cells_that_cannot_be_generalised_end_the_fit_early() -> None:
    """Independent noise: a network that goes on learns its cells by heart. The weights before that are kept."""
    rng = numpy.random.default_rng(0)
    x, fresh = rng.poisson(rng.gamma(1.0, 2.0, (2, 240, 30)))
    options: dict[str, Any] = {**TINY, "width": 64, "learning_rate": 1e-2}
    models = [bo.CountModel(**options).fit(x, steps=400, empty="keep", validation=share) for share in (0.1, 0.0)]
    history = models[0].history
    assert 5 * 16 <= history.index[-1] < 400
    assert history["validation"].notna().all()
    assert history["validation"].iloc[-1] > history["validation"].min()
    assert models[1].history.index[-1] == 400
    assert models[1].history["validation"].isna().all()
    kept, memorised = (model.bits_per_dim(fresh, num_times=4) for model in models)
    assert kept < memorised - 0.05


def test_validation_by_other_cells_is_their_likelihood(tmp_path: Path) -> None:
    cells, other = two_types(300), two_types(150, seed=1)
    model = bo.CountModel(labels="kind", **TINY).fit(cells, steps=50, validation=other)
    best = model.history["validation"].min()
    assert float(model.bits_per_dim(other, num_times=4, batch_size=32)) == pytest.approx(best, rel=1e-5)
    model.save(tmp_path / "model")
    loaded = bo.CountModel.load(tmp_path / "model")
    assert loaded.history.equals(model.history)
    assert list(loaded.history.columns) == ["loss", "bits_per_dim", "validation", "learning_rate", "seconds"]
    axes = loaded.plot_history().axes[0]
    assert [line.get_label() for line in axes.get_lines()] == ["training", "validation"]
    with pytest.raises(ValueError, match=r"validation must be at most 0.5, a share of the cells, got 0.7"):
        bo.CountModel(**TINY).fit(cells, validation=0.7)


def test_every_class_keeps_most_of_its_cells() -> None:
    """Shares are exact up to one cell; a class of fewer than ten cells keeps them all."""
    codes = numpy.repeat([0, 1, 2, 3], [400, 60, 19, 3])[:, None]
    chosen = choose_cells(codes, 0.1, seed=0)
    number = numpy.bincount(codes[chosen, 0], minlength=4)
    assert (abs(number - [40, 6, 1.9, 0]) < 1).all()
    assert not numpy.array_equal(chosen, choose_cells(codes, 0.1, seed=1))
    assert choose_cells(numpy.zeros((199, 0), int), 0.1, seed=0).sum() == 0
    assert choose_cells(numpy.zeros((9_000, 0), int), 0.1, seed=0).sum() == 256
    many = numpy.stack([numpy.arange(1200) % 30, numpy.arange(1200) % 41], 1)  # almost every combination is one cell
    assert choose_cells(many, 0.1, seed=0).sum() == pytest.approx(120, abs=1)


def test_sizes_follow_from_the_data() -> None:
    numbers = (500, 3_000, 20_000, 100_000, 1_000_000)
    for small, large in itertools.pairwise(sized(cells, 2_000) for cells in numbers):
        assert small["width"] <= large["width"]
        assert small["steps"] < large["steps"]
        assert small["dropout"] >= large["dropout"]
    assert sized(10_000, 100)["width"] < sized(10_000, 2_000)["width"]
    config = CellConfig().replace(width=64, steps=7)
    chosen = config.for_size(500, 2_000)
    assert (chosen.train["width"], chosen.train["steps"]) == (64, 7)
    assert chosen.train["dropout"] == sized(500, 2_000)["dropout"]
    again = CellConfig.from_dict(chosen.to_dict())
    assert again.for_size(1_000_000, 2_000).train["dropout"] == sized(1_000_000, 2_000)["dropout"]
    assert again.for_size(1_000_000, 2_000).train["width"] == 64
    by_hand = CellConfig.from_dict({"train": {"network": {"dropout": 0.4}}})
    assert by_hand.for_size(500, 2_000).train["dropout"] == 0.4


def test_times_are_fitted_after_training_and_saved_with_a_run(tmp_path: Path) -> None:
    cells = two_types(240)
    model = bo.CountModel(labels="kind", label_dropout=0.0, **TINY).fit(cells, steps=2, out=tmp_path / "run")
    assert [model.model.sampling_rule(steps) for steps in (64, 65)] == ["fitted", "length"]
    assert bo.CountModel.load(tmp_path / "run").model.record.fitted == model.model.record.fitted
    assert bo.CountModel(**TINY).fit(two_types(60), steps=2).model.record.fitted is None  # too few cells


def test_one_of_several_processes_fits_the_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells, options = two_types(240), {**TINY, "steps": 2}
    first = bo.CountModel(**options).fit(cells, out=tmp_path / "first")
    fitted = first.model.record.fitted
    assert fitted is not None
    monkeypatch.setattr("blackout.cells.validation.is_first", lambda: False)
    monkeypatch.setattr("blackout.cells.validation.broadcast_object_list", lambda _: [fitted])
    monkeypatch.setattr(bo.DiffusionModel, "fit_times", None)
    other = bo.CountModel(**options).fit(cells, out=tmp_path / "other")
    assert other.model.record.fitted == fitted
    assert "fitted" in json.loads((tmp_path / "first" / "model.json").read_text())
    assert "fitted" not in json.loads((tmp_path / "other" / "model.json").read_text())
