"""blackout bench."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from blackout.bench.counts import Rate
    from blackout.bench.network import Speed

bench = typer.Typer(
    invoke_without_command=True,
    rich_markup_mode=None,
    help="Measure speed and memory, as ratios within one run.",
)

Preset = Annotated[str, typer.Option(help="network: paper, small, tiny")]
Batch = Annotated[int, typer.Option(help="images of 3x32x32 at a time")]
Compile = Annotated[bool, typer.Option("--compile/--no-compile", help="torch.compile the network")]
Repeats = Annotated[int, typer.Option(help="measurements, of which the median counts")]

_MEASURED = ("step_seconds", "sample_seconds")


@bench.callback()
def group(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@bench.command("processes")
def processes() -> None:
    """Forward draws beside a gathered table. A batch of 256x3x32x32 with 256 different times."""
    from rich.console import Console
    from rich.table import Table

    from blackout.bench import processes

    table = Table("way of drawing", "ms", "million/s", "peak MiB", "faster", "memory")
    baseline = None
    for m in processes.run():
        if "gathered" in m.name:
            baseline = m
        assert baseline is not None
        table.add_row(
            m.name,
            f"{m.seconds * 1e3:.0f}",
            f"{m.draws_per_second / 1e6:.1f}",
            f"{m.peak_mib:.0f}",
            f"{baseline.seconds / m.seconds:.1f}x",
            f"1/{baseline.peak_mib / max(m.peak_mib, 1e-9):.0f}",
        )
    Console().print(table)


@bench.command("small")
def small(
    steps: Annotated[int, typer.Option(help="training steps of each model")] = 300,
    images: Annotated[int, typer.Option(help="held-out digits")] = 128,
) -> None:
    """Heads and numbers of steps on seven-segment digits: minutes on two cores."""
    from rich.console import Console
    from rich.table import Table

    from blackout import validate
    from blackout.bench.small import run
    from blackout.training.loop import Stopped

    try:
        for title, unit, rows in run(validate.integer("steps", steps, 1), validate.integer("images", images, 1)):
            table = Table(title, unit, "ratio to the first")
            for name, value in rows:
                table.add_row(name, f"{value:.4g}", f"{value / rows[0][1]:.2f}")
            Console().print(table)
    except Stopped as stopped:
        typer.echo(f"blackout: {stopped}", err=True)
        raise typer.Exit(stopped.exit_code) from None


@bench.command("train")
def train(preset: Preset = "paper", batch: Batch = 256, compiled: Compile = True, repeats: Repeats = 20) -> None:
    """Whole training steps beside a large matrix product."""
    from blackout.bench.network import train_speed

    _show(train_speed(*_checked(preset, batch, repeats), compiled, repeats))


@bench.command("sample")
def sample(preset: Preset = "paper", batch: Batch = 512, compiled: Compile = True, repeats: Repeats = 20) -> None:
    """Passes of the network beside a large matrix product."""
    from blackout.bench.network import sample_speed

    _show(sample_speed(*_checked(preset, batch, repeats), compiled, repeats))


@bench.command("counts")
def counts(
    genes: Annotated[list[int] | None, typer.Option(help="numbers of genes  [default: 1,000 to 30,000]")] = None,
    cells: Annotated[list[int] | None, typer.Option(help="numbers of cells  [default: 1,000 to 100,000]")] = None,
    device: Annotated[str, typer.Option(help="auto (CUDA if there is one), cpu, cuda")] = "auto",
    repeats: Repeats = 3,
    width: Annotated[int, typer.Option(help="of the network; 0: the recipe's")] = 0,
    batch: Annotated[int, typer.Option(help="cells at a time; 0: the recipe's")] = 0,
    out: Annotated[Path | None, typer.Option(help="a JSON file with the numbers")] = None,
) -> None:
    """Cells a second of the recipe `counts`, and how that grows with genes and with cells."""
    from blackout import validate
    from blackout.bench.counts import CELLS, GENES, STEPS, by_cells, by_genes
    from blackout.cli.sample import device_by_name

    sizes = {"genes": genes or list(GENES), "cells": cells or list(CELLS)}
    for name, values in sizes.items():
        sizes[name] = sorted({validate.integer(name, value, 2) for value in values})
    given = {"width": validate.integer("width", width, 0), "batch_size": validate.integer("batch", batch, 0)}
    options: dict[str, Any] = {name: value for name, value in given.items() if value}
    options |= {"repeats": validate.integer("repeats", repeats, 1), "device": device_by_name(device)}
    near = min(sizes["genes"], key=lambda number: abs(number - 2_000))
    results = {"genes": list(by_genes(sizes["genes"], sizes["cells"][0], **options))}
    _grow("genes", results["genes"])
    results["cells"] = list(by_cells(sizes["cells"], near, **options))
    _grow("cells", results["cells"])
    typer.echo(f"sampling: {STEPS} steps; on a CPU a few of them are timed, over all times")
    if out is not None:
        rows = {name: [_row(rate) for rate in rates] for name, rates in results.items()}
        out.write_text(json.dumps({"device": str(options["device"]), **rows}, indent=2) + "\n")


def _row(rate: "Rate") -> dict[str, Any]:
    """What was measured; null where nothing was."""
    return {name: None if value != value else value for name, value in asdict(rate).items()}


def _grow(name: str, rates: "Sequence[Rate]") -> None:
    from rich.console import Console
    from rich.table import Table

    from blackout.bench.counts import exponent

    table = Table(name, "compiled", "ms a step", "trained/s", "sampled/s", "peak MiB")
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
        some = [rate for rate in rates if rate.compiled == compiled]
        slopes = [exponent([getattr(r, name) for r in some], [getattr(r, f) for r in some]) for f in _MEASURED]
        texts = [f"{what} ~ {name}^{s:.2f}" for what, s in zip(("training", "sampling"), slopes, strict=True) if s == s]
        typer.echo(f"time of {', '.join(texts)}{' (compiled)' if compiled else ''}" if texts else "")


def _checked(preset: str, batch: int, repeats: int) -> tuple[str, int]:
    from blackout import validate
    from blackout.network import PRESETS

    validate.integer("repeats", repeats, 1)
    return validate.choice("preset", preset, tuple(PRESETS)), validate.integer("batch", batch, 1)


def _show(speed: "Speed") -> None:
    rate, share = speed.batch / speed.seconds, speed.tflops / speed.ceiling_tflops
    lines = {
        speed.name: f"{speed.seconds * 1e3:.1f} ms for {speed.batch} images, {rate:,.0f} images/s",
        "matrix work": f"{speed.tflops:.3g} TFLOP/s",
        "ceiling, measured": f"{speed.ceiling_tflops:.3g} TFLOP/s, of which this is {share:.0%}",
    }
    total = sum(speed.shares.values())
    for name, seconds in speed.shares.items():
        lines[name] = f"{seconds * 1e3:.1f} ms, {seconds / total:.0%} of the kernels"
    for name, text in lines.items():
        typer.echo(f"{name:<35}{text}")
