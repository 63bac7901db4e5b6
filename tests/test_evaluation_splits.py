"""Test and training data of an evaluation, and subsets of them."""

from dataclasses import replace
from pathlib import Path

import numpy
import pytest
import torch
from PIL import Image

from blackout.data import Alphabet, Dataset, make_seven_segment, open_dataset, read_images
from blackout.evaluation import splits
from blackout.evaluation.splits import dataset_of, open_splits, random_subset, subsample
from blackout.io import load
from blackout.model import DiffusionModel
from blackout.recipes import recipe
from blackout.training.config import TrainConfig


def write_images(folder: Path, number: int, level: int) -> Path:
    folder.mkdir(parents=True)
    for k in range(number):
        Image.new("L", (8, 8), level).save(folder / f"{k}.png")
    return folder


class TestOpenSplits:
    def test_subfolders_train_and_test(self, tmp_path: Path) -> None:
        write_images(tmp_path / "train", 3, 1)
        write_images(tmp_path / "test", 2, 2)
        for dataset in ("", "seven-segment", "cifar10"):
            test, train = open_splits(dataset, str(tmp_path))
            assert train is not None
            assert (len(test), len(train), int(test.x.max()), int(train.x.max())) == (2, 3, 2, 1)

    def test_a_folder_without_subfolders_is_test_data(self, tmp_path: Path) -> None:
        test, train = open_splits("", str(write_images(tmp_path / "mine", 3, 1)))
        assert (len(test), train) == (3, None)

    def test_a_subfolder_train_alone(self, tmp_path: Path) -> None:
        write_images(tmp_path / "train", 3, 1)
        with pytest.raises(ValueError, match=r"data must have a subfolder test beside train, got .*as train_data"):
            open_splits("", str(tmp_path))

    @pytest.mark.parametrize(
        ("dataset", "level", "expected"),
        [("cifar10", 200, 200), ("mnist-binary", 200, 1), ("mnist-binary", 1, 1), ("mnist", 200, 200)],
    )
    def test_images_instead_of_a_named_data_set(self, dataset: str, level: int, expected: int, tmp_path: Path) -> None:
        """Grey levels are binarised for mnist-binary; counts of 0 and 1 are not."""
        test, train = open_splits(dataset, str(write_images(tmp_path / "mine", 3, level)))
        assert (len(test), train, int(test.x.min()), int(test.x.max())) == (3, None, expected, expected)
        assert not test.named

    def test_missing_data(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"data must hold the files of cifar10 \(`blackout data .*\) or images"):
            open_splits("cifar10", str(tmp_path))
        for dataset, advice in (("cifar10", "; `blackout data cifar10` downloads"), ("", "$")):
            with pytest.raises(ValueError, match=f"data must be an existing file or folder, got nowhere{advice}"):
                open_splits(dataset, "nowhere")
        with pytest.raises(ValueError, match=r"data set must be one of cifar10, .*got 'imagenet'"):
            open_splits("imagenet")

    def test_all_images_are_the_training_data_of_a_run_that_used_them(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        recipe("celeba64-paper").write(tmp_path / "config.json")
        dataset, reading = dataset_of(str(tmp_path), load("seven-segment"))
        assert (dataset, reading) == ("celeba64", {"train_split": "all"})
        number = {"all": 5, "train": 3, "test": 2}
        monkeypatch.setattr(splits, "_is_own", lambda *_: False)
        monkeypatch.setattr(splits, "open_dataset", lambda name, split, folder: range(number[split]))
        assert [len(part or ()) for part in open_splits(dataset, **reading)] == [2, 5]
        assert [len(part or ()) for part in open_splits(dataset)] == [2, 3]

    def test_other_training_data(self, tmp_path: Path) -> None:
        numpy.save(tmp_path / "mine.npy", numpy.ones((5, 1, 8, 8), int))
        test, train = open_splits("seven-segment", train_data=str(tmp_path / "mine.npy"))
        assert train is not None
        assert (test.name, train.name, len(train)) == ("seven-segment", "mine", 5)
        with pytest.raises(ValueError, match="train_data must be an existing file or folder, got nowhere"):
            open_splits("seven-segment", train_data="nowhere")

    def test_a_file_of_a_named_data_set(self, tmp_path: Path) -> None:
        numpy.savez(tmp_path / "bentheimer.npz", numpy.random.default_rng(0).integers(0, 2, (400, 64, 64), numpy.uint8))
        test, train = open_splits("bentheimer", str(tmp_path / "bentheimer.npz"))
        assert train is not None
        assert test.named
        assert 0 < len(test) < len(train)

    def test_arrays_are_not_resized(self, tmp_path: Path) -> None:
        numpy.save(tmp_path / "mine.npy", numpy.ones((5, 1, 8, 8), int))
        assert open_splits("", str(tmp_path / "mine.npy"), size=4)[0].x.shape == (5, 1, 8, 8)


def test_a_saved_model_is_evaluated_on_the_data_of_its_last_run(tmp_path: Path) -> None:
    """Also where its folder, and so its name, is another: an exported model, or a second one of the same data."""
    model = load("seven-segment")
    folder = str(model.save(tmp_path / "exported"))
    assert dataset_of(folder, load(folder)) == ("seven-segment", {})
    own = replace(model.record.runs[0], dataset="")
    assert dataset_of(folder, model.with_record(runs=(*model.record.runs, own))) == ("", {})


def test_sequences_are_read_by_the_alphabet_and_in_the_length_of_the_model(tmp_path: Path) -> None:
    """Of a model of a named data set too, and RNA as DNA; other reads are padded to the length of the model."""
    (tmp_path / "mine.txt").write_text("hello world" * 40)
    (tmp_path / "rna.fasta").write_text("".join(f">{n}\n{'ACGU' * (n % 3 + 2)}\n" for n in range(30)))
    stdlib = open_dataset("stdlib", "test", length=32)
    model = DiffusionModel.for_data(stdlib.x[:8], "absorbing", width=16, blocks=1).with_record(alphabet=stdlib.alphabet)
    model.train(TrainConfig().replace(dataset="stdlib", steps=1, batch_size=8, warmup=0), stdlib.x[:8])
    name, reading = dataset_of(str(model.save(tmp_path / "saved")), model)
    assert name == "stdlib"
    own, _ = open_splits(name, str(tmp_path / "mine.txt"), **reading)
    assert stdlib.alphabet is not None
    assert "".join(stdlib.alphabet.texts(own.x)) in "hello world" * 40
    named, _ = open_splits(name, **reading)
    assert torch.equal(named.x, stdlib.x)
    rna, _ = open_splits("", str(tmp_path / "rna.fasta"), alphabet=Alphabet("characters", "ACGT"), length=20)
    assert (rna.x.shape[1], rna.pad_state) == (20, 4)
    assert rna.x[0].tolist() == [0, 1, 2, 3] * 2 + [4] * 12


class TestSubsample:
    def test_the_first_of_a_named_data_set(self) -> None:
        data = make_seven_segment(split="test")
        assert torch.equal(subsample(data, 5, seed=3), data.x[:5])
        assert not Dataset(x=data.x, name="seven-segment", max_state=16).named

    def test_a_random_subset_of_other_data(self, tmp_path: Path) -> None:
        """Files sorted by class give all classes."""
        for level in (1, 2, 3):
            write_images(tmp_path / f"class-{level}", 20, level)
        data = read_images(tmp_path)
        levels = subsample(data, 12, seed=0)[:, 0, 0, 0]
        assert set(levels.tolist()) == {1, 2, 3}
        assert torch.equal(subsample(data, 12, seed=0)[:, 0, 0, 0], levels)
        assert not torch.equal(subsample(data, 12, seed=1)[:, 0, 0, 0], levels)
        assert torch.equal(subsample(data, 60, seed=0), data.x)

    def test_indices_are_different(self) -> None:
        assert len(set(random_subset(100, 40, 0).tolist())) == 40
