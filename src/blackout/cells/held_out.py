"""Held-out cells: chosen when a run begins, named in its held-out.txt, and found again for its evaluation."""

from pathlib import Path

import numpy

from blackout.atomic import write_atomic
from blackout.cells.counts import Counts
from blackout.cells.names import few
from blackout.files import check_file, read_json
from blackout.io.models import CELLS
from blackout.progress import is_first

HELD_OUT = "held-out.txt"


def hold_out(counts: Counts, share: float, seed: int, run: Path) -> tuple[Counts, Counts | None]:
    """Split off a share of the cells for a new or resumed run; ValueError if it resumes with other held-out cells."""
    train, test = (counts, None) if share == 0 else counts.split(share, seed)
    names = [] if test is None else list(test.cells)
    if any("\n" in name for name in names):
        raise ValueError("held_out writes one line for each cell, but a cell name contains a line break: rename it")
    if (run / "config.json").exists() and names != _names(run):
        raise ValueError(f"{run} holds a run with other held-out cells; give its --held-out, or another --out")
    return train, test


def write_names(run: Path, test: Counts | None) -> None:
    """Write held-out.txt, in the first of several processes."""
    names = () if test is None else test.cells
    if is_first() and list(names) != _names(run):
        run.mkdir(parents=True, exist_ok=True)
        write_atomic(run / HELD_OUT, "".join(f"{name}\n" for name in names))


def is_split(run: Path) -> bool:
    """Whether a run has held-out cells."""
    return (run / HELD_OUT).exists()


def split_by_run(run: Path, counts: Counts) -> tuple[Counts, Counts | None]:
    """The held-out cells of a run, and the other cells of the data, if there are any."""
    names, place = _names(run), {name: k for k, name in enumerate(counts.cells)}
    missing = [name for name in names if name not in place]
    if missing or not names:
        lacking = f"--data lacks {len(missing)} of the {len(names)} cells that {run / HELD_OUT} names: {few(missing)}"
        raise ValueError(f"{lacking}; give the data of the run, or --no-held-out-from-run if all cells are held out")
    held_out = numpy.zeros(len(counts), bool)
    held_out[[place[name] for name in names]] = True
    return counts.take(held_out), None if held_out.all() else counts.take(~held_out)


def _names(run: Path) -> list[str]:
    path = run / HELD_OUT
    if not path.exists():
        return []
    if (run / CELLS).exists() and (digest := read_json(run / CELLS).get("held_out")):
        check_file(path, digest)
    return path.read_text(encoding="utf-8").split("\n")[:-1]
