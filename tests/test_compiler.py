"""A compiler's cache that a kill has damaged."""

import os
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._dynamo.exc import Unsupported

from blackout.training.compiler import recompiled


class Compiled:
    """Fails as the compiler does, for each call in a cache that is damaged."""

    def __init__(self, damaged: str) -> None:
        self.damaged, self.folders, self.module = damaged, [], nn.Linear(1, 1)

    def __call__(self) -> str:
        folder = os.environ["TORCHINDUCTOR_CACHE_DIR"]
        self.folders.append(folder)
        self.module(torch.ones(1)).sum().backward()
        if self.damaged in ("all", folder):
            raise Unsupported(f"{folder}/a.so: file too short")
        return folder


def test_a_damaged_cache_is_named_and_another_one_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    call = Compiled(str(tmp_path))
    with pytest.warns(UserWarning, match=rf"the compiler's cache {tmp_path} is damaged.*a\.so: file too short"):
        new = recompiled(call, [call.module])
    assert call.folders == [str(tmp_path), new]
    assert Path(new).is_dir()
    assert call.module.weight.grad.item() == 1.0, "the gradient of the call that failed is dropped"
    assert recompiled(call, [call.module]) == new


def test_what_fails_in_a_new_cache_too_is_the_first_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    call = Compiled("all")
    with pytest.raises(Unsupported, match=str(tmp_path)):
        recompiled(call, [call.module])
    assert len(set(call.folders)) == 2
    with pytest.raises(ZeroDivisionError):
        recompiled(lambda: 1 // 0, [])
