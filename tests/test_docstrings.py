"""The examples in docstrings of the public names are run, and every public class has one."""

import doctest
import inspect

import pytest
import torch

import blackout as bo
from blackout.registry import Registry

PUBLIC = [getattr(bo, name) for name in bo.__all__]
THINGS = [thing for thing in [*PUBLIC, Registry] if inspect.isclass(thing) or inspect.isfunction(thing)]


@pytest.mark.parametrize("thing", THINGS, ids=lambda thing: thing.__name__)
def test_examples_of_docstrings_run(thing: object) -> None:
    module = inspect.getmodule(thing)
    names = {**vars(module), "torch": torch}
    found = doctest.DocTestFinder(recurse=False).find(thing, thing.__name__, globs=names)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for test in found:
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0
    if inspect.isclass(thing) and not inspect.isabstract(thing):
        assert any(test.examples for test in found), f"{thing.__name__} has no example"
