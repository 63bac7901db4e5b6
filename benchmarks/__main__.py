"""Command line of the benchmarks."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from blackout import validate

if TYPE_CHECKING:
    from benchmarks.cells import Rate
    from benchmarks.network import Speed

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Benchmarks: timings and ratios within one run.",
)

_PEAKS = ("MiB before", "MiB opened", "MiB read", "MiB trained")
Preset = Annotated[str, typer.Option(help="network: paper, small, tiny")]
BatchSize = Annotated[int, typer.Option(help="images of 3x32x32 per batch")]
Compile = Annotated[bool, typer.Option("--compile/--no-compile", help="torch.compile the network")]
Repeats = Annotated[int, typer.Option(help="number of measurements, of which the median is reported")]


@app.command()
def processes() -> None:
    """Forward sampling compared with a gathered table; a batch of 256x3x32x32 with 256 different times."""
    from benchmarks.processes import run

    table = Table("method", "ms", "million/s", "peak MiB", "faster", "memory")
    baseline = None
    for m in run():
        baseline = m if baseline is None or "gathered" in m.name else baseline
        table.add_row(
            m.name,
            f"{m.seconds * 1e3:.0f}",
            f"{m.draws_per_second / 1e6:.1f}",
            f"{m.peak_mib:.0f}",
            f"{baseline.seconds / m.seconds:.1f}x",
            f"1/{baseline.peak_mib / max(m.peak_mib, 1e-9):.0f}",
        )
    Console().print(table)


@app.command()
def small(
    steps: Annotated[int, typer.Option(help="training steps of each model")] = 300,
    num_data: Annotated[int, typer.Option(help="held-out digits")] = 128,
) -> None:
    """Heads and numbers of steps on seven-segment digits: minutes on two cores."""
    from benchmarks.small import run

    for title, unit, rows in run(validate.integer("steps", steps, 1), validate.integer("num_data", num_data, 1)):
        table = Table(title, unit, "ratio to the first")
        for name, value in rows:
            table.add_row(name, f"{value:.4g}", f"{value / rows[0][1]:.2f}")
        Console().print(table)


@app.command()
def count_tables(
    to: Annotated[Path, typer.Option(help="folder for the .h5ad files")] = Path("tables"),
    cells: Annotated[int, typer.Option(help="cells of each table, at most, at random")] = 3000,
    genes: Annotated[int, typer.Option(help="most variable genes of each table")] = 1000,
) -> None:
    """Public tables of raw counts, downloaded from PyPI: balf, blood and pancreas."""
    from benchmarks.count_tables import TABLES, write_tables

    for path, table in write_tables(to, validate.integer("cells", cells, 1), validate.integer("genes", genes, 1)):
        typer.echo(f"{path}: {table.n_obs} cells, {table.n_vars} genes, from {TABLES[path.stem][0]}")


@app.command()
def cell_models(
    files: Annotated[list[str], typer.Argument(help="count tables, as blackout cells train reads them")],
    out: Annotated[Path, typer.Option(help="folder for models and reports; a killed run resumes")] = Path(
        "cell-models"
    ),
    seeds: Annotated[int, typer.Option(help="splits and fits of each table")] = 3,
    labels: Annotated[str, typer.Option(help="columns of obs to condition on, separated by commas")] = "",
    types: Annotated[str, typer.Option(help="column of obs with cell types (default: the first)")] = "",
    hidden: Annotated[str, typer.Option(help="counts to hide, as in blackout cells evaluate")] = "0.1,0.5,genes",
    steps: Annotated[int, typer.Option(help="training steps; 0: as many as the data need")] = 0,
) -> None:
    """Default cell models beside baselines and real vs real: mean and standard deviation over seeds."""
    from benchmarks.cell_models import mean_and_spread, run

    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    options: dict[str, Any] = {"steps": steps} if steps else {}
    columns = tuple(name for name in labels.split(",") if name)
    for name, _, rows in run(files, out, validate.integer("seeds", seeds, 1), columns, types, hidden, **options):
        for model, scores in rows.items():
            for key, value in scores.items():
                found.setdefault(name, {}).setdefault(key, {}).setdefault(model, []).append(value)
        (out / "scores.json").write_text(json.dumps(found, indent=2) + "\n")
    for name, scores_of in found.items():
        models = list(dict.fromkeys(model for by_model in scores_of.values() for model in by_model))
        table = Table(name, *scores_of)
        for model in models:
            table.add_row(model, *(mean_and_spread(by_model.get(model, [])) for by_model in scores_of.values()))
        Console(width=20 * (1 + len(scores_of))).print(table)


@app.command()
def sequences(
    out: Annotated[Path, typer.Option(help="folder for models and results; a killed run resumes")] = Path("sequences"),
    minutes: Annotated[float, typer.Option(help="training of each model; on a CPU, of processor time")] = 30.0,
    steps: Annotated[int, typer.Option(help="training steps of each model (0: as many as take those minutes)")] = 0,
    batch_size: Annotated[int, typer.Option(help="sequences per batch (0: 256 on a GPU, 16 on a CPU)")] = 0,
    preset: Preset = "small",
    width: Annotated[int, typer.Option(help="width of the network (0: the preset's)")] = 0,
    blocks: Annotated[int, typer.Option(help="blocks of the network (0: the preset's)")] = 0,
    dropout: Annotated[float | None, typer.Option(help="dropout", show_default="the preset's")] = None,
    length: Annotated[int, typer.Option(help="characters of a sequence (0: 256 on a GPU, 128 on a CPU)")] = 0,
    num_data: Annotated[int, typer.Option(help="held-out sequences")] = 256,
    seeds: Annotated[int, typer.Option(help="trainings of each model")] = 3,
    models: Annotated[list[str] | None, typer.Option(help="models", show_default="all four")] = None,
) -> None:
    """Bits per character of Python's standard library: masking, uniform, classes of characters, autoregressive, xz."""
    from benchmarks.cell_models import mean_and_spread
    from benchmarks.sequences import MODELS, STEPS, compressed, run

    chosen = [validate.choice("models", name, MODELS) for name in models or MODELS]
    numbers = {"width": width, "blocks": blocks, "steps": steps, "batch_size": batch_size}
    options: dict[str, Any] = {name: n for name, value in numbers.items() if (n := validate.integer(name, value, 0))}
    if dropout is not None:
        options["dropout"] = validate.real("dropout", dropout, 0.0)
    length = validate.integer("length", length, 0)
    counts = {"num_data": validate.integer("num_data", num_data, 1), "seeds": validate.integer("seeds", seeds, 1)}
    minutes = validate.real("minutes", minutes, 0.0, strict=True)
    found: dict[str, dict[str, list[float]]] = {name: {} for name in chosen}
    for result in run(out, minutes, length, models=chosen, preset=preset, **options, **counts):
        columns = {**result.get("sampler", {}), "training steps": result["steps"]}
        columns |= {name: result[name] for name in ("bits", "training bits", "seconds")}
        for column, value in columns.items():
            found[result["model"]].setdefault(column, []).append(value)
        typer.echo(f"{result['model']}, seed {result['seed']}: {result['bits']:.3f} bits per character")
    few = (*(f"{n} steps" for n in STEPS), "continuous")
    table = Table("model", "bits", *few, "training bits", "training steps", "seconds")
    for name, values in found.items():
        table.add_row(name, *(mean_and_spread(values.get(str(column.header), [])) for column in table.columns[1:]))
    for name, bits in compressed(length):
        table.add_row(name, f"{bits:.4f}")
    Console(width=160).print(table)


@app.command()
def train(
    preset: Preset = "paper", batch_size: BatchSize = 256, compiled: Compile = True, repeats: Repeats = 20
) -> None:
    """Training steps compared with a large matrix product."""
    from benchmarks.network import train_speed

    _print_speed(train_speed(preset, batch_size, compiled, validate.integer("repeats", repeats, 1)))


@app.command()
def sample(
    preset: Preset = "paper", batch_size: BatchSize = 512, compiled: Compile = True, repeats: Repeats = 20
) -> None:
    """Network passes compared with a large matrix product."""
    from benchmarks.network import sample_speed

    validate.integer("batch_size", batch_size, 1)
    _print_speed(sample_speed(preset, batch_size, compiled, validate.integer("repeats", repeats, 1)))


@app.command()
def cells(
    genes: Annotated[list[int] | None, typer.Option(help="numbers of genes", show_default="1,000 to 30,000")] = None,
    cells: Annotated[list[int] | None, typer.Option(help="numbers of cells", show_default="1,000 to 100,000")] = None,
    device: Annotated[str, typer.Option(help="auto (CUDA if available), cpu, cuda")] = "auto",
    repeats: Repeats = 3,
    width: Annotated[int, typer.Option(help="width of the network (0: the recipe's)")] = 0,
    batch_size: Annotated[int, typer.Option(help="cells per batch (0: the recipe's)")] = 0,
    out: Annotated[Path | None, typer.Option(help="JSON file for the numbers", show_default="none")] = None,
) -> None:
    """Cells per second against the numbers of genes and cells."""
    from benchmarks.cells import CELLS, GENES, STEPS, by_cells, by_genes
    from blackout.cli.options import device_by_name

    sizes = {"genes": genes or list(GENES), "cells": cells or list(CELLS)}
    for name, values in sizes.items():
        sizes[name] = sorted({validate.integer(name, value, 2) for value in values})
    given = {"width": validate.integer("width", width, 0), "batch_size": validate.integer("batch_size", batch_size, 0)}
    options: dict[str, Any] = {name: value for name, value in given.items() if value}
    options |= {"repeats": validate.integer("repeats", repeats, 1), "device": device_by_name(device)}
    near = min(sizes["genes"], key=lambda number: abs(number - 2_000))
    results = {"genes": list(by_genes(sizes["genes"], sizes["cells"][0], **options))}
    _print_growth("genes", results["genes"])
    results["cells"] = list(by_cells(sizes["cells"], near, **options))
    _print_growth("cells", results["cells"])
    typer.echo(f"sampling: {STEPS} steps; on a CPU a few of them are timed")
    if out is not None:
        rows = {name: [_finite(asdict(rate)) for rate in rates] for name, rates in results.items()}
        out.write_text(json.dumps({"device": str(options["device"]), **rows}, indent=2) + "\n")


@app.command()
def disk(
    cells: Annotated[
        list[int] | None, typer.Option(help="numbers of cells", show_default="10,000, 100,000, 1,000,000")
    ] = None,
    genes: Annotated[int, typer.Option(help="number of genes")] = 2_000,
    kind: Annotated[str, typer.Option(help="format of the tables: h5ad, zarr")] = "h5ad",
    steps: Annotated[int, typer.Option(help="training steps that are timed")] = 20,
    folder: Annotated[Path, typer.Option(help="where the tables are written, about 1 GB for 1,000,000 cells")] = Path(),
    out: Annotated[Path | None, typer.Option(help="JSON file for the numbers", show_default="none")] = None,
) -> None:
    """Cells that stay on the disk: seconds of one core to open a table, to read an epoch and to train; memory."""
    from benchmarks.disk import CELLS, run

    validate.choice("kind", kind, ("h5ad", "zarr"))
    validate.integer("steps", steps, 2)
    sizes = [validate.integer("cells", number, 2) for number in cells or CELLS]
    table = Table("cells", "file MiB", "open s", "epoch s", "cells/s", "ms per step", *_PEAKS)
    rows = []
    for rate in run(sizes, validate.integer("genes", genes, 2), kind, folder, steps):
        rows.append(asdict(rate))
        figures = [rate.file_mib, rate.open_seconds, rate.epoch_seconds, rate.cells / rate.epoch_seconds]
        figures += [1e3 * rate.step_seconds, rate.start_mib, rate.open_mib, rate.epoch_mib, rate.train_mib]
        table.add_row(f"{rate.cells:,}", *(f"{value:,.4g}" if value < 1000 else f"{value:,.0f}" for value in figures))
    Console(width=140).print(table)
    if out is not None:
        out.write_text(json.dumps(rows, indent=2) + "\n")


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {name: None if value != value else value for name, value in values.items()}


def _print_speed(speed: "Speed") -> None:
    rate, share = speed.batch_size / speed.seconds, speed.tflops / speed.matrix_tflops
    lines = {
        speed.name: f"{speed.seconds * 1e3:.1f} ms for {speed.batch_size} images, {rate:,.0f} images/s",
        "matrix work": f"{speed.tflops:.3g} TFLOP/s",
        "large matrix product": f"{speed.matrix_tflops:.3g} TFLOP/s; the matrix work runs at {share:.0%} of it",
    }
    total = sum(speed.kernels.values())
    for name, seconds in speed.kernels.items():
        lines[name] = f"{seconds * 1e3:.1f} ms, {seconds / total:.0%} of the kernels"
    for name, text in lines.items():
        typer.echo(f"{name:<35}{text}")


def _print_growth(name: str, rates: "Sequence[Rate]") -> None:
    from benchmarks.cells import exponent

    table = Table(name, "compiled", "ms per step", "trained/s", "sampled/s", "peak MiB")
    for rate in rates:
        table.add_row(
            f"{getattr(rate, name):,}",
            "yes" if rate.compiled else "no",
            f"{rate.step_seconds * 1e3:.1f}",
            f"{rate.train_rate:,.0f}",
            "" if rate.sample_seconds != rate.sample_seconds else f"{rate.sample_rate:,.1f}",
            f"{rate.peak_mib:,.0f}",
        )
    Console().print(table)
    for compiled in sorted({rate.compiled for rate in rates}):
        group = [rate for rate in rates if rate.compiled == compiled]
        sizes = [getattr(rate, name) for rate in group]
        slopes = {
            "training": exponent(sizes, [rate.step_seconds for rate in group]),
            "sampling": exponent(sizes, [rate.sample_seconds for rate in group]),
        }
        texts = [f"{what} ~ {name}^{slope:.2f}" for what, slope in slopes.items() if slope == slope]
        typer.echo(f"time of {', '.join(texts)}{' (compiled)' if compiled else ''}" if texts else "")


if __name__ == "__main__":
    try:
        app(prog_name="python -m benchmarks")
    except ValueError as error:
        sys.exit(f"benchmarks: {error}")
