import dataclasses
from pathlib import Path

import pytest
import torch

from blackout.data import from_array
from blackout.io.models import from_config
from blackout.recipes import RECIPES, recipe

SHAPES = {
    "cifar10": (3, 32, 32),
    "mnist-binary": (1, 28, 28),
    "celeba64": (3, 64, 64),
    "digits": (1, 8, 8),
    "bentheimer": (1, 64, 64),
    "counts": (6,),
}


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_takes_two_steps(name: str, tmp_path: Path) -> None:
    config = dataclasses.replace(recipe(name), width=8, blocks=1, batch_size=2, steps=2, log_every=1, compile=False)
    shape = SHAPES[config.dataset]
    if config.image_size:
        shape = (shape[0], config.image_size, config.image_size)
    largest = config.max_count or 40  # there is none for counts
    x = torch.randint(0, largest + 1, (4, *shape), generator=torch.Generator().manual_seed(0))
    dataset = from_array(x, max_state=largest)
    model = from_config(config, dataset)
    reports = []
    before = [p.clone() for p in model.predictor.parameters()]
    model.train(config, dataset.x, None, tmp_path, lambda report, trainer: reports.append(report))
    assert [report.step for report in reports] == [1, 2]
    assert any(bool((p != q).any()) for p, q in zip(before, model.predictor.parameters(), strict=True))
    assert config.description
