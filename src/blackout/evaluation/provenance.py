"""Where a figure comes from: the machine, the code and the command."""

import datetime
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

import blackout


def provenance(device: torch.device) -> dict[str, Any]:
    """What a record of a measurement begins with."""
    return {
        "blackout": blackout.__version__,
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command(),
        "machine": {"device": device_name(device), "torch": torch.__version__, "cpus": os.cpu_count()},
    }


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {platform.machine()}, {torch.get_num_threads()} threads"


def command() -> str:
    """The command line as one would type it."""
    return shlex.join(["blackout", *sys.argv[1:]])


def commit() -> str | None:
    """The commit of a source checkout, with a + if files of the package differ from it; else that of BLACKOUT_COMMIT.

    The variable is for machines that have a copy of the files but not their history.
    """
    folder = Path(blackout.__file__).parent

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()

    try:
        if git("ls-files", "__init__.py") == "":  # somebody else's repository, into which we are installed
            return os.environ.get("BLACKOUT_COMMIT")
        return git("rev-parse", "--short=7", "HEAD") + ("+" if git("status", "--porcelain", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("BLACKOUT_COMMIT")
