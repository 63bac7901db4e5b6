"""Copying: nearest training images against scipy's distances."""

import numpy
import pytest
import torch
from scipy.spatial.distance import cdist
from torch import Tensor

from blackout.evaluation import copying as module
from blackout.evaluation.copying import copying, nearest


def images(number: int, seed: int, largest: int = 255) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, largest + 1, (number, 3, 4, 4), generator=generator, dtype=torch.uint8)


@pytest.mark.parametrize("block", [7, 64, 1024])
@pytest.mark.parametrize("largest", [1, 255])  # binary images have many equal distances
def test_nearest_data_are_those_of_scipy_in_blocks_of_any_size(
    block: int, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)
    x, data = images(50, 0, largest), images(90, 1, largest)
    x[3] = data[80]
    wanted = cdist(x.flatten(1).numpy(), data.flatten(1).numpy(), "sqeuclidean")
    distance, index = nearest(x, data)
    assert index.tolist() == wanted.argmin(1).tolist()
    numpy.testing.assert_allclose(distance, numpy.sqrt(wanted.min(1) / 48), rtol=1e-14)
    assert distance[3] == 0


def test_independent_samples_are_as_often_nearer_as_expected_and_copies_always() -> None:
    """Of 2,000 samples the share has a standard error of at most 0.016 given both sets, 0.03 over them: four errors."""
    samples, train, test = (torch.rand(n, 2, generator=torch.Generator().manual_seed(n)) for n in (2000, 3000, 1000))
    found = copying(*((1e6 * part).long() for part in (samples, train, test)))
    assert found["expected"] == 0.75
    assert found["nearer_to_training"] == pytest.approx(0.75, abs=0.12)
    assert found["distance"] == pytest.approx(found["held_out_distance"], rel=0.15)
    train, test = images(40, 1), images(40, 2)
    copies = train[[5, 9, 5]]
    found = copying(copies, train, test)
    assert (found["nearer_to_training"], found["expected"], found["distance"]) == (1, 0.5, 0)
    assert found["held_out_distance"] > 50
    assert found["pairs"] == [[0, 5], [1, 9], [2, 5]]


def test_equally_near_images_count_half() -> None:
    train = images(10, 1)
    assert copying(train[:4], train, train)["nearer_to_training"] == 0.5
