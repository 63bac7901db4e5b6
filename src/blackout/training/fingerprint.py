"""A run belongs to its data: data.json in its folder."""

import hashlib
from pathlib import Path
from typing import Any

import numpy
from torch import Tensor

from blackout.files import read_json, write_json

FILE = "data.json"
_ROWS = 4096  # hashed at a time


def fingerprint(x: Tensor, labels: Tensor | None = None) -> dict[str, Any]:
    """Number, shape and SHA-256 of integer data, whatever their dtype, with their labels."""
    digest, small = hashlib.sha256(), int(x.min()) >= 0 and int(x.max()) < 256
    for part in [*x.split(_ROWS), *([] if labels is None else labels.split(_ROWS))]:
        kind = "f8" if part.is_floating_point() else "u1" if small and part.dim() > 1 else "i8"
        digest.update(numpy.ascontiguousarray(part.cpu().numpy().astype(f"<{kind}")).data)
    return {"number": len(x), "shape": list(x.shape[1:]), "labels": labels is not None, "content": digest.hexdigest()}


def tie_to_data(folder: Path, x: Tensor, labels: Tensor | None = None) -> None:
    """Note the data of a new run in its folder; ValueError if a run was trained on others."""
    path, here = folder / FILE, fingerprint(x, labels)
    if not path.exists():
        write_json(path, here)
        return
    there = read_json(path)
    for name, value in here.items():
        if there.get(name) != value:
            got = "" if name == "content" else f" ({name} {there.get(name)} there, {value} here)"
            raise ValueError(f"{folder} holds a run on other data{got}; choose another folder, or the data of the run")


def was_trained_on(folder: Path, x: Tensor, labels: Tensor | None = None) -> bool:
    """Whether these are the data of a run; False for a folder that is none."""
    if not (folder / FILE).exists():
        return False
    there = read_json(folder / FILE)
    same = there.get("number") == len(x) and there.get("shape") == list(x.shape[1:])
    return same and there == fingerprint(x, labels if there.get("labels") else None)
