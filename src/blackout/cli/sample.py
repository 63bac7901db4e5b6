"""blackout sample."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import torch

    from blackout.model import DiffusionModel

_WALKS = 8


def sample(
    source: Annotated[str, typer.Argument(metavar="RUN_OR_NAME", help="a run folder, or a model that ships")],
    num: Annotated[int, typer.Option(help="how many samples")] = 64,
    steps: Annotated[
        int | None, typer.Option(help="steps from black to the sample", show_default="250; cells: 100")
    ] = None,
    sampler: Annotated[
        str | None,
        typer.Option(
            help="bridge, bridge-nearest, poisson, poisson-instantaneous, binomial, exact, posterior",
            show_default="bridge; cells: poisson",
        ),
    ] = None,
    correctors: Annotated[int, typer.Option(help="corrector steps after each step")] = 0,
    grid: Annotated[
        str | None,
        typer.Option(
            help="when steps are taken, at equal steps of: fisher (the paper's), entropy, variance, kl, length",
            show_default="length if steps are few; the model's own",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="the samples depend on it alone")] = 0,
    label: Annotated[
        str | None,
        typer.Option(
            "--class",
            "--label",
            help="class, for a model that knows classes: a number; cells: a name",
            show_default="none; cells: as in training",
        ),
    ] = None,
    guidance: Annotated[float, typer.Option(help="how strongly the class is meant: 0 not at all, 1 as learnt")] = 1.0,
    library: Annotated[
        int | None,
        typer.Option(help="cells: total of each, for a model conditioned on it", show_default="drawn as in training"),
    ] = None,
    known: Annotated[
        Path | None,
        typer.Option(help="states that are kept where the mask says so: .npy, .npz, .png", show_default="none"),
    ] = None,
    mask: Annotated[
        str | None,
        typer.Option(
            help="what is known: left, right, top, bottom, centre, or a file, true (a picture: white) where known",
            show_default="none",
        ),
    ] = None,
    resample: Annotated[
        int | None, typer.Option(help="how often a step is taken again", show_default="7; 0 for masked labels")
    ] = None,
    volume: Annotated[
        int | None,
        typer.Option(help="cubes of this side, .npz, from a model of slices across any axis", show_default="none"),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="samples at a time; of cubes, slices", show_default="64; cells: 256")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="a grid (.png), arrays (.npz), or a folder of pictures; cells: AnnData (.h5ad), or scipy's sparse "
            "matrix with genes, cells and obs:NAME beside it (.npz)",
            metavar="FILE_OR_DIR",
            show_default="samples.png; cells: samples.h5ad",
        ),
    ] = None,
    walk: Annotated[
        Path | None,
        typer.Option(help="draw the walks of the first 8 samples too", metavar="FILE.png", show_default="none"),
    ] = None,
    device: Annotated[str, typer.Option(help="auto (CUDA if there is one), cpu, cuda, cuda:1, ...")] = "auto",
) -> None:
    """Draw samples. A job that was interrupted goes on with the same command; several processes share one.

    Cells are drawn by one process, and anew after an interrupt.
    """
    from blackout import validate
    from blackout.cli.counts import holds_cells, sample_cells
    from blackout.cli.progress import sampling_bar
    from blackout.io import SAMPLERS, read_known, read_mask, sampler_for, write_samples
    from blackout.io.images import refuse_foreign
    from blackout.io.models import load
    from blackout.io.samples import check_steps
    from blackout.times import MEASURES

    cells = holds_cells(source)
    given = steps
    sampler, steps = sampler or ("poisson" if cells else "bridge"), (100 if cells else 250) if steps is None else steps
    batch_size = (256 if cells else 64) if batch_size is None else batch_size
    validate.choice("sampler", sampler, tuple(SAMPLERS))
    if grid is not None:
        validate.choice("grid", grid, MEASURES)
    where = device_by_name(device)
    if cells:
        for name, value in {
            "--known": known,
            "--mask": mask,
            "--resample": resample,
            "--walk": walk,
            "--volume": volume,
        }.items():
            if value is not None:
                raise ValueError(f"{name} is not for cells, got {value}; `blackout impute` fills in what is not known")
        sample_cells(
            source, out or Path("samples.h5ad"), num, steps, sampler, correctors, grid, where, seed=seed,
            label=label, guidance=guidance, library=library, batch_size=batch_size,
        )  # fmt: skip
        return
    if library is not None:
        raise ValueError(f"--library is for cells, but {source} is no model of counts, got {library}")
    number, out = _class_number(label), out or Path("samples.png" if volume is None else "volumes.npz")
    refuse_foreign(out)
    model = load(source)
    if given is not None:
        check_steps(model, given)
    if grid is not None:
        model.walk_by(grid)
    method = sampler_for(model, sampler, correctors)
    if walk is not None and volume is not None:
        raise ValueError(f"--walk draws pictures, and not of volumes, got {walk}")
    if walk is not None and len(model.shape or ()) != 3:
        raise ValueError(f"--walk draws pictures, but the samples of {source} have shape {model.shape}")
    if model.num_classes and number is None:
        typer.echo(f"blackout: {source} knows {model.num_classes} classes; --class chooses one", err=True)
    model.to(where)
    options: dict[str, Any] = {
        "num_steps": steps,
        "sampler": method,
        "seed": seed,
        "label": number,
        "guidance": guidance,
    }
    options |= {
        "known": None if known is None else read_known(known, model.shape or (), model.max_state),
        "mask": None if mask is None else read_mask(mask, model.shape or ()),
        "resample": resample,
    }
    try:
        with sampling_bar(num) as progress:
            write_samples(model, out, num, **options, volume=volume, batch_size=batch_size, progress=progress)
    except KeyboardInterrupt:
        typer.echo("blackout: interrupted; the same command goes on", err=True)
        raise typer.Exit(130) from None
    typer.echo(f"{num} samples: {out}")
    if walk is not None:
        _draw_walk(model, walk, min(num, _WALKS), **options)
        typer.echo(f"walks: {walk}")


def _class_number(label: str | None) -> int | None:
    try:
        return None if label is None else int(label)
    except ValueError:
        raise ValueError(f"--class must be the number of a class, but for models of cells, got {label!r}") from None


def device_by_name(name: str) -> "torch.device":
    """The device that `--device` means."""
    import torch

    from blackout import validate

    if name == "auto":
        # Under torchrun each process has a GPU of its own.
        name = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
    device = validate.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device {name!r} is not there; torch sees {torch.cuda.device_count()} CUDA devices")
    return device


def _draw_walk(model: "DiffusionModel", path: Path, num: int, num_steps: int, **options: Any) -> None:
    from blackout import figures

    steps = min(num_steps, len(model.times))
    for name in ("known", "mask"):
        if options[name] is not None and options[name].dim() > len(model.shape or ()):  # one for each sample
            options[name] = options[name][:num]
    trajectory = model.sample(num, steps, **options, trajectory=True).cpu()
    figure = figures.walk(trajectory, model.walk(steps).values, largest=model.max_state)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
