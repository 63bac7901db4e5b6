"""A run belongs to its data: data.json in its folder."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy
from torch import Tensor

from blackout.atomic import write_atomic

FILE = "data.json"
_ROWS = 4096  # hashed at a time


def fingerprint(x: Tensor, labels: Tensor | None = None) -> dict[str, Any]:
    """Number, shape and SHA-256 of integer data, whatever their dtype, with their labels."""
    digest, small = hashlib.sha256(), int(x.min()) >= 0 and int(x.max()) < 256
    for part in [*x.split(_ROWS), *([] if labels is None else labels.split(_ROWS))]:
        kind = "f8" if part.is_floating_point() else "u1" if small and part.dim() > 1 else "i8"
        digest.update(numpy.ascontiguousarray(part.cpu().numpy().astype(f"<{kind}")).data)
    return {"number": len(x), "shape": list(x.shape[1:]), "labels": labels is not None, "sha256": digest.hexdigest()}


def tie_to_data(folder: Path, x: Tensor, labels: Tensor | None = None) -> None:
    """Note the data of a new run in its folder; ValueError if a run was trained on others."""
    path, here = folder / FILE, fingerprint(x, labels)
    if not path.exists():
        write_atomic(path, json.dumps(here, indent=2) + "\n")
        return
    try:
        there = dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    for name, value in here.items():
        if there.get(name) != value:
            got = "" if name == "sha256" else f" ({name} {there.get(name)} there, {value} here)"
            raise ValueError(f"{folder} holds a run on other data{got}; choose another folder, or the data of the run")
