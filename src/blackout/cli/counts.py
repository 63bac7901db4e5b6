"""Cells on the command line: what `train` and `sample` do where the data are counts of genes."""

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from blackout.atomic import write_atomic
from blackout.cli.words import as_options, in_options
from blackout.training.config import TrainConfig, refuse_another

if TYPE_CHECKING:
    from blackout.cells.counts import Counts

HELD_OUT = "held-out.txt"


def holds_cells(source: str) -> bool:
    """Whether a model is one of cells."""
    from blackout.io.models import CELLS

    return (Path(source) / CELLS).exists()


def check_file(path: str | None, option: str) -> str:
    """A file with cells has to be named, and to be there."""
    if path is None:
        raise ValueError(f"{option} is needed: a file with cells, such as {option} cells.h5ad")
    if not Path(path).exists():
        raise ValueError(f"{option}: {path} does not exist")
    return path


def read_cells(
    path: str | None, layer: str, empty: str, option: str = "--data", *, strict: bool = False, transpose: bool = False
) -> "Counts":
    """Cells from a file, the words of `read_counts` put as the command line has them."""
    from blackout.cells.read import read_counts

    path = check_file(path, option)
    # A layer belongs to AnnData: other files of the same cells have none, and need none.
    strict = strict and Path(path).suffix.lower() == ".h5ad"
    try:
        return read_counts(path, layer=layer or None, empty=empty, strict=strict, transpose=transpose)
    except ValueError as error:
        raise ValueError(f"{option}: {in_options(str(error))}") from None


@as_options()
def train_cells(
    config: TrainConfig, data: str | None, out: Path, empty: str, held_out: float, transpose: bool = False
) -> None:
    """Train a CountModel; the same command again goes on."""
    from blackout import validate
    from blackout.cells.model import CountModel
    from blackout.cli.progress import training

    if config.class_conditional and not config.labels:
        raise ValueError("--class-conditional needs --labels for cells: the columns of obs to condition on")
    validate.choice("--empty", empty, ("refuse", "drop"))
    config = dataclasses.replace(config, class_conditional=bool(config.labels))
    cells, kept = read_cells(data, config.layer, empty, strict=True, transpose=transpose), None
    refuse_another(config, out)
    if held_out != 0:
        cells, kept = cells.split(held_out, config.seed)
    names = "" if kept is None else "".join(f"{name}\n" for name in kept.cells)
    if kept is not None and names.count("\n") != len(kept):
        raise ValueError("--held-out writes a line for each cell, but the name of one has a line break: rename it")
    if (out / "config.json").exists() and names != _text(out / HELD_OUT):
        raise ValueError(f"{out} holds a run that held out other cells; give its --held-out, or choose another --out")
    model = CountModel()
    model.prepare(config, cells)
    if os.environ.get("RANK", "0") == "0" and names != _text(out / HELD_OUT):
        out.mkdir(parents=True, exist_ok=True)
        write_atomic(out / HELD_OUT, names)
    classes = f", {len(model.classes)} classes" if model.classes else ""
    apart = "" if kept is None else f"; {len(kept)} held out, in {out / HELD_OUT}"
    about = f"{cells.name}: {len(cells)} cells of {cells.num_genes} genes{classes}{apart}"
    with training(config, out, model.model, about) as listener:
        model.train_prepared(cells, out, listener)


@as_options()
def sample_cells(
    source: str, out: Path, num: int, num_steps: int, sampler: str, correctors: int, grid: str | None, device: Any,
    **options: Any,
) -> None:  # fmt: skip
    """Draw cells and write them to one file."""
    from blackout import validate
    from blackout.cells.files import check_new, write_cells
    from blackout.cells.model import CountModel
    from blackout.cli.progress import sampling_bar
    from blackout.io import sampler_for
    from blackout.io.samples import check_steps

    check_new(out)
    validate.integer("num", num, 1)
    model = CountModel.load(source).to(device)
    check_steps(model.model, num_steps)
    if grid is not None:
        model.walk_by(grid)
    method = sampler_for(model.model, sampler, correctors)
    method.check(model.model.process)
    with sampling_bar(num) as progress:
        cells = model.sample(num, num_steps=num_steps, sampler=method, callback=progress, **options)
    typer.echo(f"{num} cells of {len(model.genes)} genes: {write_cells(cells, out)}")


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def split_by_run(run: Path, cells: "Counts") -> "tuple[Counts, Counts | None]":
    """(held out, training), as `train --held-out` divided them; no training cells, if --data has none."""
    import numpy

    from blackout.cells.table import few

    names = _text(run / HELD_OUT).split("\n")[:-1]
    place = {name: k for k, name in enumerate(cells.cells)}
    missing = [name for name in names if name not in place]
    if missing or not names:
        raise ValueError(
            f"--data lacks {len(missing)} of the {len(names)} cells that {run / HELD_OUT} names: {few(missing)}; "
            "give the data of the run, or --no-held-out-from-run if all of it is held out"
        )
    held_out = numpy.zeros(len(cells), bool)
    held_out[[place[name] for name in names]] = True
    return cells.take(held_out), None if held_out.all() else cells.take(~held_out)
