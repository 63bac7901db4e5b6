"""What the commands of cells are given: columns, and the cells of a run."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from blackout import validate

if TYPE_CHECKING:
    from blackout.cells.counts import Counts
    from blackout.cells.model import CountModel


def column_names(given: list[str] | None) -> list[str] | None:
    """Names of columns; typer gives an empty list where there are none."""
    return [name for part in given for name in part.split(",")] if given else None


def by_column(given: list[str] | None, keys: tuple[str, ...]) -> Any:
    """COLUMN=VALUE, several times, as a dict; a single value that names no column stays as it is."""
    if not given:
        return None
    parts = [text.partition("=") for text in given]
    if len(given) == 1 and len(keys) == 1 and parts[0][0] != keys[0]:
        return given[0]
    wrong = [text for text in given if text.partition("=")[0] not in keys]
    if wrong:
        columns = ", ".join(keys) or "none"
        raise ValueError(f"expected COLUMN=VALUE with a column of the model ({columns}), got {wrong[0]!r}")
    return {key: value for key, _, value in parts}


def cells_to_train(paths: list[str], layer: str, empty: str, transpose: bool, backed: bool | None) -> "Counts":
    """Cells of files for a new model, checked; without those that are empty, or an error."""
    from blackout.cells.counts import warn_implausible
    from blackout.cells.read import read_counts

    validate.choice("empty", empty, ("error", "drop"))
    # A layer is for AnnData: other files of the same cells have none.
    strict = any(Path(path).suffix.lower() in (".h5ad", ".zarr") for path in paths)
    counts = read_counts(paths, layer=layer or None, empty=empty, strict=strict, transpose=transpose, backed=backed)
    warn_implausible(counts)
    return counts


def read_cells(
    model: "CountModel", path: str | list[str], layer: str | None, transpose: bool, empty: str = "drop"
) -> "Counts":
    """Cells of a file for a model; those without counts are removed, or an error. Genes without counts are kept."""
    from blackout.cells.read import read_counts

    validate.choice("empty", empty, ("error", "drop"))
    counts = read_counts(path, empty="keep", transpose=transpose, **model.config.reading(layer))
    full = counts.library > 0
    if empty == "error" and not full.all():
        raise ValueError(f"{counts.name}: {int((~full).sum())} cells have no counts; --empty drop removes them")
    return counts if full.all() else counts.take(full)


def training_cells(run: Path, counts: "Counts") -> "tuple[Counts, Counts | None]":
    """The training cells in the data of a run, and the held-out ones, if there are any."""
    from blackout.cells.held_out import is_split, split_by_run

    test, train = split_by_run(run, counts) if is_split(run) else (None, counts)
    if train is None:
        raise ValueError(f"--data holds the held-out cells of {run} alone: give the cells that it was trained on")
    return train, test


def splits(
    model: "CountModel", run: Path, data: list[str], train_data: str | None, from_run: bool | None, **reading: Any
) -> "tuple[Counts, Counts | None]":
    """Held-out and training cells: split as in the run, or a file of each; `reading` as in `read_cells`."""
    from blackout.cells.folder import was_trained_on
    from blackout.cells.held_out import is_split, split_by_run

    counts = read_cells(model, data, **reading)
    if from_run and not is_split(run):
        raise ValueError(f"--held-out-from-run: {run} has no held-out cells; it was trained without --held-out")
    if from_run and train_data is not None:
        raise ValueError("--held-out-from-run takes the training cells from --data; remove --train-data")
    if from_run or (from_run is None and train_data is None and is_split(run)):
        return split_by_run(run, counts)
    if was_trained_on(run, counts, model.covariates):
        note = "--data holds the training cells of the run, so that nothing is held out"
        typer.echo(f"blackout: {note}; `blackout cells train --held-out 0.2` keeps some apart", err=True)
    return counts, None if train_data is None else read_cells(model, train_data, **reading)
