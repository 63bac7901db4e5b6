"""Class labels and classifier-free guidance, with exact denoisers of two classes."""

import math

import numpy
import pytest
import scipy.stats
import torch
from torch.nn.functional import one_hot

import blackout as bo
from blackout.conditioning import GuidedPosterior
from blackout.labels import Conditions
from blackout.network import MLP, BoundedLogitHead, MLPConfig
from blackout.posterior import ListedPosterior
from worlds import grid, lattice, on_lattice, sampler_probs, total_variation

PROCESSES = [
    (bo.TauLeaping(events="binomial"), bo.PureDeath(4)),
    (bo.PosteriorBridge(), bo.PureDeath(4)),
    (bo.TauLeaping(), bo.Uniform(5)),
    (bo.PosteriorBridge(), bo.Absorbing(6)),
]
NAMES = [f"{type(sampler).__name__}-{process!r}" for sampler, process in PROCESSES]
POINTS = lattice(5, 2)
T = torch.tensor(0.7, dtype=torch.float64)


def classes() -> tuple[torch.Tensor, torch.Tensor]:
    """The weights of two overlapping classes: dark pairs and bright pairs."""
    level = POINTS.sum(-1).double()
    dark, bright = torch.exp(-0.5 * level), torch.exp(0.5 * level)
    return dark / dark.sum(), bright / bright.sum()


def world(process):
    """Exact denoisers: without a label, of the bright class, and of the dark one."""
    dark, bright = classes()
    return [bo.ExactPosterior(process, POINTS, weights) for weights in ((dark + bright) / 2, bright, dark)]


def guided(free, conditional, weight):
    """The denoiser of two others with guidance."""
    return lambda xt, t: GuidedPosterior(free(xt, t), conditional(xt, t), weight)


def all_states(process):
    return lattice(process.num_states, 2)


def test_rates_are_combined_in_logarithms():
    """κ of each denoiser by Bayes' rule, written out: Σ_o p(o | x) λ_r(o, x, t)."""
    process, (free, bright, _) = bo.Uniform(5), world(bo.Uniform(5))
    states = all_states(process)
    for w in (0.0, 0.3, 1.0, 2.5):
        expected = []
        for weights in (sum(classes()) / 2, classes()[1]):
            likelihood = torch.exp(process.log_prob(states.repeat_interleave(25, 0), POINTS.repeat(25, 1), T).sum(-1))
            posterior = likelihood.reshape(25, 25) * weights
            posterior /= posterior.sum(-1, keepdim=True)
            rates = process.reverse_rates(POINTS.repeat(25, 1), states.repeat_interleave(25, 0), T)
            expected.append(torch.einsum("xo,xocr->xcr", posterior, rates.reshape(25, 25, 2, -1)))
        kappa = (expected[0] ** (1 - w) * expected[1] ** w).nan_to_num(0)  # no state, no rate
        assert torch.allclose(guided(free, bright, w)(states, T).rates(), kappa, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("w", [0.5, 3.0, 50.0])
def test_guided_means_stay_within_the_possible_counts(w):
    process = bo.PureDeath(4)
    states = all_states(process)
    posterior = guided(*world(process)[:2], w)(states, T)
    y = posterior.difference()
    assert torch.allclose(posterior.rates().squeeze(-1), y / math.expm1(float(T)), rtol=1e-9)
    free, bright = (denoise(states, T).difference() for denoise in world(process)[:2])
    assert bool(((y >= 0) & (y <= 4 - states)).all())
    assert torch.allclose(y, torch.minimum(free ** (1 - w) * bright**w, 4.0 - states).nan_to_num(0), rtol=1e-9)


@pytest.mark.parametrize("process", [bo.PureDeath(4), bo.Uniform(5), bo.Absorbing(6)], ids=repr)
@pytest.mark.parametrize("w", [0.0, 0.5, 1.0, 2.0, 40.0])
def test_guided_probs_are_normalised_products_of_powers(process, w):
    free, bright, _ = world(process)
    states = all_states(process)
    probs = guided(free, bright, w)(states, T).probs()
    assert torch.allclose(probs.sum(-1), torch.ones(probs.shape[:-1], dtype=torch.float64), atol=1e-12)
    a, b = free(states, T).probs(), bright(states, T).probs()
    ratio = torch.where((a > 0) & (b > 0), a * (b / a.clamp(min=1e-300)) ** w, 0.0)
    assert torch.allclose(probs, ratio / ratio.sum(-1, keepdim=True), rtol=1e-7, atol=1e-12)


LEVELS = numpy.arange(8)
DARK, BRIGHT = scipy.stats.binom(7, 0.3).pmf(LEVELS), scipy.stats.randint(2, 8).pmf(LEVELS)  # two classes
SHARE = 0.3  # of the bright class
PRIOR = (1 - SHARE) * DARK + SHARE * BRIGHT
IS_BRIGHT = SHARE * BRIGHT / PRIOR  # p(bright | x_0)


def two_classes(process, states):
    """Exact posteriors at all states, (8, 1), without a label and of the bright class."""
    points = torch.arange(8).reshape(-1, 1)
    worlds = [bo.ExactPosterior(process, points, torch.from_numpy(weights)) for weights in (PRIOR, BRIGHT)]
    return [world(states, T) for world in worlds]


@pytest.mark.parametrize("w", [0.0, 0.5, 1.0, 2.0, 6.0])
def test_guidance_is_a_power_of_the_classifier(w):
    """p(x_0 | x_t, c) / p(x_0 | x_t) = p(c | x_0) / p(c | x_t): guidance tilts p(x_0 | x_t) by p(c | x_0)^w.

    The odds of any two states are multiplied by the odds of the classifier, to the power w.
    """
    process, states = bo.PureDeath(7), torch.arange(8).reshape(-1, 1)
    probs = GuidedPosterior(*two_classes(process, states), w).probs().squeeze(1).numpy()
    survival = scipy.stats.binom(LEVELS[None, :], math.exp(-float(T))).pmf(LEVELS[:, None])  # p(x_t | x_0), (x_t, x_0)
    tilted = survival * PRIOR * IS_BRIGHT**w
    tilted[:, IS_BRIGHT == 0] = 0
    seen = tilted.sum(1) > 0
    assert seen.all()
    assert numpy.allclose(probs, tilted / tilted.sum(1, keepdims=True), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("w", [0.0, 0.5, 1.0, 2.0])
def test_guided_rates_of_a_mean_follow_the_classifier_of_noisy_states(w):
    """The rate of a birth is multiplied by [p(c | x_t + 1) / p(c | x_t)]^w, as for any guidance by a classifier.

    A head that gives means has no other information. Where the result exceeds the units that are left, y is cut.
    """
    process, states = bo.PureDeath(7), torch.arange(8).reshape(-1, 1)
    free, bright = two_classes(process, states)
    parts = [bo.MeanPosterior(process, states, T, part.difference()) for part in (free, bright)]
    y = GuidedPosterior(*parts, w).difference().squeeze(1).numpy()
    survival = scipy.stats.binom(LEVELS[None, :], math.exp(-float(T))).pmf(LEVELS[:, None])
    noisy = survival @ (PRIOR * IS_BRIGHT) / (survival @ PRIOR)  # p(bright | x_t)
    ratio = numpy.append(noisy[1:] / noisy[:-1], 0.0)
    expected = numpy.minimum(free.difference().squeeze(1).numpy() * ratio**w, 7 - LEVELS)
    assert numpy.allclose(y[:-1], expected[:-1], rtol=1e-9)
    assert y[-1] == 0


HEADED = [
    ("bounded-logit", bo.PureDeath(4)),
    ("softplus", bo.PureDeath(4)),
    ("gamma-poisson", bo.PureDeath(4)),
    ("levels", bo.PureDeath(4)),
    ("categorical", bo.PureDeath(4)),
    ("levels", bo.BirthDeath(5, birth=0.5, death=1.0)),
    ("categorical", bo.Absorbing(6)),
    ("rates", bo.Uniform(5)),
]


@pytest.mark.parametrize(("head", "process"), HEADED, ids=[f"{head}-{process!r}" for head, process in HEADED])
def test_guidance_of_every_head(head, process):
    """0 is unconditional and 1 conditional; samples of any scale are states, and posteriors have no NaN."""
    made = model(head, process)
    options = {"num_steps": 8, "seed": 2}
    assert torch.equal(made.sample(9, label=1, guidance=0.0, **options), made.sample(9, **options))
    assert torch.equal(made.sample(9, label=1, guidance=1.0, **options), made.sample(9, label=1, **options))
    for w in (1.5, 4.0, 20.0):
        x = made.sample(9, label=1, guidance=w, **options)
        assert 0 <= int(x.min()) <= int(x.max()) <= 4
        for t in (1e-6, 0.3, 9.0):
            posterior = made.denoiser(1, w)(x, torch.full((9,), t, dtype=torch.float64)).checked()
            assert bool(torch.isfinite(posterior.rates()).all())
            if process.mean_suffices:
                assert bool(((posterior.mean() >= x) & (posterior.mean() <= 4)).all())


def test_zero_stays_zero_and_nothing_becomes_nan():
    values = torch.tensor([0.0, 1e-300, 1e-3, 1.0, 1e300], dtype=torch.float64)
    free, conditional = torch.meshgrid(values, values, indexing="ij")
    process, xt, t = bo.PureDeath(), torch.zeros(5, 5, dtype=torch.long), T.expand(5)

    def combined(w):
        parts = (bo.MeanPosterior(process, xt, t, y) for y in (free, conditional))
        return GuidedPosterior(*parts, w).difference()

    for w in (0.0, 0.5, 1.0, 1.5, 1e3):
        y = combined(w)
        assert bool(torch.isfinite(y).all())
        assert not bool(y[(free == 0) | (conditional == 0)].any())
    assert torch.allclose(combined(1.0)[1:, 1:], conditional[1:, 1:], rtol=1e-12)


def test_distributions_that_exclude_each_other_leave_the_conditional_one():
    process, xt = bo.Uniform(5), torch.zeros(2, 2, dtype=torch.long)
    free, conditional = (
        ListedPosterior(process, xt, T.expand(2), one_hot(torch.full_like(xt, state), 5).double()) for state in (0, 3)
    )
    assert torch.equal(GuidedPosterior(free, conditional, 2.0).probs(), conditional.probs())


@pytest.mark.parametrize(("sampler", "process"), PROCESSES, ids=NAMES)
def test_more_guidance_gives_more_typical_samples_of_the_class(sampler, process):
    """The distribution of samples follows from the probabilities of steps. Bright: more than half of all units."""
    free, bright, _ = world(process)
    times, states = grid(process, 10), lattice(process.num_states, 2)
    found = [sampler_probs(sampler, guided(free, bright, w), process, times, 2) for w in (0.0, 0.5, 1.0, 2.0)]
    shares = [float(probs[(states.sum(-1) > 4) & (states < 5).all(-1)].sum()) for probs in found]
    assert shares == sorted(shares)
    assert shares[-1] - shares[0] > 0.2
    dark, light = (on_lattice(POINTS, weights, process.num_states) for weights in classes())
    unguided = [sampler_probs(sampler, denoise, process, times, 2) for denoise in (free, bright)]
    assert total_variation(found[0], unguided[0]) < 1e-9
    assert total_variation(found[2], unguided[1]) < 1e-9
    assert total_variation(found[3], light) < total_variation(found[0], light) + 0.2 < total_variation(dark, light)


def model(head="auto", process=None, num_classes=3):
    """An untrained network with perturbed weights, so that labels matter."""
    x = torch.randint(5, (64, 4), generator=torch.Generator().manual_seed(0))
    made = bo.DiffusionModel.for_data(x, process or bo.PureDeath(4), head=head, num_classes=num_classes, width=16)
    generator = torch.Generator().manual_seed(1)
    for weights in made.predictor.parameters():
        weights.data += 0.3 * torch.randn(weights.shape, generator=generator)
    return made


@pytest.mark.parametrize(("head", "process"), [("auto", bo.PureDeath(4)), ("categorical", bo.Absorbing(6))])
def test_guidance_zero_and_one_call_the_network_once_a_step(head, process, monkeypatch):
    made, calls = model(head, process), []
    forward = type(made.predictor.network).forward
    monkeypatch.setattr(
        type(made.predictor.network), "forward", lambda self, *args: calls.append(args[-1]) or forward(self, *args)
    )
    plain, labelled = (made.sample(9, num_steps=6, seed=2, label=label) for label in (None, 1))
    assert torch.equal(made.sample(9, num_steps=6, seed=2, label=1, guidance=0.0), plain)
    assert torch.equal(made.sample(9, num_steps=6, seed=2, label=1, guidance=1), labelled)
    assert len(calls) == 24
    guided = made.sample(9, num_steps=6, seed=2, label=1, guidance=3.0)
    assert len(calls) == 36
    assert not torch.equal(plain, labelled)
    assert not torch.equal(guided, labelled)


def test_each_sample_may_have_its_own_label():
    made = model()
    label = torch.tensor([0, 2, 1, 0, 2, 1, 1], dtype=torch.uint8)
    for guidance in (1.0, 2.0):
        options = {"num_steps": 3, "seed": 3, "guidance": guidance}
        samples = made.sample(7, label=label, **options)
        assert torch.equal(made.sample(7, label=label, batch_size=3, **options), samples)
        assert torch.equal(made.sample(4, label=label[3:], start_index=3, **options), samples[3:])
        for c in range(3):
            assert torch.equal(made.sample(7, label=c, **options)[label == c], samples[label == c])
        for same in (label.numpy(), label.tolist()):
            assert torch.equal(made.sample(7, label=same, **options), samples)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"guidance": 2.0}, r"guidance needs a label, got guidance=2.0 without one"),
        ({"guidance": 0.0}, "guidance needs a label"),
        ({"label": 1, "guidance": -1.0}, r"guidance must be at least 0.0, got -1.0"),
        ({"label": 1, "guidance": math.inf}, "guidance must be finite, got inf"),
        ({"label": 1, "guidance": math.nan}, "guidance must be finite, got nan"),
        ({"label": 1, "guidance": "much"}, "guidance must be a number, got 'much'"),
        ({"label": 3}, "label must be less than the number of classes, 3, got 3"),
        ({"label": -1}, "label must be at least 0, got -1"),
        ({"label": 1.5}, "label must be an integer, got 1.5"),
        ({"label": torch.tensor([0, 1])}, r"label must be one class or have shape \(4,\), got \(2,\)"),
        ({"label": torch.tensor([0, 1, 2, 7])}, "label must be less than the number of classes, 3, got 7"),
        ({"label": torch.tensor([0.0, 1, 2, 0])}, "label must hold integers"),
        ({"label": torch.zeros(4, 1, dtype=torch.long)}, r"label must be one class or have shape \(4,\), got \(4, 1\)"),
        ({"label": numpy.array([0, 1, 2, 7])}, "label must be less than the number of classes, 3, got 7"),
        ({"label": numpy.array([0, -1, 2, 1])}, "label must not be negative, got -1"),
        ({"label": ["a", "b", "c", "d"]}, "label must be a class number: the model has no class names, got 'a'"),
        ({"label": "1"}, "label must be a class number: the model has no class names, got '1'"),
        ({"label": [[1], [2, 3]]}, "label must hold class numbers or names, got list"),
    ],
)
def test_invalid_labels_and_guidance_are_rejected(options, message):
    with pytest.raises(ValueError, match=message):
        model().sample(4, num_steps=2, **options)


def test_labels_are_rejected_by_a_model_without_classes():
    with pytest.raises(ValueError, match="label must be None: the model has no classes, got 1"):
        model(num_classes=0).sample(2, num_steps=2, label=1, guidance=2.0)


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (torch.zeros(4, 3), r"label must have shape \(4, 2\), 1 classes and 1 numbers for each, got \(4, 3\)"),
        (torch.tensor([[0.5, 1.0]] * 4), "label must hold classes from -1, for none, to 2, got 0.5"),
        (torch.tensor([[3.0, 1.0]] * 4), "label must hold classes from -1, for none, to 2, got 3.0"),
        (torch.tensor([[math.nan, 1.0]] * 4), "label must hold classes from -1, for none, to 2, got nan"),
    ],
)
def test_labels_with_covariates_are_checked(label, message):
    network = MLP(MLPConfig(features=2, width=8, blocks=1, conditions=Conditions((3,), 1, 1)))
    head = BoundedLogitHead(torch.ones(1), torch.ones(1), 3)
    made = bo.DiffusionModel(bo.PureDeath(3), bo.ObservationTimes.fisher(4), network, head, shape=(2,))
    assert made.sample(4, 2, label=torch.tensor([[-1.0, 2.0]] * 4)).shape == (4, 2)
    with pytest.raises(ValueError, match=message):
        made.sample(4, 2, label=label)


IMAGES = torch.zeros(6, 1, 8, 8, dtype=torch.long)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.tensor([0, 1, 2, 3, 0, 1]), "labels must be less than the number of classes, 3, got 3"),
        (torch.tensor([0, 1, 2, -1, 0, 1]), "labels must not be negative, got -1"),
        (torch.tensor([0, 1, 2]), r"labels must have shape \(6,\), got \(3,\)"),
        (torch.zeros(6), "labels must hold integers, got dtype torch.float32"),
        (["a"] * 6, "labels must name 3 classes, got 1 class: a; class_names may name them all"),
        ([*"abcab", 3], "labels must be all names or all numbers, got 3 among names"),
        ([[1], [2, 3]], "labels must hold class numbers or names, got list"),
        (None, "labels are needed: the model was made for 3 classes, got None"),
    ],
)
def test_invalid_labels_of_training_data_are_rejected(labels, message):
    made = bo.DiffusionModel.for_data(IMAGES, bo.PureDeath(1), num_classes=3, width=8, blocks=1)
    before = {name: value.clone() for name, value in made.predictor.state_dict().items()}
    with pytest.raises(ValueError, match=message):
        made.fit(IMAGES, labels, steps=1, batch_size=2)
    assert all(torch.equal(value, before[name]) for name, value in made.predictor.state_dict().items())


def test_labels_of_training_data_may_be_an_array_or_a_list():
    weights = []
    for labels in (torch.arange(6) % 3, numpy.arange(6) % 3, [0, 1, 2, 0, 1, 2]):
        made = bo.DiffusionModel.for_data(IMAGES, bo.PureDeath(1), num_classes=3, width=8, blocks=1)
        weights.append(made.fit(IMAGES, labels, steps=1, batch_size=2).predictor.state_dict())
    assert all(torch.equal(weights[0][name], other[name]) for other in weights[1:] for name in other)
    plain = bo.DiffusionModel.for_data(IMAGES, bo.PureDeath(1), width=8, blocks=1)
    with pytest.raises(ValueError, match=r"labels need a model with classes: .*for_data\(x, process, num_classes=3\)"):
        plain.fit(IMAGES, numpy.arange(6) % 3, steps=1)


class GammaPoissonClasses:
    """Exact denoisers of cells without a largest count: independent negative binomials in each of several classes."""

    def __init__(self, means, shape, shares):
        self.process, self.means, self.shape, self.shares = bo.PureDeath(), means, shape, shares

    def __call__(self, xt, t, label=None):
        p = torch.exp(-t.double()).reshape(-1, 1, 1)
        means, x = self.means, xt.double().unsqueeze(1)  # (classes, genes), (batch, 1, genes)
        y = (1 - p) * (self.shape + x) / (self.shape / means + p)
        if label is None:
            logs = (x * torch.log(p * means) - (x + self.shape) * torch.log(self.shape + p * means)).sum(-1)
            y = (torch.softmax(logs + torch.log(self.shares), -1).unsqueeze(-1) * y).sum(1)
        else:
            y = y[:, label]
        return bo.MeanPosterior(self.process, xt, t, y)


def rare_classes():
    """Fourteen classes of 24 genes with heavy tails; each has 3 markers, and the last ones have few cells."""
    generator = torch.Generator().manual_seed(0)
    means = torch.rand(14, 24, generator=generator, dtype=torch.float64) * 4 + 0.02
    for k in range(14):
        means[k, torch.randperm(24, generator=generator)[:3]] *= 50
    shares = 0.6 ** torch.arange(14, dtype=torch.float64)
    return GammaPoissonClasses(means, 0.3, shares / shares.sum())


def test_guidance_does_not_add_molecules_where_counts_have_no_bound():
    """Guidance changes which components are lit, not how many units: without that bound totals explode."""
    cells, times = rare_classes(), bo.ObservationTimes.for_process(bo.PureDeath(), 1000, 15.0).subset(50)
    largest = {}
    for w in (1.0, 2.0, 3.0, 8.0):
        totals = []
        for label in (9, 11, 13):
            denoise = guided(cells, lambda xt, t, label=label: cells(xt, t, label), w)
            x = bo.TauLeaping().sample(denoise, cells.process, times, (100, 24), seed=1)
            totals.append(x.sum(1))
            posterior = denoise(x // 2, torch.full((100,), 0.7, dtype=torch.float64))
            y, means = posterior.difference(), [p.difference() for p in (posterior.free, posterior.conditional)]
            assert bool((y.sum(1) <= torch.maximum(*(mean.sum(1) for mean in means)) * (1 + 1e-9)).all())
            assert bool((y <= 2 * torch.maximum(*means) * (1 + 1e-9)).all())
        largest[w] = torch.cat(totals).double().quantile(torch.tensor([0.5, 1.0], dtype=torch.float64)).tolist()
    for w in (2.0, 3.0, 8.0):
        assert largest[w][0] < 1.5 * largest[1.0][0]
        assert largest[w][1] < 2 * largest[1.0][1]
