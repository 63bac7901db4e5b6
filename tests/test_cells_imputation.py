"""Imputation: observed counts are kept, the others are sampled."""

import math
from pathlib import Path
from typing import Any

import anndata
import numpy
import pandas
import pytest
import torch
from scipy import sparse, stats

import blackout as bo
from blackout.cells.config import CellEvalConfig
from blackout.cells.evaluate import evaluate_cells
from blackout.cells.read import read_counts
from blackout.cells.tasks import coverage, gene_means, hide
from test_cells_model import GENES, TINY, dense, two_types

QUICK: dict[str, Any] = {"num_steps": 3, "resample": 0}


@pytest.fixture(scope="module")
def free() -> bo.CountModel:
    """Without labels, trained on both types."""
    return bo.CountModel(**TINY).fit(two_types(), steps=400, learning_rate=3e-3)


@pytest.fixture(scope="module")
def given() -> bo.CountModel:
    """Conditioned on the type and on the library size, trained for a few steps."""
    options = {"labels": "kind", "library": "conditioned", **TINY}
    return bo.CountModel(**options).fit(two_types(100), steps=12, learning_rate=1e-2)


@pytest.fixture(scope="module")
def labelled() -> bo.CountModel:
    return bo.CountModel(labels=["kind", "donor"], **TINY).fit(two_types(100), steps=12, learning_rate=1e-2)


def test_observed_counts_are_kept(free: bo.CountModel) -> None:
    fresh = two_types(30, seed=7)
    x, known = dense(fresh), numpy.random.default_rng(0).random((30, 6)) < 0.5
    filled = free.impute(fresh, known, draws=3, num_steps=8, resample=1)
    draws = numpy.stack([filled.layers[f"draw_{k}"].toarray() for k in (1, 2, 3)])
    assert (draws[:, known] == x[known]).all()
    assert numpy.array_equal(dense(filled), draws[0])
    assert not numpy.array_equal(draws[0], draws[1])
    assert numpy.allclose(filled.layers["std"].toarray(), draws.std(0, ddof=1))
    assert list(filled.obs_names) == list(fresh.obs_names)
    assert list(filled.obs.kind) == list(fresh.obs.kind)
    again = free.impute(fresh, known, num_steps=8, resample=1, batch_size=7)
    assert numpy.array_equal(dense(again), draws[0])
    complete = free.impute(fresh, numpy.ones((30, 6), bool))
    assert numpy.array_equal(dense(complete), x)
    nothing = free.impute(fresh, numpy.zeros((30, 6), bool), num_steps=8)
    assert numpy.array_equal(dense(nothing), free.model.sample(30, 8, bo.TauLeaping()).numpy())


def test_mask_types_and_gene_order(free: bo.CountModel) -> None:
    fresh = two_types(12, seed=8)
    known = numpy.random.default_rng(1).random((12, 6)) < 0.5
    frame = pandas.DataFrame(known, fresh.obs_names, fresh.var_names)
    expected = dense(free.impute(fresh, known, num_steps=3, resample=0))
    masks = [sparse.csr_array(known), torch.from_numpy(known), frame, frame[GENES[::-1]], frame.iloc[::-1]]
    for mask in masks:
        assert numpy.array_equal(dense(free.impute(fresh, mask, num_steps=3, resample=0)), expected)
    turned = free.impute(fresh[:, GENES[::-1]].copy(), known[:, ::-1], num_steps=3, resample=0)
    assert list(turned.var_names) == GENES[::-1]
    assert numpy.array_equal(dense(turned)[:, ::-1], expected)


def test_an_imputed_marker_follows_the_observed_one(free: bo.CountModel) -> None:
    fresh = two_types(60, seed=9)
    known = numpy.ones((60, 6), bool)
    known[:, 0] = False
    imputed = free.impute(fresh, known, draws=3, num_steps=20, resample=2)
    truth, marginal = dense(fresh)[:, 0], dense(two_types())[:, 0].mean()
    draws = sum(imputed.layers[f"draw_{k}"].toarray()[:, 0] for k in (1, 2, 3)) / 3
    means = imputed.layers["mean"].toarray()[:, 0]
    for filled in (draws, means):
        assert numpy.abs(filled - truth).mean() < 0.8 * numpy.abs(marginal - truth).mean()
        assert stats.spearmanr(filled, truth).statistic > 0.5
    assert stats.pearsonr(numpy.log1p(means), numpy.log1p(truth)).statistic > 0.8
    assert means.mean() == pytest.approx(truth.mean(), rel=0.3)  # the error of 60 cells is 0.13


def test_means_without_draws(free: bo.CountModel) -> None:
    fresh = two_types(20, seed=9)
    known = numpy.random.default_rng(0).random((20, 6)) < 0.5
    known[3], known[4] = False, True
    means = free.impute(fresh, known, draws=0)
    assert list(means.layers) == ["mean"]
    assert numpy.array_equal(dense(means), means.layers["mean"].toarray())
    assert (dense(means)[known] == dense(fresh)[known]).all()
    assert (dense(means)[~known] > 0).all()
    with_draws = free.impute(fresh, known, batch_size=7, **QUICK)
    assert numpy.allclose(with_draws.layers["mean"].toarray(), dense(means), rtol=1e-4)
    # Nothing is observed of cell 3, as at the last time.
    last = torch.tensor([free.model.times.t_end])
    prior = free.model.posterior(torch.zeros(1, 6, dtype=torch.long), last).difference()
    assert numpy.allclose(dense(means)[3], prior.numpy(), rtol=1e-4)


def test_a_mean_is_at_most_the_library_size(free: bo.CountModel, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh, known = two_types(20, seed=9), numpy.ones((20, 6), bool)
    known[:, 0] = False
    predict = type(free.model.predictor.head).predict
    monkeypatch.setattr(type(free.model.predictor.head), "predict", lambda self, *inputs: 1e6 * predict(self, *inputs))
    mean, total = free.impute(fresh, known, draws=0)[:, "left"].X.toarray().ravel(), dense(fresh)[:, 1:].sum(1)
    of_genes = dense(two_types()).mean(0)
    assert numpy.allclose(mean, total * of_genes.sum() / of_genes[1:].sum(), rtol=1e-4)


def test_a_cell_without_counts(given: bo.CountModel) -> None:
    fresh = two_types(3, seed=9)
    fresh.X = sparse.csr_matrix(fresh.X.toarray() * numpy.array([[1], [0], [1]]))
    known = numpy.arange(6) < numpy.full((3, 1), 2)
    assert given.impute(fresh, known, num_steps=3, resample=0).shape == (3, 6)
    assert math.isfinite(given.bits_per_dim(fresh, num_times=2))


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (numpy.ones((2, 6), bool), r"mask must have shape \(3, 6\), cells and genes of the data, got \(2, 6\)"),
        (numpy.ones((3, 6)), "mask must hold booleans, true where a count is observed, got float64"),
        (torch.ones(3, 6, dtype=torch.int32), "mask must hold booleans, .* got int32"),
        (
            pandas.DataFrame(numpy.ones((3, 6), bool)),
            "mask lacks these genes of the data: 'left', 'right', 'house' and 3",
        ),
        (
            pandas.DataFrame(True, ["c0", "c1", "x"], GENES),
            r"mask lacks these cells of .*: 'c2'; a mask without names",
        ),
        (
            pandas.DataFrame(True, ["c0", "c1", "c2"], [*GENES, "left"]),
            "mask must name each of its genes once, .*: 'left'",
        ),
        ("left", "mask: left: no such file or folder"),
    ],
)
def test_invalid_masks(free: bo.CountModel, mask: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        free.impute(two_types(3), mask)


def test_a_mask_may_have_other_genes(free: bo.CountModel) -> None:
    fresh = two_types(12, seed=8)
    frame = pandas.DataFrame(numpy.random.default_rng(1).random((12, 6)) < 0.5, fresh.obs_names, GENES)
    some = fresh[3:7].copy()
    expected = dense(free.impute(some, frame.to_numpy()[3:7], **QUICK))
    assert numpy.array_equal(dense(free.impute(some, frame.assign(other=True), **QUICK)), expected)


@pytest.mark.parametrize("hidden", [numpy.nan, -1, 0.5, 10**12])
@pytest.mark.parametrize("form", ["dense", "sparse", "frame", "file"])
def test_unobserved_values_are_ignored(free: bo.CountModel, hidden: float, form: str, tmp_path: Path) -> None:
    fresh = two_types(9, seed=7)
    x, known = dense(fresh).astype(float), numpy.random.default_rng(0).random((9, 6)) < 0.5
    expected = dense(free.impute(fresh, known, **QUICK))
    x[~known] = hidden
    source: Any = anndata.AnnData(x if form == "dense" else sparse.csr_matrix(x), fresh.obs, fresh.var)
    if form == "frame":
        source = source.to_df()
    elif form == "file":
        source = tmp_path / "cells.csv"
        pandas.DataFrame(x, fresh.obs_names, GENES).to_csv(source)
    assert numpy.array_equal(dense(free.impute(source, known, **QUICK)), expected)
    known[0, 0] = True
    x[0, 0] = numpy.nan
    with pytest.raises(ValueError, match="not counts: cell 0, gene 'left' holds nan"):
        free.impute(anndata.AnnData(x, fresh.obs, fresh.var), known | ~known)


def test_missing_genes_are_appended(free: bo.CountModel, tmp_path: Path) -> None:
    fresh = two_types(20, seed=9)
    fresh.var["marker"], fresh.var["rank"], fresh.var["text"] = [True, False] * 3, range(6), list("abcdef")
    fresh.obs["size"] = numpy.arange(20, dtype="int16")
    known = numpy.ones((20, 6), bool)
    known[:, 1], known[4, 3] = False, False
    complete = free.impute(fresh, known, **QUICK)
    pandas.testing.assert_frame_equal(complete.var, fresh.var)
    pandas.testing.assert_frame_equal(complete.obs, fresh.obs)
    order = [5, 3, 0, 4, 2]  # without gene 1
    fewer = free.impute(fresh[:, order].copy(), draws=0)  # without a mask the gene that is missing is imputed
    assert numpy.array_equal(dense(fewer)[:, :5], dense(fresh)[:, order])
    filled = free.impute(fresh[:, order].copy(), known[:, order], draws=2, **QUICK)
    assert list(filled.var_names) == [*(GENES[k] for k in order), GENES[1]]
    assert numpy.array_equal(dense(filled[:, GENES]), dense(complete))
    assert list(filled.var["rank"][:5]) == order
    assert filled.var["text"].isna().tolist() == [False] * 5 + [True]
    pandas.testing.assert_frame_equal(filled.obs, fresh.obs)
    filled.write_h5ad(tmp_path / "filled.h5ad")
    again = anndata.read_h5ad(tmp_path / "filled.h5ad")
    assert again.obs["kind"].tolist() == fresh.obs["kind"].tolist()


def test_genes_that_the_model_lacks(free: bo.CountModel) -> None:
    fresh = two_types(5).to_df().assign(strange=0)
    known = numpy.ones((5, 7), bool)
    known[:, 0] = False
    filled = free.impute(fresh, known, **QUICK)  # no cell has it, so the model need not know it
    assert list(filled.var_names) == [*GENES, "strange"]
    assert filled[:, "strange"].X.sum() == 0
    for change in ("count", "mask"):
        other, mask = fresh.copy(), known.copy()
        if change == "count":
            other.iloc[2, 6] = 1
        else:
            mask[2, 6] = False
        with pytest.raises(ValueError, match="the model was not trained on these genes: 'strange'; remove them"):
            free.impute(other, mask, **QUICK)


@pytest.mark.filterwarnings("ignore:obs has no column 'donor'")
def test_unlabelled_cells(labelled: bo.CountModel, given: bo.CountModel) -> None:
    fresh = two_types(6, seed=3)
    known = numpy.random.default_rng(0).random((6, 6)) < 0.5
    for model, none in ((labelled, torch.full((6, 2), -1.0)), (given, torch.tensor([[-1.0, math.nan]]).expand(6, 2))):
        bare = fresh.copy()
        bare.obs = bare.obs.drop(columns=["kind", "donor"])
        with pytest.warns(UserWarning, match="obs has no column 'kind': it is unknown for all cells"):
            sampled = dense(model.impute(bare, known, **QUICK))
        with pytest.warns(UserWarning, match="obs has no column 'kind'"):
            bits = model.bits_per_dim(bare, num_times=2)
        states, mask = torch.from_numpy(dense(fresh)).long(), torch.from_numpy(known)
        inside = model.model.sample(6, 3, bo.TauLeaping(), observed=states, mask=mask, resample=0, label=none)
        assert numpy.array_equal(sampled, inside.numpy())
        some = fresh.copy()
        some.obs["kind"] = pandas.Categorical(["A", None, "B", "A", None, "B"])
        some.obs["donor"] = some.obs["donor"].astype(object).where(some.obs["kind"].notna(), None)
        mixed, complete = dense(model.impute(some, known, **QUICK)), dense(model.impute(fresh, known, **QUICK))
        has, own = (
            some.obs["kind"].notna().to_numpy(),
            (some.obs["kind"].astype(object) == fresh.obs["kind"]).to_numpy(),
        )
        assert numpy.array_equal(mixed[~has], sampled[~has])
        assert numpy.array_equal(mixed[own], complete[own])
        assert model.bits_per_dim(some, num_times=2) != bits
        some.obs["kind"] = ["A", "Z", "B", "A", "A", "B"]
        with pytest.raises(ValueError, match="the model was not trained on these labels"):
            model.impute(some, known)


def test_label_dropout_zero_needs_labels() -> None:
    cells = two_types(40)
    model = bo.CountModel(labels="kind", label_dropout=0.0, **TINY).fit(cells, steps=1)
    bare = cells.copy()
    del bare.obs["kind"]
    for call in (lambda: model.bits_per_dim(bare), lambda: model.impute(bare, numpy.ones((40, 6), bool))):
        with pytest.raises(
            ValueError, match=r"obs has no column 'kind'.*; a model trained with label_dropout=0 needs labels"
        ):
            call()
    with pytest.raises(ValueError, match="guidance must be 1 for a model trained with label_dropout=0, got 0"):
        model.sample(2, guidance=0)


def test_draws_of_different_seeds_differ(free: bo.CountModel) -> None:
    fresh, known = two_types(8, seed=2), numpy.zeros((8, 6), bool)
    draws = []
    for seed in (0, 1, 2):
        filled = free.impute(fresh, known, draws=3, seed=seed, num_steps=8)
        draws += [filled.layers[f"draw_{k}"].toarray() for k in (1, 2, 3)]
    assert len({draw.tobytes() for draw in draws}) == 9


def test_a_cell_does_not_depend_on_the_masks_of_others(free: bo.CountModel) -> None:
    fresh, known = two_types(9, seed=2), numpy.random.default_rng(0).random((9, 6)) < 0.5
    known[:3], known[3:6] = False, True
    complete = dense(free.impute(fresh, known, num_steps=4, resample=1))
    for size in (1, 2, 3, 4):
        assert numpy.array_equal(dense(free.impute(fresh, known, num_steps=4, resample=1, batch_size=size)), complete)


def test_layer_of_the_model_or_x(tmp_path: Path) -> None:
    cells = two_types(40)
    cells.layers["counts"], cells.X = cells.X.copy(), cells.X / 3
    model = bo.CountModel(layer="counts", **TINY).fit(cells, steps=1)
    sampled = model.sample(4, num_steps=2)
    known = numpy.ones((4, 6), bool)
    for source in (sampled, sampled.to_df(), read_counts(sampled, empty="keep")):
        assert math.isfinite(model.bits_per_dim(source, num_times=1))
        assert numpy.array_equal(dense(model.impute(source, known)), dense(sampled))
    assert numpy.array_equal(dense(model.impute(cells[:4], known)), cells.layers["counts"][:4].toarray())
    with pytest.raises(ValueError, match="not counts"):
        model.bits_per_dim(cells.to_df())


def test_hidden_counts_of_held_out_cells() -> None:
    cells = read_counts(two_types(400))
    some, observed = hide(cells, "0.5", 3)
    assert observed.shape == some.x.shape == (400, 6)
    assert 0.45 < observed.mean() < 0.55
    _, genes = hide(cells, "genes", 3)
    assert (genes.all(0) | ~genes.any(0)).all()
    assert (~genes.any(0)).sum() == 1


def test_intervals_of_draws_cover_their_share() -> None:
    """Truth and draws of one Poisson distribution: 2,400 hidden counts, shares right to 4 standard deviations."""
    rng = numpy.random.default_rng(0)

    class Oracle:
        def impute(self, cells: Any, mask: Any, *, draws: int, seed: int) -> Any:
            found = anndata.AnnData(numpy.zeros(mask.shape))
            found.layers.update({f"draw_{k + 1}": sparse.csr_array(rng.poisson(1.3, mask.shape)) for k in range(draws)})
            return found

    cells = read_counts(rng.poisson(1.3, (50, 48)), empty="keep")
    model: Any = Oracle()
    scores = coverage(model, cells, "1", 9, 0)
    assert (scores["draws"], scores["drawn_cells"]) == (9, 50)
    assert scores["within_50"] == pytest.approx(0.5, abs=0.041)
    assert scores["within_90"] == pytest.approx(0.9, abs=0.025)


def test_gene_means_are_scaled_to_the_observed_total() -> None:
    train = read_counts(numpy.array([[1, 2, 3], [3, 2, 1]]), empty="keep")
    guess = gene_means(train)(numpy.array([[4.0, 4.0, 100.0]]), numpy.array([[True, True, False]]))
    assert guess is not None
    assert guess == pytest.approx(numpy.array([[4.0, 4.0, 4.0]]))


def test_scores_of_one_kind_of_hidden_counts_survive_an_interruption(
    free: bo.CountModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells, called = read_counts(two_types(20, seed=3)), list[str]()

    def interrupted(model: Any, test: Any, what: str, draws: int, seed: int) -> dict[str, float]:
        called.append(what)
        if len(called) == 2:
            raise KeyboardInterrupt
        return {"within_50": 0.5}

    monkeypatch.setattr("blackout.cells.evaluate.coverage", interrupted)
    config = CellEvalConfig(num_samples=0, num_times=1, hidden="0.2,genes", draws=2)
    with pytest.raises(KeyboardInterrupt):
        evaluate_cells(free, tmp_path, cells, config=config)
    report = evaluate_cells(free, tmp_path, cells, config=config)
    assert called == ["0.2", "genes", "genes"]
    assert [scores["within_50"] for scores in report["imputation"]["model"].values()] == [0.5, 0.5]


def test_other_labels_of_the_same_counts_are_evaluated_anew(labelled: bo.CountModel, tmp_path: Path) -> None:
    """In the folder of an evaluation whose cells had other types; in a new folder the scores are the same."""
    cells, other = two_types(100, seed=3), two_types(100, seed=3)
    other.obs["kind"] = other.obs["kind"].to_numpy()[::-1]
    config = CellEvalConfig(num_samples=0, num_times=1, hidden="0.2")
    first, second, new = (
        evaluate_cells(labelled, tmp_path / out, read_counts(data), config=config)["imputation"]["model"]
        for out, data in (("a", cells), ("a", other), ("b", other))
    )
    assert second == new != first
