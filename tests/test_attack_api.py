"""Random calls of the API with wrong and odd arguments: `python -m attack api` makes many more."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
api = pytest.importorskip("attack.api", reason="the attacks are part of the repository, not of the source distribution")


@pytest.mark.parametrize("seed", range(2))
def test_wrong_arguments_raise_type_or_value_errors(seed):
    wrong = []
    for what, call in api.calls(seed):
        try:
            call()
        except Exception as error:
            wrong += [] if api.acceptable(error) else [f"{what}: {type(error).__name__} {error}"]
    assert wrong == []


def test_calls_depend_on_the_seed_alone():
    assert [what for what, _ in api.calls(3)] == [what for what, _ in api.calls(3)]
    assert [what for what, _ in api.calls(3)] != [what for what, _ in api.calls(4)]
