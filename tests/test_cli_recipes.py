from pathlib import Path

import pytest
import torch

from blackout import load, pretrained
from blackout.data import from_array
from blackout.recipes import RECIPES, build_model, recipe

SHAPES = {
    "cifar10": (3, 32, 32),
    "mnist-binary": (1, 28, 28),
    "celeba64": (3, 64, 64),
    "seven-segment": (1, 8, 8),
    "bentheimer": (1, 64, 64),
    "stdlib": (64,),
}


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_takes_two_steps(name: str, tmp_path: Path) -> None:
    config = recipe(name).replace(width=8, blocks=1, batch_size=2, steps=2, log_every=1, compile=False)
    shape = SHAPES[config.data.dataset]
    if config.data.image_size:
        shape = (shape[0], config.data.image_size, config.data.image_size)
    max_count = config.data.max_count
    x = torch.randint(0, max_count + 1, (4, *shape), generator=torch.Generator().manual_seed(0))
    labels = torch.arange(4) if config.network.class_conditional else None
    dataset = from_array(x, labels=labels, max_state=max_count)
    model = build_model(config, dataset)
    reports = []
    before = [p.clone() for p in model.predictor.parameters()]
    model.train(config, dataset.x, labels, tmp_path, lambda report, trainer: reports.append(report))
    assert [report.step for report in reports] == [1, 2]
    assert any(bool((p != q).any()) for p, q in zip(before, model.predictor.parameters(), strict=True))
    assert config.description


def test_the_records_of_pretrained_models_agree_with_their_recipes() -> None:
    runs = [run for name in pretrained() for run in load(name).record.runs]
    likelihood = "cifar10-likelihood"
    assert [run.recipe for run in runs] == [likelihood, "cifar10", likelihood, "mnist-binary", "digits"]
    for run in runs:
        config = recipe(run.recipe)
        options = (config.data.dataset, config.optimiser.loss, config.optimiser.batch_size)
        assert (run.dataset, run.loss, run.batch_size) == options
