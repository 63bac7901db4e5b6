import dataclasses
import math
import sys
from typing import Any

import numpy
import pytest
import scipy.optimize
import scipy.sparse
import scipy.stats
import torch

from blackout.cells.baselines import BASELINES, Baseline, GeneBootstrap
from blackout.cells.classifiers import TypeClassifier, nearer
from blackout.cells.copula import GaussianCopula
from blackout.cells.metrics import CellScores, Space, check_counts, compare_cells
from blackout.cells.negative_binomial import NegativeBinomial
from blackout.cells.scvi import ScVI, code_length
from blackout.cells.tasks import _fold_changes, fold_change_scores
from blackout.evaluation.two_sample import neighbour_accuracy, squared_mmd

FITTED = [name for name in BASELINES if name != "scvi"]


def _cells(n: int, genes: int = 120, seed: int = 0, factor: float = 1.0) -> Any:
    """Two types of cells of random library size; the same distribution for every seed."""
    shape = numpy.random.default_rng(99).lognormal(-0.5, 1.2, (2, genes))
    rng = numpy.random.default_rng(seed)
    rate = shape[rng.integers(2, size=n)] * rng.lognormal(0, 0.4, (n, 1))
    rate[:, : genes // 4] *= factor
    return scipy.sparse.csr_array(rng.poisson(rate * rng.gamma(2.0, 0.5, rate.shape)))


def _table(rng: numpy.random.Generator, n: int, distributions: list[Any]) -> Any:
    return scipy.sparse.csr_array(numpy.stack([each.rvs(size=n, random_state=rng) for each in distributions], 1))


def _differences(scores: CellScores) -> dict[str, float]:
    named = ("mean", "variance", "zeros", "correlation", "library", "detected")
    return {name: value for name, value in dataclasses.asdict(scores).items() if name in named}


def test_equal_sets_do_not_differ() -> None:
    x = _cells(200)
    scores = compare_cells(x, x)
    assert max(_differences(scores).values()) < 1e-12
    assert scores.correlation_agreement == pytest.approx(1)
    assert (scores.num, scores.empty) == (200, 0)
    assert scores.c2st < 0.5  # every cell has its copy in the other set


def test_real_vs_real_and_a_known_shift() -> None:
    """Two real sets do not differ significantly; a quarter of the genes at a quarter of their rate does."""
    data, other, shifted = _cells(600), _cells(900, seed=1), _cells(600, seed=2, factor=0.25)
    train = _cells(900, seed=3)
    real, found = (compare_cells(x, data, reference=train) for x in (other, shifted))
    assert real.num == found.num == 600
    assert abs(real.mmd) < 4 * real.mmd_error
    assert abs(real.c2st - 0.5) < 0.06
    assert real.correlation_agreement > 0.9
    assert found.mmd > 5 * found.mmd_error
    assert found.c2st > 0.6
    # A quarter of the genes is off by log10 4, the others by noise.
    assert found.mean == pytest.approx(math.log10(4) / 2, rel=0.15)
    # Noise of an area under the curve of 600 against 600 cells: 0.017.
    assert abs(real.linear - 0.5) < 0.07
    assert abs(real.boosting - 0.5) < 0.07
    assert found.linear > 0.75
    assert found.boosting > 0.75
    for name, value in _differences(real).items():
        assert _differences(found)[name] > value, name
    assert compare_cells(shifted, data, reference=train) == found
    assert compare_cells(other, data, reference=train, seed=1) != real


def test_library_sizes_alone() -> None:
    """Twice the counts: Kolmogorov–Smirnov as scipy has it, while proportions hardly change."""
    data = _cells(300)
    double = compare_cells(data * 2, data)
    totals = [x.toarray().sum(1) for x in (data * 2, data)]
    assert double.library == scipy.stats.ks_2samp(*totals).statistic
    assert double.mean == pytest.approx(math.log10(2), rel=1e-2)
    assert double.variance == pytest.approx(math.log10(4), rel=1e-2)
    assert (double.zeros, double.detected) == (0, 0)


def test_scores_against_dense_numpy() -> None:
    """Dense numpy, and a full singular value decomposition instead of Lanczos."""
    a, b = _cells(80, seed=3).toarray().astype(float), _cells(80, seed=4).toarray().astype(float)
    scores = compare_cells(scipy.sparse.coo_array(a), scipy.sparse.csc_matrix(b))
    seen = (b > 0).mean(0) >= 0.01
    for x, name in ((lambda c: c.mean(0), "mean"), (lambda c: c.var(0), "variance")):
        apart = numpy.log10(x(a)[seen] + 1e-4) - numpy.log10(x(b)[seen] + 1e-4)
        assert getattr(scores, name) == pytest.approx(numpy.sqrt((apart**2).mean()))
    median = numpy.median(b.sum(1))
    logs = [numpy.log1p(x * median / x.sum(1, keepdims=True)) for x in (a, b)]
    most = numpy.argsort(-logs[1].var(0))[:100]
    pairs = [numpy.corrcoef(x[:, most].T)[numpy.triu_indices(100, 1)] for x in logs]
    assert scores.correlation == pytest.approx(numpy.sqrt(((pairs[0] - pairs[1]) ** 2).mean()))
    assert scores.correlation_agreement == pytest.approx(numpy.corrcoef(*pairs)[0, 1])
    logs = [numpy.log1p(x * 10_000 / x.sum(1, keepdims=True)) for x in (a, b)]
    axes = numpy.linalg.svd(logs[1] - logs[1].mean(0), full_matrices=False)[2][:30]
    x, y = (torch.from_numpy((part - logs[1].mean(0)) @ axes.T) for part in logs)
    right = 0
    for i, point in enumerate(torch.cat([x, y])):
        nearest = (torch.cat([x, y]) - point).norm(dim=1).argsort()[1:6]
        right += int(((nearest < 80).sum() >= 3) == (i < 80))
    assert scores.c2st == right / 160
    bandwidth = float(torch.pdist(y).median())
    k = [torch.exp(-(torch.cdist(u, v) ** 2) / (2 * bandwidth**2)).fill_diagonal_(0) for u, v in ((x, x), (y, y))]
    cross = torch.exp(-(torch.cdist(x, y) ** 2) / (2 * bandwidth**2))
    usual = float((k[0].sum() + k[1].sum()) / (80 * 79) - 2 * cross.mean())
    # Eq. (3) of Gretton et al. keeps the pairs (x_i, y_i), which Eq. (4) leaves out: a difference of order 1/n.
    assert scores.mmd == pytest.approx(usual, abs=scores.mmd_error)


def test_squared_mmd_is_unbiased_and_its_error_correct() -> None:
    """Normal distributions, where MMD² is known. Means of 200 at 5 deviations; the error is right to 20 %."""
    generator = torch.Generator().manual_seed(0)
    d, shift, found = 3, 0.7, []
    for _ in range(200):
        x = torch.randn(60, d, generator=generator, dtype=torch.float64)
        y = torch.randn(60, d, generator=generator, dtype=torch.float64)
        y[:, 0] += shift
        found.append(squared_mmd(x, y, 1.0))
    value, error = torch.tensor(found, dtype=torch.float64).T
    exact = 2 * 3 ** (-d / 2) * (1 - math.exp(-(shift**2) / 6))  # E exp(-|u|²/2), u normal of variance 2
    assert abs(float(value.mean()) - exact) < 5 * float(value.std()) / math.sqrt(200)
    assert float(error.mean()) == pytest.approx(float(value.std()), rel=0.2)


def test_neighbour_accuracy_of_known_sets() -> None:
    rng = numpy.random.default_rng(0)
    x, y = (torch.from_numpy(rng.standard_normal((1500, 2))) for _ in range(2))
    assert neighbour_accuracy(x, y, rng) == pytest.approx(0.5, abs=0.05)
    assert neighbour_accuracy(x, y + 100, rng) == 1
    assert neighbour_accuracy(x, x, rng, neighbours=1) == 0
    assert neighbour_accuracy(x * 0, y * 0, rng) == pytest.approx(0.5, abs=0.05)  # identical points, and no bias


def test_copies_of_training_cells_are_found() -> None:
    """Other cells of the distribution copy at 0.5, to 4 deviations of 300 cells; training cells do not."""
    train, held, new = _cells(600), _cells(300, seed=1), _cells(300, seed=2)
    assert compare_cells(new, held, reference=train).copying == pytest.approx(0.5, abs=0.12)
    assert compare_cells(train[:300], held, reference=train[:300]).copying == 1
    half = compare_cells(train[:300], held, reference=train).copying  # each is in one of two sets
    assert half == pytest.approx(0.75, abs=0.1)
    x = torch.tensor([[0.0], [1.0], [2.0]])
    assert nearer(x, torch.tensor([[0.1]]), torch.tensor([[1.9]])) == 0.5  # nearer, as near, farther


def test_types_of_cells_and_their_frequencies() -> None:
    """Two separate types, of which samples have 80 % and data 50 %: a total variation of 0.3."""
    rng = numpy.random.default_rng(0)
    rates = numpy.where(numpy.arange(60) < 30, 6.0, 1.0) * numpy.ones((2, 1))
    rates[1] = rates[0][::-1]

    def draw(first: int, second: int) -> Any:
        return scipy.sparse.csr_array(rng.poisson(numpy.repeat(rates, [first, second], axis=0)))

    train, data, samples = draw(100, 100), draw(100, 100), draw(160, 40)
    space = Space(check_counts("train", train), rng)
    classifier = TypeClassifier(space, check_counts("train", train), ["a"] * 100 + ["b"] * 100)
    assert classifier.predict(check_counts("data", data)).tolist() == ["a"] * 100 + ["b"] * 100
    scores = classifier.scores(check_counts("samples", samples), check_counts("data", data))
    assert scores["composition"] == pytest.approx(0.3)
    assert scores["slope"] == pytest.approx(1, abs=0.05)
    assert scores["rank_correlation"] > 0.7


def test_copula_keeps_marginals_and_correlations() -> None:
    """Poisson genes that share a normal factor: rank correlations of samples and data agree to the noise of 4,000."""
    rng = numpy.random.default_rng(0)
    factor = rng.standard_normal((4000, 1)) * numpy.array([1.0, 0.8, -0.7, 0.0])
    train = rng.poisson(numpy.exp(1.5 + 0.6 * factor))
    sampled = GaussianCopula().fit(scipy.sparse.csr_array(train)).sample(4000, 1).toarray()
    for gene in range(4):
        assert scipy.stats.ks_2samp(train[:, gene], sampled[:, gene]).statistic < 0.05
    ranks = [scipy.stats.spearmanr(x).statistic for x in (train, sampled)]
    assert numpy.abs(ranks[0] - ranks[1]).max() < 0.08  # the correlations are shrunk by 5 %
    assert numpy.abs(ranks[0][:3, :3]).min() > 0.2


def test_empty_cells_and_missing_genes() -> None:
    data = _cells(100)
    samples = data.toarray()
    samples[:7] = 0
    samples[:, 3:] = 0
    scores = compare_cells(scipy.sparse.csr_array(samples), data, reference=data)
    assert scores.empty >= 7
    assert all(math.isfinite(value) for value in dataclasses.astuple(scores))
    nothing = compare_cells(data * 0, data, reference=_cells(70, seed=5))
    assert (nothing.empty, nothing.library, nothing.c2st, nothing.correlation_agreement) == (100, 1, 1, 0)


def test_negative_binomial_against_scipy() -> None:
    """The fit against a search over both parameters, the likelihood against scipy.stats.nbinom."""
    rng = numpy.random.default_rng(0)
    x = _table(rng, 300, [scipy.stats.nbinom(r, r / (r + m)) for r, m in ((0.2, 0.5), (1.0, 3.0), (6.0, 4.0), (3, 80))])
    fitted = NegativeBinomial().fit(x)
    mean, size = fitted.libraries * fitted.share, fitted.size
    for column, m, r in zip(x.toarray().T, mean, size, strict=True):

        def loss(at: Any, column: Any = column) -> float:
            m, r = numpy.exp(at)
            return -float(scipy.stats.nbinom(r, r / (r + m)).logpmf(column).sum())

        best = scipy.optimize.minimize(loss, [0.5, 0.5], method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-9})
        assert loss(numpy.log([m, r])) <= best.fun + 1e-7
        assert numpy.log([m, r]) == pytest.approx(best.x, abs=1e-4)
    expected = scipy.stats.nbinom(size, size / (size + mean)).logpmf(x.toarray()).sum(1)
    assert fitted.log_prob(check_counts("x", x)) == pytest.approx(expected, rel=1e-10)
    assert fitted.bits_per_dim(x)[0] == pytest.approx(-expected.mean() / 4 / math.log(2))


def test_library_sizes_are_fitted_with_the_genes() -> None:
    """Against scipy's search over share and r, gene by gene, given the levels; 40 cells have 4 of them."""
    rng = numpy.random.default_rng(1)
    x = _table(rng, 40, [scipy.stats.nbinom(2, 0.1), scipy.stats.nbinom(0.5, 0.1), scipy.stats.nbinom(5, 0.4)])
    fitted = NegativeBinomial(levels=4).fit(x)
    level = numpy.abs(numpy.log(fitted.libraries[:, None] / numpy.maximum(x.sum(1), 0.5))).argmin(0)
    library = fitted.libraries[level]
    assert len(fitted.libraries) == 4
    for column, share, r in zip(x.toarray().T, fitted.share, fitted.size, strict=True):

        def loss(at: Any, column: Any = column) -> float:
            s, r = numpy.exp(at)
            return -float(scipy.stats.nbinom(r, r / (r + s * library)).logpmf(column).sum())

        best = scipy.optimize.minimize(loss, [-1.0, 0.5], method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-9})
        assert numpy.log([share, r]) == pytest.approx(best.x, abs=1e-3)
    mean = library[:, None] * fitted.share
    expected = scipy.stats.nbinom(fitted.size, fitted.size / (fitted.size + mean)).logpmf(x.toarray()).sum(1)
    expected += numpy.log((numpy.bincount(level) + 0.5) / (40 + 2))[level]
    assert fitted.log_prob(check_counts("x", x)) == pytest.approx(expected, rel=1e-10)


def test_underdispersed_and_unseen_genes_are_poisson() -> None:
    x = scipy.sparse.csr_array(numpy.array([[1, 0, 2]] * 50 + [[1, 0, 3]] * 50))
    fitted = NegativeBinomial().fit(x)
    assert numpy.isinf(fitted.size).all()
    assert fitted.libraries * fitted.share == pytest.approx([1, 0.005, 2.5])
    expected = scipy.stats.poisson([1, 0.005, 2.5]).logpmf([[1, 1, 2]]).sum()
    assert fitted.log_prob(check_counts("x", scipy.sparse.csr_array([[1, 1, 2]]))) == pytest.approx(expected)
    sampled = fitted.sample(4000, 0)
    assert sampled.mean(0) == pytest.approx([1, 0.005, 2.5], abs=0.1)


@pytest.mark.parametrize("kind", [NegativeBinomial, GeneBootstrap])
def test_bits_of_a_known_distribution_are_its_entropy(kind: type[Baseline]) -> None:
    """Trained on 20,000 cells, at 5 standard errors and what the estimate of so few parameters can cost."""
    distributions = [scipy.stats.nbinom(r, r / (r + m)) for r, m in ((0.3, 0.4), (2.0, 3.0), (5.0, 1.0))]
    train, test = (_table(numpy.random.default_rng(seed), 20_000, distributions) for seed in (0, 1))
    mean, error = kind().fit(train).bits_per_dim(test) or (math.nan, math.nan)
    entropy = (
        sum(-float((p * numpy.log2(p)).sum()) for p in (each.pmf(numpy.arange(400)) for each in distributions)) / 3
    )
    assert mean == pytest.approx(entropy, abs=5 * error + 2e-3)


def test_bootstrap_has_the_marginals_of_the_data() -> None:
    x = _cells(150, genes=20)
    sampled = GeneBootstrap().fit(x).sample(20_000, 0)
    for gene in range(20):
        real, found = (numpy.bincount(c.toarray()[:, gene], minlength=400) for c in (x, sampled))
        assert not found[real == 0].any()
        seen = real > 0
        assert scipy.stats.chisquare(found[seen], real[seen] * 20_000 / 150).pvalue > 1e-6
    assert numpy.abs(numpy.corrcoef(sampled.toarray().T) - numpy.eye(20)).max() < 5 / math.sqrt(20_000)


def test_bootstrap_sums_to_one() -> None:
    x = scipy.sparse.csr_array(numpy.array([[0], [0], [3], [1]]))
    generator = GeneBootstrap().fit(x)
    probs = [2 ** -generator.bits_per_dim(scipy.sparse.csr_array([[v]]))[0] for v in range(400)]
    assert probs[:4] == pytest.approx([2.5 / 6.5, 1.5 / 6.5, 0.5 / 6.5, 1.5 / 6.5])
    assert sum(probs) == pytest.approx(1, abs=1e-12)


def test_code_of_the_library_size_sums_to_one() -> None:
    probs = numpy.exp(-code_length(numpy.arange(200_000.0), 6.0, 0.8))
    assert probs.sum() == pytest.approx(1, abs=1e-9)
    expected = numpy.diff(scipy.stats.lognorm(0.8, scale=math.exp(6.0)).cdf(numpy.arange(1001)))
    assert probs[:1000] == pytest.approx(expected, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("name", FITTED)
def test_baselines_are_deterministic_and_near_their_data(name: str) -> None:
    train, test = _cells(400), _cells(300, seed=1)
    first, again = BASELINES.make(name).fit(train), BASELINES.make(name).fit(train)
    sampled = first.sample(300, 4)
    assert sampled.shape == (300, 120)
    assert sampled.dtype == numpy.int64
    assert (sampled != again.sample(300, 4)).nnz == 0
    assert (sampled != first.sample(300, 5)).nnz > 0
    assert first.bits_per_dim(test) == again.bits_per_dim(test)
    assert sampled.sum() / 300 == pytest.approx(train.sum() / 400, rel=0.1)
    assert compare_cells(sampled, test, reference=train).mean < 0.15


def test_library_sizes_improve_the_fit() -> None:
    train, test = _cells(600), _cells(300, seed=1)
    alone, with_library = NegativeBinomial().fit(train), NegativeBinomial(levels=8).fit(train)
    assert with_library.bits_per_dim(test)[0] < alone.bits_per_dim(test)[0]
    distance = [compare_cells(g.sample(300, 0), test, reference=train).library for g in (alone, with_library)]
    assert distance[1] < 0.15 < distance[0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: compare_cells(x.toarray(), x), "samples must be a scipy.sparse matrix of cells .*, got ndarray"),
        (lambda x: compare_cells(x[:49], x), r"samples must be at least 50 cells .*, got shape \(49, 120\)"),
        (lambda x: compare_cells(x, x[:10]), r"data must be at least 50 cells .*, got shape \(10, 120\)"),
        (lambda x: compare_cells(x[:, 1:], x), "samples must have 120 genes, like data, got 119"),
        (lambda x: compare_cells(x, x, reference=x[:, 1:]), "reference must have 120 genes, like data, got 119"),
        (lambda x: compare_cells(x * 0.5, x), r"samples must hold raw counts, not .*, got 0.5"),
        (lambda x: compare_cells(x, -x), r"data must hold raw counts, not .*, got -\d"),
        (lambda x: compare_cells(x, x, seed=-1), "seed must be at least 0, got -1"),
        (lambda x: GeneBootstrap().fit(x).sample(0), "n must be at least 1, got 0"),
        (lambda x: GeneBootstrap().fit(x).bits_per_dim(x[:, 1:]), "x must have 120 genes, like the training.* got 119"),
        (lambda x: NegativeBinomial(0), "levels must be at least 1, got 0"),
        (lambda x: ScVI("normal"), "likelihood must be one of 'nb', 'zinb', got 'normal'"),
    ],
)
def test_errors_name_the_argument(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(_cells(60))


def test_scvi_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scvi", None)
    with pytest.raises(ValueError, match=r"ScVI needs scvi: pip install 'blackout-diffusion\[scvi\]'"):
        ScVI().fit(_cells(60))


def test_classifiers_without_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sklearn", "sklearn.ensemble"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=r"cells needs sklearn: pip install 'blackout-diffusion\[counts\]'"):
        compare_cells(_cells(60), _cells(60))


@pytest.mark.filterwarnings("ignore")  # its package has many
@pytest.mark.parametrize(("likelihood", "labelled"), [("nb", False), ("zinb", True)])
def test_scvi_installed(likelihood: str, labelled: bool) -> None:
    pytest.importorskip("scvi")
    train, state = _cells(300), torch.get_rng_state()
    model = ScVI(likelihood, epochs=2, draws=3).fit(train, numpy.arange(300) % 2 if labelled else None)
    sampled = [model.sample(60, seed) for seed in (1, 1, 2)]
    assert sampled[0].shape == (60, 120)
    assert (sampled[0] != sampled[1]).nnz == 0 < (sampled[0] != sampled[2]).nnz
    variants = model.variants()
    assert set(variants) == {"_posterior", "_prior", "_mixture"}
    assert (variants["_posterior"].sample(60, 1) != sampled[0]).nnz == 0
    assert all((variants[name].sample(60, 1) != sampled[0]).nnz > 0 for name in ("_prior", "_mixture"))
    if not labelled:
        x = _cells(40, seed=2).toarray()
        observed = numpy.random.default_rng(0).random(x.shape) > 0.1
        filled = model.impute(x, observed)
        assert (filled[observed] == x[observed]).all()
        assert filled[~observed].mean() == pytest.approx(x[~observed].mean(), rel=0.3)
    found = model.bits_per_dim(_cells(50, seed=1))
    assert (found is None) == labelled
    assert found is None or 0 < found[0] < 20
    assert torch.equal(torch.get_rng_state(), state)


def test_fold_changes_of_the_same_classes_agree() -> None:
    """Three classes with ten markers each: other cells of the same classes agree, shuffled labels do not."""
    rng = numpy.random.default_rng(0)
    rates = rng.gamma(1.0, 2.0, (3, 60)) * numpy.where(numpy.arange(60) // 20 == numpy.arange(3)[:, None], 8.0, 1.0)
    labels = numpy.arange(240) % 3
    here, there = (scipy.sparse.csr_array(rng.poisson(rates[labels])) for _ in range(2))
    found = fold_change_scores(here, labels, there, labels)
    assert found is not None
    assert found["classes"] == 3
    assert found["correlation"] > 0.95
    assert found["top_genes"] > 0.85
    shuffled = fold_change_scores(here, rng.permutation(labels), there, labels)
    assert shuffled is not None
    assert shuffled["correlation"] < 0.5
    assert fold_change_scores(here[:24], labels[:24], there, labels) is None  # eight cells of each class


def test_log_fold_changes_by_hand() -> None:
    x = scipy.sparse.csr_array(numpy.repeat([[30, 70], [60, 40]], 10, axis=0))
    expected = numpy.log2(numpy.array([3000.1 / 6000.1, 7000.1 / 4000.1]))
    assert numpy.allclose(_fold_changes(x, numpy.arange(20) < 10), expected)
