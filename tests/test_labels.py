"""Class names: of data, in models, as labels of samples."""

import json
import re
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import blackout as bo
from blackout.data import from_array, open_dataset
from blackout.io.samples import checksum
from blackout.labels import by_number, check_class_names, describe_classes
from blackout.recipes import build_model, recipe

NAMES = ("cat", "dog", "emu")
X = torch.arange(6 * 4).reshape(6, 4) % 5
LABELS = ["dog", "cat", "emu", "dog", "cat", "emu"]


def model(num_classes: int = 3) -> bo.DiffusionModel:
    return bo.DiffusionModel.for_data(X, bo.PureDeath(4), num_classes=num_classes, width=8, blocks=1)


def weights(fitted: bo.DiffusionModel) -> list[torch.Tensor]:
    return list(fitted.predictor.state_dict().values())


def same(a: bo.DiffusionModel, b: bo.DiffusionModel) -> bool:
    return all(torch.equal(one, other) for one, other in zip(weights(a), weights(b), strict=True))


@pytest.mark.parametrize(
    "labels", [LABELS, tuple(LABELS), numpy.array(LABELS), numpy.array(LABELS, object)], ids=["list", "tuple", "U", "O"]
)
def test_models_are_trained_on_names(labels: Any) -> None:
    """Names are numbered in alphabetical order, and the weights are those of training on the numbers."""
    fitted = model().fit(X, labels, steps=2, batch_size=4)
    assert fitted.class_names == fitted.record.class_names == NAMES
    numbered = model().fit(X, [1, 0, 2, 1, 0, 2], steps=2, batch_size=4)
    assert numbered.class_names is None
    assert same(fitted, numbered)


def test_given_names_determine_the_order() -> None:
    order = ("emu", "dog", "cat")
    fitted = model().fit(X, LABELS, class_names=order, steps=1, batch_size=4)
    assert fitted.class_names == order
    assert same(fitted, model().fit(X, [1, 2, 0, 1, 2, 0], class_names=order, steps=1, batch_size=4))
    fitted.fit(X[:2], ["cat", "emu"], steps=1, batch_size=2)  # names that the model knows already
    assert fitted.class_names == order
    four = model(4).fit(X, LABELS, class_names=[*NAMES, "fox"], steps=1, batch_size=4)
    assert four.class_names == (*NAMES, "fox")


def test_names_are_saved_and_are_no_part_of_the_weights(tmp_path: Path) -> None:
    plain = model()
    named = plain.with_record(class_names=NAMES)
    assert bo.load(named.save(tmp_path / "named")).class_names == NAMES
    assert bo.load(plain.save(tmp_path / "plain")).class_names is None
    assert "class_names" not in json.loads((tmp_path / "plain/model.json").read_text())
    assert checksum(named) == checksum(plain)  # the samples are the same
    with pytest.raises(ValueError, match="class_names must hold 3 names, one for each class, got 2"):
        plain.with_record(class_names=("cat", "dog"))
    description = json.loads((tmp_path / "named/model.json").read_text())
    (tmp_path / "named/model.json").write_text(json.dumps(description | {"class_names": ["cat"]}))
    with pytest.raises(ValueError, match="class_names must hold 3 names, one for each class, got 1"):
        bo.load(tmp_path / "named")


def test_samples_of_a_class_by_name() -> None:
    named = model().with_record(class_names=NAMES)
    for weight in named.predictor.parameters():  # so that labels matter
        weight.data += 0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
    options: dict[str, Any] = {"num_steps": 4, "seed": 1}
    dogs = named.sample(5, label="dog", guidance=2.0, **options)
    assert torch.equal(dogs, named.sample(5, label=1, guidance=2.0, **options))
    assert not torch.equal(dogs, named.sample(5, guidance=1.0, **options))
    numbers = named.sample(3, label=[2, 0, 1], **options)
    for label in (["emu", "cat", "dog"], numpy.array(["emu", "cat", "dog"]), ("emu", 0, "dog")):
        assert torch.equal(named.sample(3, label=label, **options), numbers)


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("dgo", "label must be one of cat, dog, emu, got 'dgo'; did you mean dog?"),
        ("Cat", "label must be one of cat, dog, emu, got 'Cat'; did you mean cat?"),
        ("", "label must be one of cat, dog, emu, got ''"),
        ("1", "label must be one of cat, dog, emu, got '1'"),
        (["cat", "yak"], "label must be one of cat, dog, emu, got 'yak'"),
        (["cat", 3], "label must be less than the number of classes, 3, got 3"),
        (3, "label must be less than the number of classes, 3, got 3"),
    ],
)
def test_unknown_names_are_rejected(label: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        model().with_record(class_names=NAMES).sample(2, 2, label=label)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("cat", "dog"), r"class_names must hold 3 names, one for each class, got 2: \('cat', 'dog'\)"),
        (("cat", "dog", "cat"), "class_names must differ, got 'cat' twice"),
        (("cat", "dog", ""), "class_names must hold strings that are not empty, got ''"),
        (("cat", "dog", 3), "class_names must hold strings that are not empty, got 3"),
        ("cat", "class_names must be a sequence of strings, got 'cat'"),
        (3, "class_names must be a sequence of strings, got 3"),
    ],
)
def test_invalid_class_names_are_rejected(names: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_class_names(names, 3)
    with pytest.raises(ValueError, match=message):
        model().fit(X, [0, 1, 2, 0, 1, 2], class_names=names, steps=1)


def test_long_lists_are_shortened() -> None:
    names = tuple(f"class {k}" for k in range(1000))
    text = describe_classes(1000, names)
    assert text.startswith("1000 classes: class 0, class 1, ")
    assert text.endswith(", class 19, ... (1000 in all)")
    with pytest.raises(ValueError, match=r"\(1000 in all\), got 'clas 999'; did you mean class 999\?"):
        by_number("label", "clas 999", names)
    assert describe_classes(2, None) == "2 classes"


def test_arrays_with_names() -> None:
    data = from_array(X, labels=LABELS)
    assert (data.num_classes, data.class_names) == (3, NAMES)
    assert data.labels is not None
    assert data.labels.tolist() == [1, 0, 2, 1, 0, 2]
    more = from_array(X, labels=[0, 1, 1, 0, 0, 0], class_names=NAMES)
    assert (more.num_classes, more.class_names) == (3, NAMES)
    with pytest.raises(ValueError, match="labels must be one of cat, dog, got 'emu'"):
        from_array(X, labels=LABELS, class_names=["cat", "dog"])
    with pytest.raises(ValueError, match="class_names must hold 7 names, one for each class, got 3"):
        from_array(X, labels=[0, 1, 2, 6, 0, 0], class_names=NAMES)
    with pytest.raises(ValueError, match="class_names must hold 0 names"):
        from_array(X, class_names=NAMES)


def test_names_in_npz_files(tmp_path: Path) -> None:
    numpy.savez(tmp_path / "named.npz", x=X.numpy(), labels=numpy.array(LABELS))
    assert open_dataset(tmp_path / "named.npz").class_names == NAMES
    order = numpy.array(["emu", "dog", "cat", "fox"])
    numpy.savez(tmp_path / "given.npz", x=X.numpy(), labels=[0, 1, 2, 0, 1, 2], class_names=order)
    data = open_dataset(tmp_path / "given.npz")
    assert (data.num_classes, data.class_names) == (4, tuple(order))
    numpy.savez(tmp_path / "wrong.npz", x=X.numpy(), labels=[0, 1, 2, 0, 1, 2], class_names=order[:2])
    with pytest.raises(ValueError, match=r"wrong\.npz: class_names must hold 3 names, one for each class, got 2"):
        open_dataset(tmp_path / "wrong.npz")


def test_a_model_of_a_recipe_has_the_names_of_its_data() -> None:
    data = from_array(X.reshape(6, 1, 2, 2).repeat(1, 1, 4, 4), labels=LABELS)
    config = recipe("digits").replace(width=8, blocks=1)
    assert build_model(config.replace(class_conditional=True), data).class_names == NAMES
    assert build_model(config.replace(class_conditional=False), data).class_names is None


def test_pretrained_digits_have_names() -> None:
    digits = bo.load("seven-segment")
    assert digits.class_names == tuple("0123456789")
    assert torch.equal(digits.sample(2, 3, label="7"), digits.sample(2, 3, label=7))
