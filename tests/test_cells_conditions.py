"""Several label columns, a batch and numbers, against worlds whose means are known. Seeds are fixed."""

import json
from pathlib import Path
from typing import Any

import anndata
import numpy
import pandas
import pytest
import torch
from scipy import optimize, sparse, special

import blackout as bo
from blackout.cells.config import CellConfig
from blackout.cells.covariates import Covariates
from blackout.cells.effects import label_effects
from blackout.cells.read import read_counts
from blackout.data import SparseRows
from blackout.labels import Conditions
from blackout.network import GammaPoissonHead
from test_cells_model import TINY

FAST: dict[str, Any] = {**TINY, "learning_rate": 3e-3, "validation": 0.0}


def table(rates: Any, seed: int, **obs: Any) -> anndata.AnnData:
    """Poisson counts of these rates; the last gene is one more, so that no cell is empty."""
    x = numpy.random.default_rng(seed).poisson(rates)
    x[:, -1] += 1
    return anndata.AnnData(x.astype(float), pandas.DataFrame(obs, index=[f"c{k}" for k in range(len(x))]))


def means(cells: anndata.AnnData) -> Any:
    return cells.X.toarray().mean(0)


@pytest.fixture(scope="module")
def dosed() -> bo.CountModel:
    """Gene 0 grows with the dose, gene 1 falls; donor y has twice as much of gene 2. Some doses are missing."""
    rng = numpy.random.default_rng(0)
    dose, donor = rng.choice([0.0, 1.0, 2.0, 4.0], 600), rng.choice(["x", "y"], 600, p=[0.3, 0.7])
    kind = numpy.where(rng.random(600) < 0.25, "a", "b")
    rates = numpy.stack([6 * numpy.exp(dose / 2), 30 * numpy.exp(-dose / 2), 15.0 * (1 + (donor == "y"))], 1)
    rates = numpy.concatenate([rates, numpy.where(kind == "a", 20.0, 2.0)[:, None], numpy.full((600, 1), 9.0)], 1)
    shown = numpy.where(rng.random(600) < 0.05, numpy.nan, dose)
    options: dict[str, Any] = {"labels": "kind", "batch_key": "donor", "continuous_covariate_keys": "dose", **FAST}
    return bo.CountModel(**options).fit(table(rates, 1, kind=kind, donor=donor, dose=shown), steps=300)


def test_the_response_to_a_dose_is_interpolated(dosed: bo.CountModel) -> None:
    """At 3, between 2 and 4: within a factor of 1.2, where those of the nearest doses are 1.65 away."""
    found = means(dosed.sample(300, covariates=3.0, num_steps=30))
    truth = numpy.array([6 * numpy.exp(1.5), 30 * numpy.exp(-1.5)])
    assert numpy.exp(numpy.abs(numpy.log(found[:2] / truth))).max() < 1.2
    with pytest.warns(UserWarning, match="'dose' is outside the range of training, .* 0 to 4, got 9"):
        dosed.sample(1, covariates={"dose": 9}, num_steps=1)


def test_a_reference_batch_keeps_the_labels_of_training(dosed: bo.CountModel) -> None:
    """The share of kind a is 0.25 within four standard errors, the mean of gene 2 that of the batch."""
    for batch, mean in (("x", 15.0), ("y", 30.0)):
        sampled = dosed.sample(300, batch=batch, num_steps=30, seed=2)
        assert set(sampled.obs["donor"]) == {batch}
        assert abs((sampled.obs["kind"] == "a").mean() - 0.25) < 4 * numpy.sqrt(0.25 * 0.75 / 300)
        assert means(sampled)[2] == pytest.approx(mean, rel=0.1)
        assert sampled.obs["dose"].isin([0.0, 1.0, 2.0, 4.0]).mean() == pytest.approx(0.95, abs=0.05)
    unknown = dosed.sample(3, label=None, batch=["x", None, "y"], num_steps=2)
    assert unknown.obs["donor"].isna().tolist() == [False, True, False]
    free = dosed.sample(300, guidance=0, batch="x", num_steps=2)
    assert list(free.obs.columns) == ["donor", "dose"]


@pytest.mark.parametrize("steps", [20, pytest.param(400, marks=pytest.mark.slow)])
def test_a_rare_type_is_sampled_as_it_is(steps: int) -> None:
    """20 cells of 1,000, whose markers have means of 12, not 1; four standard errors of 20 cells are 3.1."""
    kind = numpy.where(numpy.arange(1000) < 20, "rare", "often")
    rates = numpy.full((1000, 8), 6.0)
    rates[:, :3] = numpy.where(kind == "rare", 12.0, 1.0)[:, None]
    model = bo.CountModel(labels="kind", **FAST).fit(table(rates, 3, kind=kind), steps=steps)
    assert means(model.sample(200, label="rare", num_steps=30))[:3] == pytest.approx([12.0] * 3, abs=3.1)
    assert means(model.sample(200, label="often", num_steps=30))[:3] == pytest.approx([1.0] * 3, abs=0.4)


@pytest.mark.parametrize("steps", [20, pytest.param(500, marks=pytest.mark.slow)])
def test_a_combination_that_was_never_seen(steps: int, tmp_path: Path) -> None:
    """Effects of two columns on genes of their own: the unseen combination has both, as no training cell has."""
    rng = numpy.random.default_rng(4)
    kind, state = rng.integers(3, size=900), rng.integers(3, size=900)
    seen = (kind > 0) | (state > 0)
    kind, state = kind[seen], state[seen]
    effects = (
        numpy.where(numpy.arange(3) == kind[:, None], 24.0, 6.0),
        numpy.where(numpy.arange(3) == state[:, None], 24.0, 6.0),
    )
    obs = {"kind": [f"k{v}" for v in kind], "state": [f"s{v}" for v in state]}
    cells = table(numpy.concatenate([*effects, numpy.full((len(kind), 1), 9.0)], 1), 5, **obs)
    model = bo.CountModel(labels=["kind", "state"], **FAST).fit(cells, steps=steps)
    loaded = bo.CountModel.load(model.save(tmp_path / "model"))
    found = means(loaded.sample(200, label={"kind": "k0", "state": "s0"}, num_steps=30))
    factor = numpy.exp(numpy.abs(numpy.log(found[:6] / [24, 6, 6, 24, 6, 6])).mean())
    assert factor < 1.3  # the nearest seen combination is at 4 ** (2 / 6) = 1.59


def test_effects_are_those_of_a_poisson_regression() -> None:
    """Two unbalanced columns and a number, by scipy's optimiser: the likelihood and a prior of one count.

    The rates are compared: a factor that all values of a column share may belong to the other column.
    """
    rng = numpy.random.default_rng(7)
    kind, number = rng.integers(3, size=400), rng.integers(-8, 9, 400) / 4
    state = numpy.where(rng.random(400) < 0.7, kind % 2, 1 - kind % 2)
    x = rng.poisson(
        numpy.exp(rng.normal(0, 0.7, (3, 4))[kind] + rng.normal(0, 0.7, (2, 4))[state] + number[:, None] / 3)
    )
    label = torch.from_numpy(numpy.stack([kind, state, number], 1)).float()
    rows, conditions = SparseRows(sparse.csr_array(x)), Conditions((3, 2), 2, 1)
    effects, std = label_effects(rows, label, conditions, torch.from_numpy(x.mean(0)))
    design = numpy.concatenate([numpy.eye(3)[kind], numpy.eye(2)[state], number[:, None]], 1)
    for gene, counts in enumerate(x.T):

        def loss(b: Any, counts: Any = counts) -> Any:
            log_rate, prior = design @ b + numpy.log(counts.mean()), b[:5] - numpy.exp(b[:5])
            return (numpy.exp(log_rate) - counts * log_rate).sum() - prior.sum() + b[5] ** 2 / 2

        expected = optimize.minimize(loss, numpy.zeros(6), tol=1e-8).x
        assert design @ effects[:, gene].numpy() == pytest.approx(design @ expected, abs=0.01)
    assert (std.numpy() < x.std(0)).all()


def test_the_head_knows_the_mean_of_each_label() -> None:
    """The posterior mean of a negative binomial with the label's mean; y / (1 - p) stays finite as t goes to zero."""
    effects = torch.tensor([[0.5], [-0.5], [0.7], [0.2]])
    head = GammaPoissonHead(
        torch.tensor([3.0]), torch.tensor([3.0]), effects=effects, conditions=Conditions((2, 1), 2, 1)
    )
    label = torch.tensor([[1.0, 0.0, 2.0], [0.0, -1.0, torch.nan], [-1.0, -1.0, 0.0]])
    mean = 3 * numpy.exp([-0.5 + 0.7 + 2 * 0.2, 0.5, 0.0])
    for p in (1e-3, 0.5, 1 - 1e-5):
        logit = torch.full((3, 1), float(special.logit(p)))
        y = head.predict(torch.zeros(3, 1, 2), torch.full((3, 1), 4.0), logit, label)
        assert y[:, 0].numpy() / (1 - p) == pytest.approx((1.5 + 4) / (1.5 / mean + p), rel=1e-4)


def covariates(**keys: Any) -> Covariates:
    obs = {"kind": list("aabbb"), "donor": list("xyyyy"), "age": [1.0, 2.0, numpy.nan, 3.0, 3.0]}
    return Covariates.fit(read_counts(table(numpy.ones((5, 2)), 6, **obs)), CellConfig(**keys))


def test_rows_are_those_of_the_training_cells() -> None:
    """Joint shares of labels, batch and numbers; labels condition the batch, but the batch does not condition them."""
    config: dict[str, Any] = {"labels": "kind", "batch_key": "donor", "continuous_covariate_keys": "age"}
    made = covariates(**config)
    made = Covariates.from_dict(CellConfig(**config), json.loads(json.dumps(made.to_dict())))
    uniform = numpy.random.default_rng(0).random((20_000, 2))
    frame = made.obs(made.sample(20_000, None, None, None, uniform), None).fillna(-1)
    shares = frame.value_counts(normalize=True).to_dict()
    expected = {("a", "x", 1.0): 0.2, ("a", "y", 2.0): 0.2, ("b", "y", 3.0): 0.4, ("b", "y", -1.0): 0.2}
    assert shares == pytest.approx(expected, abs=0.015)
    frame = made.obs(made.sample(20_000, None, "x", None, uniform), None)
    assert (frame["kind"] == "a").mean() == pytest.approx(0.4, abs=0.015)
    assert set(frame["donor"]) == {"x"}
    assert set(frame.loc[frame["kind"] == "a", "age"]) == {1.0}
    rows = made.sample(4, ["a", "b", None, "a"], ["y", None, "x", "y"], [2.5, None, 1, 2], uniform[:4])
    assert rows.codes.tolist() == [[0, 1], [1, -1], [-1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, "x", None), "batch needs a model trained with batch_key, such as batch_key='donor', got 'x'"),
        (("a", None, None), r"label must be a dict for a model with 'kind', 'donor', got 'a'"),
        (({"sex": "f"}, None, None), "label must name columns of the model, 'kind', 'donor', got 'sex'"),
        (({"kind": ["a"]}, None, None), "label must be one class or one for each of 2 cells, got 1"),
        (({"donor": "z"}, None, None), "not trained on these labels: 'z'; 'donor' has 'x', 'y'"),
        ((None, None, "old"), "covariates must be numbers, got age='old'"),
        ((None, None, numpy.inf), "covariates must be finite, got age=inf"),
    ],
)
def test_wrong_values_are_named(arguments: Any, message: str) -> None:
    made = covariates(labels=["kind", "donor"], continuous_covariate_keys=["age"])
    with pytest.raises(ValueError, match=message):
        made.sample(2, *arguments, numpy.zeros((2, 2)))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"batch_key": "site"}, "obs has no column 'site'; it has 'kind', 'donor', 'age'"),
        ({"continuous_covariate_keys": "site"}, "obs has no column 'site'"),
        ({"continuous_covariate_keys": "kind"}, "obs column 'kind' must hold numbers, got"),
        ({"labels": "age"}, "obs column 'age' has no value for 1 of 5 cells: 'c2'"),
        ({"labels": "kind", "batch_key": "kind"}, "must differ, got 'kind' twice"),
        ({"batch_key": ["kind", "donor"]}, "batch_key must name one column of obs, got"),
        ({"continuous_covariate_keys": [3]}, "continuous_covariate_keys must name columns of obs, got 3"),
    ],
)
def test_wrong_columns_are_named(keys: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        covariates(**keys)


def test_columns_are_dropped_alone_and_together() -> None:
    """Of two guided columns, a batch and a number, with a share of 0.1; five standard errors."""
    rows = Conditions((2, 3, 4), 2, 1)
    label = torch.tensor([[1.0, 2.0, 3.0, 0.5]]).expand(40_000, 4)
    hidden = rows.hide(label, torch.rand(40_000, 5, generator=torch.Generator().manual_seed(0)), 0.1)
    gone = (hidden < 0) | hidden.isnan()
    assert gone.double().mean(0).tolist() == pytest.approx([0.19, 0.19, 0.1, 0.1], abs=0.01)
    assert float((gone[:, 0] & gone[:, 1]).double().mean()) == pytest.approx(0.1 + 0.9 * 0.01, abs=0.008)
    assert rows.without_class(label)[0].tolist() == [-1.0, -1.0, 3.0, 0.5]
