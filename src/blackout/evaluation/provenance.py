"""Provenance of results: machine, code and command."""

import datetime
import importlib
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from blackout.training.history import device_name


def provenance(device: torch.device) -> dict[str, Any]:
    """Return version, commit, date, command and machine, as a report begins with them."""
    return {
        "blackout": importlib.import_module("blackout").__version__,
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["blackout", *sys.argv[1:]]),
        "machine": {"device": device_name(device), "torch": torch.__version__, "cpus": os.cpu_count()},
    }


def commit() -> str | None:
    """Return the commit of a source checkout, with + if files of the package differ from it; else BLACKOUT_COMMIT.

    The environment variable is for machines that have a copy of the files without the history.
    """
    folder = Path(__file__).parents[1]

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()

    try:
        if git("ls-files", "__init__.py") == "":  # installed inside another repository
            return os.environ.get("BLACKOUT_COMMIT")
        return git("rev-parse", "--short=7", "HEAD") + ("+" if git("status", "--porcelain", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("BLACKOUT_COMMIT")
