"""TrainConfig: nested sections, flat names, JSON files that start from a recipe."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from blackout.recipes import RECIPES, read_config, recipe
from blackout.training.config import TrainConfig
from blackout.training.folder import check_same_run
from blackout.training.history import runs_in


@pytest.mark.parametrize("name", list(RECIPES))
def test_every_recipe_is_written_and_read_as_the_same_configuration(name: str, tmp_path: Path) -> None:
    config = recipe(name)
    config.write(tmp_path / "config.json")
    assert TrainConfig.read(tmp_path / "config.json") == config
    assert config.recipe == name
    assert config.description == RECIPES.help(name)


def test_a_partial_file_starts_from_the_recipe_it_names(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"recipe": "digits", "optimiser": {"steps": 7}}))
    assert read_config(path) == recipe("digits").replace(steps=7)
    path.write_text(json.dumps({"optimiser": {"steps": 7}}))
    assert read_config(path) == TrainConfig().replace(steps=7)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"recipe": "digit"}, "recipe must be one of .*got 'digit'"),
        ({"optimizer": {"steps": 7}}, "optimizer is not a section"),
        ({"optimiser": {"stepps": 7}}, r"optimiser\.stepps is not a field .* did you mean steps"),
        ({"run": {"steps": 7}}, r"run\.steps is not a field"),
        ({"optimiser": {"steps": "7"}}, r"optimiser\.steps must be of type int, got '7'"),
        ({"optimiser": {"steps": True}}, r"optimiser\.steps must be of type int, got True"),
        ({"optimiser": 7}, "optimiser is not a section"),
        ({"network": {"head": "tail"}}, "head must be one of .*got 'tail'"),
        ({"optimiser": {"ema": 1}}, "ema must be less than 1"),
        ([], "is not a configuration: is damaged: expected a JSON object, got list"),
    ],
)
def test_files_with_mistakes_are_rejected_with_the_field_and_the_value(
    values: object, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(values))
    with pytest.raises(ValueError, match=message):
        read_config(path)


def test_fields_are_read_and_replaced_by_their_own_names() -> None:
    config = TrainConfig().replace(steps=3, width=16, seed=5, process="uniform")
    assert (config.optimiser.steps, config.network.width, config.run.seed) == (3, 16, 5)
    assert config.process.process == config["process"] == "uniform"
    assert TrainConfig.fields()["steps"][0] == "optimiser"
    with pytest.raises(ValueError, match="learning_rat is not a field of TrainConfig; did you mean learning_rate"):
        config.replace(learning_rat=1.0)
    with pytest.raises(AttributeError):
        config.optimiser.steps = 4  # type: ignore[misc]


def test_a_run_resumes_with_more_steps_but_not_with_another_loss(tmp_path: Path) -> None:
    config = recipe("digits")
    config.write(tmp_path / "config.json")
    check_same_run(config.replace(steps=9999, compile=True, log_every=1), tmp_path)
    with pytest.raises(ValueError, match=r"differs in loss \('likelihood' there, 'instantaneous' here\)"):
        check_same_run(config.replace(loss="instantaneous"), tmp_path)


def test_configuration_recipes_and_registries_do_not_import_torch() -> None:
    program = (
        "import sys\n"
        "from blackout.data import DATASETS\nfrom blackout.network import HEADS, NETWORKS\n"
        "from blackout.process import PROCESSES\nfrom blackout.recipes import RECIPES, recipe\n"
        "from blackout.sampling import SAMPLERS\nfrom blackout.times import TIME_RULES\n"
        "for registry in (DATASETS, HEADS, NETWORKS, PROCESSES, RECIPES, SAMPLERS, TIME_RULES):\n"
        "    assert all(registry.help(name) for name in registry)\n"
        "recipe('cifar10')\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_file_that_is_nested_too_deeply_is_no_configuration(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"config\.json is not a configuration"):
        TrainConfig.read(tmp_path / "config.json")


def test_a_description_of_runs_with_missing_fields_is_rejected() -> None:
    with pytest.raises(ValueError, match="runs must describe training runs"):
        runs_in({"runs": [{"steps": 3}]})
