"""Pickles, read but never run: plain values and arrays of bytes, and a refusal of everything else.

A pickle is a program, and `pickle.load` lets it call whatever it names. Here its opcodes are listed with `pickletools`,
which calls nothing, and the few that build values are carried out. A call stays a record of its name and arguments.
"""

import pickletools
from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

_ENCODE = "_codecs encode"
_ARRAY = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
_KNOWN = {_ENCODE, *_ARRAY, "numpy ndarray", "numpy dtype"}

_NUMBERS = ("BININT", "BININT1", "BININT2", "LONG1")
_TEXTS = ("BINSTRING", "SHORT_BINSTRING", "BINUNICODE", "BINBYTES", "SHORT_BINBYTES")
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}


@dataclass(frozen=True)
class _Name:
    name: str


@dataclass
class _Call:
    name: str
    arguments: tuple[Any, ...]
    state: Any = None


def read_pickle(data: bytes) -> Any:
    """Dictionaries with text as keys, lists, tuples, numbers, text, bytes and uint8 arrays, of protocol 2 or 3."""
    try:
        return _finish(_read(data))
    except (IndexError, KeyError, TypeError, AttributeError, UnicodeError) as error:
        raise ValueError(f"a broken pickle ({type(error).__name__}: {error})") from None


def _read(data: bytes) -> Any:
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}
    opcode: pickletools.OpcodeInfo
    argument: Any
    for opcode, argument, _ in pickletools.genops(data):
        name = opcode.name
        if name in _NUMBERS + _TEXTS:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name == "MARK":
            marks.append(len(stack))
        elif name in ("EMPTY_LIST", "EMPTY_DICT"):
            stack.append([] if name == "EMPTY_LIST" else {})
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3", "TUPLE"):
            stack.append(tuple(_cut(stack, marks.pop() if name == "TUPLE" else len(stack) - int(name[-1]))))
        elif name in ("APPEND", "APPENDS"):
            items = _cut(stack, marks.pop() if name == "APPENDS" else len(stack) - 1)
            stack[-1].extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = _cut(stack, marks.pop() if name == "SETITEMS" else len(stack) - 2)
            stack[-1].update(zip(map(_text, items[::2]), items[1::2], strict=True))
        elif name == "GLOBAL":
            if argument not in _KNOWN:
                raise ValueError(f"a pickle that asks for {argument.replace(' ', '.')}, which is refused")
            stack.append(_Name(argument))
        elif name == "REDUCE":
            function, arguments = _cut(stack, len(stack) - 2)
            stack.append(_call(function.name, arguments))
        elif name == "BUILD":
            state = stack.pop()
            stack[-1].state = state
        elif name == "STOP":
            return stack.pop()
        elif name != "PROTO":
            raise ValueError(f"a pickle with the opcode {name}, which is refused")
    raise ValueError("a pickle without an end")


def _cut(stack: list[Any], start: int) -> list[Any]:
    if start < 0:
        raise IndexError("the stack is empty")
    items = stack[start:]
    del stack[start:]
    return items


def _text(key: Any) -> str:
    key = key.decode("latin1") if isinstance(key, bytes) else key
    if not isinstance(key, str):
        raise TypeError("a key that is not text")
    return key


def _call(name: str, arguments: tuple[Any, ...]) -> Any:
    if name == _ENCODE:  # Python 3 writes bytes in protocol 2 as text to be encoded
        text, _ = arguments
        return text.encode("latin1")
    return _Call(name, arguments)


def _finish(value: Any) -> Any:
    """Records of arrays, at the top or in a dictionary there, become arrays."""
    if isinstance(value, dict):
        return {key: _array(item) if isinstance(item, _Call) else item for key, item in value.items()}
    return _array(value) if isinstance(value, _Call) else value


def _array(call: _Call) -> NDArray[numpy.uint8]:
    if call.name not in _ARRAY:
        raise TypeError(f"{call.name} is not an array")
    _, shape, dtype, fortran, data = call.state
    if dtype.arguments[0] != "u1":
        raise TypeError("an array of another type than uint8")
    data = data.encode("latin1") if isinstance(data, str) else data
    return numpy.frombuffer(data, numpy.uint8).reshape(shape, order="F" if fortran else "C")
