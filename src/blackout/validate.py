"""Argument checks; every message names the argument and the value. torch is imported only where tensors are checked."""

from __future__ import annotations

import difflib
import itertools
import math
import operator
import os
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor

LARGEST = 2**63 - 1
"""The largest integer of torch and numpy."""
_LONGEST_NAME = 255  # bytes of a file's name
_SHOWN = 80  # characters of a value in a message
_INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
_WIDER = {"uint16": "int32", "uint32": "int64"}  # torch stores these, but hardly computes with them


def states(num_states: int | None, **named: Any) -> tuple[Tensor, ...]:
    """Integer tensors of one shape on one device, with every entry in {0, ..., num_states - 1} (None: all of N)."""
    tensors = {name: integers(name, value) for name, value in named.items()}
    first_name, first = next(iter(tensors.items()))
    for name, x in tensors.items():
        if x.device != first.device:
            raise ValueError(f"{name} is on {x.device}, but {first_name} is on {first.device}")
        if x.shape != first.shape:
            raise ValueError(f"{name} has shape {tuple(x.shape)}, but {first_name} has shape {tuple(first.shape)}")
    for name, x in tensors.items():
        _range(name, x, num_states)
    return tuple(tensors.values())


def times(x: Tensor, **named: Any) -> tuple[Tensor, ...]:
    """Times in float64, each of shape () or (batch,): finite, not negative, strictly increasing in the order given."""
    import torch

    tensors = {name: _time(name, value, x) for name, value in named.items()}
    pairs = list(tensors.items())
    for (early, s), (late, t) in itertools.pairwise(pairs):
        wrong = s >= t
        if bool(wrong.any()):
            s, t = torch.broadcast_tensors(s, t)
            raise ValueError(
                f"{early} must be less than {late}, got {early}={_first(s, wrong)} and {late}={_first(t, wrong)}"
            )
    return tuple(tensors.values())


def integer(name: str, value: Any, minimum: int, maximum: int | None = None) -> int:
    """A Python integer, at least `minimum` and at most `maximum`, which is `LARGEST` if not given."""
    try:
        number = operator.index(value)
        if isinstance(value, bool):
            raise TypeError
    except (TypeError, RuntimeError):  # the latter from tensors without values
        raise ValueError(f"{name} must be an integer, got {short(value)}") from None
    if number < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {short(number)}")
    most = LARGEST if maximum is None else maximum
    if number > most:
        raise ValueError(f"{name} must be at most {most}, got {short(number)}")
    return number


def boolean(name: str, value: Any) -> bool:
    """True or False, also as a number."""
    kind = type(value).__name__
    if (not isinstance(value, int) and kind not in ("bool", "bool_")) or value not in (0, 1):
        raise ValueError(f"{name} must be True or False, got {short(value)}")
    return bool(value)


def function(name: str, value: Any, *, optional: bool = False) -> Any:
    """A function or another callable; None too, if `optional`."""
    if not callable(value) and not (optional and value is None):
        raise ValueError(f"{name} must be a function, got {short(value)}")
    return value


def path(name: str, value: Any) -> Path:
    """A path that a file system may have."""
    try:
        found = Path(value)
        parts = [os.fsencode(part) for part in found.parts]
    except (TypeError, UnicodeEncodeError):
        raise ValueError(f"{name} must be a path, got {short(value)}") from None
    if any(b"\0" in part or len(part) > _LONGEST_NAME for part in parts) or not str(value):
        raise ValueError(f"{name} must be a path whose names have 1 to {_LONGEST_NAME} bytes, got {short(value)}")
    return found


def real(name: str, value: Any, minimum: float, *, strict: bool = False) -> float:
    """A finite Python float, at least `minimum` (more than it, if `strict`)."""
    try:
        number = float(operator.pos(value))  # which text has not
    except (TypeError, ValueError, OverflowError, RuntimeError, ArithmeticError):
        raise ValueError(f"{name} must be a number, got {short(value)}") from None
    if number != number or number in (float("inf"), float("-inf")):
        raise ValueError(f"{name} must be finite, got {number}")
    if number < minimum or (strict and number == minimum):
        relation = "more than" if strict else "at least"
        raise ValueError(f"{name} must be {relation} {minimum}, got {number}")
    return number


def numbers(name: str, values: Any, minimum: float, *, increasing: bool = False) -> tuple[float, ...]:
    """Finite numbers, at least `minimum`; if `increasing`, more than it, and each more than the one before."""
    try:
        found = tuple(real(name, value, minimum, strict=increasing) for value in values)
    except TypeError:
        raise ValueError(f"{name} must be a list of numbers, got {short(values)}") from None
    if increasing and any(late <= early for early, late in itertools.pairwise(found)):
        raise ValueError(f"{name} must be increasing, got {list(found)}")
    return found


def choice(name: str, value: Any, options: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in options:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}, got {short(value)}")
    return str(value)


def suggestion(name: str, options: Iterable[str]) -> str:
    """The end of a message about an unknown name: the option that is most like it, if there is one."""
    known = {option.casefold(): option for option in options}
    close = difflib.get_close_matches(name.casefold(), known, 1, cutoff=0.65)
    return f"; did you mean {known[close[0]]}?" if close else ""


def shape(value: Any) -> tuple[int, ...]:
    """The shape of a tensor to be made."""
    try:
        found = tuple(integer("shape", n, 0) for n in value)
    except (TypeError, RuntimeError):  # torch's own for what cannot be iterated over
        raise ValueError(f"shape must be a tuple of integers, got {short(value)}") from None
    if math.prod(max(1, n) for n in found) > LARGEST // 8:
        raise ValueError(f"shape must have fewer than 2^60 entries, got {found}")
    return found


def device(value: Any) -> torch.device:
    """A device that exists here and holds data."""
    import torch

    try:
        found = torch.device(value)
    except (RuntimeError, TypeError, ValueError):
        raise ValueError(f"device must be one that torch knows, such as cpu or cuda, got {short(value)}") from None
    try:
        torch.empty(1, device=found).cpu()
    except (AssertionError, ImportError, NotImplementedError, RuntimeError, ValueError):
        raise ValueError(
            f"device must exist here, but this machine has no {value}, or torch cannot use it; use cpu"
        ) from None
    return found


def result_dtype(t: Any) -> torch.dtype:
    """Results come in float64, unless the time was given as a float32 tensor."""
    import torch

    return torch.float32 if isinstance(t, torch.Tensor) and t.dtype == torch.float32 else torch.float64


def expand(t: Tensor, x: Tensor) -> Tensor:
    """A time of shape () or (batch,) with as many dimensions as x, so that the two broadcast."""
    return t if t.dim() == 0 else t.reshape(-1, *(1,) * (x.dim() - 1))


def is_integer(dtype: torch.dtype) -> bool:
    """Whether a tensor of this dtype holds integers that torch computes with."""
    return str(dtype).removeprefix("torch.") in _INTEGERS


def integers(name: str, value: Any) -> Tensor:
    """A dense tensor of integers, of whatever value."""
    import torch

    try:
        x = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ValueError(
            f"{name} must be a tensor of integers, got {type(value).__name__}: {one_line(error)}"
        ) from None
    kind = str(x.dtype).removeprefix("torch.")
    if kind in _WIDER:
        x = x.to(getattr(torch, _WIDER[kind]))
    elif kind not in _INTEGERS:
        raise ValueError(f"{name} must hold integers, got dtype {x.dtype}{integer_advice(x)}")
    if x.layout != torch.strided:
        raise ValueError(f"{name} must be a dense tensor, got layout {x.layout}")
    if x.device.type == "meta":
        raise ValueError(f"{name} is on the device meta, which holds no values")
    return x


def reals(name: str, value: Any, kind: str) -> Tensor:
    """A dense tensor of real numbers in float64, of whatever value; `kind` completes "must be"."""
    import torch

    try:
        x = torch.as_tensor(value)
        if x.is_complex() or x.layout != torch.strided or x.device.type == "meta":
            raise TypeError
        # Python's floats are double precision; torch would read them in its default dtype.
        return torch.as_tensor(value, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError, NotImplementedError, OverflowError):
        raise ValueError(f"{name} must be {kind}, got {short(value)}") from None


def sparse(matrix: Any) -> Any:
    """A scipy sparse matrix whose indices lie within it; others would make scipy read foreign memory.

    scipy's own check overlooks row pointers that rise and fall to zero again.
    """
    if matrix.format in ("csr", "csc", "bsr"):
        pointers = matrix.indptr
        if (pointers[1:] < pointers[:-1]).any():
            row = int((pointers[1:] < pointers[:-1]).argmax())
            got = f"{pointers[row]} and {pointers[row + 1]}"
            raise ValueError(f"indptr, the pointers of a sparse matrix, must not decrease, got {got} at {row}")
        matrix.check_format(full_check=True)
    return matrix


def integer_advice(x: Tensor) -> str:
    """The end of a message about a floating-point tensor: how to make integers of it."""
    if not x.is_floating_point() or x.numel() == 0 or x.device.type == "meta":
        return ""
    low, high = float(x.min()), float(x.max())
    if bool((x == x.round()).all()):
        return "; its values are integers: give x.long(), of an array x.astype(int)"
    if low >= 0 and high <= 1:
        return "; levels from 0 to 1, as ToTensor makes them, become integers by (x * 255).round().to(torch.uint8)"
    return ""


def _range(name: str, x: Tensor, num_states: int | None) -> None:
    import torch

    if x.numel() == 0:
        return
    low, high = (int(v) for v in torch.aminmax(x))
    if low < 0:
        raise ValueError(f"{name} must not be negative, got {low}")
    if num_states is not None and high >= num_states:
        raise ValueError(f"{name} must be at most {num_states - 1}, got {high}")


def _time(name: str, value: Any, x: Tensor) -> Tensor:
    import torch

    try:
        t = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ValueError(f"{name} must be a time, got {type(value).__name__}: {one_line(error)}") from None
    if t.dtype == torch.bool or t.is_complex() or t.is_quantized or t.layout != torch.strided:
        raise ValueError(f"{name} must be a real number, got dtype {t.dtype}")
    if t.device.type == "meta":
        raise ValueError(f"{name} is on the device meta, which holds no values")
    if t.dim() > 0 and t.device != x.device:
        raise ValueError(f"{name} is on {t.device}, but the states are on {x.device}")
    batch = x.shape[0] if x.dim() else None
    if t.dim() > 0 and tuple(t.shape) != (batch,):
        expected = "()" if batch is None else f"() or ({batch},)"
        raise ValueError(f"{name} must have shape {expected}, got {tuple(t.shape)}")
    # A Python float is double precision; torch would read it in its default dtype.
    t = torch.tensor(value, dtype=torch.float64) if isinstance(value, int | float | list | tuple) else t.double()
    bad = ~torch.isfinite(t) | (t < 0)
    if bool(bad.any()):
        raise ValueError(f"{name} must be finite and not negative, got {name}={_first(t, bad)}")
    return t.to(x.device)


def _first(values: Tensor, mask: Tensor) -> float:
    return float(values[mask].reshape(-1)[0])


def short(value: Any) -> str:
    """A value in a message: its repr, in one line of limited length, or else its type."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # objects of others may raise whatever they like
        return type(value).__name__
    return text if len(text) <= _SHOWN else text[: _SHOWN - 4] + " ..."


def one_line(error: Exception) -> str:
    """The message of a third-party exception, shortened to one line."""
    return textwrap.shorten(str(error), 160) or type(error).__name__
