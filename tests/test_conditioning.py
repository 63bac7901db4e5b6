import math

import numpy
import pytest
import torch

import blackout as bo
from blackout.guidance import Guided, combine
from blackout.network import MLP, BoundedLogitHead, MLPConfig
from worlds import grid, lattice, on_lattice, sampler_law, total_variation

PROCESSES = [
    (bo.TauLeaping(law="binomial"), bo.PureDeath(4)),
    (bo.PosteriorBridge(), bo.PureDeath(4)),
    (bo.TauLeaping(), bo.Uniform(5)),
    (bo.PosteriorBridge(), bo.Absorbing(6)),
]
NAMES = [f"{type(sampler).__name__}-{process!r}" for sampler, process in PROCESSES]
POINTS = lattice(5, 2)
T = torch.tensor(0.7, dtype=torch.float64)


def classes() -> tuple[torch.Tensor, torch.Tensor]:
    """Two classes with overlapping laws: dark pairs and bright pairs."""
    level = POINTS.sum(-1).double()
    dark, bright = torch.exp(-0.5 * level), torch.exp(0.5 * level)
    return dark / dark.sum(), bright / bright.sum()


def world(process):
    """Exact denoisers: without a label, of the bright class, and of the dark one."""
    dark, bright = classes()
    return [bo.ExactPosterior(process, POINTS, weights) for weights in ((dark + bright) / 2, bright, dark)]


def everywhere(process):
    return lattice(process.num_states, 2)


def test_rates_are_combined_in_logarithms():
    """κ of each denoiser by Bayes' rule, written out: Σ_o p(o | x) λ_r(o, x, t)."""
    process, (free, bright, _) = bo.Uniform(5), world(bo.Uniform(5))
    states = everywhere(process)
    for w in (0.0, 0.3, 1.0, 2.5):
        expected = []
        for weights in (sum(classes()) / 2, classes()[1]):
            likelihood = torch.exp(process.log_prob(states.repeat_interleave(25, 0), POINTS.repeat(25, 1), T).sum(-1))
            posterior = likelihood.reshape(25, 25) * weights
            posterior /= posterior.sum(-1, keepdim=True)
            rates = process.reverse_rates(POINTS.repeat(25, 1), states.repeat_interleave(25, 0), T)
            expected.append(torch.einsum("xo,xocr->xcr", posterior, rates.reshape(25, 25, 2, -1)))
        kappa = (expected[0] ** (1 - w) * expected[1] ** w).nan_to_num(0)  # no state, no rate
        assert torch.allclose(Guided(process, free, bright, w)(states, T), kappa, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("w", [0.5, 3.0, 50.0])
def test_counts_stay_between_nothing_and_the_largest(w):
    process = bo.PureDeath(4)
    states = everywhere(process)
    y = Guided(process, *world(process)[:2], w)(states, T)
    free, bright = (denoise(states, T) for denoise in world(process)[:2])
    assert bool(((y >= 0) & (y <= 4 - states)).all())
    assert torch.allclose(y, torch.minimum(free ** (1 - w) * bright**w, 4.0 - states).nan_to_num(0), rtol=1e-9)


@pytest.mark.parametrize("process", [bo.PureDeath(4), bo.Uniform(5), bo.Absorbing(6)], ids=repr)
@pytest.mark.parametrize("w", [0.0, 0.5, 1.0, 2.0, 40.0])
def test_a_law_sums_to_one_and_is_the_product_of_powers(process, w):
    free, bright, _ = world(process)
    states = everywhere(process)
    law = Guided(process, free, bright, w).law(states, T)
    assert torch.allclose(law.sum(-1), torch.ones(law.shape[:-1], dtype=torch.float64), atol=1e-12)
    a, b = free.law(states, T), bright.law(states, T)
    ratio = torch.where((a > 0) & (b > 0), a * (b / a.clamp(min=1e-300)) ** w, 0.0)
    assert torch.allclose(law, ratio / ratio.sum(-1, keepdim=True), rtol=1e-7, atol=1e-12)


def test_zero_stays_zero_and_nothing_becomes_nan():
    values = torch.tensor([0.0, 1e-300, 1e-3, 1.0, 1e300], dtype=torch.float64)
    free, labelled = torch.meshgrid(values, values, indexing="ij")
    for w in (0.0, 0.5, 1.0, 1.5, 1e3):
        mixed = combine(free, labelled, w)
        assert bool(torch.isfinite(mixed).all())
        assert not bool(mixed[(free == 0) | (labelled == 0)].any())
    assert torch.allclose(combine(free[1:, 1:], labelled[1:, 1:], 1.0), labelled[1:, 1:], rtol=1e-12)


def test_laws_that_exclude_each_other_leave_the_law_with_the_label():
    class Certain:
        def __init__(self, state):
            self.state = state

        def __call__(self, xt, t):
            raise NotImplementedError

        def law(self, xt, t):
            return torch.nn.functional.one_hot(torch.full_like(xt, self.state), 5).double()

    law = Guided(bo.Uniform(5), Certain(0), Certain(3), 2.0).law(torch.zeros(2, 2, dtype=torch.long), T)
    assert torch.equal(law.argmax(-1), torch.full((2, 2), 3))
    assert torch.equal(law.sum(-1), torch.ones(2, 2, dtype=torch.float64))


@pytest.mark.parametrize(("sampler", "process"), PROCESSES, ids=NAMES)
def test_more_guidance_gives_more_of_what_is_typical_of_the_class(sampler, process):
    """The law of the samples is computed from the probabilities of the steps. Bright: more than half of all units."""
    free, bright, _ = world(process)
    times, states = grid(process, 10), lattice(process.num_states, 2)
    laws = [sampler_law(sampler, Guided(process, free, bright, w), process, times, 2) for w in (0.0, 0.5, 1.0, 2.0)]
    shares = [float(law[(states.sum(-1) > 4) & (states < 5).all(-1)].sum()) for law in laws]
    assert shares == sorted(shares)
    assert shares[-1] - shares[0] > 0.2
    dark, light = (on_lattice(POINTS, weights, process.num_states) for weights in classes())
    unguided = [sampler_law(sampler, denoise, process, times, 2) for denoise in (free, bright)]
    assert total_variation(laws[0], unguided[0]) < 1e-9
    assert total_variation(laws[2], unguided[1]) < 1e-9
    assert total_variation(laws[3], light) < total_variation(laws[0], light) + 0.2 < total_variation(dark, light)


def model(head="auto", process=None, num_classes=3):
    """A network that has learnt nothing, shaken so that labels matter."""
    x = torch.randint(5, (64, 4), generator=torch.Generator().manual_seed(0))
    made = bo.DiffusionModel.for_data(x, process or bo.PureDeath(4), head=head, num_classes=num_classes, width=16)
    generator = torch.Generator().manual_seed(1)
    for weights in made.predictor.parameters():
        weights.data += 0.3 * torch.randn(weights.shape, generator=generator)
    return made


@pytest.mark.parametrize(("head", "process"), [("auto", bo.PureDeath(4)), ("categorical", bo.Absorbing(6))])
def test_weights_zero_and_one_are_the_models_themselves_and_one_call(head, process, monkeypatch):
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


def test_a_label_for_each_sample():
    made = model()
    label = torch.tensor([0, 2, 1, 0, 2, 1, 1], dtype=torch.uint8)
    for guidance in (1.0, 2.0):
        options = {"num_steps": 3, "seed": 3, "guidance": guidance}
        whole = made.sample(7, label=label, **options)
        assert torch.equal(made.sample(7, label=label, batch_size=3, **options), whole)
        assert torch.equal(made.sample(4, label=label[3:], start_index=3, **options), whole[3:])
        for c in range(3):
            assert torch.equal(made.sample(7, label=c, **options)[label == c], whole[label == c])
        for same in (label.numpy(), label.tolist()):
            assert torch.equal(made.sample(7, label=same, **options), whole)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"guidance": 2.0}, r"guidance needs a label .* got guidance=2.0"),
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
        ({"label": ["a", "b", "c", "d"]}, "label must be numbers of classes, got list"),
        ({"label": "1"}, "label must be an integer, got '1'"),
    ],
)
def test_what_cannot_be_guided_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        model().sample(4, num_steps=2, **options)


def test_a_model_without_classes_is_not_guided():
    with pytest.raises(ValueError, match="number of classes, 0, got 1"):
        model(num_classes=0).sample(2, num_steps=2, label=1, guidance=2.0)


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (torch.zeros(4, 3), r"label must have shape \(4, 2\), a class and the numbers beside it, got \(4, 3\)"),
        (torch.tensor([[0.5, 1.0]] * 4), "label must hold classes from -1, for none, to 2, got 0.5"),
        (torch.tensor([[3.0, 1.0]] * 4), "label must hold classes from -1, for none, to 2, got 3.0"),
        (torch.tensor([[math.nan, 1.0]] * 4), "label must hold classes from -1, for none, to 2, got nan"),
    ],
)
def test_a_class_with_numbers_beside_it_is_checked(label, message):
    network = MLP(MLPConfig(features=2, width=8, blocks=1, num_classes=3, covariates=1))
    head = BoundedLogitHead(torch.ones(1), torch.ones(1), 3)
    made = bo.DiffusionModel(bo.PureDeath(3), bo.ObservationTimes.fisher(4), network, head, shape=(2,))
    assert made.sample(4, 2, label=torch.tensor([[-1.0, 2.0]] * 4)).shape == (4, 2)
    with pytest.raises(ValueError, match=message):
        made.sample(4, 2, label=label)


PICTURES = torch.zeros(6, 1, 8, 8, dtype=torch.long)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.tensor([0, 1, 2, 3, 0, 1]), "labels must be less than the number of classes, 3, got 3"),
        (torch.tensor([0, 1, 2, -1, 0, 1]), "labels must not be negative, got -1"),
        (torch.tensor([0, 1, 2]), r"labels must have shape \(6,\), got \(3,\)"),
        (torch.zeros(6), "labels must hold integers, got dtype torch.float32"),
        (["a"] * 6, "labels must be numbers of classes, got list"),
        (None, "labels are needed: the model was made for 3 classes, got None"),
    ],
)
def test_pictures_are_fitted_with_labels_that_fit(labels, message):
    made = bo.DiffusionModel.for_data(PICTURES, bo.PureDeath(1), num_classes=3, width=8, blocks=1)
    before = {name: value.clone() for name, value in made.predictor.state_dict().items()}
    with pytest.raises(ValueError, match=message):
        made.fit(PICTURES, labels, steps=1, batch_size=2)
    assert all(torch.equal(value, before[name]) for name, value in made.predictor.state_dict().items())


def test_labels_of_pictures_may_be_an_array_or_a_list():
    weights = []
    for labels in (torch.arange(6) % 3, numpy.arange(6) % 3, [0, 1, 2, 0, 1, 2]):
        made = bo.DiffusionModel.for_data(PICTURES, bo.PureDeath(1), num_classes=3, width=8, blocks=1)
        weights.append(made.fit(PICTURES, labels, steps=1, batch_size=2).predictor.state_dict())
    assert all(torch.equal(weights[0][name], other[name]) for other in weights[1:] for name in other)
    plain = bo.DiffusionModel.for_data(PICTURES, bo.PureDeath(1), width=8, blocks=1)
    with pytest.raises(ValueError, match="labels must be less than the number of classes, 0, got 2"):
        plain.fit(PICTURES, numpy.arange(6) % 3, steps=1)
