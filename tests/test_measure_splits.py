"""Which data is held out, which is trained on, and which of it is measured."""

from pathlib import Path

import numpy
import pytest
import torch
from PIL import Image

from blackout.data import Dataset, make_digits, read_pictures
from blackout.evaluation.splits import dataset_of, drawn, open_splits, some


def write_pictures(folder: Path, number: int, level: int, size: int = 8, mode: str = "L") -> Path:
    folder.mkdir(parents=True)
    for k in range(number):
        Image.new(mode, (size, size), level if mode == "L" else (level,) * 3).save(folder / f"{k}.png")
    return folder


class TestOwnData:
    def test_a_folder_with_train_and_test_is_held_out_and_training_data(self, tmp_path: Path) -> None:
        write_pictures(tmp_path / "train", 3, 1)
        write_pictures(tmp_path / "test", 2, 2)
        for dataset in ("", "digits", "cifar10"):
            test, train = open_splits(dataset, str(tmp_path))
            assert train is not None
            assert (len(test), len(train), int(test.x.max()), int(train.x.max())) == (2, 3, 2, 1)

    def test_a_folder_without_parts_is_held_out(self, tmp_path: Path) -> None:
        test, train = open_splits("", str(write_pictures(tmp_path / "mine", 3, 1)))
        assert (len(test), train) == (3, None)

    def test_training_data_alone_is_not_called_held_out(self, tmp_path: Path) -> None:
        write_pictures(tmp_path / "train", 3, 1)
        with pytest.raises(
            ValueError, match=r"has train/ but no test/: give held-out data, and .*train as --train-data"
        ):
            open_splits("", str(tmp_path))

    @pytest.mark.parametrize(("dataset", "level"), [("cifar10", 200), ("mnist-binary", 1), ("mnist", 200)])
    def test_pictures_stand_in_for_a_data_set_known_by_name(self, dataset: str, level: int, tmp_path: Path) -> None:
        """White is 1 for two levels, as where the grey digits become black and white."""
        test, train = open_splits(dataset, str(write_pictures(tmp_path / "mine", 3, 200)))
        assert (len(test), train, int(test.x.max())) == (3, None, level)
        assert not test.named

    def test_counts_from_0_to_1_stay_what_they_are(self, tmp_path: Path) -> None:
        test, _ = open_splits("mnist-binary", str(write_pictures(tmp_path / "mine", 3, 1)))
        assert int(test.x.min()) == 1

    def test_where_nothing_fits_both_are_named(self, tmp_path: Path) -> None:
        with pytest.raises(
            ValueError, match=r"neither the files of cifar10 \(`blackout data.*nor pictures of your own"
        ):
            open_splits("cifar10", str(tmp_path))
        for dataset, reason in (("cifar10", "`blackout data cifar10` fetches it"), ("", "give a folder or a file")):
            with pytest.raises(ValueError, match=f"--data: nowhere does not exist; {reason}"):
                open_splits(dataset, "nowhere")

    def test_training_data_of_ones_own_beside_a_name(self, tmp_path: Path) -> None:
        numpy.save(tmp_path / "mine.npy", numpy.ones((5, 1, 8, 8), int))
        test, train = open_splits("digits", train_data=str(tmp_path / "mine.npy"))
        assert train is not None
        assert (test.name, train.name, len(train)) == ("digits", "mine", 5)
        with pytest.raises(ValueError, match="--train-data: nowhere does not exist"):
            open_splits("digits", train_data="nowhere")

    def test_the_file_of_a_data_set_is_that_data_set(self, tmp_path: Path) -> None:
        numpy.savez(tmp_path / "bentheimer.npz", numpy.random.default_rng(0).integers(0, 2, (400, 64, 64), numpy.uint8))
        test, train = open_splits("bentheimer", str(tmp_path / "bentheimer.npz"))
        assert train is not None
        assert test.named
        assert 0 < len(test) < len(train)

    def test_arrays_are_not_resized(self, tmp_path: Path) -> None:
        numpy.save(tmp_path / "mine.npy", numpy.ones((5, 1, 8, 8), int))
        assert open_splits("", str(tmp_path / "mine.npy"), size=4)[0].x.shape == (5, 1, 8, 8)


@pytest.mark.parametrize(
    ("source", "dataset"), [("seven-segment", "digits"), ("cifar10", "cifar10"), ("runs/mine", "")]
)
def test_a_model_that_ships_is_measured_on_its_own_data(source: str, dataset: str) -> None:
    assert dataset_of(source) == (dataset, {})


class TestSome:
    def test_of_a_data_set_known_by_name_they_are_the_first(self) -> None:
        data = make_digits(split="test")
        assert torch.equal(some(data, 5, seed=3), data.x[:5])

    def test_of_others_they_are_of_all_classes(self, tmp_path: Path) -> None:
        for level in (1, 2, 3):
            write_pictures(tmp_path / f"class-{level}", 20, level)
        data = read_pictures(tmp_path)
        levels = some(data, 12, seed=0)[:, 0, 0, 0]
        assert set(levels.tolist()) == {1, 2, 3}
        assert torch.equal(some(data, 12, seed=0)[:, 0, 0, 0], levels)
        assert not torch.equal(some(data, 12, seed=1)[:, 0, 0, 0], levels)
        assert torch.equal(some(data, 60, seed=0), data.x)

    def test_a_draw_has_no_point_twice(self) -> None:
        assert len(set(drawn(100, 40, 0).tolist())) == 40

    def test_only_sets_with_a_name_are_called_so(self) -> None:
        data = make_digits()
        assert data.named
        assert not Dataset(x=data.x, name="digits", max_state=16).named
