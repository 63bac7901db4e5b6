"""Pickles of plain values and uint8 arrays, read without running anything that they name.

`pickle.load` calls whatever a pickle names. Here `find_class` returns only the stand-ins below, so that no function of
another module is ever called, and opcodes beyond those of plain data are rejected before anything is read.
"""

import io
import pickle
import pickletools
from typing import Any

import numpy

_OPCODES = set(
    "PROTO STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINSTRING SHORT_BINSTRING BINUNICODE BINBYTES "  # noqa: SIM905
    "SHORT_BINBYTES EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 "
    "BINPUT LONG_BINPUT BINGET LONG_BINGET GLOBAL REDUCE BUILD".split()
)


class _DType:
    def __init__(self, name: str, *_: Any) -> None:
        self.name = name

    def __setstate__(self, state: Any) -> None:
        """Byte order and the like, which one byte does not have."""


class _Array:
    """An array, constructed empty; its state holds shape, type, order and bytes."""

    def __init__(self, *_: Any) -> None:
        self.array = numpy.empty(0, numpy.uint8)

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, data = state
        if dtype.name != "u1":
            raise TypeError(f"array of type {dtype.name} instead of uint8")
        data = data.encode("latin1") if isinstance(data, str) else data
        self.array = numpy.frombuffer(data, numpy.uint8).reshape(shape, order="F" if fortran else "C")


class _Encode:
    """Python 3 writes bytes in protocol 2 as a call that encodes text."""

    def __call__(self, text: str, *_: Any) -> bytes:
        return text.encode("latin1")

    def __setstate__(self, state: Any) -> None:
        """Nothing: a pickle must not change attributes."""


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): _DType,
    ("_codecs", "encode"): _Encode(),
}


class _NotAllowed(Exception):
    """A name or an opcode beyond plain data."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise _NotAllowed(f"names {module}.{name}, which is not allowed")
        return _ALLOWED[module, name]


def read_pickle(data: bytes) -> Any:
    """Dictionaries with text as keys, lists, tuples, integers, text, bytes and uint8 arrays; protocol 2 or 3."""
    try:
        for opcode, argument, _ in pickletools.genops(data):
            # The unpickler allocates as many slots as the largest memo index.
            if opcode.name not in _OPCODES or (opcode.name == "LONG_BINPUT" and int(argument or 0) > len(data)):
                raise _NotAllowed(f"has the opcode {opcode.name}, which is not allowed")
        value = _Unpickler(io.BytesIO(data), encoding="latin1").load()
        if isinstance(value, dict):
            return {_text(key): _plain(item) for key, item in value.items()}
        return _plain(value)
    except _NotAllowed as error:
        raise ValueError(f"a pickle that {error}") from None
    except Exception as error:  # damaged pickles raise many types
        raise ValueError(f"a damaged pickle ({type(error).__name__}: {error})") from None


def _text(key: Any) -> str:
    key = key.decode("latin1") if isinstance(key, bytes) else key
    if not isinstance(key, str):
        raise TypeError(f"key {key!r} is not text")
    return key


def _plain(value: Any) -> Any:
    return value.array if isinstance(value, _Array) else value
