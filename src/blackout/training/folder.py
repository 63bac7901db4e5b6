"""Run folders: whether a folder may hold a run, and whether the run in it is the same. Importing needs no torch."""

import json
from pathlib import Path
from typing import Any

from blackout.files import read_json
from blackout.training.config import TrainConfig

LOCK = "run.lock"
"""The first file of a run folder."""

# What may change when a run resumes: how long, how fast and what is reported, but not what is learnt from what.
_MAY_CHANGE = (
    "description", "steps", "precision", "compile", "compile_mode", "log_every", "checkpoint_every", "sample_every",
    "tracker", "sampler", "sampling_steps", "sampling_dropout", "max_minutes", "part_mib", "given", "path",
)  # fmt: skip


def check_same_process(process: dict[str, Any], run: Path) -> None:
    """Raise ValueError if a folder holds a run of a process with other arguments: the matrix in a file may change."""
    if not (run / "model.json").exists():
        return
    there = read_json(run / "model.json").get("process")
    if there != json.loads(json.dumps(process)):
        raise ValueError(f"{run} holds a run whose process has other rates or arguments; choose another folder")


def begin_folder(run: Path) -> None:
    """Make the folder of a new run; from now on `check_same_run` takes what is in it for its own."""
    run.mkdir(parents=True, exist_ok=True)
    (run / LOCK).touch()


def check_run_folder(run: Path) -> None:
    """Raise ValueError if a path is a file, or a folder with other files than a run's."""
    if run.exists() and not run.is_dir():
        raise ValueError(f"a run needs a folder, but {run} is a file; choose another name")
    if next(run.glob("model-*.safetensors"), None) is not None:
        raise ValueError(f"{run} holds a saved model, which is not a run to resume; choose another folder")
    ours = (run / "config.json").exists() or (run / LOCK).exists()
    if run.is_dir() and not ours and (other := next(run.iterdir(), None)) is not None:
        raise ValueError(f"{run} holds no run, but other files, such as {other.name}; choose a new or empty folder")


def check_same_run(config: TrainConfig, run: Path) -> None:
    """Raise ValueError if a folder holds other files, or a run that learns something else."""
    check_run_folder(run)
    if not (run / "config.json").exists():
        return
    there = TrainConfig.read(run / "config.json")
    changed = [
        f"{name} ({there[name]!r} there, {config[name]!r} here)"
        for name in TrainConfig.fields()
        if name not in _MAY_CHANGE and there[name] != config[name]
    ]
    if there.recipe != config.recipe:
        changed.insert(0, f"recipe ({there.recipe!r} there, {config.recipe!r} here)")
    if changed:
        raise ValueError(f"{run} holds a run that differs in {', '.join(changed)}; choose another folder")
