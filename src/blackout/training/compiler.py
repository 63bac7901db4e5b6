"""The compiler's cache: files in it that a kill has damaged must not end a run."""

import atexit
import os
import warnings
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import TypeVar

import torch
from torch import nn

from blackout import validate

T = TypeVar("T")


def is_compiler_error(error: Exception) -> bool:
    """Whether torch could not compile something."""
    return type(error).__module__.startswith(("torch._dynamo", "torch._inductor"))


def recompiled(call: Callable[[], T], modules: Iterable[nn.Module]) -> T:
    """Call a function; if that fails in the compiler, once more with a new cache, without gradients of the modules.

    A compiler that is killed leaves files in its cache that it takes for good ones when it runs again. Where the
    function fails again, its first error is raised.
    """
    try:
        return call()
    except Exception as error:
        if not is_compiler_error(error):
            raise
        damaged = os.environ.get("TORCHINDUCTOR_CACHE_DIR", "")
        _use_new_cache()
        for module in modules:
            module.zero_grad()
        try:
            result = call()
        except Exception:
            raise error from None
        advice = "remove the folder if no other process uses it"
        reason = validate.one_line(error)
        warnings.warn(f"the compiler's cache {damaged} is damaged, and was not used; {advice}: {reason}", stacklevel=2)
        return result


def _use_new_cache() -> None:
    """Compile in a folder of this process, which is removed at its end."""
    from torch._inductor.utils import fresh_cache

    torch.compiler.reset()
    folder = ExitStack()
    folder.enter_context(fresh_cache())
    atexit.register(folder.close)
