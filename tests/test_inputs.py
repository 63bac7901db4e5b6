"""The forms in which data are given to `for_data` and `fit`, and what a model shows of itself."""

import numpy
import pytest
import torch
from PIL import Image
from torch.utils import data as torch_data

import blackout as bo
from blackout.data import from_array
from blackout.data.inputs import read_inputs

RANDOM = numpy.random.default_rng(0)
X = torch.from_numpy(RANDOM.integers(0, 5, (12, 6)))
LABELS = torch.arange(12) % 3


class Items(torch_data.Dataset):
    """A map-style Dataset of whatever is in a list."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class Endless(torch_data.IterableDataset):
    def __iter__(self):
        while True:
            yield X[0]


PAIRS = torch_data.TensorDataset(X, LABELS)
SAME = {
    "tensor": X,
    "array": X.numpy(),
    "list": X.tolist(),
    "uint8": X.to(torch.uint8),
    "Dataset": from_array(X, labels=LABELS),
    "TensorDataset": torch_data.TensorDataset(X),
    "TensorDataset of pairs": PAIRS,
    "items": Items(list(X)),
    "pairs of arrays": Items([(row.numpy(), int(label)) for row, label in zip(X, LABELS, strict=True)]),
    "DataLoader": torch_data.DataLoader(PAIRS, batch_size=5, shuffle=True, drop_last=True),
    "DataLoader that collates": torch_data.DataLoader(
        PAIRS, 5, collate_fn=lambda rows: [torch.stack([r[0] for r in rows])]
    ),
}


def new_model(**options):
    return bo.DiffusionModel.for_data(X, "uniform", width=8, blocks=1, **options)


@pytest.mark.parametrize("name", SAME)
def test_all_forms_of_data_are_the_same_data(name):
    assert torch.equal(torch.as_tensor(read_inputs(SAME[name]).x).long(), X)
    if name in ("array", "items", "DataLoader"):
        made = bo.DiffusionModel.for_data(SAME[name], "uniform", width=8, blocks=1)
        weights = made.fit(SAME[name], steps=1, batch_size=4).predictor.state_dict()
        expected = new_model().fit(X, steps=1, batch_size=4).predictor.state_dict()
        assert all(torch.equal(weights[key], expected[key]) for key in expected)
        assert made.bits_per_dim(SAME[name], num_times=2) == made.bits_per_dim(X, num_times=2)


def test_labels_come_with_the_data():
    names = Items([(row, "cat" if label else "emu") for row, label in zip(X, LABELS % 2, strict=True)])
    assert new_model(num_classes=2).fit(names, steps=1, batch_size=4).class_names == ("cat", "emu")
    loader = torch_data.DataLoader(PAIRS, 5, sampler=torch_data.SubsetRandomSampler([3, 4, 5, 6, 7, 8]))
    given = read_inputs(loader)
    assert sorted(given.labels.tolist()) == [0, 0, 1, 1, 2, 2]
    assert all((X[label == LABELS] == row).all(-1).any() for row, label in zip(given.x, given.labels, strict=True))
    new_model(num_classes=3).fit(loader, steps=1, batch_size=4)
    with pytest.raises(ValueError, match="labels must be None: x has labels of its own"):
        new_model(num_classes=3).fit(PAIRS, LABELS, steps=1)


def test_a_dataset_of_images_is_read_as_a_folder_of_them_is():
    grey, colour = (RANDOM.integers(0, 256, shape, numpy.uint8) for shape in ((4, 8, 8), (4, 8, 8, 3)))
    given = read_inputs(Items([(Image.fromarray(image), 1) for image in grey]))
    assert torch.equal(given.x, torch.from_numpy(grey)[:, None])
    assert given.max_state == 255
    assert torch.equal(
        read_inputs(Items(list(map(Image.fromarray, colour)))).x, torch.from_numpy(colour).movedim(-1, 1)
    )


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.rand(4, 3), r"x must hold integers, got dtype torch.float32; levels from 0 to 1, .*\(x \* 255\)"),
        (Items(list(torch.rand(4, 3))), r"x must hold integers, got dtype torch\.float32; levels from 0 to 1"),
        (X.double(), r"x must hold integers, got dtype torch\.float64; its values are integers: give x\.long\(\)"),
        (Endless(), "x must be a Dataset with a length, got Endless"),
        (torch_data.DataLoader(Endless()), "x must be a Dataset with a length, got Endless"),
        (Items([{"image": X[0]}]), "x must hold data points of one shape and type: .* got dict"),
        (Items([X[0], X[0, :2]]), "x must hold data points of one shape and type"),
        (Items([(X[0], 1, 2)]), "x must hold data points or pairs of data point and label, got items of 3 parts"),
        (Items([(X[0], 1), X[1]]), "x must have a label for each data point or for none, got 1 of 2"),
        (7, "x must have shape"),
        (None, "x must be a tensor of integers, got NoneType"),
    ],
)  # fmt: skip
def test_rejected_data(x, message):
    with pytest.raises(ValueError, match=message):
        bo.DiffusionModel.for_data(x, "uniform")


def test_processes_by_name():
    assert repr(bo.DiffusionModel.for_data(X, "absorbing", width=8).process) == "Absorbing(num_states=6, mask_state=5)"
    images = from_array(X, max_state=7)
    assert bo.DiffusionModel.for_data(images, "pure-death", width=8).max_state == 7
    for process, message in (
        ("absorb", "process must be one of pure-death, .*, got 'absorb'"),
        (3, "process must be a"),
    ):
        with pytest.raises(ValueError, match=message):
            bo.DiffusionModel.for_data(X, process)


def test_num_classes_is_named():
    for wrong in (-1, "two", 2.5, 10**30, None):
        with pytest.raises(ValueError, match="num_classes must be"):
            new_model(num_classes=wrong)
    with pytest.raises(ValueError, match=r"labels need a model with classes: .*num_classes=3\)"):
        new_model().fit(X, LABELS)
    with pytest.raises(ValueError, match="label must be None: the model has no classes, got 1"):
        new_model().sample(1, label=1)


def test_more_samples_than_memory_holds_are_rejected():
    with pytest.raises(ValueError, match=r"1,099,511,627,776 samples of shape \(6,\) needs? about .* are free"):
        new_model().sample(2**40)
    for name, value in (("num", 10**30), ("seed", 2**63), ("num_steps", 2**64), ("num", -1), ("seed", "a")):
        with pytest.raises(ValueError, match=f"{name} must be"):
            new_model().sample(**{"num": 1, name: value})


def test_what_a_model_shows(tmp_path):
    model = new_model(num_classes=3)
    weights = sum(p.numel() for p in model.predictor.parameters())
    assert repr(model).splitlines() == [
        "DiffusionModel(",
        f"  process: Uniform(num_states=5), ends at t={model.times.t_end:.4g}",
        f"  network: MLP with {weights:,} weights, head categorical, on cpu",
        "  data: shape (6,), states 0 to 4; 3 classes",
        "  training: none recorded",
        ")",
    ]
    model.fit(X, ["a", "b", "c"] * 4, steps=2, batch_size=4).save(tmp_path / "saved")
    shown = repr(bo.load(tmp_path / "saved", device="cpu"))
    assert "; 3 classes: a, b, c\n" in shown
    assert "\n  trained: own data (12), likelihood loss, 2 steps of 4" in shown
    with pytest.raises(ValueError, match="device must exist here, but this machine has no meta"):
        bo.load(tmp_path / "saved", device="meta")
    assert repr(bo.Uniform(4, schedule=bo.Schedule.linear(0.1, 2))) == (
        "Uniform(num_states=4, schedule=Schedule.linear(0.1, 2.0))"
    )
    assert repr(bo.PureDeath(9, schedule=lambda t: 1 + t)) == "PureDeath(max_count=9, schedule=Schedule.from_rate(...))"
    assert [repr(loss) for loss in (bo.FiniteTimeLoss(), bo.RateLoss(bo.Halving(8)))] == [
        "FiniteTimeLoss()",
        "RateLoss(Halving(num_states=8))",
    ]
    reactions = bo.ReactionModel.for_data(X, bo.Exchange((2, 3)), t_end=3.0, width=8, blocks=1)
    assert repr(reactions).startswith("ReactionModel(Exchange(6 components, 14 channels), ends at t=3, ")
    assert repr(bo.TauLeaping(events="binomial")) == "TauLeaping(step='finite', events='binomial')"
    assert repr(bo.PosteriorBridge(corrector_steps=2)) == "PosteriorBridge(corrector_steps=2, corrector_size=0.1)"
    assert (
        repr(bo.ExactPosterior(bo.PureDeath(4), X)) == "ExactPosterior(PureDeath(max_count=4), 12 points of shape (6,))"
    )
