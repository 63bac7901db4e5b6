"""Labels and library sizes of sampled cells, their types, and guidance 0."""

import warnings
from pathlib import Path
from typing import Any

import anndata
import numpy
import pandas
import pytest
import torch

import blackout as bo
from blackout.cells.library import LibrarySizes
from blackout.cells.totals import GivenTotal
from test_cells_model import TINY, dense, two_types

CELLS = two_types(100)
NUMBER = numpy.arange(100) % 3
CELLS.obs["integer"], CELLS.obs["real"], CELLS.obs["truth"] = NUMBER, NUMBER / 4, NUMBER > 0
CELLS.obs["category"] = pandas.Categorical(numpy.array(list("zxy"))[NUMBER], ["z", "y", "x", "unused"], ordered=True)
CELLS.obs["level"] = pandas.Categorical(NUMBER)
KEYS = ["integer", "real", "truth", "category", "level", "kind"]


@pytest.fixture(scope="module")
def model() -> bo.CountModel:
    return bo.CountModel(labels=KEYS, **TINY).fit(CELLS, steps=1)


def large_and_small() -> Any:
    """Type A has thirty times as many counts as type B."""
    cells = CELLS.copy()
    cells.X = cells.X.multiply(numpy.where(cells.obs["kind"] == "A", 30, 1)[:, None]).tocsr()
    return cells


@pytest.fixture(scope="module")
def given() -> bo.CountModel:
    return bo.CountModel(labels="kind", library="conditioned", **TINY).fit(large_and_small(), steps=20)


def test_sampled_labels_have_the_types_of_training(model: bo.CountModel, tmp_path: Path) -> None:
    for one in (model, bo.CountModel.load(model.save(tmp_path / "model"))):
        sampled = one.sample(12, num_steps=1)
        for key in KEYS:
            assert sampled.obs[key].dtype == CELLS.obs[key].dtype
            assert set(sampled.obs[key]) <= set(CELLS.obs[key])
        assert (sampled.obs["real"] * 4 == sampled.obs["integer"]).all()
        both = anndata.concat({"real": CELLS, "sampled": sampled}, label="origin", index_unique="-")
        both.write_h5ad(tmp_path / "both.h5ad")
        again = anndata.read_h5ad(tmp_path / "both.h5ad")
        assert (again.obs["integer"].dtype, again.obs["truth"].dtype) == (numpy.int64, bool)
        assert again.obs["category"].cat.categories.tolist() == ["z", "y", "x", "unused"]
    filled = model.impute(CELLS, numpy.ones((100, 6), bool))
    pandas.testing.assert_frame_equal(filled.obs, CELLS.obs)


def test_label_values_of_any_type() -> None:
    model = bo.CountModel(labels="integer", **TINY).fit(CELLS, steps=1)
    for label in (2, "2", numpy.int64(2)):
        assert model.sample(2, label=label, num_steps=1).obs["integer"].tolist() == [2, 2]
    assert model.sample(3, label=[2, 0, 1], num_steps=1).obs["integer"].tolist() == [2, 0, 1]


def test_guidance_zero_is_the_unconditional_model(model: bo.CountModel, given: bo.CountModel) -> None:
    """Sampled library sizes are those of all cells, not those of the class."""
    sampled = [given.sample(60, label=label, guidance=0, num_steps=4, seed=1) for label in ("A", "B", None)]
    for cells in sampled:
        assert list(cells.obs.columns) == ["library"]
        assert numpy.array_equal(dense(cells), dense(sampled[0]))
        assert cells.obs["library"].tolist() == sampled[0].obs["library"].tolist()
    chance = numpy.random.default_rng(1).random((60, 4))[:, 2:]
    sizes = given.covariates.sizes.sample(numpy.full((60, 1), -1), chance)
    assert sampled[0].obs["library"].tolist() == sizes.tolist()
    number = given.covariates.sizes.encode(sampled[0].obs["library"].to_numpy())
    label = torch.from_numpy(numpy.stack([numpy.full(60, -1.0), number], 1)).float()
    sampler = GivenTotal(bo.TauLeaping(), sampled[0].obs["library"].to_numpy())
    assert numpy.array_equal(dense(sampled[0]), given.model.sample(60, 4, sampler, 1, label=label).numpy())
    plain = model.sample(5, guidance=0.0, num_steps=3, seed=2)
    assert numpy.array_equal(dense(plain), model.model.sample(5, 3, bo.TauLeaping(), 2).numpy())
    assert list(plain.obs.columns) == []
    with pytest.raises(ValueError, match="the model was not trained on these labels: 'C'"):
        given.sample(2, label="C", guidance=0)


def test_library_outside_the_training_range_warns(given: bo.CountModel) -> None:
    totals = numpy.asarray(large_and_small().X.sum(1)).ravel()
    large = (CELLS.obs["kind"] == "A").to_numpy()
    low, high = int(totals[~large].min()), int(totals[~large].max())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        given.sample(2, label="B", library=[low, high], num_steps=1)
        given.sample(1, label="A", library=int(totals.max()), num_steps=1)
        given.sample(1, label="B", library=int(totals.max()), guidance=0, num_steps=1)
    for library in (low - 1, high + 1, [low, high + 1]):
        text = f"results may differ: training cells have {low} to {high}, got {numpy.max(library)}"
        with pytest.warns(UserWarning, match=text) as warned:
            given.sample(2, label="B", library=library, num_steps=1)
        assert warned[0].filename == __file__


def test_ranges_of_library_sizes() -> None:
    """Of cells of unknown codes, and of a combination that no cell has: of all that agree in the most columns."""
    second = numpy.where(numpy.arange(50) < 20, 0, 1 + numpy.arange(50) % 2)
    sizes = LibrarySizes.fit(numpy.arange(10, 60), numpy.stack([numpy.arange(50) % 2, second], 1))
    codes = numpy.array([[0, 0], [1, 0], [-1, -1], [0, -1], [-1, 2], [0, 2]])
    expected = [[10, 28], [11, 29], [10, 59], [10, 58], [31, 59], [10, 59]]
    assert sizes.ranges_of(codes).tolist() == expected


def test_zero_samples(model: bo.CountModel, given: bo.CountModel) -> None:
    for one, columns in ((model, KEYS), (given, ["kind", "library"])):
        none = one.sample(0)
        assert none.shape == (0, 6)
        assert none.X.dtype == numpy.int32
        assert list(none.obs.columns) == columns


def test_invalid_labels() -> None:
    cells = CELLS.copy()
    cells.obs["library"], cells.obs["each"] = "x", numpy.arange(100)
    with pytest.raises(ValueError, match="labels must not name 'library'"):
        bo.CountModel(labels="library", library="conditioned", **TINY).fit(cells, steps=1)
    with pytest.raises(ValueError, match="labels must be classes, got 100 values of 'each' in 100 cells"):
        bo.CountModel(labels="each", **TINY).fit(cells, steps=1)
    cells.obs["each"] = cells.obs["each"].map(str)
    with pytest.warns(UserWarning, match="labels should have many cells in each class, got 100 values of 'each' in"):
        bo.CountModel(labels="each", **TINY).fit(cells, steps=1)
