"""Run folders and checkpoints.

    RUN/config.json          the configuration
    RUN/model.json           the description of the model
    RUN/metrics.jsonl        one line a report
    RUN/checkpoints/step-…   weights, averaged weights and optimiser state as safetensors, a file for each, or parts of
                             limited size: weights-00001-of-00004.safetensors; manifest.json, the step and the SHA-256
                             of each file
    RUN/samples/             grids of samples

A checkpoint is written under another name, flushed to the disk and renamed: writes are atomic.
"""

import math
import re
import shutil
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import Tensor

from blackout import validate
from blackout.atomic import atomic, disk_errors, flush
from blackout.files import DamagedFileError, append_line, read_json, read_lines, write_json
from blackout.training.folder import LOCK
from blackout.training.weights import check_tensors, read_parts, write_parts

KEPT = 2  # checkpoints that stay
MANIFEST = "manifest.json"
METRICS = "metrics.jsonl"
_PREFIX = "step-"


@dataclass(frozen=True)
class Checkpoint:
    """A finished checkpoint; reading it runs no code. DamagedFileError names a file that is not as it was written."""

    path: Path
    _good: set[str] = field(default_factory=set, compare=False, repr=False)

    @property
    def step(self) -> int:
        return int(self._manifest()["step"])

    @property
    def seconds(self) -> float:
        """How long training has taken up to here."""
        return float(self._manifest()["seconds"])

    def check(self, groups: Iterable[str] | None = None) -> "Checkpoint":
        """The checkpoint itself, if the files of these groups of tensors (None: all) are as they were written."""
        files = self._manifest()["files"]
        for name in files if groups is None else [name for group in groups for name in self._names(group)]:
            if name not in self._good:
                check_tensors(self.path / name, files[name])
                self._good.add(name)
        return self

    def has(self, group: str) -> bool:
        """Whether it holds such a group of tensors."""
        return any(name.startswith((f"{group}.", f"{group}-")) for name in self._manifest()["files"])

    def tensors(self, group: str) -> dict[str, Tensor]:
        self.check([group])
        return read_parts(self.path, self._names(group))

    def _names(self, group: str) -> list[str]:
        """The files of a group."""
        files = self._manifest()["files"]
        names = [name for name in files if re.fullmatch(rf"{re.escape(group)}(-\d+-of-\d+)?\.safetensors", name)]
        if not names:
            raise DamagedFileError(f"{self.path / MANIFEST} names no file of {group}")
        return names

    def _manifest(self) -> dict[str, Any]:
        return read_json(self.path / MANIFEST, self._check_manifest)

    def _check_manifest(self, values: dict[str, Any]) -> None:
        step, seconds, files = values.get("step"), values.get("seconds"), values.get("files")
        valid = {
            "step": type(step) is int and f"{_PREFIX}{step:09d}" == self.path.name,
            "seconds": isinstance(seconds, int | float) and 0 <= seconds < math.inf,
            "files": isinstance(files, dict) and all(Path(name).name == name for name in files),
        }
        for name, is_valid in valid.items():
            if not is_valid:
                raise DamagedFileError(f"{self.path / MANIFEST} is damaged or was edited: {name}={values.get(name)!r}")


class RunFolder:
    """A run folder, locked by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path / LOCK)

    def acquire(self) -> None:
        """Make the folder and lock it; ValueError while another process holds it."""
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            raise ValueError(f"run folder {self.path} is in use by another process") from None
        for unfinished in self.path.glob("checkpoints/*.partial"):
            shutil.rmtree(unfinished, ignore_errors=True)

    def release(self) -> None:
        self._lock.release()

    def checkpoints(self) -> list[Path]:
        """Finished checkpoints, the oldest first."""
        return sorted(self.path.glob(f"checkpoints/{_PREFIX}[0-9]*[0-9]"))

    def last_good(self, groups: Iterable[str] | None = None) -> Checkpoint | None:
        """The last checkpoint whose files are as they were written; a warning names what is damaged in later ones.

        None if there is no checkpoint. ValueError if all of them are damaged.
        """
        damaged: list[str] = []
        found = self.checkpoints()
        for path in reversed(found):
            try:
                good = Checkpoint(path).check(groups)
            except DamagedFileError as error:
                if not path.exists():  # a run has removed it meanwhile
                    return self.last_good(groups)
                damaged.append(str(error))
            else:
                for reason in damaged:
                    warnings.warn(f"{reason}; falling back to {path}", stacklevel=2)
                return good
        if damaged:
            advice = f"no checkpoint of {self.path} is good: remove the folder to start anew"
            raise ValueError(f"{'; '.join(damaged)}; {advice}")
        return None

    def report(self, **values: Any) -> None:
        path = self.path / METRICS
        with disk_errors(path, "the checkpoints are kept"):
            append_line(path, values)

    def describe(self, description: Mapping[str, Any]) -> None:
        write_json(self.path / "model.json", description)

    def rewind(self, step: int) -> None:
        """Drop reports of steps after `step`, which a resumed run repeats."""
        path = self.path / METRICS
        if path.exists():
            kept = [values for values in read_lines(path) if values["step"] <= step]
            with atomic(path) as partial:
                partial.touch()
                for values in kept:
                    append_line(partial, values)

    def save(
        self, step: int, tensors: Mapping[str, Mapping[str, Tensor]], seconds: float = 0.0, part_mib: int = 0
    ) -> Path:
        """Write a checkpoint: each group of tensors, see `write_parts`, and the manifest."""
        target = self.path / "checkpoints" / f"{_PREFIX}{step:09d}"
        partial = target.with_name(target.name + ".partial")
        files: dict[str, str] = {}
        shutil.rmtree(partial, ignore_errors=True)
        try:
            partial.mkdir(parents=True)
            for name, group in tensors.items():
                values = ((key, value.detach().cpu().contiguous()) for key, value in group.items())
                files |= write_parts(partial, name, values, part_mib)
            write_json(partial / MANIFEST, {"step": step, "seconds": seconds, "files": files})
            _remove(target)
            partial.rename(target)
            flush(target.parent)
        except OSError as error:
            shutil.rmtree(partial, ignore_errors=True)
            last = self.checkpoints()
            kept = f"the last good one is {last[-1]}" if last else "there is none before it"
            raise OSError(f"cannot write checkpoint {target}: {error.strerror or error}; {kept}") from None
        there = self.checkpoints()
        before = there[: there.index(target) + 1]
        for old in [*before[:-KEPT], *there[len(before) :]]:  # later ones were damaged: the run fell back
            _remove(old)
        return target


def flatten_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Adam's moments as named tensors."""
    state = optimizer.state_dict()["state"]
    return {
        f"{index}.{name}": torch.as_tensor(value) for index, slots in state.items() for name, value in slots.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        index, _, name = key.partition(".")
        state.setdefault(validate.integer("index", int(index), 0), {})[name] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def _remove(checkpoint: Path) -> None:
    """Under its own name a checkpoint is complete, also while it is being deleted."""
    if checkpoint.exists():
        gone = checkpoint.with_name(checkpoint.name + ".old.partial")
        shutil.rmtree(gone, ignore_errors=True)
        shutil.rmtree(checkpoint.rename(gone), ignore_errors=True)
