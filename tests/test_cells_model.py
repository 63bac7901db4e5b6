"""CountModel and LibrarySizes. Statistical tests have fixed seeds and state the standard errors they allow."""

import json
import math
import signal
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import numpy
import pandas
import pytest
import torch
from scipy import sparse, stats
from torch.utils._python_dispatch import TorchDispatchMode

import blackout as bo
from blackout.cells.folder import CELLS
from blackout.cells.library import LibrarySizes
from blackout.cells.observed import read_observed
from blackout.cells.read import read_counts
from blackout.cells.totals import GivenTotal
from blackout.data import SparseRows
from blackout.files import read_json, write_json
from blackout.training.loop import Stopped

GENES = ["left", "right", "house", "rare", "often", "noisy"]
TINY: dict[str, Any] = {"width": 32, "blocks": 1, "dropout": 0.0, "batch_size": 64, "warmup": 10, "ema": 0.98}
SHARE = 0.7  # of type A


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that any operation makes."""

    numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        sizes = [v.numel() for v in (out if isinstance(out, tuple) else (out,)) if hasattr(v, "numel")]
        self.numel = max([self.numel, *sizes])
        return out


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Any:
    """Networks of this size are slower on two threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def two_types(n: int = 800, seed: int = 0) -> anndata.AnnData:
    """Type A shows `left`, type B shows `right`; cells differ in size, and gamma–Poisson noise is on top."""
    rng = numpy.random.default_rng(seed)
    kind = (rng.random(n) > SHARE).astype(int)
    rates = numpy.array([[20.0, 1.0, 6.0, 0.3, 10.0, 3.0], [1.0, 20.0, 6.0, 0.3, 10.0, 3.0]])[kind]
    rates = (
        rates
        * rng.lognormal(0, 0.6, (n, 1))
        * rng.gamma([8, 8, 8, 8, 8, 0.7], 1 / numpy.array([8] * 5 + [0.7]), (n, 6))
    )
    x = rng.poisson(rates)
    x[:, 4] += 1  # no cell is empty
    obs = {"kind": numpy.array(["A", "B"])[kind], "donor": numpy.array(["x", "y", "z"])[rng.integers(3, size=n)]}
    names = [f"c{k}" for k in range(n)]
    return anndata.AnnData(sparse.csr_matrix(x), pandas.DataFrame(obs, names), pandas.DataFrame(index=GENES))


def dense(adata: Any) -> numpy.ndarray:
    return numpy.asarray(adata.X.toarray())


@pytest.fixture(scope="module")
def free() -> bo.CountModel:
    """Without labels, trained on both types."""
    return bo.CountModel(**TINY).fit(two_types(), steps=400, learning_rate=3e-3)


@pytest.fixture(scope="module")
def given() -> bo.CountModel:
    """Conditioned on the type and on the total."""
    return bo.CountModel(labels="kind", library="conditioned", **TINY).fit(two_types(), steps=400, learning_rate=3e-3)


@pytest.fixture(scope="module")
def labelled() -> bo.CountModel:
    """Two label columns, trained for a few steps."""
    return bo.CountModel(labels=["kind", "donor"], **TINY).fit(two_types(300), steps=12, learning_rate=1e-2)


def test_untrained_model_is_the_independent_negative_binomial() -> None:
    """With the exact posterior mean of independent components the bound is exact. Four standard errors."""
    mean, shape = numpy.array([0.05, 1.0, 12.0, 400.0]), numpy.array([0.3, 0.5, 3.0, 20.0])
    distributions = [stats.nbinom(a, a / (a + m)) for m, a in zip(mean, shape, strict=True)]
    rng = numpy.random.default_rng(1)
    x = numpy.stack([each.rvs(3000, random_state=rng) for each in distributions], 1)
    model = bo.CountModel.for_cells(read_counts(x, empty="keep"), bo.CountModel(**TINY).config)
    head = model.model.predictor.head
    head.mean.copy_(torch.from_numpy(mean))
    head.std.copy_(torch.from_numpy(numpy.sqrt(mean + mean**2 / shape)))
    states = numpy.arange(20_000)
    entropy = numpy.mean(
        [-numpy.nansum(each.pmf(states) * each.logpmf(states).clip(-1e4)) for each in distributions]
    ) / math.log(2)
    bits = model.bits_per_dim(sparse.csr_array(x), num_times=8, batch_size=1000)
    assert bits.standard_error < 0.02 * entropy
    assert abs(bits - entropy) < 4 * bits.standard_error


def test_heavy_tails_stay_finite() -> None:
    rng = numpy.random.default_rng(2)
    x = rng.poisson(rng.gamma(0.05, 4e4, (200, 5))).clip(max=10**6)
    x[:, 0], x[0, 1] = 1, 10**6
    model = bo.CountModel(library="conditioned", **TINY).fit(x, steps=30, learning_rate=1e-2)
    assert all(bool(torch.isfinite(weights).all()) for weights in model.model.predictor.parameters())
    bits = model.bits_per_dim(x[:50], num_times=4)
    assert 0 < bits < 1000
    sampled = dense(model.sample(50, num_steps=20))
    assert sampled.min() >= 0
    with pytest.warns(UserWarning, match="library is outside the range of the training cells"):
        assert numpy.isfinite(dense(model.sample(5, num_steps=10, library=10**9))).all()
    filled = model.impute(x[:8], numpy.arange(5) < numpy.full((8, 1), 2), num_steps=5, draws=3, resample=0)
    assert (filled.layers["std"].toarray()[:, :2] == 0).all()
    assert numpy.isfinite(filled.layers["std"].toarray()).all()


def test_training_learns_the_two_types(free: bo.CountModel) -> None:
    """The bound falls below that of independent negative binomials by more than five standard errors of the gain."""
    fresh = two_types(300, seed=5)
    new = bo.CountModel.for_cells(read_counts(two_types()), bo.CountModel(**TINY).config)
    x = torch.from_numpy(dense(fresh))
    gain = new.model.bits_of_each(x, num_times=8) - free.model.bits_of_each(x, num_times=8)
    assert float(gain.mean()) > 5 * float(gain.std()) / math.sqrt(len(gain))
    assert float(free.bits_per_dim(fresh, num_times=8)) == pytest.approx(
        float(free.model.bits_of_each(x, num_times=8).mean()), rel=1e-5
    )
    sampled = numpy.log1p(dense(free.sample(300, num_steps=40)))
    assert numpy.corrcoef(sampled[:, 0], sampled[:, 1])[0, 1] < -0.4
    assert numpy.corrcoef(numpy.log1p(dense(fresh))[:, :2].T)[0, 1] < -0.4
    assert numpy.corrcoef(numpy.log1p(dense(new.sample(300, num_steps=40)))[:, :2].T)[0, 1] > -0.2


def test_the_representation_separates_the_types(free: bo.CountModel, given: bo.CountModel) -> None:
    fresh = two_types(120, seed=5)
    found = free.get_latent_representation(fresh[:, GENES[::-1]], batch_size=50)
    assert (found.shape, found.dtype) == ((120, 32), numpy.float32)
    distance = ((found[:, None] - found[None]) ** 2).sum(-1)
    numpy.fill_diagonal(distance, math.inf)
    kind = fresh.obs["kind"].to_numpy()
    assert (kind[distance.argmin(1)] == kind).mean() > 0.9
    assert numpy.isfinite(given.get_latent_representation(fresh)).all()


def test_samples_are_raw_counts_with_labels(labelled: bo.CountModel) -> None:
    sampled = labelled.sample(500, num_steps=2)
    assert isinstance(sampled, anndata.AnnData)
    assert isinstance(sampled.X, sparse.csr_matrix)
    assert sampled.X.dtype == numpy.int32
    assert list(sampled.var_names) == GENES
    assert list(sampled.obs.columns) == ["kind", "donor"]
    assert labelled.classes == {"kind": ["A", "B"], "donor": ["x", "y", "z"]}
    seen = two_types(300).obs
    for kind in "AB":
        for donor in "xyz":
            share = float(((seen.kind == kind) & (seen.donor == donor)).mean())
            here = int(((sampled.obs.kind == kind) & (sampled.obs.donor == donor)).sum())
            assert stats.binomtest(here, 500, share).pvalue > 1e-4
    assert "CountModel(6 genes, 2 values of kind, 3 values of donor, library generated, ends at t=15: " in repr(
        labelled
    )


def test_a_cell_depends_on_seed_and_number_alone(given: bo.CountModel) -> None:
    complete = given.sample(11, num_steps=4, seed=3, guidance=1.5)
    for size in (1, 4, 11):
        again = given.sample(11, num_steps=4, seed=3, guidance=1.5, batch_size=size)
        assert (again.X != complete.X).nnz == 0
        assert again.obs.equals(complete.obs)
    fewer = given.sample(5, num_steps=4, seed=3, guidance=1.5)
    assert (complete.X[:5] != fewer.X).nnz == 0
    assert (given.sample(11, num_steps=4, seed=4, guidance=1.5).X != complete.X).nnz > 0


def test_a_label_and_a_total_for_each_cell(given: bo.CountModel) -> None:
    label, library = ["A", "B", "B", "A"], [20, 30, 200, 60]
    mixed = given.sample(4, label=label, library=library, num_steps=5)
    assert list(mixed.obs.kind) == label
    assert list(mixed.obs.library) == library
    for k, (one, total) in enumerate(zip(label, library, strict=True)):
        alone = given.sample(4, label=one, library=total, num_steps=5)
        assert (alone.X[k] != mixed.X[k]).nnz == 0
    assert list(given.sample(3, label=numpy.array(["A", "B", "A"]), num_steps=2).obs.kind) == ["A", "B", "A"]


def test_totals_follow_library_and_markers_follow_label(given: bo.CountModel) -> None:
    library = numpy.geomspace(60, 1500, 200).round()  # beyond the training cells too
    with pytest.warns(UserWarning, match="library is outside the range"):
        sampled = given.sample(200, label=["A", "B"] * 100, library=library, num_steps=40)
    totals = dense(sampled).sum(1)
    assert numpy.quantile(numpy.abs(totals / library - 1), 0.95) < 0.05
    assert abs((totals / library).mean() - 1) < 0.01
    left, right = dense(sampled)[:, 0], dense(sampled)[:, 1]
    assert left[::2].mean() > 3 * left[1::2].mean()
    assert right[1::2].mean() > 3 * right[::2].mean()


def test_bits_include_the_library_size(given: bo.CountModel) -> None:
    fresh = two_types(40, seed=6)
    cells = read_counts(fresh)
    labels = torch.from_numpy(
        numpy.stack([(fresh.obs.kind == "B").to_numpy(float), given.covariates.sizes.encode(cells.library)], 1)
    ).float()
    plain = given.model.bits_of_each(torch.from_numpy(dense(fresh)), num_times=4, label=labels).mean()
    codes = (fresh.obs.kind == "B").to_numpy(int)[:, None]
    cost = given.covariates.sizes.bits(cells.library, codes).mean() / len(GENES)
    assert float(given.bits_per_dim(fresh, num_times=4)) == pytest.approx(float(plain) + cost, rel=1e-5)


def test_guidance_zero_and_one_are_the_plain_models(given: bo.CountModel, labelled: bo.CountModel) -> None:
    options: dict[str, Any] = {"num_steps": 5, "seed": 2}
    leaps = bo.TauLeaping()
    inside = labelled.model.sample(6, 5, leaps, 2, label=None).numpy()
    both = {"kind": "B", "donor": "x"}
    assert numpy.array_equal(dense(labelled.sample(6, label=both, guidance=0.0, **options)), inside)
    inside = labelled.model.sample(6, 5, leaps, 2, label=torch.tensor([[1.0, 0.0]]).expand(6, 2)).numpy()
    assert numpy.array_equal(dense(labelled.sample(6, label=both, guidance=1, **options)), inside)
    number = float(given.covariates.sizes.encode(numpy.array([80]))[0])
    sampled = [dense(given.sample(6, label="B", library=80, guidance=w, **options)) for w in (0.0, 1.0, 3.0)]
    for code, cells in zip((-1.0, 1.0), sampled, strict=False):
        label = torch.tensor([[code, number]]).expand(6, 2)
        exact = GivenTotal(leaps, numpy.full(6, 80))
        assert numpy.array_equal(cells, given.model.sample(6, 5, exact, 2, label=label).numpy())
    hidden = given.model.sample(6, 5, leaps, 2, label=torch.tensor([[-1.0, math.nan]]).expand(6, 2)).numpy()
    assert not numpy.array_equal(sampled[0], hidden)  # without the class, the total is still there
    assert not numpy.array_equal(sampled[1], sampled[2])


def fitted_sizes(totals: Any) -> LibrarySizes:
    kinds = numpy.arange(len(totals)) % 2
    return LibrarySizes.fit(numpy.where(kinds, totals * 4, totals), kinds[:, None])


@pytest.mark.parametrize("label", [0, 1, -1])
def test_library_sizes_sum_to_one_and_samples_follow_them(label: int) -> None:
    """Kolmogorov and Smirnov's test, conservative for complete numbers, at 1e-3. Many totals are one, or nearly."""
    made = fitted_sizes(stats.lognorm(1.0, scale=3.0).rvs(400, random_state=3).round().clip(min=1))
    totals = numpy.arange(1, 6000)
    chance = 2 ** -made.bits(totals, numpy.full((len(totals), 1), label))
    assert chance.sum() == pytest.approx(1, abs=1e-6)
    draws = made.sample(numpy.full((3000, 1), label), numpy.random.default_rng(4).random((3000, 2)))
    below = (draws[:, None] <= totals[:400]).mean(0)
    distance = numpy.abs(below - chance.cumsum()[:400]).max()
    assert stats.kstwobign.sf(distance * math.sqrt(3000)) > 1e-3


def test_library_sizes_in_the_tails_have_finite_bits() -> None:
    made = fitted_sizes(numpy.full(300, 1000.0))
    far = numpy.array([1000, 3000, 10**5, 10**7, 2**31, 10**12, 10**16])
    bits = made.bits(far, numpy.zeros((len(far), 1), int))
    assert numpy.isfinite(bits).all()
    assert (numpy.diff(bits) > 0).all()
    assert numpy.isfinite(made.bits(numpy.array([0, 1, 2]), numpy.zeros((3, 1), int))).all()
    complete = LibrarySizes.fit(numpy.array([5]), numpy.zeros((1, 0), int))  # one cell
    assert numpy.isfinite(complete.bits(numpy.array([5, 500]), numpy.zeros((2, 0), int))).all()


def test_narrow_kernels_are_densities() -> None:
    """Against scipy's density, where bits change from masses to densities."""
    made = LibrarySizes.fit(numpy.array([5e7] * 9), numpy.zeros((9, 0), int))
    totals = numpy.array([4.99e7, 5e7, 5.01e7, 4.8e7, 5.2e7])
    expected = -stats.norm(math.log(5e7), 0.02).logpdf(numpy.log(totals)) + numpy.log(totals)
    assert made.bits(totals, numpy.zeros((5, 0), int)) == pytest.approx(expected / math.log(2), abs=1e-4)


def test_library_sizes_survive_json() -> None:
    made = fitted_sizes(numpy.random.default_rng(0).integers(100, 10_000, 900))
    again = LibrarySizes.from_dict(json.loads(json.dumps(made.to_dict())))
    labels, chance = (numpy.arange(90) % 3 - 1)[:, None], numpy.random.default_rng(1).random((90, 2))
    assert numpy.array_equal(made.sample(labels, chance), again.sample(labels, chance))
    totals = made.sample(labels, chance)
    assert numpy.array_equal(made.bits(totals, labels), again.bits(totals, labels))
    assert numpy.array_equal(made.encode(totals), again.encode(totals))


def test_sparse_stays_sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    cells, genes, options = 5_000, 1_000, {**TINY, "batch_size": 16, "width": 8}
    x = sparse.random_array(
        (cells, genes), density=0.005, format="csr", rng=0, data_sampler=lambda size: numpy.ones(size)
    )
    x = (x + sparse.csr_array((numpy.ones(cells), (range(cells), numpy.arange(cells) % genes)), (cells, genes))).tocsr()
    bo.CountModel(**options).fit(x[:100], steps=1, empty="keep")  # what is imported late is imported now

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("a sparse matrix was made dense")

    for kind in (sparse.csr_array, sparse.csc_array, sparse.coo_array, sparse.csr_matrix):
        monkeypatch.setattr(kind, "toarray", fail)
        monkeypatch.setattr(kind, "todense", fail)
    tracemalloc.start()
    try:
        with Largest() as most:
            model = bo.CountModel(library="conditioned", **options).fit(x, steps=2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most.numel < cells * genes / 20
    assert peak < cells * genes  # one byte for each entry would be more
    with Largest() as most:
        model.bits_per_dim(x[:800], num_times=1, batch_size=64)
    assert most.numel <= 2 * 64 * genes  # two outputs for each gene of one batch


def test_sparse_and_dense_data_train_to_the_same_weights() -> None:
    cells = read_counts(two_types(200))
    weights = []
    for x in (SparseRows(cells.x), torch.from_numpy(cells.x.toarray()).int()):
        model = bo.CountModel.for_cells(cells, bo.CountModel(steps=5, **TINY).config)
        weights.append(model.model.train(model.config.train, x).predictor.state_dict())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def _changed(**columns: Any) -> Any:
    made = two_types(20)
    for name, values in columns.items():
        made.obs[name] = values
    return made


def _with(x: Any, genes: Any = GENES) -> Any:
    return pandas.DataFrame(x, columns=list(genes))


X = dense(two_types(20))


@pytest.mark.parametrize(
    ("labels", "source", "message"),
    [
        ((), _with(X / 7), "not counts: cell 0, gene"),
        ((), _with(-X), "not counts: cell 0, gene"),
        ((), _with(X * (numpy.arange(20) > 0)[:, None]), "1 of 20 cells have no counts"),
        ((), _with(X * (numpy.arange(6) > 0)), "1 of 6 genes have no counts: 'left'"),
        ((), _with(X, ["left", *GENES[:-1]]), "gene names must be unique.*left"),
        ("type", two_types(20), "obs has no column 'type'; it has 'kind', 'donor'"),
        ("kind", _changed(kind=[None, *["A"] * 19]), "obs column 'kind' has no value for 1 of 20 cells"),
    ],
)
def test_invalid_cells(labels: Any, source: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        bo.CountModel(labels=labels, **TINY).fit(source, steps=1)
    assert "\n" not in str(error.value)


CALLS: list[tuple[str, Any, str]] = [
    ("free", lambda m: m.sample(2, label="A"), "label needs a model trained with labels"),
    ("free", lambda m: m.sample(2, guidance=2.0), "guidance needs a model trained with labels, got guidance=2.0"),
    ("free", lambda m: m.sample(2, library=50), "library needs a model trained with library='conditioned', got 50"),
    ("free", lambda m: m.sample(-1), "num must be at least 0, got -1"),
    ("free", lambda m: m.impute(two_types(3), X[:3] > 0, seed=None), "seed must be an integer, got None"),
    ("free", lambda m: m.impute(two_types(3)), "mask is needed for cells with all genes of the model"),
    (
        "free",
        lambda m: m.impute(read_observed(two_types(3), X[:3] > 0), X[:3] > 1),
        "mask must be None for ObservedCounts, which have one",
    ),
    ("free", lambda m: m.sample(2, batch_size=0), "batch_size must be at least 1, got 0"),
    ("free", lambda m: m.sample(2, seed=-1), "seed must be at least 0, got -1"),
    ("free", lambda m: m.bits_per_dim(two_types(3), batch_size=0), "batch_size must be at least 1, got 0"),
    ("free", lambda m: m.impute(two_types(3), X[:3] > 0, draws=-1), "draws must be at least 0, got -1"),
    ("given", lambda m: m.sample(2, label="C"), "was not trained on these labels: 'C'; 'kind' has 'A', 'B'"),
    ("given", lambda m: m.sample(2, label=3), "was not trained on these labels: '3'; 'kind' has 'A', 'B'"),
    ("given", lambda m: m.sample(2, label=["A"]), "label must be one class or one for each of 2 cells, got 1"),
    ("given", lambda m: m.sample(2, library=0), "library must hold integers of at least 1, got 0"),
    ("given", lambda m: m.sample(2, library=[9, 1.5]), "library must hold integers of at least 1, got 1.5"),
    ("given", lambda m: m.sample(2, library=math.inf), "library must hold integers of at least 1, got inf"),
    ("given", lambda m: m.sample(2, library="much"), "library must hold integers of at least 1, got 'much'"),
    ("given", lambda m: m.sample(2, library=[1, 2, 3]), r"library must be one total or one for each of 2 .* got shape"),
    ("given", lambda m: m.sample(2, label="A", guidance=-1.0), "guidance must be at least 0.0, got -1.0"),
    (
        "given",
        lambda m: m.bits_per_dim(_changed(kind="C")),
        "was not trained on these labels: 'C'; 'kind' has 'A', 'B'",
    ),
    (
        "free",
        lambda m: m.bits_per_dim(_with(X, ["up", *GENES[1:]])),
        "was not trained on these genes: 'up'; remove them",
    ),
    ("free", lambda m: m.bits_per_dim(_with(X[:, 1:], GENES[1:])), "these genes of the model are not .* 'left'"),
]


@pytest.mark.parametrize(("name", "call", "message"), CALLS)
def test_invalid_calls(name: str, call: Any, message: str, request: pytest.FixtureRequest) -> None:
    with pytest.raises(ValueError, match=message) as error:
        call(request.getfixturevalue(name))
    assert "\n" not in str(error.value)


def test_invalid_models() -> None:
    new = bo.CountModel(**TINY)
    assert repr(new) == "CountModel(not fitted)"
    calls = [lambda: new.sample(2), lambda: new.bits_per_dim(X), lambda: new.impute(X, X > 0), lambda: new.save("x")]
    for call in calls:
        with pytest.raises(ValueError, match="the model is not fitted yet: call fit first"):
            call()
    with pytest.raises(ValueError, match="library must be one of"):
        bo.CountModel(library="guessed")
    with pytest.raises(ValueError, match="labels must name columns of obs, got 3"):
        bo.CountModel(labels=["kind", 3])


def test_a_layer_is_remembered(tmp_path: Path) -> None:
    adata = two_types(40)
    adata.layers["counts"], adata.X = adata.X.copy(), adata.X / 3
    with pytest.raises(ValueError, match="not counts"):
        bo.CountModel(**TINY).fit(adata, steps=1)
    model = bo.CountModel(**TINY).fit(adata, steps=1, layer="counts")
    bits = model.bits_per_dim(adata, num_times=2)
    assert float(model.bits_per_dim(read_counts(adata, layer="counts"), num_times=2)) == float(bits)
    assert float(bo.CountModel.load(model.save(tmp_path)).bits_per_dim(adata, num_times=2)) == float(bits)


def test_save_and_load(given: bo.CountModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("no pickles")

    monkeypatch.setattr(torch, "save", fail)
    monkeypatch.setattr(torch, "load", fail)
    folder = given.save(tmp_path / "model")
    assert {path.suffix for path in folder.iterdir()} == {".json", ".safetensors"}
    again = bo.CountModel.load(folder)
    sampled, redrawn = (model.sample(9, num_steps=5, guidance=2.0, seed=1) for model in (given, again))
    assert (sampled.X != redrawn.X).nnz == 0
    assert sampled.obs.equals(redrawn.obs)
    assert again.genes == given.genes
    fresh = two_types(20, seed=3)
    assert float(again.bits_per_dim(fresh, num_times=2)) == float(given.bits_per_dim(fresh, num_times=2))


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("format", lambda value: 99),
        ("config", lambda value: []),
        ("config", lambda value: value | {"labels": 3}),
        ("config", lambda value: value | {"library": None}),
        ("genes", lambda value: 5),
        ("genes", lambda value: [*value[1:], 7]),
        ("genes", lambda value: value[1:]),
        ("covariates", lambda value: None),
        ("covariates", lambda value: value | {"labels": []}),
        ("covariates", lambda value: value | {"labels": [value["labels"][0] | {"names": ["A"]}]}),
        ("covariates", lambda value: value | {"labels": [value["labels"][0] | {"names": 3}]}),
        ("covariates", lambda value: value | {"codes": [[0], [2]]}),
        ("covariates", lambda value: value | {"shares": [-1.0, 2.0]}),
        ("covariates", lambda value: value | {"numbers": [{"key": "age"}]}),
        ("covariates", lambda value: value | {"sizes": value["sizes"] | {"widths": [0.0, 1.0]}}),
        ("covariates", lambda value: value | {"shares": "half"}),
        ("covariates", lambda value: value | {"sizes": [1]}),
        ("covariates", lambda value: {}),
    ],
)
def test_wrong_values_in_a_description_are_named(
    given: bo.CountModel, tmp_path: Path, field: str, change: Callable[[Any], Any]
) -> None:
    path = given.save(tmp_path) / "model.json"
    description = read_json(path)
    description["cells"][field] = change(description["cells"][field])
    write_json(path, description)
    wrong = rf"model\.json does not describe a model of cells: {field}: |names 5 genes for a network"
    with pytest.raises(ValueError, match=wrong) as error:
        bo.CountModel.load(tmp_path)
    assert "\n" not in str(error.value)


def test_damaged_or_edited_description(given: bo.CountModel, tmp_path: Path) -> None:
    path = given.save(tmp_path) / "model.json"
    text = path.read_text()
    for damaged in (text[: len(text) // 2], "[]", text.replace("left", "lift"), text.replace('"cells"', '"cell"')):
        path.write_text(damaged)
        with pytest.raises(ValueError, match=f"{path}"):
            bo.CountModel.load(tmp_path)
    path.unlink()
    with pytest.raises(ValueError, match="holds no model of cells"):
        bo.CountModel.load(tmp_path)


def test_a_stopped_run_resumes_to_the_same_weights(tmp_path: Path) -> None:
    options: dict[str, Any] = {**TINY, "labels": "kind", "library": "conditioned", "dropout": 0.1, "log_every": 1}
    cells = two_types(100)
    complete = bo.CountModel(**options).fit(cells, steps=8)

    def stop(report: Any, trainer: Any) -> None:
        if report.step == 3:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Stopped):
        bo.CountModel(**options).fit(cells, steps=8, out=tmp_path / "run", listener=stop)
    half = bo.CountModel.load(tmp_path / "run")
    assert half.sample(2, num_steps=2).shape == (2, 6)
    resumed = bo.CountModel(**options).fit(cells, steps=8, out=tmp_path / "run")
    loaded = bo.CountModel.load(tmp_path / "run")
    for model in (resumed, loaded):
        for name, value in complete.model.predictor.state_dict().items():
            assert torch.equal(model.model.predictor.state_dict()[name], value)
    longer = {**options, "lr_schedule": "none"}
    straight = bo.CountModel(**longer).fit(cells, steps=6)
    bo.CountModel(**longer).fit(cells, steps=2, out=tmp_path / "longer")
    later = bo.CountModel(**longer).fit(cells, steps=6, out=tmp_path / "longer")
    assert (later.sample(5, num_steps=3).X != straight.sample(5, num_steps=3).X).nnz == 0


def test_run_folder_rejects_another_run(tmp_path: Path) -> None:
    cells = two_types(60)
    bo.CountModel(**TINY).fit(cells, steps=2, out=tmp_path)
    before = (tmp_path / CELLS).read_text()
    with pytest.raises(ValueError, match="holds a run on other genes; choose another folder"):
        bo.CountModel(**TINY).fit(cells[:, GENES[::-1]].copy(), steps=2, out=tmp_path)
    with pytest.raises(ValueError, match=r"holds a run with labels=\[\], not \['kind'\]"):
        bo.CountModel(labels="kind", **TINY).fit(cells, steps=2, out=tmp_path)
    assert (tmp_path / CELLS).read_text() == before


def test_labels_as_a_setting_of_fit() -> None:
    model = bo.CountModel(**TINY).fit(two_types(60), steps=1, labels="kind")
    assert list(model.sample(2, label="B", num_steps=2).obs.kind) == ["B", "B"]
