"""Random calls of the Python API, most of them with one or two arguments that are wrong or odd.

`calls(seed)` yields descriptions and thunks. A thunk returns a result, raises an error that is `acceptable` (TypeError
or ValueError, with the name of the argument), or has found a fault: any other error, or NaN in a result.
"""

import decimal
import fractions
import functools
import inspect
import math
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import torch
from scipy import sparse

import blackout as bo
from attack.entries import constant, entries, exact, model, process, times

_CALLS = 200  # of one seed
_VALID = 0.15  # share of calls with good arguments only


class NotANumber(Exception):
    """A result that holds NaN."""


def acceptable(error: BaseException) -> bool:
    """Whether an error is one that a call with wrong arguments may raise."""
    return type(error) in (TypeError, ValueError) and str(error).strip() != ""


def calls(seed: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Calls that depend on the seed alone, each with a description."""
    random = numpy.random.default_rng(seed)
    names = list(entries())
    for _ in range(_CALLS):
        name = names[random.integers(len(names))]
        function, good = entries()[name]
        wrong: dict[str, tuple[str, Callable[[], Any]]] = {}
        if good and random.random() > _VALID:
            for argument in random.choice(list(good), min(len(good), 1 + random.integers(2)), replace=False):
                pool = [odd for odd in ODD if not (argument in _ENDLESS and odd[0] in _LONG)]
                wrong[str(argument)] = pool[random.integers(len(pool))]
        kept = [argument for argument in good if argument not in wrong]
        left_out = _optional(function, kept, random)
        shown = ", ".join(f"{argument}={text}" for argument, (text, _) in wrong.items())
        more = ", ".join(argument for argument in kept if argument not in left_out)
        yield f"{name}({shown}{'; ' if more else ''}{more})", functools.partial(_call, name, wrong, left_out)


def _call(name: str, wrong: dict[str, tuple[str, Callable[[], Any]]], left_out: set[str]) -> object:
    function, good = entries()[name]
    arguments = {key: make() for key, make in good.items() if key not in wrong and key not in left_out}
    arguments |= {key: make() for key, (_, make) in wrong.items()}
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        os.chdir(folder)  # a call may write
        try:
            result = function(**arguments)
            given = any("nan" in text.lower() for text, _ in wrong.values())  # such as a prediction that has diverged
            if not given and any(map(_has_nan, result if isinstance(result, tuple | list) else [result])):
                raise NotANumber(f"{name} returned NaN")
            repr(result)
        finally:
            os.chdir(here)
    return result


def _has_nan(value: Any) -> bool:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return bool(torch.isnan(value).any())
    value = getattr(value, "mean", value)
    return isinstance(value, float) and math.isnan(value)


def _optional(function: Any, kept: list[str], random: numpy.random.Generator) -> set[str]:
    """Some of the arguments that have defaults."""
    defaults = {p.name for p in inspect.signature(function).parameters.values() if p.default is not p.empty}
    return {name for name in kept if name in defaults and name not in _ENDLESS and random.random() < 0.5}


_ENDLESS = ("steps", "num_steps", "num_times", "number", "x0", "points", "x", "xt", "xs")  # where 2**40 is much work
_LONG = ("2**40",)


def _ragged() -> Any:
    array = numpy.empty(2, object)
    array[:] = [[1], [2, 3]]
    return array


def _odd_values() -> list[tuple[str, Callable[[], Any]]]:
    plain: list[Any] = [
        None, True, False, "", "abc", "auto", "a\0b", "\ud800", b"abc", -1, 0, 1, 2, 7, 1.5, -0.0,
        1e-320, 1e300, math.nan, math.inf, -math.inf, 1j, 2**63 - 1, 2**63, 2**64, 10**30, -(10**30), 10**400, (), [],
        [[]], {}, [1], [1, 2], (3, -1), [None], ["a", 1], [[1], [2, 3]], [math.nan], [10**30], (2**62, 2**62),
        {"a": 1}, range(3), slice(3), len, int, object, Ellipsis, numpy.float32(1.5), numpy.int64(3),
        numpy.bool_(True), numpy.nan, numpy.array([]), numpy.array(["a"]), numpy.zeros((2, 3)),
        numpy.array([[0, 1]], dtype=object), numpy.array("2020-01-01", "datetime64[D]"), numpy.eye(3), -numpy.eye(5),
        decimal.Decimal("NaN"), fractions.Fraction(1, 3), Path("missing"), torch.float16, torch.device("meta"),
        torch.nn.Linear, bo.PureDeath, bo.TauLeaping,
    ]  # fmt: skip
    made: dict[str, Callable[[], Any]] = {
        "2**40": constant(2**40),
        "long text": constant("x" * 5000),
        "object()": object,
        "generator expression": lambda: (k for k in range(3)),
        "lambda": lambda: lambda *_: None,
        "lambda 2": lambda: lambda a, b: torch.full(a.shape, math.nan),
        "set": lambda: {1, 2},
        "ragged": _ragged,
        "torch.Generator": torch.Generator,
        "empty tensor": lambda: torch.empty(0),
        "empty int tensor": lambda: torch.empty((0, 3), dtype=torch.int64),
        "scalar tensor": lambda: torch.tensor(2),
        "float tensor": lambda: torch.rand(3, 3),
        "nan tensor": lambda: torch.full((3, 3), math.nan),
        "inf tensor": lambda: torch.full((3, 3), math.inf),
        "negative tensor": lambda: -torch.ones(3, 3, dtype=torch.int64),
        "large tensor": lambda: torch.full((3, 3), 2**62),
        "int tensor": lambda: torch.ones(3, 3, dtype=torch.int64),
        "long int tensor": lambda: torch.ones(5, 3, dtype=torch.uint8),
        "bool tensor": lambda: torch.ones(3, 3, dtype=torch.bool),
        "complex tensor": lambda: torch.ones(3, 3) + 1j,
        "uint64 tensor": lambda: torch.ones(3, 3, dtype=torch.uint64),
        "half tensor": lambda: torch.ones(3, 3, dtype=torch.float16),
        "meta tensor": lambda: torch.ones(3, 3, dtype=torch.int64, device="meta"),
        "sparse tensor": lambda: torch.eye(3, dtype=torch.int64).to_sparse(),
        "sparse matrix": lambda: sparse.csr_array(numpy.eye(3)),
        "process": lambda: process("death"),
        "other process": lambda: process("absorbing"),
        "chain": lambda: process("chain"),
        "times": times,
        "sampler": bo.TauLeaping,
        "loss": bo.LikelihoodLoss,
        "schedule": lambda: bo.Schedule.linear(0.1, 1.0),
        "model": model,
        "posterior": lambda: exact("death"),
        "network": lambda: torch.nn.Linear(3, 3),
        "TensorDataset": lambda: torch.utils.data.TensorDataset(torch.ones(4, 3, dtype=torch.int64), torch.arange(4)),
    }
    return [(repr(value), constant(value)) for value in plain] + list(made.items())


ODD = _odd_values()
"""Values that are wrong for most arguments, each with a text and a function that makes it."""
