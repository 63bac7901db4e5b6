"""Experiment trackers, TensorBoard and Weights & Biases, through accelerate."""

import importlib.util
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from accelerate import Accelerator

from blackout.atomic import write_atomic
from blackout.training.config import TrainConfig
from blackout.training.loop import Listener, Report

_PROJECT = "blackout"
_ID = "wandb-id.txt"  # in the run folder: a resumed run continues its curves


@contextmanager
def tracked(config: TrainConfig, folder: Path | None, listener: Listener | None) -> Iterator[Listener | None]:
    """A listener that passes each report to the tracker of the configuration, if there is one, and on to `listener`.

    Raises
    ------
    ValueError
        If the package of the tracker is not installed, or TensorBoard has no run folder.
    """
    name = config.run.tracker
    if name == "none":
        yield listener
        return
    if importlib.util.find_spec(name) is None:
        raise ValueError(f"tracker {name} needs a package: pip install 'blackout-diffusion[{name}]'")
    if folder is None and name == "tensorboard":
        raise ValueError("tracker 'tensorboard' needs a run folder: give `out`")
    tracking = _Tracking(config, folder, listener)
    try:
        yield tracking
    finally:
        tracking.finish()


class _Tracking:
    """The tracker starts at the first report: a resumed run repeats the steps after its last checkpoint."""

    def __init__(self, config: TrainConfig, folder: Path | None, listener: Listener | None) -> None:
        self._config, self._folder, self._listener = config, folder, listener
        self._name, self._tracker = config.run.tracker, cast(Any, None)
        self.stopping = getattr(listener, "stopping", None)  # see `Loop.run`
        self.stepped = getattr(listener, "stepped", None)

    def __call__(self, report: Report, loop: Any) -> None:
        if self._tracker is None:
            accelerator = Accelerator(cpu=loop.device.type == "cpu", log_with=self._name, project_dir=self._folder)
            options = {"purge_step": report.step} if self._name == "tensorboard" else self._wandb()
            project = "tensorboard" if self._name == "tensorboard" else _PROJECT  # of TensorBoard, the folder's name
            accelerator.init_trackers(project, init_kwargs={self._name: options})
            self._tracker = accelerator.get_tracker(self._name)
        values = {name: value for name, value in asdict(report).items() if name not in ("step", "seconds_left")}
        self._tracker.log(values, step=report.step)
        if self._listener is not None:
            self._listener(report, loop)

    def _wandb(self) -> dict[str, Any]:
        """Arguments of `wandb.init`."""
        about: dict[str, Any] = {"config": self._config.to_dict()}
        if self._folder is None:
            return about
        path = self._folder / _ID
        if not path.exists():
            write_atomic(path, uuid.uuid4().hex + "\n")
        about |= {"name": self._folder.name, "dir": str(self._folder)}
        return {**about, "id": path.read_text().strip(), "resume": "allow"}

    def finish(self) -> None:
        if self._tracker is not None:
            self._tracker.finish()
