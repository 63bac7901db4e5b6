"""blackout impute."""

from pathlib import Path
from typing import Annotated

import typer

from blackout.cli.sample import device_by_name
from blackout.cli.words import as_options


@as_options()
def impute(
    source: Annotated[str, typer.Argument(metavar="RUN", help="a run folder of cells")],
    data: Annotated[
        str | None, typer.Option(help="the cells: .h5ad, 10x .h5, .mtx, .npz, .csv, ...", show_default="none")
    ] = None,
    mask: Annotated[
        Path | None,
        typer.Option(
            help="true where a count is known, cells x genes: .npy, .npz, or .csv with the names of both",
            show_default="none",
        ),
    ] = None,
    draws: Annotated[int, typer.Option(help="how often each cell is filled in")] = 1,
    steps: Annotated[int, typer.Option(help="steps from black to the cell")] = 50,
    resample: Annotated[int | None, typer.Option(help="how often a step is taken again", show_default="7")] = None,
    seed: Annotated[int, typer.Option(help="the draws depend on it alone")] = 0,
    batch_size: Annotated[int, typer.Option(help="cells at a time")] = 256,
    out: Annotated[Path, typer.Option(help="AnnData (.h5ad); of one draw also scipy's sparse matrix (.npz)")] = Path(
        "filled.h5ad"
    ),
    transpose: Annotated[bool, typer.Option("--transpose", help="rows of the table are genes")] = False,
    device: Annotated[str, typer.Option(help="auto (CUDA if there is one), cpu, cuda, cuda:1, ...")] = "auto",
) -> None:
    """Fill in the counts of cells that are not known; the others are kept.

    Genes of the model that the cells lack are filled in too, behind the others. Of several draws, X is the first, and
    the layers draw_1, ..., mean and std hold each and what they say together.
    """
    from blackout.cells.files import check_new, read_cell_mask, write_cells
    from blackout.cells.model import CountModel
    from blackout.cells.observed import read_known
    from blackout.cli.counts import check_file, holds_cells
    from blackout.cli.progress import sampling_bar

    if check_new(out).suffix == ".npz" and draws > 1:
        raise ValueError(f"--out must end in .h5ad for several draws, which are layers of it, got {out}")
    if not holds_cells(source):
        raise ValueError(f"{source} holds no model of cells; `blackout train counts --data cells.h5ad` makes one")
    if mask is None:
        raise ValueError("--mask is needed: a file that is true where a count is known, such as --mask mask.npz")
    where = device_by_name(device)
    model = CountModel.load(source)
    known = read_known(
        check_file(data, "--data"), read_cell_mask(mask), layer=model.config.layer or None, transpose=transpose
    )
    model.to(where)
    with sampling_bar(len(known.cells)) as progress:
        filled = model.impute(
            known, draws=draws, num_steps=steps, resample=resample, seed=seed, batch_size=batch_size, callback=progress
        )
    share = 1 - known.mask.sum() / (filled.n_obs * filled.n_vars)
    typer.echo(f"{filled.n_obs} cells, {share:.1%} of the counts filled in: {write_cells(filled, out)}")
