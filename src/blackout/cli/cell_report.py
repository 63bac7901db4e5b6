"""What `blackout evaluate` does with a model of cells."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from blackout.cli.counts import HELD_OUT, read_cells, split_by_run
from blackout.cli.words import as_options

if TYPE_CHECKING:
    from blackout.cells.counts import Counts
    from blackout.cells.model import CountModel


@as_options()
def evaluate_run(
    source: str,
    data: str | None,
    train_data: str | None,
    out: Path,
    device: Any,
    *,
    empty: str,
    from_run: bool | None,
    steps: int | None,
    transpose: bool = False,
    **plan: Any,
) -> None:
    """Measure a model of cells, show the table and say where the page is."""
    from blackout.cells.evaluate import evaluate_cells
    from blackout.cells.model import CountModel
    from blackout.cells.report import score_table
    from blackout.cells.stages import CellPlan
    from blackout.cli.progress import measuring_bar, resumable
    from blackout.cli.tables import show

    model = CountModel.load(source)
    wanted = CellPlan(steps=min(100, len(model.model.times)) if steps is None else steps, **plan)
    test, train = _split(model, Path(source), data, train_data, empty, from_run, transpose)
    model.to(device)
    with resumable(), measuring_bar() as tell:
        report = evaluate_cells(model, out, test, train, wanted, source=source, tell=tell)
    show(*score_table(report))
    sampling = report["sampling"]
    if sampling is not None:
        how = f"{sampling['num']} samples, {sampling['sampler']}, {sampling['steps']} steps"
        floor = f"; the floor is {report['scores']['floor']['num']} training cells" if report["scores"]["floor"] else ""
        typer.echo(f"{how}; {len(test)} held-out cells{floor}")
    typer.echo(f"{out / 'report.html'}")


def _split(
    model: "CountModel",
    run: Path,
    data: str | None,
    train_data: str | None,
    empty: str,
    from_run: bool | None,
    transpose: bool,
) -> "tuple[Counts, Counts | None]":
    """Held-out and training cells: as the run divided its data, or a file of each."""
    from blackout import validate

    # Genes that no cell has are kept, for the model may know them; cells without a count are the user's to drop.
    validate.choice("--empty", empty, ("refuse", "drop"))

    def read(path: str | None, option: str) -> "Counts":
        cells = read_cells(path, model.config.layer, "keep", option, transpose=transpose)
        full = cells.library > 0
        if empty == "refuse" and not full.all():
            raise ValueError(f"{option}: {int((~full).sum())} cells hold no count at all; --empty drop leaves them out")
        return cells if full.all() else cells.take(full)

    cells = read(data, "--data")
    divided = (run / HELD_OUT).exists()
    if from_run and not divided:
        raise ValueError(f"--held-out-from-run: {run} has no {HELD_OUT}, for it was trained without --held-out")
    if from_run and train_data is not None:
        raise ValueError("--held-out-from-run takes the training cells from --data; leave out --train-data")
    if from_run or (divided and from_run is None and train_data is None):
        return split_by_run(run, cells)
    if model.has_learnt(cells, run):
        own = "--data holds the very cells that the run was trained on: what follows is of no held-out cells"
        typer.echo(f"blackout: {own}; `train --held-out 0.2` would keep some apart", err=True)
    return cells, None if train_data is None else read(train_data, "--train-data")
